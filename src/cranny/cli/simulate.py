"""`cranny simulate` and `cranny compare`."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.model.validate import counted

if TYPE_CHECKING:
    from cranny.run import Result


def simulate(
    trace: options.TraceArgument,
    policy: Annotated[str, typer.Option("--policy", "-p", help="See `cranny policies`.")] = "titan",
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
    network: options.NetworkOption = "isolated",
    collective: options.CollectiveOption = None,
    seed: options.SeedOption = 0,
    price: options.PriceOption = 1.0,
    profiles: options.ProfilesOption = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save the result to this folder.")] = None,
    policy_options: options.SettingsOption = None,
    report: options.ReportOption = None,
    map_at: options.MapAtOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace on a cluster under one policy.

    Example: cranny simulate philly --policy titan --cluster 64x8x8 --report out.html
    """
    from cranny.run import simulate as run

    options.check_period(period, options.split_policies(policy))
    options.check_file(report, "--report")
    options.check_folder(save, "--save")
    built = options.read_cluster(cluster, link_gbps, oversubscription, pat_gbps)
    models = options.read_profiles(profiles)
    jobs_in = options.read_or_generate(
        trace, built, jobs, load, seed, models, trace_format=trace_format, strict=strict
    )
    with progress(policy, len(jobs_in)) as tick:
        result = run(
            built,
            jobs_in,
            policy,
            network,
            seed,
            order=order,
            collective=collective,
            period_s=period,
            options=options.read_settings(policy_options),
            profiles=models,
            price_per_gpu_hour=price,
            progress=tick,
            command=command_line(),
        )
    if save is not None:
        result.save(save)
    show([result], report, map_at, as_json=as_json)


def compare(
    trace: options.TraceArgument,
    policies: Annotated[
        str, typer.Option("--policies", "-p", help="Names with commas between; see `cranny policies`.")
    ] = options.DEFAULT_POLICIES,
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
    network: options.NetworkOption = "isolated",
    collective: options.CollectiveOption = None,
    seed: options.SeedOption = 0,
    price: options.PriceOption = 1.0,
    profiles: options.ProfilesOption = None,
    policy_options: options.EachSettingsOption = None,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="At once; as many as there are cores if not given.")
    ] = None,
    report: options.ReportOption = None,
    map_at: options.MapAtOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a trace under several policies and mark the best value of each column.

    Example: cranny compare philly --policies titan,best-fit,hived --jobs 20000 --report out.html
    """
    from cranny.run import compare as run

    names = options.split_policies(policies)
    options.check_period(period, names)
    options.check_file(report, "--report")
    built = options.read_cluster(cluster, link_gbps, oversubscription, pat_gbps)
    models = options.read_profiles(profiles)
    jobs_in = options.read_or_generate(
        trace, built, jobs, load, seed, models, trace_format=trace_format, strict=strict
    )
    settings: dict[str, Any] = {
        "network": network,
        "seed": seed,
        "order": order,
        "period_s": period,
        "collective": collective,
        "profiles": models,
        "price_per_gpu_hour": price,
        "options": options.read_settings(policy_options),
        "command": command_line(),
    }
    with progress("comparing", len(names)) as tick:
        results = run(built, jobs_in, names, processes=processes, progress=tick, **settings)
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
        told = [{"settings": dict(each.settings), "summary": dict(each.summary)} for each in results]
        print_json(told if len(told) > 1 else told[0])
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


def command_line() -> str:
    """Return the command line that reproduces this run."""
    return shlex.join(["cranny", *sys.argv[1:]])
