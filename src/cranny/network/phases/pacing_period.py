"""The beat that agents keep: periods on which the iterations of several jobs stay interleaved.

CASSINI (NSDI'24) shifts jobs on their unified circle, whose perimeter is a whole number of iterations of each.
Measured iteration times are no exact fractions of any perimeter, and computing takes now longer, now shorter. So
jobs that were shifted once drift apart, and their agents bring back a job that is off by more than 5 % (Sec.
5.7).

Departure: the paper does not say to what beat, nor what an agent does between. Ours tells each job a period: the
perimeter, long enough for the slowest job, over the job's turns. And no iteration starts before its beat. The
paper's rule alone, `hold=False`, lets the start of an iteration wander; `phases.md` says what becomes of
that.

Departure: under jitter periods are longer by four standard deviations of the iteration time. A job that was late
is then back on its beat after a few iterations; without that, it would be late for good, and hold up others.
"""

from collections.abc import Sequence
from dataclasses import replace

from cranny.network.interleave.unified_circle import unify
from cranny.network.phases.segments import Talker

DEVIATIONS = 4.0


def on_beat(talkers: Sequence[Talker], jitter: float = 0.0) -> list[Talker]:
    """Return the same jobs, each with the period that its agent keeps, and its shift within it."""
    turns = unify(tuple([talker.iteration_s for talker in talkers])).turns
    perimeter_s = max(each * talker.iteration_s for each, talker in zip(turns, talkers, strict=True))
    slack = DEVIATIONS * jitter * max(_down_share(talker) for talker in talkers)
    found = []
    for each, talker in zip(turns, talkers, strict=True):
        period_s = perimeter_s / each * (1.0 + slack)
        found.append(replace(talker, period_s=period_s, shift_s=talker.shift_s * (1.0 + slack) % period_s))
    return found


def _down_share(talker: Talker) -> float:
    """Return the share of an iteration in which a job computes only."""
    return sum(segment.seconds for segment in talker.segments if not segment.uses) / talker.iteration_s
