"""`cranny repro`: rebuild the experiments of a paper."""

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cranny.cli import options
from cranny.cli.console import out, print_json, progress, say
from cranny.cli.options import option
from cranny.cli.typer_errors import Commands
from cranny.model.errors import InputError
from cranny.model.validate import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cranny.repro.page import Reproduction

FolderOption = Annotated[Path, option("--out", "Folder for tables, plots and the page.")]

# Repetitions, if not said otherwise.
TITAN_SEEDS, NETPACK_SEEDS, CASSINI_SEEDS, HAS_FITS = 5, 3, 6, 10

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
    seeds: Annotated[int, option("--seeds", "Repetitions where something is drawn.", min=1)] = TITAN_SEEDS,
    quick: Annotated[bool, option("--quick", "Only the first 500 jobs of each trace.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild Titan's evaluation (ICNP 2024) and say what holds and what does not.

    Example: cranny repro titan --traces ../shared/traces --out out/titan
    """
    from cranny.repro.titan.paper import EXPERIMENTS

    chosen = sorted(map(int, _chosen(experiments, "--experiments", map(str, EXPERIMENTS))))
    _check(folder)
    _report(_titan(traces, chosen, seeds, processes, quick=quick), folder, as_json=as_json)


def _titan(
    traces: Path | None, chosen: "Sequence[int]", seeds: int, processes: int | None, *, quick: bool
) -> "Reproduction":
    from cranny.repro.titan.evaluation import reproduction
    from cranny.repro.titan.paper import TEXT
    from cranny.repro.titan.replays import QUICK_JOBS, plan, run_replays, sources
    from cranny.repro.titan.testbed import run_testbeds

    where = sources(traces, quick=quick)
    replays = None
    if any(figure.experiment in chosen for figure in TEXT.figures):
        with progress("replaying", len(plan(seeds))) as tick:
            replays = run_replays(where, seeds, processes or os.cpu_count() or 1, tick)
    runs = run_testbeds() if any(figure.experiment in chosen for figure in TEXT.testbed) else None
    few = f"the first {QUICK_JOBS} jobs of each trace, {counted(seeds, 'seed')}" if quick else ""
    return reproduction(replays, runs, chosen, few)


@app.command("netpack")
def netpack(
    traces: Annotated[Path | None, option("--traces", "Folder with philly.parquet; else it is generated.")] = None,
    folder: FolderOption = Path("out/netpack"),
    figures: Annotated[
        str, option("--figures", "The paper's figures, and our own questions, with commas between.")
    ] = "7,8,9,10,11,12,13,15,load,queue,ties,ina,eq1",
    seeds: Annotated[
        int, option("--seeds", "Repetitions; 3 at most for our own questions.", min=1)
    ] = NETPACK_SEEDS,
    quick: Annotated[bool, option("--quick", "Only 100 jobs each, and no cluster of 10,000 servers.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild NetPack's evaluation (ASPLOS 2024) and say what holds and what does not.

    Example: cranny repro netpack --traces ../shared/traces --out out/netpack
    """
    from cranny.repro.netpack.setups import EXPERIMENTS

    keys = _chosen(figures, "--figures", [*EXPERIMENTS, "10", "15"])
    _check(folder)
    _report(_netpack(traces, keys, seeds, processes, quick=quick), folder, as_json=as_json)


def _netpack(
    traces: Path | None, keys: "Sequence[str]", seeds: int, processes: int | None, *, quick: bool
) -> "Reproduction":
    from cranny.repro.netpack.evaluation import reproduction
    from cranny.repro.netpack.placement_time import JOBS, SERVERS, WARM_UP, measure
    from cranny.repro.netpack.rates import job_rates
    from cranny.repro.netpack.replays import plan, run_replays
    from cranny.repro.netpack.setups import QUICK_JOBS, chosen, source

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
    few = f"{QUICK_JOBS} jobs each, {counted(seeds, 'seed')}" if quick else ""
    return reproduction(experiments, replays, seconds, rates, few)


@app.command("cassini")
def cassini(
    folder: FolderOption = Path("out/cassini"),
    figures: Annotated[
        str, option("--figures", "The paper's figures, table2, and our own questions, with commas between.")
    ] = "2,5,11,12,13,14,16,alike,open,table2,17,18",
    seeds: Annotated[int, option("--seeds", "Repetitions of traces.", min=1)] = CASSINI_SEEDS,
    quick: Annotated[bool, option("--quick", "Few jobs, and two minutes on links.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild CASSINI's evaluation (NSDI 2024) and say what holds and what does not.

    Example: cranny repro cassini --out out/cassini
    """
    from cranny.repro.cassini.evaluation import KEYS

    keys = _chosen(figures, "--figures", KEYS)
    _check(folder)
    _report(_cassini(keys, seeds, processes, quick=quick), folder, as_json=as_json)


def _cassini(keys: "Sequence[str]", seeds: int, processes: int | None, *, quick: bool) -> "Reproduction":
    from cranny.repro.cassini.evaluation import run
    from cranny.repro.cassini.replays import plan

    with progress("replaying", len(plan(keys, seeds))) as tick:
        return run(keys, seeds, processes or os.cpu_count() or 1, tick, quick=quick)


@app.command("has")
def has(
    folder: FolderOption = Path("out/has"),
    fits: Annotated[
        int, option("--fits", "Sets of throughputs that fit what the paper states.", min=1)
    ] = HAS_FITS,
    quick: Annotated[bool, option("--quick", "Few repetitions, and no large clusters.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild the evaluation of HAS and JPS (TPDS 2024) and say what holds and what does not.

    Example: cranny repro has --out out/has
    """
    _check(folder)
    _report(_has(fits, processes, quick=quick), folder, as_json=as_json)


def _has(fits: int, processes: int | None, *, quick: bool) -> "Reproduction":
    from cranny.repro.has.evaluation import reproduction
    from cranny.repro.has.results import EXPERIMENTS, run_experiments

    with progress("sharing", fits * len(EXPERIMENTS)) as tick:
        results = run_experiments(fits, processes or os.cpu_count() or 1, quick=quick, progress=tick)
    few = f"{counted(fits, 'set')} of throughputs, {results.rounds} repetitions" if quick else ""
    return reproduction(results, few)


@app.command("all")
def every_paper(
    traces: Annotated[
        Path | None, option("--traces", "Folder with elasticflow_itp.parquet and philly.parquet; else generated.")
    ] = None,
    folder: FolderOption = Path("out/repro"),
    papers: Annotated[str, option("--papers", "Which, with commas between.")] = "titan,netpack,cassini,has",
    seeds: Annotated[
        int | None, option("--seeds", "Repetitions; without this, as many as each paper's own command.", min=1)
    ] = None,
    quick: Annotated[bool, option("--quick", "With few jobs, and without verdicts.")] = False,
    processes: options.ProcessesOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rebuild the evaluations of all four papers, each in a folder of its own, and a page that sums them up.

    Example: cranny repro all --traces ../shared/traces --out out/repro
    """
    from cranny.report.text_table import terminal_table
    from cranny.repro.cassini.evaluation import KEYS
    from cranny.repro.index_page import index_table, write_index
    from cranny.repro.netpack.setups import EXPERIMENTS as NETPACK_EXPERIMENTS
    from cranny.repro.titan.paper import EXPERIMENTS as TITAN_EXPERIMENTS

    rebuild: dict[str, Callable[..., Reproduction]] = {
        "titan": partial(_titan, traces, TITAN_EXPERIMENTS, seeds or TITAN_SEEDS),
        "netpack": partial(_netpack, traces, [*NETPACK_EXPERIMENTS, "10", "15"], seeds or NETPACK_SEEDS),
        "cassini": partial(_cassini, KEYS, seeds or CASSINI_SEEDS),
        "has": partial(_has, seeds or HAS_FITS),
    }
    chosen = _chosen(papers, "--papers", rebuild)
    _check(folder)
    found = []
    for name in chosen:  # each is written when it is done: the next ones take minutes
        found.append(rebuild[name](processes, quick=quick))
        found[-1].write(folder / found[-1].of.name)
    page = write_index(found, folder)
    if as_json:
        print_json({each.of.name: each.as_json() for each in found})
    else:
        out.print(terminal_table(index_table(found)))
        say(f"page: {page}")


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
        raise InputError(f"{name}: nothing was chosen of {', '.join(known)}")
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
    for claim in found.judged:
        out.print(f"{claim.title}: {claim.verdict}", style="bold", markup=False)
        if claim.stated:
            out.print(f"The paper: {claim.stated}.", markup=False)
        out.print(claim.text, markup=False)
        out.print()
    say(f"page: {page}")
