"""`cranny traces`: find, inspect, convert, cut and generate job logs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.cli import completion, options
from cranny.cli.console import out, print_json, print_table, progress, say
from cranny.cli.options import argument, option
from cranny.cli.typer_errors import Commands
from cranny.cli.window_options import WindowOptions, length_s
from cranny.model.errors import InputError, unknown
from cranny.model.validate import counted, positive, whole

if TYPE_CHECKING:
    from cranny.traces.trace import Trace

app = Commands(help="Find, inspect, convert, cut and generate job logs.")

CHART_EDGE = 12  # letters beside a chart, for the numbers of its axes

FileArgument = Annotated[Path, argument("FILE", "A trace file.")]
ToArgument = Annotated[Path, argument("OUT", "Where to write it: .csv or .parquet.")]


@app.command("list")
def list_(
    folder: Annotated[Path, argument("FOLDER", "Where to look.", show_default="here")] = Path(),
    as_json: options.JsonOption = False,
) -> None:
    """List the trace files below a folder, and the presets that can be generated.

    Example: cranny traces list logs
    """
    from cranny.traces.generate import presets as known
    from cranny.traces.inspect import describe
    from cranny.traces.read import read_trace, trace_files

    if not folder.is_dir():
        problem = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder}: {problem}")
    files = list(trace_files(folder))
    found: list[dict[str, Any]] = []
    with progress("reading", len(files)) as tick:
        for index, (path, name) in enumerate(files):
            tick(index)
            found.append({"file": str(path.relative_to(folder)), "format": name})
            try:
                facts = describe(read_trace(path, name, strict=False))
            except InputError as error:
                found[-1]["problem"] = str(error).removeprefix(f"{path}").removeprefix(": ")
            else:
                found[-1] |= {key: facts[key] for key in ("jobs", "days", "gpu_hours")}
                found[-1]["skipped"] = sum(facts["skipped"].values())
    if as_json:
        print_json({"folder": str(folder), "files": found, "presets": list(known())})
        return
    _print_list(found)
    if not found:
        say(f"{folder}: no trace files here")
    out.print(f"can be generated: {', '.join(known())} (see `cranny traces presets`)", style="dim")


def _print_list(found: list[dict[str, Any]]) -> None:
    """Print a line a file; its name stands last, where it may be as long as it is."""
    line = "{format}|{jobs:,}|{days:.1f}|{gpu_hours:,.0f}|{skipped:,}|{file}"
    rows = [line.format(**each).split("|", 5) for each in found if "problem" not in each]
    if rows:
        rows.insert(0, ["format", "GPU jobs", "days", "GPU-hours", "skipped", "file"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for kind, *counts, name in rows:
        cells = [count.rjust(width) for count, width in zip(counts, widths[1:], strict=False)]
        say("  ".join([kind.ljust(widths[0]), *cells, name]))
    for each in found:
        if "problem" in each:
            say("{file}: {format}, cannot be read: {problem}".format_map(each), style="yellow")


@app.command("inspect")
@options.expand_options(WindowOptions, "window", "warm_up")
def inspect(
    file: FileArgument,
    window: WindowOptions,
    format: options.FormatOption = "auto",  # noqa: A002
    strict: options.StrictOption = None,
    count_parts: options.CountPartsOption = False,
    profiles: options.ProfilesOption = None,
    gpus: Annotated[
        int | None, option("--gpus", "GPUs of the cluster, to compare the demand with.", min=1)
    ] = None,
    cluster: Annotated[
        str | None, option("--cluster", "The same, as a cluster file or RACKSxMACHINESxGPUS.", short="-c")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Print what a trace holds, what is odd about it, and what is assumed where it is silent.

    Example: cranny traces inspect philly.parquet --gpus 2490
    """
    from cranny.traces.inspect import describe
    from cranny.traces.quirks import quirks
    from cranny.traces.read import read_trace

    if gpus is not None and cluster is not None:
        raise InputError("give --gpus or --cluster, not both")
    capacity = options.read_cluster(cluster).gpus if cluster is not None else gpus
    models = options.read_profiles(profiles)
    given: Any = {"strict": strict, "profiles": models, "zone": window.zone, "count_parts": count_parts}
    trace = window.cut(read_trace(file, format, **given))
    facts = {**describe(trace), "warnings": quirks(trace, capacity)}
    if as_json:
        print_json(facts)
    else:
        _print_facts(facts)


