"""What becomes of waiting jobs in an order, second by second of what happens, GPU by GPU."""

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

INF = float("inf")


class Job(NamedTuple):
    """A waiting job."""

    gpus: int
    run_s: float
    length_s: float = 1.0
    waited_s: float = 0.0
    tail_s: float = INF


def starts_s(order: Sequence[int], jobs: Sequence[Job], release_s: Sequence[float], now_s: float) -> list[float]:
    """Return when each job starts; later ones of the order start early if they do not delay the first that waits.

    `release_s` is when each GPU is free, INF if never.
    """
    free_s, start_s = list(release_s), [INF] * len(jobs)
    for _ in count():
        shadow_s, left = INF, 0
        for place in order:
            job = jobs[place]
            free = sum(each <= now_s for each in free_s)
            if start_s[place] < INF:
                continue
            if shadow_s == INF or now_s + job.run_s <= shadow_s or job.gpus <= left:
                if job.gpus <= free:
                    if shadow_s < now_s + job.run_s:
                        left -= job.gpus
                    start_s[place] = now_s
                    free_s = sorted(free_s)
                    free_s[: job.gpus] = [now_s + job.run_s] * job.gpus
                elif shadow_s == INF and job.gpus <= sum(each < INF for each in free_s):
                    shadow_s = sorted(free_s)[job.gpus - 1]
                    left = sum(each <= shadow_s for each in free_s) - job.gpus
        later_s = [each for each in free_s if now_s < each < INF]
        if not later_s:
            return start_s
        now_s = min(later_s)
    raise AssertionError


def cost(
    order: Sequence[int], jobs: Sequence[Job], release_s: Sequence[float], weight: float, longest_s: float | None
) -> float:
    """Return what an order costs, from 0 s on, by what the jobs' own order comes to."""

    def sums(tried: Sequence[int]) -> tuple[float, float, float]:
        started = zip(jobs, starts_s(tried, jobs, release_s, 0.0), strict=True)
        jct_s = [(job, job.waited_s + start_s + job.run_s) for job, start_s in started if start_s < INF]
        counted = sum(each_s + (weight - 1) * max(0.0, each_s - job.tail_s) for job, each_s in jct_s)
        most_s = max([each_s for _, each_s in jct_s], default=0.0)
        return counted, sum(each_s / job.length_s for job, each_s in jct_s), max(most_s, longest_s or 0.0)

    now, base = sums(order), sums(range(len(jobs)))
    if not base[0]:
        return 2.0 if longest_s is None else 3.0
    return now[0] / base[0] + now[1] / base[1] + (0.0 if longest_s is None else now[2] / base[2])


def best_order(
    jobs: Sequence[Job], release_s: Sequence[float], weight: float, longest_s: float | None, gain: float
) -> tuple[list[int], float]:
    """Return the order that costs least of those in which one job comes earlier, and another one then."""
    best = list(range(len(jobs)))
    least = cost(best, jobs, release_s, weight, longest_s)
    for _ in range(2):
        found = best
        for late in range(1, len(jobs)):
            for early in range(late):
                tried = [*best[:early], best[late], *best[early:late], *best[late + 1 :]]
                tried_cost = cost(tried, jobs, release_s, weight, longest_s)
                if tried_cost < least - gain:
                    found, least = tried, tried_cost
        best = found
    return best, least
