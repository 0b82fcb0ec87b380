"""`cranny network`: links and switch memory of a cluster at one moment, as a heat map."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.model.validate import counted, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cranny.model.job import Job
    from cranny.network.steady.link_load import Load
    from cranny.sim.replay import StoppedReplay

AT_HELP = "Second of the trace (default: when running jobs move most bytes between machines)."
AtOption = Annotated[float | None, options.option("--at", AT_HELP, seconds)]
TopOption = Annotated[int, typer.Option("--top", min=0, help="Bottlenecks to list on the terminal.")]
OutOption = Annotated[Path | None, options.option("--out", "Write a self-contained HTML page to this file.")]


@options.scenario_options("price", network="steady")
def network(
    trace: options.TraceArgument,
    shared: options.ScenarioOptions,
    policy: options.PolicyOption = "titan",
    at: AtOption = None,
    top: TopOption = 5,
    page: OutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace up to a moment and show how full links and switch memory are, and which jobs that slows.

    Example: cranny network philly --policy netpack --cluster 16x16x4 --pat-gbps 1000 --collective ina --at 86400
    """
    from cranny.network.steady.link_load import Load, job_streams
    from cranny.scenario import decision_period_s
    from cranny.sim.replay import view_at

    options.split_policies(policy)
    options.check_file(page, "--out")
    scenario = shared.scenario(trace, [policy])
    built, name = scenario.cluster, scenario.trace_name
    period_s = decision_period_s(policy, scenario.period_s)

    with progress(policy, len(scenario.whole_trace)) as tick:
        stopped = view_at(
            built,
            lambda: scenario.resolve_policy()[1],
            cast("Sequence[Job]", scenario.jobs()),
            scenario.model,
            at,
            period_s=period_s,
            name=name,
            progress=tick,
        )
    now_s = stopped.view.now_s
    found = Load.of(built, job_streams(built, stopped.view.running.values()))
    about = f"{policy} on {name}"
    if page is not None:
        from cranny.report.network_page import write_page

        write_page(
            found,
            page,
            title=f"The network at {now_s:,.0f} s",
            kicker=f"{about} · {built.describe()} · {built.describe_links()} · {scenario.network} network",
            command=scenario.command,
        )
    if as_json:
        facts = {"at_s": now_s, "policy": policy, "network": scenario.network, "cluster": built.describe()}
        print_json({**facts, **_counts(stopped), **found.facts()})
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
