"""Titan's time for one decision: it must not grow with the cluster."""

import statistics
import time

import numpy as np

from benchmarks.measure import Budget, Measured, reference
from cranny.core.protocol import Placer
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import library
from cranny.policies.titan import Titan

GPUS = (1_000, 10_000, 100_000)
MAX_WORKERS = 64
DECISIONS = 3_000
REFERENCE_DECISIONS = 40


def run() -> Measured:
    """Measure decisions on clusters filled to the brim and then emptied by half, at random."""
    metrics: dict[str, float] = {}
    for gpus in GPUS:
        times_us = decisions_us(Titan(), half_full(gpus))
        metrics[f"median_us_{gpus}"] = statistics.median(times_us)
        metrics[f"p99_us_{gpus}"] = float(np.quantile(times_us, 0.99))
    metrics["growth"] = metrics[f"median_us_{GPUS[-1]}"] / metrics[f"median_us_{GPUS[0]}"]
    slow = reference("titan")
    if slow is not None:
        metrics["times_faster_than_reference"] = _against(slow.place, half_full(GPUS[0]))
    return Measured(
        "decide",
        metrics,
        [
            Budget("growth", metrics["growth"], 2.0),
            Budget(f"median_us_{GPUS[-1]}", metrics[f"median_us_{GPUS[-1]}"], 100.0),
        ],
    )


def half_full(gpus: int, seed: int = 0) -> ClusterState:
    """Return a cluster filled with jobs of 1 to 64 workers, half of which have ended."""
    rng = np.random.default_rng(seed)
    state = ClusterState(Cluster.fat_tree(-(-gpus // 64), 8, 8))
    titan = Titan()
    ids = []
    for job in _jobs(rng, gpus):
        placement = titan.place(job, state.snapshot())
        if placement is None:
            break
        state.place(job, placement)
        ids.append(job.id)
    for index in rng.permutation(len(ids)):
        if state.held_gpus <= state.cluster.gpus // 2:
            break
        state.release(ids[index])
    return state


def _jobs(rng: np.random.Generator, count: int) -> list[Job]:
    models = sorted(library())
    sizes = rng.integers(1, MAX_WORKERS + 1, count)
    drawn = rng.integers(0, len(models), count)
    return [
        Job(id=f"job-{i}", gpus=int(size), model=models[model], collective="halving-doubling")
        for i, (size, model) in enumerate(zip(sizes, drawn, strict=True))
    ]


def decisions_us(placer: Placer, state: ClusterState) -> list[float]:
    """Time decisions on an unchanging view; the first third warms up."""
    view = state.snapshot()
    times_us = []
    for job in _jobs(np.random.default_rng(1), DECISIONS):
        began = time.perf_counter_ns()
        placer.place(job, view)
        times_us.append((time.perf_counter_ns() - began) / 1e3)
    return times_us[DECISIONS // 3 :]


def _against(place: object, state: ClusterState) -> float:
    """Return how many times longer the literal algorithm takes for the same jobs."""
    titan, view = Titan(), state.snapshot()
    jobs = _jobs(np.random.default_rng(2), REFERENCE_DECISIONS)
    for job in jobs:
        titan.place(job, view)
    began = time.process_time()
    for job in jobs:
        titan.place(job, view)
    fast_s = time.process_time() - began
    began = time.process_time()
    for job in jobs:
        place(job, view)  # type: ignore[operator]
    return (time.process_time() - began) / fast_s
