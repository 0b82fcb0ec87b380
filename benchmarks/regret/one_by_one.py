"""Jobs one at a time, the one with the least work left first: no schedule has a lower sum of completion times.

It is what a cluster could do at best that gives all it has to any job: stops are free, and no job has a size.
"""

from collections.abc import Sequence
from heapq import heappop, heappush


def one_by_one_s(submit_s: Sequence[float], work_s: Sequence[float]) -> float:
    """Return the sum of completion times; `work_s` is how long the whole cluster works on a job."""
    total_s, now_s = 0.0, 0.0
    left: list[tuple[float, float]] = []  # a heap: work left, submission
    coming = sorted(zip(submit_s, work_s, strict=True), reverse=True)
    while left or coming:
        if not left:
            now_s = max(now_s, coming[-1][0])
        while coming and coming[-1][0] <= now_s:
            at_s, work = coming.pop()
            heappush(left, (work, at_s))
        work, at_s = heappop(left)
        end_s = now_s + work
        if coming and coming[-1][0] < end_s:
            heappush(left, (end_s - coming[-1][0], at_s))
            now_s = coming[-1][0]
        else:
            now_s = end_s
            total_s += end_s - at_s
    return total_s
