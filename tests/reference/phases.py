"""Jobs that compute and communicate in turn, in small steps of time: slow, and nothing to get wrong.

In every step each job asks its links for what its circles say at its place in the iteration, the links are shared
max-min fairly, and each job moves on by as much as it got of what it asked for.
"""

from collections.abc import Mapping, Sequence

from cranny.model.circle import Circle

Job = tuple[Mapping[int, Circle], float]  # circles by link, and the shift


def fair(asked: Sequence[Mapping[int, float]], link_gbps: Sequence[float]) -> list[float]:
    """Return what share of its demand each job gets: rates rise together, a job's is that of its busiest link."""
    demand = [max(uses.values(), default=0.0) for uses in asked]
    rate = [0.0] * len(asked)
    rising = {job for job in range(len(asked)) if demand[job] > 0}

    def level_of(link: int) -> float:
        taken = sum(rate[job] * uses[link] / demand[job] for job, uses in enumerate(asked) if link in uses)
        weight = sum(asked[job][link] / demand[job] for job in rising if link in asked[job])
        held = taken - sum(rate[job] * asked[job][link] / demand[job] for job in rising if link in asked[job])
        return (link_gbps[link] - held) / weight

    while rising:
        levels = {link: level_of(link) for link in {link for job in rising for link in asked[job]}}
        level = min(*levels.values(), *(demand[job] for job in rising))
        for job in rising:
            rate[job] = level
        full = {link for link, at in levels.items() if at <= level * (1 + 1e-12)}
        rising = {job for job in rising if demand[job] > level * (1 + 1e-12) and not full & set(asked[job])}
    return [got / want if want else 1.0 for got, want in zip(rate, demand, strict=True)]


def stepped(jobs: Sequence[Job], link_gbps: Sequence[float], seconds: float, step_s: float) -> list[list[float]]:
    """Return how long the iterations of each job took that ended in so many seconds."""
    place = [-shift_s for _, shift_s in jobs]
    began = [shift_s for _, shift_s in jobs]
    times: list[list[float]] = [[] for _ in jobs]
    for number in range(round(seconds / step_s)):
        asked = []
        for (circles, _), at_s in zip(jobs, place, strict=True):
            # What is asked for in the middle of the step, if no other job is in the way.
            demands = {link: circle.demand(at_s + step_s / 2) for link, circle in circles.items()}
            asked.append({link: gbps for link, gbps in demands.items() if gbps > 0 and at_s >= 0})
        for job, speed in enumerate(fair(asked, link_gbps)):
            whole_s = next(iter(jobs[job][0].values())).iteration_s
            place[job] += speed * step_s
            if place[job] >= whole_s - 1e-9:
                now_s = (number + 1) * step_s
                times[job].append(now_s - began[job])
                began[job] = now_s
                place[job] -= whole_s
    return times
