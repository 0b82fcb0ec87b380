"""The bench case: every policy in every world."""

import os
from functools import partial
from pathlib import Path

from benchmarks.measure import Measured, judged_policy
from benchmarks.regret import judgement, tables
from benchmarks.regret.judgement import WORST
from benchmarks.regret.replays import SEEDS, Found, replay_all
from benchmarks.regret.screening import replay_world
from benchmarks.regret.world import Contender
from benchmarks.regret.worlds import WORLDS

OUT = Path("out") / "regret"
PROCESSES = os.cpu_count()


def default_traces() -> Path | None:
    """Return the folder of real logs beside the project, if it is there."""
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "traces").is_dir():
            return parent / "shared" / "traces"
    return None


def run() -> Measured:
    """Replay all that is not known yet; report worst cell and mean, and every cell above the limit."""
    own = Contender(judged_policy())
    replayed = partial(
        replay_all,
        traces=default_traces(),
        folder=OUT,
        processes=PROCESSES,
        anew=lambda cell: cell.contender == own,
    )
    found: Found = {}
    for world in WORLDS.values():
        found |= replay_world(world, SEEDS, own, replayed)
    rows = judgement.rows(found)
    limits = [budget for budget, _ in tables.verdicts(rows, own)]
    metrics = {budget.name: budget.value for budget in limits}
    for part, score in tables.scores(rows, own).items():
        name = part.replace("-", "_")
        metrics |= {f"cells_{name}": score.cells, f"ahead_{name}": score.ahead}
    metrics |= {
        f"{cell.name}, {cell.part}": cell.value
        for row in rows
        for cell in judgement.judge(row, own)
        if cell.value > WORST
    }
    return Measured("regret", metrics, limits)
