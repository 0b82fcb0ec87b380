"""`cranny what-if`: what a job log would have looked like under other policies, in waits, machines and money."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from cranny.cli import completion, options
from cranny.cli.console import out, print_json, progress, say
from cranny.cli.options import argument, option
from cranny.cli.window_options import WindowOptions, length_s
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
LARGE_JOBS_HELP = "GPUs of jobs of which to say how long they would wait, with commas between, such as 64,128."
ADD_HELP = (
    "Machines to add in the search (default: 5 % of them), or machines of a type, such as h100=4,a100=2, each "
    "tried for itself."
)
REMOVE_HELP = "Machines to do without, or machines of a type, such as a100=2, each tried for itself."
SINCE = "30d"
MOST_DIGITS = 9  # of a number of machines or GPUs
PRICES_HELP = "A YAML file with prices by type and hour, power and boots, instead of --price-per-gpu-hour."
SLURM_HELP = "Take the log from sacct and the cluster from Slurm, instead of a LOG."
SINCE_HELP = f"With --slurm: how far back, such as 7d (default: {SINCE})."
SEARCH_WITH_HELP = (
    "Policy to search with, beside the best (default: the first; with more than 20,000 jobs a quick one)."
)


@options.scenario_options("jobs", "load", cluster=options.FROM_LOG, network="instant")
@options.expand_options(WindowOptions, "window")
def what_if(
    shared: options.ScenarioOptions,
    window: WindowOptions,
    log: Annotated[Path | None, argument("LOG", "A job log, such as the output of `sacct -D -X -P`.")] = None,
    policies: Annotated[
        str, option("--policies", POLICIES_HELP, short="-p", autocompletion=completion.policies)
    ] = "",
    search: Annotated[bool, option("--search/--no-search", SEARCH_HELP)] = True,
    search_policy: Annotated[
        str | None, option("--search-with", SEARCH_WITH_HELP, autocompletion=completion.policies)
    ] = None,
    add: Annotated[str, option("--add", ADD_HELP, metavar="N|TYPE=N")] = "",
    remove: Annotated[str, option("--remove", REMOVE_HELP, metavar="N|TYPE=N")] = "",
    collectives: Annotated[
        str, option("--collectives", COLLECTIVES_HELP, autocompletion=completion.collectives)
    ] = "",
    large_jobs: Annotated[str, option("--large-jobs", LARGE_JOBS_HELP)] = "",
    restart_s: options.RestartOption = RESTART_S,
    processes: options.ProcessesOption = None,
    prices: Annotated[Path | None, option("--prices", PRICES_HELP)] = None,
    slurm: Annotated[bool, option("--slurm", SLURM_HELP)] = False,
    since: Annotated[str, option("--since", SINCE_HELP, metavar="TIME")] = "",
    report: options.ReportOption = None,
    csv: Annotated[Path | None, option("--csv", "Write all tables as CSV files to this folder.")] = None,
    parquet: Annotated[
        Path | None, option("--parquet", "Write all tables as Parquet files to this folder.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Replay a job log under other policies: waits, machines that could be off, money, and the largest job.

    Without --cluster, the cluster is guessed from where the log says that jobs ran. With --slurm and no LOG, jobs
    and cluster come from Slurm.

    Example: cranny what-if sacct.txt --cluster my.yaml --policies cranny,best-fit --price-per-gpu-hour 2.5
    """
    from cranny.analysis.whatif.export import write_tables
    from cranny.analysis.whatif.prices_file import read_prices
    from cranny.analysis.whatif.tables import write_page
    from cranny.analysis.whatif.what_if import answer

    _check_source(log, since, slurm=slurm)
    names = options.split_policies(policies) if policies else None
    options.check_file(report, "--report")
    added = _counts(add, "--add")
    more = next((count for count, gpu_type in added if gpu_type is None), None)
    if more is not None and shared.cluster != options.FROM_LOG:
        whole(more, "--add:", most=MAX_MACHINES - len(shared.read_cluster().machines))
    given: Any = {"search": search, "search_policy": search_policy, "add": more, "processes": processes}
    given["resize"] = [each for each in added if each[1] is not None]
    given["resize"] += [(-count, gpu_type) for count, gpu_type in _counts(remove, "--remove")]
    given["restart_s"] = restart_s
    given["large_jobs"] = _sizes(large_jobs)
    given["prices"] = read_prices(prices) if prices is not None else None
    given["collectives"] = _collectives(collectives)
    with TemporaryDirectory(prefix="cranny-") as own:
        if slurm:
            log, shared, window = _from_slurm(Path(own), since or SINCE, shared, window)
        scenario = shared.scenario(str(log), names or WHAT_IF, window.zone, window.cut, attempts=True)
    found = answer(scenario, names, **given, bar=progress)
    written = write_page(found, report) if report is not None else None
    for folder, kind in ((csv, "csv"), (parquet, "parquet")):
        if folder is not None:
            write_tables(found, folder, kind)
    if as_json:
        print_json(found.facts())
    else:
        _show(found, written)


