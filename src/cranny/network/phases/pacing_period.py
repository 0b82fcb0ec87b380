"""Pacing: the periods that agents keep, on which the iterations of several jobs stay interleaved.

CASSINI (NSDI'24) shifts jobs on their unified circle, whose perimeter is a whole number of iterations of each.
Measured iteration times are no exact fractions of any perimeter, and computing takes now longer, now shorter. So
jobs that were shifted once drift apart, and their agents bring back a job that is off by more than 5 % (Sec.
5.7).

Departure: the paper does not say to what period, nor what an agent does between. Ours gives each job a period: the
perimeter, long enough for the slowest job, over the job's turns. And no iteration starts before its period does.
The paper's rule alone, `hold=False`, lets the start of an iteration drift: see
docs/understand/phases.md.

Departure: under jitter periods are longer by four standard deviations of the iteration time. A job that was late
is then on time after a few iterations; without that, it would be late for good, and delay others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress

from cranny.network.interleave.unified_circle import unify
from cranny.network.phases.outcome import PhasedRun
from cranny.network.phases.segments import PhasedJob

TOLERANCE = 0.05  # of the period (Sec. 5.7)
DEVIATIONS = 4.0


def with_periods(phased_jobs: Sequence[PhasedJob], jitter: float = 0.0) -> list[PhasedJob]:
    """Return the same jobs, each with the period that its agent keeps, and its shift within it."""
    turns = unify(tuple([phased_job.iteration_s for phased_job in phased_jobs])).turns
    perimeter_s = max(each * phased_job.iteration_s for each, phased_job in zip(turns, phased_jobs, strict=True))
    # Jitter is of computing, so it matters as much as a job's down phases have of its iterations.
    down_s = [sum(part.seconds for part in each.segments if not part.uses) for each in phased_jobs]
    down_share = max(down / each.iteration_s for down, each in zip(down_s, phased_jobs, strict=True))
    slack = DEVIATIONS * jitter * down_share
    found = []
    for each, phased_job in zip(turns, phased_jobs, strict=True):
        period_s = perimeter_s / each * (1.0 + slack)
        found.append(replace(phased_job, period_s=period_s, shift_s=phased_job.shift_s * (1.0 + slack) % period_s))
    return found


def with_agents(
    phased_jobs: Sequence[PhasedJob],
    shifted: Sequence[bool],
    jitter: float,
    simulate: Callable[[Sequence[PhasedJob]], PhasedRun],
) -> PhasedRun:
    """Simulate jobs, the shifted ones with the periods of agents if these can be kept, and otherwise without."""
    paced = _paced(phased_jobs, shifted, jitter)
    if paced:
        found = simulate(paced)
        periods = [
            (phased_job.period_s, outcome.mean_s)
            for phased_job, outcome in zip(paced, found.outcomes, strict=True)
        ]
        if all(mean_s <= period_s * (1.0 + TOLERANCE) for period_s, mean_s in periods if period_s):
            return found
    return simulate(phased_jobs)


def _paced(phased_jobs: Sequence[PhasedJob], shifted: Sequence[bool], jitter: float) -> list[PhasedJob]:
    """Return the jobs, the shifted ones with periods; none if that would slow one of them too much."""
    ones = list(compress(phased_jobs, shifted))
    if not ones:
        return []
    with_agent = with_periods(ones, jitter)
    if any(phased_job.period_s > phased_job.iteration_s * (1.0 + TOLERANCE) for phased_job in with_agent):
        return []
    following = iter(with_agent)
    return [
        next(following) if is_shifted else phased_job
        for phased_job, is_shifted in zip(phased_jobs, shifted, strict=True)
    ]
