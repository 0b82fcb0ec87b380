"""`cranny repro`: rebuild the experiments of a paper."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cranny.cli import options
from cranny.cli.console import out, print_json, progress, say
from cranny.cli.options import option
from cranny.cli.typer_errors import Commands
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cranny.repro.page import Reproduction

FolderOption = Annotated[Path, option("--out", "Folder for tables, plots and the page.")]

app = Commands(help="Rebuild the experiments of a paper, its values beside ours.")


@app.command("titan")
def titan(
    traces: Annotated[
        Path | None, option("--traces", "Folder with elasticflow_itp.parquet and philly.parquet; else generated.")
    ] = None,
    folder: FolderOption = Path("out/titan"),
    experiments: Annotated[
        str, option("--experiments", "Numbers of the paper's experiments, with commas between.")
    ] = "1,2,3,4,5,6,7",
    seeds: Annotated[int, option("--seeds", "Repetitions where something is drawn.", min=1)] = 5,
    quick: Annotated[bool, option("--quick", "Only the first 500 jobs of each trace.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild Titan's evaluation (ICNP 2024) and say what holds and what does not.

    Example: cranny repro titan --traces ../shared/traces --out out/titan
    """
    from cranny.repro.titan.evaluation import reproduction
    from cranny.repro.titan.paper import EXPERIMENTS, TEXT
    from cranny.repro.titan.replays import plan, run_replays, sources
    from cranny.repro.titan.testbed import run_testbed

    chosen = sorted(map(int, _chosen(experiments, "--experiments", map(str, EXPERIMENTS))))
    _check(folder)
    where = sources(traces, quick=quick)
    replays = None
    if any(figure.experiment in chosen for figure in TEXT.figures):
        with progress("replaying", len(plan(seeds))) as tick:
            replays = run_replays(where, seeds, processes or os.cpu_count() or 1, tick)
    runs = run_testbed() if any(figure.experiment in chosen for figure in TEXT.testbed) else None
    _report(reproduction(replays, runs, chosen), folder, as_json=as_json)


@app.command("netpack")
def netpack(
    traces: Annotated[Path | None, option("--traces", "Folder with philly.parquet; else it is generated.")] = None,
    folder: FolderOption = Path("out/netpack"),
    figures: Annotated[
        str, option("--figures", "The paper's figures, and our own questions, with commas between.")
    ] = "7,8,9,10,11,12,13,15,load,queue,sign",
    seeds: Annotated[int, option("--seeds", "Repetitions.", min=1)] = 10,
    quick: Annotated[bool, option("--quick", "Only 100 jobs each, and no cluster of 10,000 servers.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild NetPack's evaluation (ASPLOS 2024) and say what holds and what does not.

    Example: cranny repro netpack --traces ../shared/traces --out out/netpack
    """
    from cranny.repro.netpack.evaluation import reproduction
    from cranny.repro.netpack.placement_time import JOBS, SERVERS, WARM_UP, measure
    from cranny.repro.netpack.rates import job_rates
    from cranny.repro.netpack.replays import plan, run_replays
    from cranny.repro.netpack.setups import EXPERIMENTS, chosen, source

    keys = _chosen(figures, "--figures", [*EXPERIMENTS, "10", "15"])
    _check(folder)
    file = source(traces)
    seconds: dict[int, float] = {}
    if "10" in keys:
        servers, jobs = (SERVERS[:2], WARM_UP) if quick else (SERVERS, JOBS)
        with progress("placing", len(servers)) as tick:
            seconds = measure(servers, jobs, tick)
    experiments = chosen(keys, quick=quick)
    replays = None
    if experiments:
        with progress("replaying", len(plan(experiments, seeds))) as tick:
            replays = run_replays(experiments, seeds, file, processes or os.cpu_count() or 1, tick)
    rates = job_rates() if "15" in keys else []
    _report(reproduction(experiments, replays, seconds, rates), folder, as_json=as_json)


@app.command("cassini")
def cassini(
    folder: FolderOption = Path("out/cassini"),
    figures: Annotated[
        str, option("--figures", "The paper's figures, table2, and our own questions, with commas between.")
    ] = "2,5,11,12,13,14,16,alike,gap,table2,17,18",
    seeds: Annotated[int, option("--seeds", "Repetitions of traces.", min=1)] = 20,
    quick: Annotated[bool, option("--quick", "Few jobs, and two minutes on links.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild CASSINI's evaluation (NSDI 2024) and say what holds and what does not.

    Example: cranny repro cassini --out out/cassini
    """
    from cranny.repro.cassini.evaluation import KEYS, run
    from cranny.repro.cassini.replays import plan

    keys = _chosen(figures, "--figures", KEYS)
    _check(folder)
    with progress("replaying", len(plan(keys, seeds))) as tick:
        found = run(keys, seeds, processes or os.cpu_count() or 1, tick, quick=quick)
    _report(found, folder, as_json=as_json)


@app.command("has")
def has(
    folder: FolderOption = Path("out/has"),
    fits: Annotated[int, option("--fits", "Sets of throughputs that fit what the paper states.", min=1)] = 10,
    quick: Annotated[bool, option("--quick", "Few repetitions, and no large clusters.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild the evaluation of HAS and JPS (TPDS 2024) and say what holds and what does not.

    Example: cranny repro has --out out/has
    """
    from cranny.repro.has.evaluation import reproduction
    from cranny.repro.has.results import EXPERIMENTS, run_experiments

    _check(folder)
    with progress("sharing", fits * len(EXPERIMENTS)) as tick:
        results = run_experiments(fits, processes or os.cpu_count() or 1, quick=quick, progress=tick)
    _report(reproduction(results), folder, as_json=as_json)


def _check(folder: Path) -> None:
    """Raise an error before anything runs if its results could not be plotted or written."""
    from cranny.repro.plots import check_can_draw

    check_can_draw()
    options.check_folder(folder, "--out")


def _chosen(given: str, name: str, known: "Iterable[str]") -> list[str]:
    """Read what an option names with commas between, in the order in which it is known."""
    words, known = [word.strip() for word in given.split(",") if word.strip()], list(known)
    for word in words:
        if word not in known:
            raise InputError(f"{name}: {word!r} is none of {', '.join(known)}")
    if not words:
        raise InputError(f"{name}: no number was given")
    return [each for each in known if each in words]


def _report(found: "Reproduction", folder: Path, *, as_json: bool) -> None:
    """Write all files; print everything as JSON, or tables, then claims, then where the page is."""
    from cranny.report.text_table import terminal_table

    page = found.write(folder)
    if as_json:
        print_json(found.as_json())
        return
    for sheet in found.shown:
        out.print(terminal_table(sheet))
    for claim in found.claims:
        out.print(f"{claim.title}: {claim.holds}", style="bold", markup=False)
        out.print(claim.text, markup=False)
        out.print()
    say(f"page: {page}")
