"""`cranny what-if`: what a job log would have looked like under other policies, in waits, machines and money."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cranny.cli import completion, options
from cranny.cli.console import out, print_json, progress, say
from cranny.cli.options import argument, option
from cranny.cli.window_options import WindowOptions
from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import whole
from cranny.policies import WHAT_IF

if TYPE_CHECKING:
    from cranny.analysis.whatif.answer import WhatIfAnswer

POLICIES_HELP = (
    f"Names with commas between; see `cranny policies` (default: {','.join(WHAT_IF)}; of these with more than "
    "100,000 jobs the ones whose replays are compiled)."
)
SEARCH_HELP = "Also search for machines that could be removed, and try more."
COLLECTIVES_HELP = "Also replay with these collectives, with commas between."
PRICES_HELP = "A YAML file with prices by type and hour, power and boots, instead of --price-per-gpu-hour."
SEARCH_WITH_HELP = (
    "Policy to search with, beside the best (default: the first; with more than 20,000 jobs a quick one)."
)


@options.scenario_options("jobs", "load", cluster=options.FROM_LOG, network="instant")
@options.expand_options(WindowOptions, "window")
def what_if(
    log: Annotated[Path, argument("LOG", "A job log, such as the output of `sacct -D -X -P`.")],
    shared: options.ScenarioOptions,
    window: WindowOptions,
    policies: Annotated[str, option("--policies", POLICIES_HELP, short="-p")] = "",
    search: Annotated[bool, option("--search/--no-search", SEARCH_HELP)] = True,
    search_policy: Annotated[
        str | None, option("--search-with", SEARCH_WITH_HELP, autocompletion=completion.policies)
    ] = None,
    add: Annotated[int | None, option("--add", "Machines to add in the search (default: 5 % of them).")] = None,
    collectives: Annotated[
        str, option("--collectives", COLLECTIVES_HELP, autocompletion=completion.collectives)
    ] = "",
    restart_s: options.RestartOption = RESTART_S,
    processes: options.ProcessesOption = None,
    prices: Annotated[Path | None, option("--prices", PRICES_HELP)] = None,
    report: options.ReportOption = None,
    csv: Annotated[Path | None, option("--csv", "Write all tables as CSV files to this folder.")] = None,
    parquet: Annotated[
        Path | None, option("--parquet", "Write all tables as Parquet files to this folder.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a job log under other policies: waits, machines that could be off, money, and the largest job.

    Without --cluster, the cluster is guessed from where the log says that jobs ran.

    Example: cranny what-if sacct.txt --cluster my.yaml --policies cranny,best-fit --price-per-gpu-hour 2.5
    """
    from cranny.analysis.whatif.export import write_tables
    from cranny.analysis.whatif.prices_file import read_prices
    from cranny.analysis.whatif.tables import write_page
    from cranny.analysis.whatif.what_if import answer
    from cranny.traces.generate import presets

    if not log.exists():
        if str(log) in presets():  # which other commands take for a trace
            needs = "what-if needs a job log, such as the output of `sacct -D -X -P`"
            raise InputError(f"LOG: {str(log)!r} is a preset, and {needs}; see `cranny compare {log}`")
        raise InputError(f"{log}: there is no such file")
    names = options.split_policies(policies) if policies else None
    options.check_file(report, "--report")
    if add is not None and shared.cluster != options.FROM_LOG:
        whole(add, "--add:", most=MAX_MACHINES - len(shared.read_cluster().machines))
    given: Any = {"search": search, "search_policy": search_policy, "add": add, "processes": processes}
    given["restart_s"] = restart_s
    given["prices"] = read_prices(prices) if prices is not None else None
    given["collectives"] = [name.strip() for name in collectives.split(",") if name.strip()]
    for name in given["collectives"]:
        if name not in COLLECTIVES:
            raise InputError(f"--collectives: {unknown('collective', name, COLLECTIVES)}")
    scenario = shared.scenario(str(log), names or WHAT_IF, window.zone, window.cut)
    found = answer(scenario, names, **given, bar=progress)
    written = write_page(found, report) if report is not None else None
    for folder, kind in ((csv, "csv"), (parquet, "parquet")):
        if folder is not None:
            write_tables(found, folder, kind)
    if as_json:
        print_json(found.facts())
    else:
        _show(found, written)


def _show(answer: "WhatIfAnswer", report: Path | None) -> None:
    """Print warnings, tables, findings and assumptions."""
    from cranny.analysis.whatif.findings import findings
    from cranny.report.text_table import terminal_table

    for line in answer.warnings:
        out.print(f"warning: {line}", style="yellow", markup=False)
    for sheet in answer.tables:
        out.print(terminal_table(sheet))
    for line in findings(answer):
        out.print(f"- {line}", markup=False)
    out.print("\nAssumptions", style="bold")
    for line in answer.assumptions:
        out.print(f"- {line}", style="dim", markup=False)
    if report is not None:
        say(f"\nreport: {report}")
