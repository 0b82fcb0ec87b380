"""`cranny simulate`, `cranny compare`, and `cranny demo`: policies side by side, in one command."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cranny.cli import completion, options
from cranny.cli.console import err, out, print_json, progress, say
from cranny.cli.options import option
from cranny.model.validate import counted
from cranny.policies import DEFAULT_POLICY

if TYPE_CHECKING:
    from cranny.run import Result


@options.scenario_options()
def simulate(
    trace: options.TraceArgument,
    shared: options.ScenarioOptions,
    policy: options.PolicyOption = DEFAULT_POLICY,
    save: Annotated[Path | None, option("--save", "Save the result to this folder.")] = None,
    report: options.ReportOption = None,
    map_at: options.MapAtOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace on a cluster under one policy.

    Example: cranny simulate philly --policy best-fit --cluster 64x8x8 --report out.html
    """
    from cranny.run import run

    options.split_policies(policy)
    options.check_file(report, "--report")
    options.check_folder(save, "--save")
    scenario = shared.scenario(trace, [policy])
    with progress(policy, len(scenario.whole_trace)) as tick:
        result = run(scenario, tick)
    if save is not None:
        result.save(save)
    show([result], report, map_at, as_json=as_json)


@options.scenario_options()
def compare(
    trace: options.TraceArgument,
    shared: options.ScenarioOptions,
    policies: options.PoliciesOption = options.DEFAULT_POLICIES,
    processes: options.ProcessesOption = None,
    report: options.ReportOption = None,
    map_at: options.MapAtOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace under several policies and mark the best value of each column.

    Example: cranny compare philly --policies cranny,titan,hived --jobs 20000 --report out.html
    """
    from cranny.run import run_many

    names = options.split_policies(policies)
    options.check_file(report, "--report")
    scenarios = shared.scenario(trace, names).with_policies(names)
    with progress("comparing", len(names)) as tick:
        results = run_many(scenarios, processes=processes, progress=tick)
    show(results, report, map_at, as_json=as_json)


def demo(
    jobs: options.JobsOption = 6000,
    load: options.LoadOption = 0.75,
    seed: options.SeedOption = 0,
    cluster: options.ClusterOption = options.DEFAULT_CLUSTER,
    policies: Annotated[
        str, option("--policies", "Names with commas between.", short="-p", autocompletion=completion.policies)
    ] = (options.DEFAULT_POLICIES),
    collective: options.CollectiveOption = None,
    folder: Annotated[Path, option("--out", "Where the page and the picture go.")] = Path("out"),
    as_json: options.JsonOption = False,
) -> None:
    """Compare cranny with its rivals on a generated Microsoft-like workload; write a page and a picture.

    Example: cranny demo --jobs 20000
    """
    from cranny.report.summary_svg import write_picture
    from cranny.run import run_many

    began = time.perf_counter()
    names = options.split_policies(policies)
    options.check_folder(folder, "--out")
    shared = options.ScenarioOptions(cluster=cluster, jobs=jobs, load=load, seed=seed, collective=collective)
    scenario = shared.scenario("itp", names)
    if not as_json:
        about = f"{len(scenario.whole_trace):,} jobs that look like Microsoft's ITP trace"
        err.print(f"{about} on {scenario.cluster.describe()}", style="dim")
    with progress("comparing", len(names)) as tick:
        results = run_many(scenario.with_policies(names), progress=tick)
    folder.mkdir(parents=True, exist_ok=True)
    show(results, folder / "demo.html", None, as_json=as_json)
    picture = write_picture(results, folder / "demo.svg")
    if not as_json:
        say(f"picture: {picture}")
        err.print(f"done in {time.perf_counter() - began:.1f} s", style="dim")


def show(
    results: "Sequence[Result]", report: Path | None, map_at_s: float | None, *, as_json: bool = False
) -> None:
    """Print results as a table or as JSON, with what was skipped, and write the page if one is wanted."""
    from cranny.report.headline import caution, finding
    from cranny.report.page import write_report
    from cranny.report.table import fitted_table

    written = write_report(results, report, map_at_s=map_at_s) if report is not None else None
    if as_json:
        shown = [{"settings": dict(each.settings), "summary": dict(each.summary)} for each in results]
        print_json(shown if len(shown) > 1 else shown[0])
        return
    out.print(fitted_table(results))
    out.print(finding(results), markup=False)
    lines = [caution(results)]
    for why, count in results[0].settings["trace_skipped"].items():
        lines.append(f"rows of the trace skipped: {counted(count, 'row')}: {why}")
    for result in results:
        skipped = result.jobs.filter(result.jobs["status"] == "skipped")
        if skipped.height:
            first, count = skipped.row(0, named=True), counted(skipped.height, "job")
            example = f"such as {first['job_id']}: {first['reason']}"
            lines.append(f"{result.settings['policy']}: {count} skipped, {example}")
    for line in filter(None, lines):
        out.print(line, style="yellow", markup=False)
    if written is not None:
        say(f"report: {written}")
