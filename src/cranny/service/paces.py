"""The periods and shifts that shifted jobs keep, from what their iterations really take.

A policy shifts jobs by their profiles. Real iterations take a little longer or shorter, each time anew. A period
that is too short cannot be kept, and one that is too long costs time. So periods follow from measured iterations,
with as much slack as is best when all jobs on the links are simulated, with a little jitter: more if a job joins
that is not shifted. Jobs that would be slower with agents than without run freely.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import pairwise

from cranny.core.accounting import Running
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.network.interleave.demand import circles
from cranny.network.phases.link_groups import GroupRuns, LinkJob, LinkJobs
from cranny.service.job_record import KeptPace
from cranny.service.point_history import Point

JITTER = 0.01  # of computing, that is reckoned with
CHANGED = 0.005  # of a period: less is no reason to tell jobs, which wait for a new slot each time
MOST_RUNNING = 100  # jobs; with more, only shifted ones are looked at
MOST_IN_GROUP = 12  # jobs that share links, which are simulated in some 10 ms; more run freely
MOST_OFF = 10.0  # times by which a profile may be wrong; what a job reports must not let simulations take long
RECENT = 8  # points from which computing is measured
FEWEST = 3  # points: those of the start are slow


class Paces:
    """Computes what shifted jobs keep; circles and groups that come again are remembered."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # The same draws for every group: what jobs keep follows from the jobs alone, not from those before them.
        self._runs = GroupRuns(jitter=JITTER, draw_seed=lambda: 0)
        self._known: dict[str, tuple[Running, Mapping[int, Circle]]] = {}

    def kept(
        self, running: Mapping[str, Running], shifted: AbstractSet[str], measured_s: Mapping[str, float]
    ) -> dict[str, KeptPace]:
        """Return what shifted jobs keep, by their ids; not of jobs that run freely.

        `measured_s` are the iterations of jobs alone, as far as they are known.
        """
        links = LinkJobs(self._cluster.uplink_gbps, self._runs)
        known, self._known = self._known, {}
        for job_id in sorted(running if len(running) <= MOST_RUNNING else shifted):
            each = running[job_id]
            on = self._circles(each, known)
            if on:
                expected_s = next(iter(on.values())).iteration_s
                own_s = min(max(measured_s.get(job_id, expected_s), expected_s / MOST_OFF), expected_s * MOST_OFF)
                stretched = {link: circle.stretched(own_s) for link, circle in on.items()}
                is_shifted = job_id in shifted
                since_s = each.shift_s * own_s / expected_s if is_shifted else 0.0
                links.add(job_id, LinkJob(stretched, since_s, is_shifted, each.job.profile.iteration_s))
        return {job_id: KeptPace(*slots) for job_id, slots in links.slots(MOST_IN_GROUP).items()}

    def _circles(
        self, running: Running, known: Mapping[str, tuple[Running, Mapping[int, Circle]]]
    ) -> Mapping[int, Circle]:
        """Return the circle of a job on each link that it crosses."""
        job, where = running.job, running.placement
        had = known.get(job.id)
        if had is not None and had[0].job is job and had[0].placement is where:
            found = had[1]
        else:
            on = circles(self._cluster, job, where.machines, where.server, aggregate=where.aggregate)
            found = {link: circle for link, circle in on.items() if circle.arcs}
        self._known[job.id] = running, found
        return found


class MeasuredIterations:
    """What iterations of shifted jobs were measured to take: what periods follow, and what was noted since."""

    def __init__(self) -> None:
        self._followed: dict[str, tuple[int, float]] = {}  # by job: the attempt, and seconds
        self._noted: dict[str, tuple[int, float]] = {}
        self.followed_s = -math.inf  # when periods followed what was noted last

    def note(self, job_id: str, attempt: int, iteration_s: float) -> None:
        """Note a measurement."""
        self._noted[job_id] = attempt, iteration_s

    def follow(self, now_s: float) -> None:
        """Let periods follow all that was noted."""
        self._followed |= self._noted
        self._noted.clear()
        self.followed_s = now_s

    def of(self, job_id: str, attempt: int) -> float | None:
        """Return what periods follow for an attempt; None if it was not measured."""
        measured, iteration_s = self._followed.get(job_id, (0, 0.0))
        return iteration_s if measured == attempt else None

    def keep(self, shifted: AbstractSet[str]) -> None:
        """Forget all other jobs."""
        self._followed = {job_id: known for job_id, known in self._followed.items() if job_id in shifted}


def differs(pace: KeptPace | None, other: KeptPace | None) -> bool:
    """Say whether a job would notice another pace."""
    if pace is None or other is None:
        return pace is not other
    if abs(pace.period_s - other.period_s) > CHANGED * other.period_s:
        return True
    apart = abs(pace.shift_s / pace.period_s - other.shift_s / other.period_s) % 1.0
    return min(apart, 1.0 - apart) > CHANGED


def iteration_s(points: Iterable[Point], attempt: int, paced_s: float) -> float | None:
    """Return what an iteration of an attempt takes with its links to itself; None if that is not known yet.

    Other jobs make communication longer, and nothing makes it shorter. So the least that was seen of it counts,
    once the job has kept its slots, and of computing what is usual now. A job that got its slots at `paced_s` and
    has not kept them for a while cannot: then what was seen without them must do.
    """
    of = [each for each in points if each.attempt == attempt]
    kept = any(before.paced and each.paced for before, each in pairwise(of))  # the first is of both kinds
    if len(of) < FEWEST or not (kept or sum(each.at_s > paced_s for each in of) >= RECENT):
        return None
    computing_s = sorted(each.compute_s for each in of[-RECENT:])
    exchange_s = min(each.iteration_s - each.waited_s - each.compute_s for each in of)
    return computing_s[len(computing_s) // 2] + max(0.0, exchange_s)
