"""`cranny sweep`: many simulations from one file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import err, out, print_json, progress, say
from cranny.cli.interrupt import UserInterruptError
from cranny.cli.options import argument, option
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.analysis.sweep.cell import CellOutcome, SweepCell
    from cranny.analysis.sweep.run_sweep import SweepResult
    from cranny.analysis.sweep.sweep_file import Sweep


def sweep(
    file: Annotated[Path, argument("FILE", "What to sweep over; see docs/use/sweeps.md.")],
    folder: Annotated[
        Path | None, option("--out", "Where results go (default: out/NAME). Finished cells stay there.")
    ] = None,
    processes: options.ProcessesOption = None,
    ray: Annotated[
        str | None, option("--ray", "Run on this Ray cluster, such as 10.0.0.1:6379.", metavar="ADDRESS")
    ] = None,
    again: Annotated[bool, option("--again", "Run finished cells again.")] = False,
    list_cells: Annotated[bool, option("--list", "List the cells and run nothing.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Simulate all combinations of policies, loads, seeds, clusters and traces; finished ones are not run again.

    Example: cranny sweep docs/examples/sweep.yaml --processes 4
    """
    from cranny.analysis.sweep.run_sweep import run_sweep
    from cranny.analysis.sweep.sweep_file import read_sweep

    if ray is not None and processes is not None:
        raise InputError("--processes is for this machine; with --ray the Ray cluster decides")
    planned = read_sweep(file)
    folder = folder or Path("out") / planned.name
    options.check_folder(folder, "--out")
    if list_cells:
        _list(planned, folder, as_json=as_json)
        return
    ended = {"done": 0, "failed": 0}
    with progress("cells", len(planned.cells)) as tick:

        def report(cell: "SweepCell", outcome: "CellOutcome") -> None:
            ended["done"] += 1
            if outcome.reason is not None:
                ended["failed"] += 1
                err.print(f"failed: {_name(cell)}: {outcome.reason}", style="red", soft_wrap=True, markup=False)
            tick(ended["done"], f"cells, {ended['failed']} failed" if ended["failed"] else None)

        try:
            swept = run_sweep(planned, folder, processes=processes, ray=ray, again=again, ended=report)
        except KeyboardInterrupt:
            raise UserInterruptError(f"interrupted; finished cells are kept in {folder}") from None
    _show(planned, swept, folder, as_json=as_json)
    if swept.failed:
        raise typer.Exit(1)


def _list(planned: "Sweep", folder: Path, *, as_json: bool) -> None:
    """Print every cell, and whether it is finished."""
    from cranny.analysis.sweep.cell import CellStore

    store = CellStore(folder)
    cells = [(cell, store.load(cell) is not None) for cell in planned.cells]
    if as_json:
        print_json([{**cell.axes, "key": cell.key, "finished": ready} for cell, ready in cells])
        return
    say(*(f"{cell.key}  {_name(cell)}{'  finished' if ready else ''}" for cell, ready in cells))
    say(f"{len(cells):,} cells, {sum(ready for _, ready in cells):,} finished in {folder}")


def _show(planned: "Sweep", swept: "SweepResult", folder: Path, *, as_json: bool) -> None:
    """Print the means over the seeds as a table or as JSON."""
    from dataclasses import asdict

    from cranny.analysis.sweep.sweep_table import blocks, groups

    gathered = groups(swept.table)
    files = [folder / "table.parquet", folder / "table.csv"]
    skipped = {trace.name: dict(trace.skipped) for trace in planned.inputs.traces.values() if trace.skipped}
    if as_json:
        failed = swept.table.filter(swept.table["status"] == "failed").select("key", "reason").to_dicts()
        print_json(
            {
                "name": planned.name,
                "cells": len(planned.cells),
                "run": swept.run,
                "taken_over": swept.taken_over,
                "failed": swept.failed,
                "rows_skipped": skipped,
                "tables": [str(file) for file in files],
                "failures": failed,
                "groups": [asdict(group) for group in gathered],
            }
        )
        return
    for block in blocks(gathered):
        out.print(block)
    out.print("means over the seeds, ± 95 % confidence", style="dim")
    taken_over = f", {swept.taken_over:,} taken over" if swept.taken_over else ""
    failed_cells = f", {swept.failed:,} failed" if swept.failed else ""
    out.print(f"{len(planned.cells):,} cells: {swept.run:,} run{taken_over}{failed_cells}")
    for name, reasons in skipped.items():
        for why, count in reasons.items():
            say(f"{name}: {count:,} rows skipped: {why}", style="yellow")
    say(*(f"table: {made}" for made in files))


def _name(cell: "SweepCell") -> str:
    """Name a cell as people do."""
    from cranny.analysis.sweep.sweep_table import named

    return ", ".join(f"{name} {named(value)}" for name, value in cell.axes.items())
