"""`cranny simulate` and `cranny compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.model.validate import counted

if TYPE_CHECKING:
    from cranny.run import Result


@options.scenario_options()
def simulate(
    trace: options.TraceArgument,
    shared: options.ScenarioOptions,
    policy: options.PolicyOption = "titan",
    save: Annotated[Path | None, typer.Option("--save", help="Save the result to this folder.")] = None,
    report: options.ReportOption = None,
    map_at: options.MapAtOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace on a cluster under one policy.

    Example: cranny simulate philly --policy titan --cluster 64x8x8 --report out.html
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

    Example: cranny compare philly --policies titan,best-fit,hived --jobs 20000 --report out.html
    """
    from cranny.run import run_many

    names = options.split_policies(policies)
    options.check_file(report, "--report")
    scenarios = shared.scenario(trace, names).with_policies(names)
    with progress("comparing", len(names)) as tick:
        results = run_many(scenarios, processes=processes, progress=tick)
    show(results, report, map_at, as_json=as_json)


def show(
    results: "Sequence[Result]", report: Path | None, map_at_s: float | None, *, as_json: bool = False
) -> None:
    """Print results as a table or as JSON, and write the page if one is wanted."""
    from cranny.report.headline import caution, finding
    from cranny.report.page import write_report
    from cranny.report.table import rich_table

    written = write_report(results, report, map_at_s=map_at_s) if report is not None else None
    if as_json:
        shown = [{"settings": dict(each.settings), "summary": dict(each.summary)} for each in results]
        print_json(shown if len(shown) > 1 else shown[0])
        return
    out.print(rich_table(results))
    out.print(finding(results), markup=False)
    for line in filter(None, [caution(results), *_rows_skipped(results[0]), *_skipped(results)]):
        out.print(line, style="yellow", markup=False)
    if written is not None:
        out.print(f"report: {written}", soft_wrap=True, markup=False)


def _rows_skipped(result: "Result") -> list[str]:
    """Say how many rows of the trace could not be used, and why."""
    skipped = result.settings["trace_skipped"]
    return [f"rows of the trace skipped: {counted(count, 'row')}: {why}" for why, count in skipped.items()]


def _skipped(results: "Sequence[Result]") -> list[str]:
    """Say how many jobs each policy skipped, and why, with an example."""
    lines = []
    for result in results:
        skipped = result.jobs.filter(result.jobs["status"] == "skipped")
        if skipped.height:
            job_id, reason = skipped.row(0, named=True)["job_id"], skipped.row(0, named=True)["reason"]
            count = counted(skipped.height, "job")
            lines.append(f"{result.settings['policy']}: {count} skipped, such as {job_id}: {reason}")
    return lines
