"""Two jobs that share a link, with shifts and without: how long their iterations take.

Each computes for as long as it exchanges gradients, so that the link is always in use if they take turns. A third
job, which computes for nearly all of its time, may join them; or computing of one of them may take ever longer.

Policies are measured at the same time, each with a service, jobs and links of its own: what else the machine does
meets all of them.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.testbed import network
from benchmarks.testbed.served import IterationTimes, Measured, ServedCluster, TestbedError, TrainingJob, served

COMPUTE_S, GRADIENT_MB = 0.2, 2.5  # which take 0.2 s on a link of 0.1 Gbps
JITTER = 0.01
DRIFT = 0.02  # of an iteration alone
SETTLE_S = 15.0  # in which periods follow what was measured at the start
FIRST = TrainingJob("first", COMPUTE_S, GRADIENT_MB, JITTER)
SECOND = TrainingJob("second", COMPUTE_S, GRADIENT_MB, JITTER)
LIGHT = TrainingJob("light", 0.25, 0.25, JITTER)
RECENT, APART, APART_S = 6, 0.1, 30.0  # iterations, of which so little overlaps; seconds to wait for that
BLOCKS = 10  # of a stretch of time, drawn anew: iterations that follow each other are alike
DRAWS = 2000
LIKELY = (2.5, 97.5)  # percentiles

FloatArray = NDArray[np.float64]


class Course(NamedTuple):
    """How two jobs trained, and then three if a third one joined."""

    two: tuple[Measured, ...]
    three: tuple[Measured, ...] = ()


class Gain(NamedTuple):
    """How many times longer iterations take without shifts than with them, and what is likely."""

    times: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.times:.2f}x ({self.least:.2f} to {self.most:.2f})"


def mean_s(jobs: Sequence[Measured]) -> float:
    """Return the seconds of an iteration, on average over jobs."""
    return sum(each.mean_s for each in jobs) / len(jobs)


def gain(before: Sequence[Sequence[Measured]], after: Sequence[Sequence[Measured]], seed: int = 0) -> Gain:
    """Return what jobs gain over one or more rounds, with a 95 % interval by a bootstrap over blocks of time.

    The rounds of both were measured at the same times, so their blocks are drawn together.
    """
    olds, news = ([_blocks(jobs) for jobs in rounds] for rounds in (before, after))
    old, new = (np.concatenate(each, axis=-1) for each in (olds, news))
    count = old.shape[-1]
    drawn = np.random.default_rng(seed).integers(count, size=(DRAWS, count))
    # A job that stood still has no iterations in some blocks: where only these are drawn, it has no mean.
    iterations = [each[1][:, drawn].sum(axis=-1) for each in (old, new)]
    drawn = drawn[np.all(iterations, axis=(0, 1))]
    ratios = _mean_of(old[..., drawn]) / _mean_of(new[..., drawn])
    least, most = np.percentile(ratios, LIKELY)
    return Gain(float(_mean_of(old) / _mean_of(new)), float(least), float(most))


def overlap(first: Measured, second: Measured) -> float:
    """Return the share of the first one's exchanges during which the second one exchanges as well."""
    both_s = sum(_common_s(each, other) for each in first.times for other in second.times)
    return both_s / sum(each.end_s - each.computed_s for each in first.times)


def courses(
    policies: Sequence[str],
    seconds: float,
    *,
    joined_s: float = 0.0,
    drifts: bool = False,
    together: bool = False,
    settle_s: float = SETTLE_S,
    links: network.Links = network.FIFO,
) -> list[Course]:
    """Let two jobs train under each of some policies, all at the same time, and later a third one with them.

    With `drifts`, iterations of the second one alone take 2 % longer in the end. With `together` both start at
    the same time; otherwise the second one is submitted once the first one trains.
    """
    grows_s = DRIFT * 2 * COMPUTE_S if drifts else 0.0
    jobs = [FIRST, SECOND._replace(grows_by_s=grows_s, grows_for_s=seconds)]
    with ExitStack() as stack:
        clusters = []
        for policy in policies:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            clusters.append(stack.enter_context(served(policy, folder, links)))
        _start(clusters, jobs, together=together)
        two = _measure(clusters, jobs, settle_s, seconds)
        if not joined_s:
            return [Course(found) for found in two]
        for cluster in clusters:
            cluster.submit(LIGHT, 2)
        for cluster in clusters:
            cluster.started(LIGHT)
        three = _measure(clusters, [*jobs, LIGHT], settle_s, joined_s)
        return [Course(*found) for found in zip(two, three, strict=True)]


