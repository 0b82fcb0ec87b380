"""`cranny repro`: rebuild the experiments of a paper."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress

if TYPE_CHECKING:
    from cranny.repro.titan.write import Findings

app = typer.Typer(help="Rebuild the experiments of a paper, its values beside ours.", no_args_is_help=True)


@app.callback()
def _papers() -> None:
    """Rebuild the experiments of a paper, its values beside ours."""


@app.command("titan")
def titan(
    traces: Annotated[
        Path | None,
        typer.Option("--traces", help="Folder with elasticflow_itp.parquet and philly.parquet; else generated."),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where tables, pictures and the page go.")] = Path(
        "out/titan"
    ),
    experiments: Annotated[
        str, typer.Option("--experiments", help="Numbers of the paper's experiments, with commas between.")
    ] = "1,2,3,4,5,6,7",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions where something is drawn.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Only the first 500 jobs of each trace.")] = False,
    processes: Annotated[
        int | None, typer.Option("--processes", min=1, help="At once; as many as there are cores if not given.")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild Titan's evaluation (ICNP 2024) and say what holds and what does not.

    Example: cranny repro titan --traces ../shared/traces --out out/titan
    """
    from cranny.repro.figure import check_can_draw
    from cranny.repro.titan.study import plan, run_study, sources
    from cranny.repro.titan.testbed import run_testbed
    from cranny.repro.titan.values import FIGURES, TESTBED
    from cranny.repro.titan.write import find, write

    check_can_draw()
    chosen = _experiments(experiments)
    options.check_folder(folder, "--out")
    where = sources(traces, quick=quick)
    study = None
    if any(figure.experiment in chosen for figure in FIGURES):
        with progress("replaying", len(plan(seeds))) as tick:
            study = run_study(where, seeds, processes or os.cpu_count() or 1, tick)
    outcomes = run_testbed() if any(bars.experiment in chosen for bars in TESTBED) else []
    found = find(study, outcomes, chosen)
    page = write(found, folder)
    if as_json:
        print_json(found.told())
    else:
        _print(found, page)


def _experiments(given: str) -> list[int]:
    """Read the numbers of experiments."""
    from cranny.model.errors import InputError
    from cranny.repro.titan.values import EXPERIMENTS

    words = [word.strip() for word in given.split(",") if word.strip()]
    known = {str(number): number for number in EXPERIMENTS}
    for word in words:
        if word not in known:
            raise InputError(f"--experiments: {word!r} is none of {', '.join(known)}")
    if not words:
        raise InputError("--experiments: no number was given")
    return sorted({known[word] for word in words})


def _print(found: "Findings", page: Path) -> None:
    """Print the tables of the traces that the paper gives numbers for, all verdicts and all claims."""
    from cranny.report.sheet import sheet_table
    from cranny.repro.titan.tables import bar_sheet, by_figure_and_trace, figure_sheet, verdict_sheet

    for both in by_figure_and_trace(found.tables):
        if both[0].paper or (not both[0].figure.on and both[0].workload.key == "itp"):
            out.print(sheet_table(figure_sheet(both, brief=True)))
    for bars in found.bars:
        out.print(sheet_table(bar_sheet(bars)))
    out.print(sheet_table(verdict_sheet(found.tables, found.bars)))
    for claim in found.claims:
        out.print(f"{claim.title}: {claim.holds}", style="bold", markup=False)
        out.print(claim.text, markup=False)
        out.print()
    out.print(f"page: {page}", soft_wrap=True, markup=False)
