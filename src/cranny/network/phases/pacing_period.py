"""Pacing: the periods that agents keep, on which the iterations of several jobs stay interleaved.

CASSINI (NSDI'24) shifts jobs on their unified circle, whose perimeter is a whole number of iterations of each.
Measured iteration times are no exact fractions of any perimeter, and computing takes now longer, now shorter. So
jobs that were shifted once drift apart, and their agents bring back a job that is off by more than 5 % (Sec.
5.7). The paper asks that of compatible jobs only.

Departure: the paper does not say to what period, nor what an agent does between. Ours gives each job a period: the
perimeter, long enough for the slowest job, over the job's turns. And no iteration starts before its period does.
The paper's rule alone, `hold=False`, lets the start of an iteration drift: see
docs/understand/phases.md.

Departure: the paper does not say which jobs are compatible. Here those are that share links and can keep one
perimeter of a few iterations, on which no period is more than 5 % longer than an iteration alone. A job that
cannot runs freely, and those around it are paced all the same.

Departure: periods may be longer than the perimeter by some slack. A job that was late, by jitter or because
another job was on one of its links, is then on time after a few iterations; without slack it would be late for
good, and delay others. How much slack is best is found by simulating the jobs with several, and without agents:
agents pace jobs only where that is faster.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from cranny.network.interleave.unified_circle import DEFAULT, Search, unify
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.segments import PhasedJob

TOLERANCE = 0.05  # of the period (Sec. 5.7)
DEVIATIONS = 4.0  # of jitter, that jobs need as slack which fill a link
FEWER_DEVIATIONS = 1.0  # those that do not may need less
SLACKS = (0.02, 0.05, 0.1, 0.2)  # beyond what jitter takes
FEW_TURNS = Search(turns=4)  # of compatible jobs: the more, the less a shift can keep them apart
_FASTER = 1e-9


class PacedRun(NamedTuple):
    """Jobs with the periods that their agents keep, 0 where a job runs freely, and how they were simulated."""

    jobs: Sequence[PhasedJob]
    run: PhasedRun


def with_periods(phased_jobs: Sequence[PhasedJob], jitter: float = 0.0) -> list[PhasedJob]:
    """Return the same jobs, each with the period that its agent keeps, and its shift within it."""
    return _with_slack(phased_jobs, DEVIATIONS * _late(phased_jobs, jitter))


def _with_slack(phased_jobs: Sequence[PhasedJob], slack: float, search: Search = DEFAULT) -> list[PhasedJob]:
    """Return jobs with periods that are so much longer than their perimeter takes."""
    turns = unify(tuple([phased_job.iteration_s for phased_job in phased_jobs]), search).turns
    perimeter_s = max(each * phased_job.iteration_s for each, phased_job in zip(turns, phased_jobs, strict=True))
    found = []
    for each, phased_job in zip(turns, phased_jobs, strict=True):
        period_s = perimeter_s / each * (1.0 + slack)
        found.append(replace(phased_job, period_s=period_s, shift_s=phased_job.shift_s * (1.0 + slack) % period_s))
    return found


def _late(phased_jobs: Sequence[PhasedJob], jitter: float) -> float:
    """Return the standard deviation of iterations, in iterations: jitter is of computing, so of down phases."""
    down_s = [sum(part.seconds for part in each.segments if not part.uses) for each in phased_jobs]
    return jitter * max(down / each.iteration_s for down, each in zip(down_s, phased_jobs, strict=True))


def with_agents(
    phased_jobs: Sequence[PhasedJob],
    shifted: Sequence[bool],
    link_gbps: Sequence[float],
    jitter: float,
    simulate: Callable[[Sequence[PhasedJob]], PhasedRun],
) -> PacedRun:
    """Simulate jobs, the compatible ones of those that are shifted with the periods at which all are fastest.

    They are never slower on average than without agents, which is tried as well. Simulations end once jobs that
    keep the periods left to try, none of which can be faster, would not be faster than what was found.
    """
    sets = compatible(phased_jobs, shifted, link_gbps)
    options = [*_paced(phased_jobs, sets, link_gbps, jitter), phased_jobs]
    first, *others = sorted(options, key=_least_time)
    best = PacedRun(first, simulate(first))
    for jobs in others:
        least = _time(phased_jobs, best.run) - _FASTER
        if _least_time(jobs) >= least:
            break
        found = PacedRun(jobs, simulate(jobs))
        if _time(phased_jobs, found.run) < least:
            best = found
    return best


def _time(phased_jobs: Sequence[PhasedJob], run: PhasedRun) -> float:
    """Return what iterations of all jobs take, each in those alone."""
    both = zip(run.outcomes, phased_jobs, strict=True)
    return sum(outcome.mean_s / job.iteration_s for outcome, job in both)


def _least_time(phased_jobs: Sequence[PhasedJob]) -> float:
    """Return the same for jobs that keep their periods, and lose no time to others."""
    return sum(max(job.period_s / job.iteration_s, 1.0) for job in phased_jobs)


def compatible(
    phased_jobs: Sequence[PhasedJob], shifted: Sequence[bool], link_gbps: Sequence[float]
) -> list[list[int]]:
    """Return sets of shifted jobs, by their places, that share links and can keep one perimeter.

    Links are taken in the order of their load, and the jobs of a link in that of what they send.
    """
    sets = {number: [number] for number, is_shifted in enumerate(shifted) if is_shifted}
    on: dict[int, list[int]] = {}
    for number in sets:
        for link in phased_jobs[number].circles:
            on.setdefault(link, []).append(number)

    def load(link: int) -> float:
        return sum(phased_jobs[number].circles[link].mean_gbps for number in on[link]) / link_gbps[link]

    for link in sorted(on, key=lambda link: (-load(link), link)):
        first, *others = sorted(on[link], key=lambda number: -phased_jobs[number].circles[link].gigabits)
        for other in others:
            together = sorted({*sets[first], *sets[other]})
            jobs = _with_slack([phased_jobs[number] for number in together], 0.0, FEW_TURNS)
            if all(job.period_s <= job.iteration_s * (1.0 + TOLERANCE) for job in jobs):
                sets |= dict.fromkeys(together, together)
    return [each for number, each in sets.items() if number == each[0] and len(each) > 1]


def _paced(
    phased_jobs: Sequence[PhasedJob], sets: Sequence[Sequence[int]], link_gbps: Sequence[float], jitter: float
) -> Iterator[list[PhasedJob]]:
    """Yield the jobs with periods for those in the sets, with several slacks; nothing if there are none.

    A set runs freely where the slack leaves too little time for what its jobs send over a link.
    """
    if not sets:
        return
    loads = [_load([phased_jobs[number] for number in each], link_gbps) for each in sets]
    late = max(_late([phased_jobs[number] for number in each], jitter) for each in sets)
    slacks = [DEVIATIONS * late, *[DEVIATIONS * late + more for more in SLACKS]]
    if late:
        slacks.append(FEWER_DEVIATIONS * late)
    for slack in slacks:
        jobs = list(phased_jobs)
        for each, load in zip(sets, loads, strict=True):
            if 1.0 + slack >= load - TOLERANCE:
                paced = _with_slack([jobs[number] for number in each], slack, FEW_TURNS)
                for number, job in zip(each, paced, strict=True):
                    jobs[number] = job
        if jobs != phased_jobs:
            yield jobs


def _load(phased_jobs: Sequence[PhasedJob], link_gbps: Sequence[float]) -> float:
    """Return the mean demand of jobs on their fullest link, in its capacity."""
    loads: dict[int, float] = {}
    for job in phased_jobs:
        for link, circle in job.circles.items():
            loads[link] = loads.get(link, 0.0) + circle.mean_gbps / link_gbps[link]
    return max(loads.values())
