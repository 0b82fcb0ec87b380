"""`cranny network`: links and switch memory of a cluster at one stopped, as a heat map."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.cli.simulate import command_line
from cranny.model.validate import counted, seconds

if TYPE_CHECKING:
    from cranny.core.protocol import Policy
    from cranny.network.steady.link_load import Load
    from cranny.sim.inspect import StoppedReplay

AtOption = Annotated[
    float | None,
    typer.Option(
        "--at",
        callback=options.checked(seconds, "--at"),
        help="Second of the trace (default: when running jobs move most bytes between machines).",
    ),
]
TopOption = Annotated[int, typer.Option("--top", min=0, help="Bottlenecks to list on the terminal.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="Write a self-contained HTML page to this file.")]


def network(
    trace: options.TraceArgument,
    policy: Annotated[str, typer.Option("--policy", "-p", help="See `cranny policies`.")] = "titan",
    at: AtOption = None,
    cluster: options.ClusterOption = options.DEFAULT_CLUSTER,
    link_gbps: options.LinkOption = 100.0,
    oversubscription: options.OversubscriptionOption = 1.0,
    pat_gbps: options.PatOption = None,
    jobs: options.JobsOption = 5000,
    load: options.LoadOption = 0.8,
    trace_format: options.FormatOption = "auto",
    strict: options.StrictOption = None,
    order: options.OrderOption = None,
    period: options.PeriodOption = 0.0,
    network: options.NetworkOption = "steady",
    collective: options.CollectiveOption = None,
    seed: options.SeedOption = 0,
    profiles: options.ProfilesOption = None,
    policy_options: options.SettingsOption = None,
    top: TopOption = 5,
    page: OutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace up to a stopped and show how full links and switch memory are, and whom that holds back.

    Example: cranny network philly --policy netpack --cluster 16x16x4 --pat-gbps 1000 --collective ina --at 86400
    """
    from cranny.network.networks import network as network_model
    from cranny.network.steady.link_load import Load, talkers
    from cranny.run import choose, period_of, with_types_of
    from cranny.sim.inspect import view_at

    options.check_period(period, options.split_policies(policy))
    options.check_file(page, "--out")
    period_s = period_of(policy, period)
    built = options.read_cluster(cluster, link_gbps, oversubscription, pat_gbps)
    models = options.read_profiles(profiles)
    read = options.read_or_generate(
        trace, built, jobs, load, seed, models, trace_format=trace_format, strict=strict
    )
    model = network_model(network)
    settings = options.read_settings(policy_options)
    jobs_in = with_types_of(built, read).jobs(seed, collective, profiles=models)

    def made() -> "Policy":
        return choose(policy, order, settings, seed, model.alone)[1]

    with progress(policy, len(jobs_in)) as tick:
        stopped = view_at(built, made, jobs_in, model, at, period_s=period_s, name=read.name, progress=tick)
    now_s = stopped.view.now_s
    found = Load.of(built, talkers(built, stopped.view.running.values()))
    about = f"{policy} on {read.name}"
    if page is not None:
        from cranny.report.network_page import write_page

        write_page(
            found,
            page,
            title=f"The network at {now_s:,.0f} s",
            kicker=f"{about} · {built.describe()} · {built.describe_links()} · {network} network",
            command=command_line(),
        )
    if as_json:
        told = {"at_s": now_s, "policy": policy, "network": network, "cluster": built.describe()}
        print_json({**told, **_counts(stopped), **found.facts()})
        return
    show(found, stopped, about, top)
    if page is not None:
        out.print(f"page: {page}", soft_wrap=True, markup=False)


def _counts(stopped: "StoppedReplay") -> dict[str, int]:
    """Count the jobs that are there, and those that never will be."""
    view = stopped.view
    return {"running": len(view.running), "waiting": len(view.waiting), "skipped": len(stopped.skipped)}


def show(load: "Load", stopped: "StoppedReplay", about: str, top: int) -> None:
    """Print the heat map, what it amounts to, the worst bottlenecks, and the jobs that were skipped."""
    from cranny.report.heatmap import heat_table, line, summary, worst

    running, waiting, skipped = _counts(stopped).values()
    run = f"{counted(running, 'job')} {'runs' if running == 1 else 'run'}"
    run = f"{run}, {waiting:,} {'waits' if waiting == 1 else 'wait'}"
    out.print(f"{about} at {stopped.view.now_s:,.0f} s: {run}", style="bold", markup=False)
    out.print()
    out.print(heat_table(load, out.width, plain=out.options.ascii_only))
    out.print()
    out.print(summary(load), markup=False)
    for each in worst(load, top):
        out.print(f"- {line(load, each)}", markup=False)
    if skipped:
        job, why = stopped.skipped[0]
        out.print(f"{counted(skipped, 'job')} skipped, such as {job.id}: {why}", style="yellow", markup=False)