def once_shifted(folder: Path, policies: Sequence[str], seconds: float) -> list[tuple[Course, Course]]:
    """Let two jobs start together, and then shift them by each of some policies: how they train before and after.

    Before are the first seconds, since jobs that start together come apart by themselves later. Iterations of the
    second one alone take 2 % longer in the end. One service and one start of the jobs take less time than two, and
    the jobs are the same. Policies are measured at the same time, as above.
    """
    jobs = [FIRST, SECOND._replace(grows_by_s=DRIFT * 2 * COMPUTE_S, grows_for_s=2 * seconds)]
    with ExitStack() as stack:
        clusters = []
        for policy in policies:
            (folder / policy).mkdir(parents=True)
            clusters.append(stack.enter_context(served("themis", folder / policy)))
        _start(clusters, jobs, together=True)
        before = [_first(cluster, jobs, seconds) for cluster in clusters]
        if any(cluster.paces() for cluster in clusters):
            raise TestbedError("jobs are shifted by a policy that should not")
        for cluster, policy in zip(clusters, policies, strict=True):
            cluster.set_policy(policy)
        for cluster in clusters:
            cluster.paced(len(jobs))
        for cluster in clusters:
            _wait_until_apart(cluster, *jobs)
        after = _measure(clusters, jobs, 0.0, seconds)
        return [(Course(old), Course(new)) for old, new in zip(before, after, strict=True)]


def _first(cluster: ServedCluster, jobs: Sequence[TrainingJob], seconds: float) -> tuple[Measured, ...]:
    """Measure jobs from the start of the first one on; not their first iterations, which set things up."""
    until_s = min(cluster.times(job)[0].before_s for job in jobs) + seconds
    time.sleep(max(0.0, until_s - time.monotonic()))
    found = [[each for each in cluster.times(job)[1:] if each.before_s < until_s] for job in jobs]
    if not all(found):
        raise TestbedError(f"a job does not train within {seconds:.0f} s")
    return tuple([Measured(tuple(times)) for times in found])


def _wait_until_apart(cluster: ServedCluster, first: TrainingJob, second: TrainingJob) -> None:
    """Wait until two jobs take turns, or for so long that they do not."""
    until_s = time.monotonic() + APART_S
    while time.monotonic() < until_s:
        latest = [Measured(tuple(cluster.times(job)[-RECENT:])) for job in (first, second)]
        if overlap(*latest) < APART:
            return
        time.sleep(0.5)


def _start(clusters: Sequence[ServedCluster], jobs: Sequence[TrainingJob], *, together: bool) -> None:
    """Submit jobs to all clusters, and wait until they train."""
    if together:
        for cluster in clusters:
            for place, job in enumerate(jobs):
                cluster.submit(job, place, cluster.folder / "begin")
        for cluster in clusters:
            for job in jobs:
                cluster.ready(job)
        for cluster in clusters:
            (cluster.folder / "begin").touch()
    for place, job in enumerate(jobs):
        for cluster in clusters:
            if not together:
                cluster.submit(job, place)
        for cluster in clusters:
            cluster.started(job)


def _measure(
    clusters: Sequence[ServedCluster], jobs: Sequence[TrainingJob], settle_s: float, seconds: float
) -> list[tuple[Measured, ...]]:
    """Measure the jobs of all clusters over the same seconds."""
    time.sleep(settle_s)
    since_s = time.monotonic()
    time.sleep(seconds)
    return [tuple([cluster.measured(job, since_s) for job in jobs]) for cluster in clusters]


def _blocks(jobs: Sequence[Measured]) -> FloatArray:
    """Return seconds and iterations of each job in each block of time."""
    from_s = min(each.times[0].before_s for each in jobs)
    to_s = max(each.times[-1].end_s for each in jobs)
    found = np.zeros((2, len(jobs), BLOCKS))
    for place, job in enumerate(jobs):
        for each in job.times:
            block = min(BLOCKS - 1, int((each.before_s - from_s) / (to_s - from_s) * BLOCKS))
            found[:, place, block] += each.end_s - each.before_s, 1.0
    return found


def _mean_of(blocks: FloatArray) -> FloatArray:
    """Return the mean seconds of an iteration over blocks, on average over jobs."""
    seconds, iterations = blocks.sum(axis=-1)
    return (seconds / iterations).mean(axis=0)  # type: ignore[no-any-return]


def _common_s(one: IterationTimes, other: IterationTimes) -> float:
    """Return for how long two iterations exchange gradients at the same time."""
    return max(0.0, min(one.end_s, other.end_s) - max(one.computed_s, other.computed_s))
