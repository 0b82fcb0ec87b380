"""`cranny what-if`: what a job log would have looked like under other policies, in waits, machines and money."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.cli.simulate import command_line
from cranny.model.errors import InputError
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import whole

if TYPE_CHECKING:
    from cranny.analysis.whatif.answer import Answer

DEFAULT_POLICIES = "titan,best-fit,consolidate-idle"
LogArgument = Annotated[
    Path, typer.Argument(metavar="LOG", help="A job log, such as the output of `sacct -X -P`.")
]
PoliciesOption = Annotated[
    str, typer.Option("--policies", "-p", help="Names with commas between; see `cranny policies`.")
]
PriceOption = Annotated[
    float, typer.Option("--price-per-gpu-hour", callback=options.PRICE, help="What a GPU-hour costs you.")
]
SearchOption = Annotated[
    bool, typer.Option("--search/--no-search", help="Also look for machines that could go, and try more.")
]
SearchWithOption = Annotated[
    str | None, typer.Option("--search-with", help="Policy to search with, beside the best (default: the first).")
]
AddOption = Annotated[
    int | None, typer.Option("--add", help="Machines to add in the search (default: 5 % of them).")
]
ProcessesOption = Annotated[
    int | None, typer.Option("--processes", min=1, help="At once; as many as there are cores if not given.")
]


def what_if(
    log: LogArgument,
    cluster: options.ClusterOption,
    policies: PoliciesOption = DEFAULT_POLICIES,
    price: PriceOption = 1.0,
    log_format: options.FormatOption = "auto",
    strict: options.StrictOption = None,
    link_gbps: options.LinkOption = 100.0,
    oversubscription: options.OversubscriptionOption = 1.0,
    order: options.OrderOption = None,
    network: options.NetworkOption = "instant",
    collective: options.CollectiveOption = None,
    seed: options.SeedOption = 0,
    profiles: options.ProfilesOption = None,
    search: SearchOption = True,
    search_policy: SearchWithOption = None,
    add: AddOption = None,
    processes: ProcessesOption = None,
    report: options.ReportOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a job log under other policies: waits, machines that could be off, money, and the largest job.

    Example: cranny what-if sacct.txt --cluster my.yaml --policies titan,best-fit --price-per-gpu-hour 2.5
    """
    from cranny.analysis.whatif import what_if as run
    from cranny.analysis.whatif.whatif_page import write_page
    from cranny.traces.read import read_trace

    _check_log(log)
    names = options.split_policies(policies)
    options.check_file(report, "--report")
    built = options.read_cluster(cluster, link_gbps, oversubscription)
    if add is not None:
        whole(add, "--add:", most=MAX_MACHINES - len(built.machines))
    models = options.read_profiles(profiles)
    answer = run(
        built,
        read_trace(log, log_format, strict=strict, profiles=models),
        names,
        price_per_gpu_hour=price,
        look_further=search,
        search_policy=search_policy,
        add=add,
        processes=processes,
        bar=progress,
        network=network,
        seed=seed,
        order=order,
        collective=collective,
        profiles=models,
        command=command_line(),
    )
    written = write_page(answer, report) if report is not None else None
    if as_json:
        print_json(answer.facts())
    else:
        _show(answer, written)


def _check_log(log: Path) -> None:
    """Refuse the name of a preset, which other commands take for a trace."""
    from cranny.traces.generate import presets

    if str(log) in presets() and not log.exists():
        raise InputError(
            f"LOG: {str(log)!r} is a preset, and what-if needs a job log, such as the output of `sacct -X -P`; "
            f"see `cranny compare {log}`"
        )


def _show(answer: "Answer", report: Path | None) -> None:
    """Print warnings, tables, findings and assumptions."""
    from cranny.analysis.whatif.findings import findings
    from cranny.analysis.whatif.tables import sheets
    from cranny.report.text_table import terminal_table

    for line in answer.warnings:
        out.print(f"warning: {line}", style="yellow", markup=False)
    for sheet in sheets(answer):
        out.print(terminal_table(sheet))
    for line in findings(answer):
        out.print(f"- {line}", markup=False)
    out.print("\nWhat this takes for granted", style="bold")
    for line in answer.assumptions:
        out.print(f"- {line}", style="dim", markup=False)
    if report is not None:
        out.print(f"\nreport: {report}", soft_wrap=True, markup=False)