def _check_source(log: Path | None, since: str, *, slurm: bool) -> None:
    """Refuse a log that is not there, or two of them."""
    from cranny.traces.generate import presets

    if slurm and log is not None:
        raise InputError("LOG: not with --slurm, which takes the log from sacct")
    if since and not slurm:
        raise InputError("--since: goes with --slurm; a log has --from")
    if slurm:
        return
    if log is None:
        raise InputError("LOG: give a job log, such as the output of `sacct -D -X -P`, or --slurm")
    if not log.exists():
        if str(log) in presets():  # which other commands take for a trace
            needs = "what-if needs a job log, such as the output of `sacct -D -X -P`"
            raise InputError(f"LOG: {str(log)!r} is a preset, and {needs}; see `cranny compare {log}`")
        raise InputError(f"{log}: there is no such file")


def _from_slurm(
    folder: Path, since: str, shared: options.ScenarioOptions, window: WindowOptions
) -> tuple[Path, options.ScenarioOptions, WindowOptions]:
    """Write what sacct prints to a file; return it, and the options with the cluster of Slurm and the begin."""
    from cranny.backends.slurm.slurm_accounting import accounting_commands, read_accounting
    from cranny.service.clock import wall_clock

    begin_s = wall_clock() - length_s(since, "--since")
    log = folder / "sacct.txt"
    log.write_text(read_accounting(accounting_commands(), begin_s), encoding="utf-8")
    if shared.cluster == options.FROM_LOG:
        shared = replace(shared, cluster=options.FROM_SLURM)
    if window.start is None:
        window = replace(window, start=f"{datetime.fromtimestamp(begin_s, UTC):%Y-%m-%dT%H:%M:%SZ}")
    return log, shared, window


def _collectives(text: str) -> list[str]:
    """Read names of collectives."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in COLLECTIVES:
            raise InputError(f"--collectives: {unknown('collective', name, COLLECTIVES)}")
    return names


def _counts(text: str, name: str) -> list[tuple[int, str | None]]:
    """Read numbers of machines, each with its type or none."""
    found: list[tuple[int, str | None]] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        gpu_type, equals, number = word.rpartition("=")
        if not number.isdecimal() or bool(equals) != bool(gpu_type) or len(number) > MOST_DIGITS:
            raise InputError(f"{name}: must be a whole number, or types with numbers such as h100=4, not {word!r}")
        found.append((int(number), gpu_type or None))
    if sum(gpu_type is None for _, gpu_type in found) > 1:
        raise InputError(f"{name}: only one number can be without a type, not {text!r}")
    return found


def _sizes(text: str) -> list[int]:
    """Read numbers of GPUs."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal() or len(word) > MOST_DIGITS:
            raise InputError(f"--large-jobs: must be numbers with commas between, such as 64,128, not {word!r}")
    return [int(word) for word in words]


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
