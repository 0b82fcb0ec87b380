"""`cranny traces`: generate and inspect job logs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json

if TYPE_CHECKING:
    from cranny.workload.trace import Trace

app = typer.Typer(help="Generate and inspect job logs.", no_args_is_help=True)

BARS = " ▁▂▃▄▅▆▇█"
HOUR_S = 3600.0


@app.command("generate")
def generate(
    preset: Annotated[str, typer.Argument(help="philly, itp or acme; see `cranny traces presets`.")],
    file: Annotated[Path, typer.Argument(help="Where to write it: .csv or .parquet.")],
    jobs: options.JobsOption = 5000,
    seed: options.SeedOption = 0,
    load: Annotated[float | None, typer.Option("--load", help="Share of --gpus that the jobs ask for.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs of the cluster that --load refers to.")] = None,
    max_gpus: Annotated[int | None, typer.Option("--max-gpus", help="Largest job.")] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Write a trace that looks like a published one.

    Example: cranny traces generate philly philly.parquet --jobs 100000 --load 0.8 --gpus 4096
    """
    from cranny.workload.generate import generate_trace

    trace = generate_trace(preset, jobs=jobs, seed=seed, load=load, gpus=gpus, max_gpus=max_gpus)
    trace.write(file)
    if as_json:
        print_json({"file": str(file), "jobs": len(trace)})
    else:
        out.print(f"{file}: {len(trace):,} jobs", soft_wrap=True, markup=False)


@app.command("presets")
def presets(as_json: options.JsonOption = False) -> None:
    """List what can be generated, and the published figures it is calibrated on.

    Example: cranny traces presets
    """
    from cranny.workload.generate import presets as known

    if as_json:
        print_json(
            {name: {"about": preset.description, "source": preset.source} for name, preset in known().items()}
        )
        return
    for name, preset in known().items():
        out.print(f"[bold]{name}[/bold]  {preset.description}")
        out.print(f"    {preset.source}", style="dim")


@app.command("inspect")
def inspect(
    file: Annotated[Path, typer.Argument(help="A trace file.")],
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and count them.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Print what a trace holds: sizes, durations and the load over time.

    Example: cranny traces inspect philly.parquet
    """
    from cranny.workload.inspect import describe
    from cranny.workload.read import read_trace

    trace = read_trace(file, skip_bad_rows=skip_bad_rows)
    facts = describe(trace)
    if as_json:
        print_json(facts)
    else:
        _print(trace, facts)


def _print(trace: "Trace", facts: dict[str, Any]) -> None:
    from rich.table import Table

    out.print(f"{trace.name}: {facts['jobs']:,} jobs over {facts['days']:.1f} days", style="bold", markup=False)
    sizes = Table(*facts["share_by_size_percent"], box=None, header_style="bold", title="percent of jobs by GPUs")
    sizes.add_row(*(f"{share:.2f}" for share in facts["share_by_size_percent"].values()))
    out.print(sizes)
    gap = facts["mean_gap_s"]
    rows = {
        "duration, median": f"{facts['median_duration_s']:,.0f} s",
        "duration, mean": f"{facts['mean_duration_s']:,.0f} s",
        "duration, p90": f"{facts['p90_duration_s']:,.0f} s",
        "gap, mean": f"{gap:,.1f} s" if gap is not None else "one job",
        "GPU-hours": f"{facts['gpu_hours']:,.0f}",
        "largest job": f"{facts['largest_job_gpus']:,} GPUs",
        "GPUs asked for at once": f"{facts['peak_requested_gpus']:,.0f} at most",
        "jobs without a model": f"{facts['jobs_without_model']:,} (drawn by seed when simulated)",
    }
    table = Table(box=None, show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    out.print(table)
    if facts["requested_gpus"]:
        out.print("GPUs asked for over time, up to", f"{max(facts['requested_gpus']):,.0f}:")
        out.print(_sparkline(facts["requested_gpus"]))
        out.print(f"one mark is {facts['bucket_s'] / HOUR_S:,.1f} hours", style="dim")
    for reason, rows_left_out in facts["left_out"].items():
        out.print(f"left out: {rows_left_out:,} rows: {reason}", style="yellow", markup=False)
    for note in facts["notes"]:
        out.print(f"note: {note}", style="yellow", markup=False)


def _sparkline(values: list[float]) -> str:
    most = max(values) or 1.0
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