def _print_facts(facts: dict[str, Any]) -> None:
    from cranny.cli.sparkline import chart

    def three(*names: str, of: str) -> str:
        return ", ".join(f"{name} {facts[f'{name}_{of}']:,.0f} s" for name in names)

    about = f"{facts['name']}: {counted(facts['jobs'], 'job')} over {facts['days']:.1f} days"
    out.print(about, style="bold", markup=False)
    shares = facts["share_by_size_percent"]
    print_table(("GPUs", *shares), [("% of jobs", *(f"{share:.2f}" for share in shares.values()))], numbers=shares)
    gap, load, waits = facts["mean_gap_s"], facts["requested_gpus"], facts["jobs_with_wait"]
    mean = f"mean {sum(load) / len(load):,.0f}, " if load else ""
    of = f" (of {waits:,} jobs)" if waits < facts["jobs"] else ""
    rows = {
        "duration": three("median", "mean", "p90", of="duration_s"),
        "wait in the log": three("median", "mean", "p99", of="wait_s") + of if waits else "not known",
        "gap, mean": f"{gap:,.1f} s" if gap is not None else "one job",
        "GPU-hours": f"{facts['gpu_hours']:,.0f}",
        "largest job": f"{facts['largest_job_gpus']:,} GPUs",
        "GPUs asked for at once": f"{mean}at most {facts['peak_requested_gpus']:,}",
        **_log_rows(facts["log"]),
    }
    wide = max(map(len, rows))
    for name, text in rows.items():
        out.print(f"{name:{wide}}  {text}", markup=False)
    if load:
        out.print("\nGPUs asked for over time, if each job started when submitted", style="bold")
        for line in chart(_at_most(load, out.width - CHART_EDGE), facts["bucket_s"] * len(load)):
            out.print(line, no_wrap=True, markup=False)
        out.print()
    _print_remarks(facts)


