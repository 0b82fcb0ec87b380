"""What no policy can go below: no job waits, communicates or stops, and machines are always full.

All jobs at once cannot have that, so the true optimum lies above. Only for jobs that keep their size, on GPUs of
one type.
"""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.regret.judgement import Ratio, Row, judge
from benchmarks.regret.paper_worlds import CassiniWorld, HasWorld
from benchmarks.regret.world import Contender, World
from cranny.sim.metrics import SECONDS_PER_HOUR


def lower_bounds(world: World, seed: int, traces: Path | None) -> dict[str, float]:
    """Return a value for each metric that no policy is below; nothing where jobs can be resized."""
    if isinstance(world, CassiniWorld | HasWorld):
        return {}
    scenario = world.scenario(Contender("best-fit"), seed, traces)
    jobs = list(scenario.jobs())
    duration_s = np.array([job.duration_s or 0.0 for job in jobs])
    gpus = np.array([job.gpus for job in jobs])
    largest = max(machine.gpus for machine in scenario.cluster.machines)
    return {
        "machine_hours": float(gpus @ duration_s) / largest / SECONDS_PER_HOUR,
        "mean_jct_s": float(duration_s.mean()),
        "p99_jct_s": float(np.quantile(duration_s, 0.99)),
        "mean_slowdown": 1.0,
    }


def least_ratios(row: Row, own: Contender, traces: Path | None) -> dict[str, float]:
    """Return the lowest ratio to the best other policy that any policy could have, by metric."""
    cells: Sequence[Ratio] = judge(row, own)
    bounds = {seed: lower_bounds(row.world, seed, traces) for seed in row.measures.get(own, ())}
    found = {}
    for cell in cells:
        best = row.measures[Contender.read(cell.best)]
        logs = [
            math.log(each[cell.metric] / best[seed][cell.metric])
            for seed, each in bounds.items()
            if cell.metric in each
        ]
        if logs:
            found[cell.metric] = math.exp(math.fsum(logs) / len(logs))
    return found
