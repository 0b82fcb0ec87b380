"""`cranny repro`: rebuild the experiments of a paper."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json, progress
from cranny.cli.typer_errors import Commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cranny.report.text_table import TextTable
    from cranny.repro.claim import Claim
    from cranny.repro.titan.write import Findings

T = TypeVar("T")
ProcessesOption = Annotated[
    int | None, typer.Option("--processes", min=1, help="At once; as many as there are cores if not given.")
]

app = Commands(help="Rebuild the experiments of a paper, its values beside ours.")


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
    processes: ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild Titan's evaluation (ICNP 2024) and say what holds and what does not.

    Example: cranny repro titan --traces ../shared/traces --out out/titan
    """
    from cranny.repro.figure import check_can_draw
    from cranny.repro.titan.study import plan, run_study, sources
    from cranny.repro.titan.testbed import run_testbed
    from cranny.repro.titan.values import EXPERIMENTS, FIGURES, TESTBED
    from cranny.repro.titan.write import find, write

    check_can_draw()
    chosen = sorted(_chosen(experiments, "--experiments", {str(number): number for number in EXPERIMENTS}))
    options.check_folder(folder, "--out")
    where = sources(traces, quick=quick)
    study = None
    if any(figure.experiment in chosen for figure in FIGURES):
        with progress("replaying", len(plan(seeds))) as tick:
            study = run_study(where, seeds, processes or os.cpu_count() or 1, tick)
    outcomes = run_testbed() if any(bars.experiment in chosen for bars in TESTBED) else []
    found = find(study, outcomes, chosen)
    page = write(found, folder)
    _tell(found, _titan_sheets(found), page, as_json=as_json)


@app.command("netpack")
def netpack(
    traces: Annotated[
        Path | None, typer.Option("--traces", help="Folder with philly.parquet; else it is generated.")
    ] = None,
    folder: Annotated[Path, typer.Option("--out", help="Where tables, pictures and the page go.")] = Path(
        "out/netpack"
    ),
    figures: Annotated[
        str, typer.Option("--figures", help="The paper's figures, and our own questions, with commas between.")
    ] = "7,8,9,10,11,12,13,15,load,queue,sign",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions.")] = 10,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only 100 jobs each, and no cluster of 10,000 servers.")
    ] = False,
    processes: ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild NetPack's evaluation (ASPLOS 2024) and say what holds and what does not.

    Example: cranny repro netpack --traces ../shared/traces --out out/netpack
    """
    from cranny.repro.figure import check_can_draw
    from cranny.repro.netpack.study import EXPERIMENTS, chosen, plan, run_study, source
    from cranny.repro.netpack.watch import watch
    from cranny.repro.netpack.write import find, write

    check_can_draw()
    keys = _chosen(figures, "--figures", {key: key for key in [*EXPERIMENTS, "10", "15"]})
    options.check_folder(folder, "--out")
    file = source(traces)
    seconds = _seconds_per_job(quick=quick) if "10" in keys else {}
    experiments = chosen(keys, quick=quick)
    study = None
    if experiments:
        with progress("replaying", len(plan(experiments, seeds))) as tick:
            study = run_study(experiments, seeds, file, processes or os.cpu_count() or 1, tick)
    found = find(study, seconds, watch() if "15" in keys else [])
    page = write(found, folder)
    _tell(found, found.sheets(), page, as_json=as_json)


@app.command("cassini")
def cassini(
    folder: Annotated[Path, typer.Option("--out", help="Where tables, pictures and the page go.")] = Path(
        "out/cassini"
    ),
    figures: Annotated[
        str,
        typer.Option("--figures", help="The paper's figures, table2, and our own question, with commas between."),
    ] = "2,5,11,12,13,14,16,alike,gap,table2,17,18",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Repetitions of traces.")] = 20,
    quick: Annotated[bool, typer.Option("--quick", help="Few jobs, and two minutes on links.")] = False,
    processes: ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild CASSINI's evaluation (NSDI 2024) and say what holds and what does not.

    Example: cranny repro cassini --out out/cassini
    """
    from cranny.repro.cassini.run import KEYS, replays, run
    from cranny.repro.cassini.write import write
    from cranny.repro.figure import check_can_draw

    check_can_draw()
    keys = _chosen(figures, "--figures", {key: key for key in KEYS})
    options.check_folder(folder, "--out")
    with progress("replaying", replays(keys, seeds, quick=quick)) as tick:
        found = run(keys, seeds, processes or os.cpu_count() or 1, tick, quick=quick)
    page = write(found, folder)
    _tell(found, found.sheets(), page, as_json=as_json)