def _at_most(values: list[float], count: int) -> list[float]:
    """Return so many values at most: the greatest of each few neighbours."""
    few = -(-len(values) // max(1, count))
    return [max(values[at : at + few]) for at in range(0, len(values), few)]


def _log_rows(log: dict[str, Any]) -> dict[str, str]:
    """Return what a log says besides, as far as it does."""
    parts = f"{counted(log['jobs_on_parts'], 'job')}, {log['gpu_hours_on_parts']:,.0f} GPU-hours of whole GPUs"
    said = {
        "submitted": f"{log['first_day']} to {log['last_day']}" if log["first_day"] else "",
        "machines known": counted(log["jobs_with_machines"], "job"),
        "partitions": ", ".join(log["partitions"]),
        "queues": ", ".join(log["queues"]),
        "further attempts": counted(log["further_attempts"], "job"),
        "running at the end": counted(log["running_at_end"], "job"),
        "parts of GPUs": parts,
    }
    given = {"submitted": log["first_day"], "machines known": log["jobs_with_machines"]}
    given |= {name: log[name] for name in ("partitions", "queues")}
    given |= {"further attempts": log["further_attempts"]}
    given |= {"running at the end": log["running_at_end"], "parts of GPUs": log["jobs_on_parts"]}
    return {name: text for name, text in said.items() if given[name]}


def _print_remarks(facts: dict[str, Any]) -> None:
    """Print what a reader of the figures should know."""
    skipped = [f"{counted(rows, 'row')}: {reason}" for reason, rows in facts["skipped"].items()]
    remarks = {"skipped": skipped, "warning": facts.get("warnings", []), "note": facts["notes"]}
    for kind, lines in {**remarks, "assumed": facts.get("assumed", [])}.items():
        for line in lines:
            out.print(f"{kind}: {line}", style="dim" if kind == "assumed" else "yellow", markup=False)


@app.command("convert")
def convert(
    file: FileArgument,
    to: ToArgument,
    format: options.FormatOption = "auto",  # noqa: A002
    strict: options.StrictOption = None,
    profiles: options.ProfilesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write a trace in our own format, and report which rows were skipped.

    Example: cranny traces convert sacct.txt jobs.parquet
    """
    from cranny.traces.read import read_trace

    _check_apart(file, to)
    models = options.read_profiles(profiles)
    _write(read_trace(file, format, strict=strict, profiles=models, count_parts=True), to, as_json=as_json)


@app.command("slice")
def slice_(
    file: FileArgument,
    to: ToArgument,
    start: Annotated[
        str, option("--from", "First submission to keep: seconds, 90m, 3h, 2d or 1w.", metavar="TIME")
    ] = "0",
    end: Annotated[str | None, option("--to", "Keep what is submitted before this time.", metavar="TIME")] = None,
    skip: Annotated[int, option("--skip", "Of the jobs kept so far, pass over the first N.", min=0)] = 0,
    count: Annotated[int | None, option("--count", "Then keep at most N.", min=1)] = None,
    where: Annotated[
        list[str] | None,
        option("--where", "Keep jobs with this value only; may be repeated.", metavar="COLUMN=VALUE"),
    ] = None,
    from_zero: Annotated[
        bool, option("--from-zero", "Shift times so that the first job kept is submitted at 0.")
    ] = False,
    format: options.FormatOption = "auto",  # noqa: A002
    strict: options.StrictOption = None,
    profiles: options.ProfilesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write some of the jobs of a trace; times count from the trace's time zero.

    Example: cranny traces slice itp.parquet day2.csv --from 1d --to 2d --where cluster=cluster04 --from-zero
    """
    from cranny.traces.read import read_trace

    _check_apart(file, to)
    window_s = {"start_s": length_s(start, "--from")} | ({} if end is None else {"end_s": length_s(end, "--to")})
    models = options.read_profiles(profiles)
    trace = read_trace(file, format, strict=strict, profiles=models, count_parts=True)
    some = trace.where(**_values(trace, where)) if where else trace
    some = some.slice(**window_s, skip=skip, count=count, from_zero=from_zero)
    _write(some, to, of=len(trace), as_json=as_json)


def _check_apart(file: Path, to: Path) -> None:
    """Refuse to write over the file that is read."""
    if to.exists() and file.exists() and to.samefile(file):
        raise InputError(f"{to}: is the file to read; write to another one")


def _values(trace: "Trace", pairs: list[str]) -> dict[str, Any]:
    """Read COLUMN=VALUE pairs; a value is a number if the column holds numbers."""
    import polars as pl

    values: dict[str, Any] = {}
    for pair in pairs:
        column, equals, value = pair.partition("=")
        if not equals or not column:
            raise InputError(f"--where: must be COLUMN=VALUE, not {pair!r}")
        if column not in trace.frame.columns:
            raise unknown("column", column, trace.frame.columns)
        if column in values:
            raise InputError(f"--where: {column} is given twice")
        dtype = trace.frame.schema[column]
        try:
            values[column] = float(value) if dtype.is_numeric() else value
        except ValueError:
            raise InputError(f"--where: {column}: must be a number, not {value!r}") from None
        if dtype == pl.Boolean():
            values[column] = value.lower() == "true"
    return values


def _write(trace: "Trace", to: Path, *, of: int | None = None, as_json: bool) -> None:
    """Write a trace and say what is in it, out of how many jobs, and what was skipped or noticed before."""
    trace.write(to, presence=of is None)  # some of the jobs say nothing of where others were
    written = {"file": str(to), "jobs": len(trace), "skipped": dict(trace.skipped), "notes": list(trace.notes)}
    if as_json:
        print_json(written)
        return
    some = "" if of is None else f"{len(trace):,} of "
    say(f"{to}: {some}{counted(len(trace) if of is None else of, 'job')}")
    _print_remarks(written)


@app.command("generate")
def generate(
    preset: Annotated[
        str,
        typer.Argument(
            help="philly, itp or acme; see `cranny traces presets`.", autocompletion=completion.presets
        ),
    ],
    file: ToArgument,
    jobs: options.JobsOption = 5000,
    seed: options.SeedOption = 0,
    load: Annotated[float | None, option("--load", "Share of --gpus that the jobs ask for.", positive)] = None,
    gpus: Annotated[
        int | None, option("--gpus", "GPUs of the cluster that --load refers to.", whole, most=2**40)
    ] = None,
    max_gpus: Annotated[int | None, option("--max-gpus", "Largest job.", whole)] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write a trace that looks like a published one.

    Example: cranny traces generate philly philly.parquet --jobs 100000 --load 0.8 --gpus 4096
    """
    from cranny.traces.generate import generate_trace

    if load is not None and gpus is None:
        raise InputError("--load: needs --gpus: say of how many GPUs the jobs should ask for that share")
    trace = generate_trace(preset, jobs=jobs, seed=seed, load=load, gpus=gpus, max_gpus=max_gpus)
    _write(trace, file, as_json=as_json)


@app.command("presets")
def presets(as_json: options.JsonOption = False) -> None:
    """List what can be generated, and the published figures it is calibrated on.

    Example: cranny traces presets
    """
    from cranny.traces.generate import presets as known

    if as_json:
        print_json({name: {"about": each.description, "source": each.source} for name, each in known().items()})
        return
    for name, preset in known().items():
        out.print(f"[bold]{name}[/bold]  {preset.description}")
        out.print(f"    {preset.source}", style="dim")
