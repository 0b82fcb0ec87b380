"""One search for moves that pay, which a service makes between two decisions: it must not take long."""

import time

import numpy as np

from benchmarks.decide import half_full
from benchmarks.measure import Budget, Measured
from cranny.core.snapshot import Snapshot
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import MoveRules

GPUS = (1_000, 10_000, 100_000)
MOST_S = {1_000: 1.0, 100_000: 10.0}  # by GPUs
LENGTHS_S = 1_000.0, 100_000.0


def run() -> Measured:
    """Time searches on clusters half full, in which all jobs may move; the first is not counted."""
    metrics: dict[str, float] = {}
    for gpus in (GPUS[0], *GPUS):
        view = half_full(gpus).snapshot()
        rules = _any_may_move(view)
        began = time.process_time()
        found = proposed_moves(view, rules)
        metrics[f"cpu_s_{gpus}"] = time.process_time() - began
        metrics[f"jobs_{gpus}"] = len(view.running)
        metrics[f"moves_{gpus}"] = sum(len(group.moves) for group in found)
    budgets = [Budget(f"cpu_s_{gpus}", metrics[f"cpu_s_{gpus}"], most_s) for gpus, most_s in MOST_S.items()]
    return Measured("moves", metrics, budgets)


def _any_may_move(view: Snapshot) -> MoveRules:
    """Return rules by which all jobs may move, whose lengths are drawn at random."""
    rng = np.random.default_rng(0)
    left_s = {job_id: float(rng.uniform(*LENGTHS_S)) for job_id in view.running}
    return MoveRules(lambda _: True, lambda job, _: left_s[job.id])
