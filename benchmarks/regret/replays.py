"""All replays of some worlds: what is known comes from a folder, the rest runs side by side in processes."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.regret.measures import measured
from benchmarks.regret.world import Contender, World
from cranny.analysis.sweep.cell import CellOutcome, CellStore, SweepCell
from cranny.run import Progress, run, run_many
from cranny.version import VERSION

TUNED, HELD_OUT = "tuned", "held-out"
PARTS = (TUNED, HELD_OUT)
SEEDS = 10  # of each part
FIRST_HELD_OUT = 10


class RegretCell(NamedTuple):
    """One replay."""

    world: World
    contender: Contender
    seed: int

    def sweep_cell(self, *, real: bool) -> SweepCell:
        """Return its settings for the folder that keeps what was found."""
        axes: dict[str, str | float | None] = {
            "world": self.world.key,
            "policy": self.contender.label,
            "seed": self.seed,
        }
        return SweepCell(axes, {**axes, "setup": repr(self.world), "real": real, "cranny": VERSION})


Found = dict[RegretCell, CellOutcome]


def seeds_of(world: World, part: str, count: int) -> range:
    """Return the seeds of a part, at most ten to tune on; a world whose mix is held out has none of these."""
    if part == TUNED:
        return range(0 if world.held_out else min(count, FIRST_HELD_OUT))
    return range(FIRST_HELD_OUT, FIRST_HELD_OUT + count)


def part_of(cell: RegretCell) -> str:
    """Return the part that a replay belongs to."""
    return HELD_OUT if cell.seed >= FIRST_HELD_OUT else TUNED


def plan(
    worlds: Iterable[World], contenders: Sequence[Contender] | None, seeds: int, parts: Sequence[str] = PARTS
) -> list[RegretCell]:
    """Return all replays; `contenders` are all that make sense in a world if None."""
    return [
        RegretCell(world, contender, seed)
        for world in worlds
        for part in parts
        for seed in seeds_of(world, part, seeds)
        for contender in (world.contenders() if contenders is None else contenders)
        if world.takes(contender)
    ]


def replay_all(
    cells: Sequence[RegretCell],
    traces: Path | None,
    folder: Path,
    *,
    processes: int | None = 1,
    anew: Callable[[RegretCell], bool] = lambda _: False,
    progress: Progress | None = None,
) -> Found:
    """Return what every replay found; one that is in the folder is taken from there, unless wanted `anew`."""
    known = in_folder([cell for cell in cells if not anew(cell)], traces, folder)
    missing = [cell for cell in cells if cell not in known]
    store = CellStore(folder)

    def keep(number: int, outcome: CellOutcome) -> None:
        if outcome.summary is not None:
            store.save(missing[number].sweep_cell(real=traces is not None), outcome.summary)

    calls = [partial(replay, cell, traces) for cell in missing]
    found = run_many(calls, failed=CellOutcome.failed, processes=processes, progress=progress, ended=keep)
    fresh = dict(zip(missing, found, strict=True))
    return {cell: known.get(cell) or fresh[cell] for cell in cells}


def in_folder(cells: Sequence[RegretCell], traces: Path | None, folder: Path) -> Found:
    """Return what is known of replays without any more of them."""
    store, real = CellStore(folder), traces is not None
    loaded = ((cell, store.load(cell.sweep_cell(real=real))) for cell in cells)
    return {cell: outcome for cell, outcome in loaded if outcome is not None}


def of_whole_seeds(cells: Sequence[RegretCell], found: Found) -> Found:
    """Leave out the seeds with which some replay is missing, so that all policies are compared on the rest."""
    broken = {(cell.world.key, cell.seed) for cell in cells if cell not in found}
    return {cell: each for cell, each in found.items() if (cell.world.key, cell.seed) not in broken}


def replay(cell: RegretCell, traces: Path | None) -> CellOutcome:
    """Replay one cell and keep its measures."""
    scenario = cell.world.scenario(cell.contender, cell.seed, traces)
    began = time.process_time()
    result = run(scenario)
    return CellOutcome(measured(cell.world, result, cell.seed, time.process_time() - began))
