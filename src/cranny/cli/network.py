"""`cranny network`: the load of links at one moment, as a heat map; `cranny conformance` of network models."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, print_table, progress, say
from cranny.cli.options import option
from cranny.model.validate import counted, seconds
from cranny.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cranny.model.job import Job
    from cranny.network.steady.link_load import Load

AT_HELP = "Second of the trace (default: when running jobs move most bytes between machines)."


@options.scenario_options("price", network="steady")
def network(
    trace: options.TraceArgument,
    shared: options.ScenarioOptions,
    policy: options.PolicyOption = DEFAULT_POLICY,
    at: Annotated[float | None, option("--at", AT_HELP, seconds)] = None,
    top: Annotated[int, option("--top", "Bottlenecks to list on the terminal.", min=0)] = 5,
    report: options.ReportOption = None,
    old_report: Annotated[
        Path | None, option("--out", "The same as --report, in version 0.1.", hidden=True)
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace up to a moment and show how full links and switch memory are, and which jobs that slows.

    Example: cranny network philly --policy netpack --cluster 16x16x4 --pat-gbps 1000 --collective ina --at 86400
    """
    from cranny.network.steady.link_load import Load, job_streams
    from cranny.policy_choice import decision_period_s
    from cranny.sim.replay import view_at

    options.split_policies(policy)
    page = report or old_report
    options.check_file(page, "--report")
    scenario = shared.scenario(trace, [policy])
    built, name = scenario.cluster, scenario.trace_name
    with progress(policy, len(scenario.whole_trace)) as tick:
        stopped = view_at(
            built,
            lambda: scenario.resolve_policy()[1],
            cast("Sequence[Job]", scenario.jobs()),
            scenario.model,
            at,
            period_s=decision_period_s(policy, scenario.period_s),
            name=name,
            progress=tick,
        )
    view, skipped = stopped.view, stopped.skipped
    found = Load.of(built, job_streams(built, view.running.values()))
    about = f"{policy} on {name}"
    if page is not None:
        from cranny.report.network_page import write_page

        kicker = f"{about} · {built.describe()} · {built.describe_links()} · {scenario.network} network"
        title = f"The network at {view.now_s:,.0f} s"
        write_page(found, page, title=title, kicker=kicker, command=scenario.command)
    if as_json:
        facts = {"at_s": view.now_s, "policy": policy, "network": scenario.network, "cluster": built.describe()}
        counts = {"running": len(view.running), "waiting": len(view.waiting), "skipped": len(skipped)}
        print_json({**facts, **counts, **found.facts()})
        return
    run = f"{counted(len(view.running), 'job')} {'runs' if len(view.running) == 1 else 'run'}"
    wait = f"{len(view.waiting):,} {'waits' if len(view.waiting) == 1 else 'wait'}"
    out.print(f"{about} at {view.now_s:,.0f} s: {run}, {wait}", style="bold", markup=False)
    _show(found, top)
    if skipped:
        job, why = skipped[0]
        line = f"{counted(len(skipped), 'job')} skipped, such as {job.id}: {why}"
        out.print(line, style="yellow", markup=False)
    if page is not None:
        say(f"report: {page}")


def _show(load: "Load", top: int) -> None:
    """Print the heat map, what it amounts to, and the worst bottlenecks."""
    from cranny.report.heatmap import heat_table, line, summary, worst

    out.print()
    out.print(heat_table(load, out.width, plain=out.options.ascii_only))
    out.print()
    out.print(summary(load), markup=False)
    for each in worst(load, top):
        out.print(f"- {line(load, each)}", markup=False)


def conformance(network: options.NetworkOption = "steady", as_json: options.JsonOption = False) -> None:
    """Check a network model on small cases whose answer can be computed by hand.

    Example: cranny conformance --network steady
    """
    from cranny.network.networks import network as known_network
    from cranny.sim.conformance import conformance as run

    known_network(network)
    checks = run(network)
    hold = all(check.ok for check in checks)
    if as_json:
        cases = [{**check._asdict(), "ok": check.ok} for check in checks]
        print_json({"network": network, "ok": hold, "checks": cases})
    else:
        rows = [(each.about, f"{each.known:g}", f"{each.got:g}", "ok" if each.ok else "NO") for each in checks]
        print_table(("case", "known", "ours", ""), rows, numbers=("known", "ours"), words=("case",))
    if not hold:
        raise typer.Exit(1)
