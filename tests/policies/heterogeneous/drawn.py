"""Random problems, the example of the paper, and what becomes of a problem with resets."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares, Training

EXAMPLE = Problem(
    (Training("ResNet-18", 100_000, 200), Training("VGG-19", 50_000, 200)),
    ("T4", "V100"),
    [[2, 2]],
    [[275, 644], [884, 1754]],
)


def drawn(rng: np.random.Generator, jobs: int, kinds: int, machines: int, most: int) -> Problem:
    """Draw a problem with up to `most` workers of a type on a machine; some jobs cannot run everywhere."""
    counts = rng.integers(0, most + 1, (machines, kinds))
    while counts.sum() < jobs + 1:
        counts[rng.integers(machines), rng.integers(kinds)] += 1
    rates = rng.uniform(50, 500, (jobs, 1)) * np.sort(rng.uniform(1, 6, (jobs, kinds)), axis=1)
    trainings = tuple(
        Training(
            f"job{job}",
            int(rng.integers(1000, 200_000)),
            int(rng.integers(1, 200)),
            float(rng.uniform(1e7, 2e9)),
            weight=float(rng.choice([1, 1, 2, 5])),
        )
        for job in range(jobs)
    )
    gpu_types = tuple(f"type{kind}" for kind in range(kinds))
    return Problem(trainings, gpu_types, counts.tolist(), rates.tolist(), 300, float(rng.choice([1, 10, 100])))


def with_resets(problem: Problem, solve: Callable[[Problem], Shares]) -> Floats:
    """Return when each job ends if workers are divided anew whenever one does, and moves cost nothing."""
    left, done, now_s = dict.fromkeys(range(len(problem.jobs)), 1.0), np.zeros(len(problem.jobs)), 0.0
    while left:
        jobs = tuple(
            replace(problem.jobs[job], epochs=part * problem.jobs[job].epochs) for job, part in left.items()
        )
        times = solve(replace(problem, jobs=jobs, throughput=[problem.throughput[job] for job in left])).jct_s
        now_s += times.min()
        for job, time_s in zip(tuple(left), times.tolist(), strict=True):
            left[job] *= 1 - times.min() / time_s
            if left[job] < 1e-12:
                done[job] = now_s
                del left[job]
    return done
