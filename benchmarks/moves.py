"""One search for moves that pay, which a service makes between two decisions: it must not take long."""

import time

import numpy as np

from benchmarks.decide import half_full
from benchmarks.measure import Budget, Measured
from cranny.model.job import Job
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
        rng = np.random.default_rng(0)
        left_s = {job_id: float(rng.uniform(*LENGTHS_S)) for job_id in view.running}

        def of(job: Job, _ran_s: float, left_s: dict[str, float] = left_s) -> float:
            return left_s[job.id]

        began = time.process_time()
        found = proposed_moves(view, MoveRules(lambda _: True, of))
        metrics[f"cpu_s_{gpus}"] = time.process_time() - began
        metrics[f"jobs_{gpus}"] = len(view.running)
        metrics[f"moves_{gpus}"] = sum(len(group.moves) for group in found)
    budgets = [Budget(f"cpu_s_{gpus}", metrics[f"cpu_s_{gpus}"], most_s) for gpus, most_s in MOST_S.items()]
    return Measured("moves", metrics, budgets)