@app.command("has")
def has(
    folder: Annotated[Path, typer.Option("--out", help="Where tables, pictures and the page go.")] = Path(
        "out/has"
    ),
    fits: Annotated[
        int, typer.Option("--fits", min=1, help="Sets of throughputs that fit what the paper states.")
    ] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="Few repetitions, and no large clusters.")] = False,
    processes: ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild the evaluation of HAS and JPS (TPDS 2024) and say what holds and what does not.

    Example: cranny repro has --out out/has
    """
    from cranny.repro.figure import check_can_draw
    from cranny.repro.has.study import run_study, steps
    from cranny.repro.has.tables import head_sheets
    from cranny.repro.has.write import find, write

    check_can_draw()
    options.check_folder(folder, "--out")
    with progress("sharing", steps(fits)) as tick:
        study = run_study(fits, processes or os.cpu_count() or 1, quick=quick, progress=tick)
    found = find(study)
    page = write(found, folder)
    _tell(found, head_sheets(study), page, as_json=as_json)


def _seconds_per_job(*, quick: bool) -> dict[int, float]:
    """Measure how long NetPack takes to place a job, by servers."""
    from cranny.policies.netpack import NetPack
    from cranny.repro.netpack.placement_time import JOBS, SERVERS, WARM_UP, seconds_per_job

    servers = SERVERS[:2] if quick else SERVERS
    seconds_per_job(NetPack(), servers[0], WARM_UP)
    with progress("placing", len(servers)) as tick:
        found = {}
        for done, count in enumerate(servers, 1):
            found[count] = seconds_per_job(NetPack(), count, WARM_UP if quick else JOBS)
            tick(done)
    return found


def _chosen(given: str, option: str, known: "Mapping[str, T]") -> list[T]:
    """Read names with commas between, in the order in which they are known."""
    from cranny.model.errors import InputError

    words = [word.strip() for word in given.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise InputError(f"{option}: {word!r} is none of {', '.join(known)}")
    if not words:
        raise InputError(f"{option}: no number was given")
    return [value for name, value in known.items() if name in words]


def _titan_sheets(found: "Findings") -> "list[TextTable]":
    """Return the tables of the traces that the paper gives numbers for, and all verdicts."""
    from cranny.repro.titan.tables import bar_sheet, by_figure_and_trace, figure_sheet, verdict_sheet

    shown = [
        figure_sheet(both, brief=True)
        for both in by_figure_and_trace(found.tables)
        if both[0].paper or (not both[0].figure.on and both[0].workload.key == "itp")
    ]
    return [*shown, *map(bar_sheet, found.bars), verdict_sheet(found.tables, found.bars)]


class _Found(Protocol):
    """What a reproduction found."""

    @property
    def claims(self) -> "Sequence[Claim]":
        """What holds and what does not."""

    def told(self) -> dict[str, Any]:
        """Return everything as plain values."""


def _tell(found: _Found, sheets: "Iterable[TextTable]", page: Path, *, as_json: bool) -> None:
    """Print everything as JSON, or tables, then claims, then where the page is."""
    from cranny.report.text_table import terminal_table

    if as_json:
        print_json(found.told())
        return
    for sheet in sheets:
        out.print(terminal_table(sheet))
    for claim in found.claims:
        out.print(f"{claim.title}: {claim.holds}", style="bold", markup=False)
        out.print(claim.text, markup=False)
        out.print()
    out.print(f"page: {page}", soft_wrap=True, markup=False)
