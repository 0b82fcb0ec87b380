"""Hours of training, played phase by phase, in a CPU-second.

`plain` is jobs without jitter, which may soon go round in a cycle; `jitter` is the same jobs with computing
times that vary by 2 %, where every phase of every iteration is played. Jobs are VGG-like: an iteration of a
quarter of a second, half of it communication at the full rate of their links. `rack` is two jobs on one link,
held on their beat; `cluster` is eight jobs in a ring, each sharing a link with the next. `group_ms` is what a
change of such a group costs a simulation with `--network phases`: the time until its cycle is known, from a
start that is not remembered.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.measure import Budget, Measured, reference
from cranny.model.circle import Circle
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.pacing_period import with_periods
from cranny.network.phases.phased_run import long_run, run_for
from cranny.network.phases.segments import PhasedJob

HOURS = 10.0
RUNS = 3
GROUPS = 50
REFERENCE_S = 5.0
REFERENCE_STEP_S = 0.001
LINK_GBPS = 50.0
ITERATION_S = 0.25
JITTER = 0.02
SECONDS_PER_HOUR = 3600.0


def run() -> Measured:
    """Play two jobs and eight, with jitter and without; then a few seconds against stepping through time."""
    cases = {"rack": _rack(), "cluster": _ring(8)}
    metrics: dict[str, float] = {}
    for name, (phased_jobs, links) in cases.items():
        run_for(phased_jobs, links, 1.0)  # compiled before time is taken
        plain_s = _cpu_s(partial(run_for, phased_jobs, links, HOURS * SECONDS_PER_HOUR))
        jitter_s = _cpu_s(partial(_with_jitter, with_periods(phased_jobs, JITTER), links))
        metrics[f"hours_per_cpu_s_plain_{name}"] = HOURS / plain_s
        metrics[f"hours_per_cpu_s_jitter_{name}"] = HOURS / jitter_s
    metrics["group_ms"] = _group_ms()
    book = reference("phases")
    if book is not None:
        phased_jobs, links = cases["rack"]
        jobs = [(phased_job.circles, phased_job.shift_s) for phased_job in phased_jobs]
        slow = _cpu_s(lambda: book.stepped(jobs, links, REFERENCE_S, REFERENCE_STEP_S), runs=1)
        fast = _cpu_s(lambda: run_for(phased_jobs, links, REFERENCE_S, links=True))
        metrics["times_faster_than_reference"] = slow / fast
    budgets = [Budget(name, value, 5.0, at_least=True) for name, value in metrics.items() if "hours" in name]
    return Measured("phases", metrics, [*budgets, Budget("group_ms", metrics["group_ms"], 20.0)])


def _with_jitter(phased_jobs: Sequence[PhasedJob], links: Sequence[float]) -> PhasedRun:
    return run_for(phased_jobs, links, HOURS * SECONDS_PER_HOUR, jitter=JITTER, rng=np.random.default_rng(0))


def _rack() -> tuple[list[PhasedJob], list[float]]:
    """Return two jobs that take turns on one link."""
    half = Circle.half_up(ITERATION_S, LINK_GBPS)
    return [PhasedJob({0: half}), PhasedJob({0: half}, ITERATION_S / 2)], [LINK_GBPS]


def _ring(jobs: int) -> tuple[list[PhasedJob], list[float]]:
    """Return jobs of four iteration times, each on two links that it shares with its neighbours."""
    phased_jobs = []
    for job in range(jobs):
        circle = Circle.half_up(ITERATION_S * (1.0 + 0.1 * (job % 4)), LINK_GBPS)
        phased_jobs.append(PhasedJob({job: circle, (job + 1) % jobs: circle}, ITERATION_S / 2 * (job % 2)))
    return phased_jobs, [LINK_GBPS] * jobs


def _group_ms() -> float:
    """Return the mean time until the outcome of eight jobs is known, over many starts."""
    rng = np.random.default_rng(0)
    phased_jobs, links = _ring(8)
    drawn: Sequence[list[PhasedJob]] = [
        [PhasedJob(phased_job.circles, float(rng.random()) * phased_job.iteration_s) for phased_job in phased_jobs]
        for _ in range(GROUPS)
    ]
    return 1e3 * _cpu_s(lambda: [long_run(group, links) for group in drawn], runs=1) / GROUPS


def _cpu_s(work: Callable[[], object], runs: int | None = None) -> float:
    """Return the least CPU time of some runs."""
    best = np.inf
    for _ in range(runs or RUNS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return max(float(best), 1e-9)
