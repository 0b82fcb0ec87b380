"""Jobs that share links only while they talk: iterations are played phase by phase.

Every job has a circle on each link it crosses (core/circles/shapes.py). Jobs that clash on some link, and those
that these clash with, are a *group*. Whenever a group changes, it is played until it goes round in a cycle
(core/phases/play.py); until the next change each job runs at the mean of its iterations there.

A job's iterations count from its start, or if a plan has shifted it, from its shift. Shifted jobs have agents,
which keep them to their beat (core/phases/beat.py). Sec. 5.7 of CASSINI (NSDI'24) asks that of compatible jobs
only: if the agents cannot keep the beat, or the beat is more than 5 % slower than a job alone, they let go, and
jobs only start with their shifts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.protocol import Slowdowns
from cranny.model.circle import Arc, Circle
from cranny.model.cluster import Cluster
from cranny.network.interleave.demand import circles
from cranny.network.phases.contention import Guest
from cranny.network.phases.iteration_log import Diary
from cranny.network.phases.outcome import Course, Played
from cranny.network.phases.pacing_period import on_beat
from cranny.network.phases.playback import TOLERANCE, settle
from cranny.network.phases.segments import Talker

STARTS = 72  # times within an iteration at which jobs without a shift may start: 5 degrees, so that groups recur
REMEMBERED = 4_000_000  # times of iterations, in all groups that were played
_ROUNDING = 1e-9


class _Talking(NamedTuple):
    """A running job that uses links."""

    circles: Mapping[int, Circle]  # by link
    since_s: float  # when an iteration started, or will: its start, or its shift
    shifted: bool
    computing_s: float  # of an iteration on one machine

    @property
    def iteration_s(self) -> float:
        return next(iter(self.circles.values())).iteration_s


# A group as it is played: each job's circles on local links, its start and whether it is shifted; and capacities.
_Part = tuple[tuple[tuple[int, Circle], ...], float, bool]
_Group = tuple[tuple[_Part, ...], tuple[float, ...]]


class Phases:
    """A network whose links are shared by the jobs that talk."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        jitter: float = 0.0,
        rng: np.random.Generator | None = None,
        diary: Diary | None = None,
    ) -> None:
        self._cluster = cluster
        self.diary = diary  # in which the courses of all jobs are written down, if there is one
        self._jitter, self._rng = jitter, rng
        self._talking: dict[str, _Talking] = {}
        self._on: dict[int, dict[str, float]] = {}  # link -> the most that each job asks of it
        self._told: dict[str, float] = {}  # slowdowns
        self._known: dict[_Group, tuple[Course, ...]] = {}
        self._kept = 0  # times of iterations in it
        self.courses: dict[str, Course] = {}  # of the jobs that use links, as they are now

    def start(self, running: Running) -> Slowdowns:
        """Let a job share the links that it uses."""
        job, placement = running.job, running.placement
        found = circles(self._cluster, job, placement.machines, placement.server, aggregate=placement.aggregate)
        found = {link: circle for link, circle in found.items() if circle.arcs}
        if not found:
            if self.diary is not None:
                self.diary.change(job.id, _alone(job.profile.iteration_s), job.profile.iteration_s)
            return ((job.id, 1.0),)
        # A shift of 0 stands for none here, although the first job of every graph is shifted by 0. It is not lost:
        # a plan's shifts come after its starts at the same moment, and `shift` takes a 0 for a shift.
        shifted = running.shift_s > 0
        since_s = running.shift_s if shifted else running.started_s
        self._talking[job.id] = _Talking(found, since_s, shifted, job.profile.iteration_s)
        for link, circle in found.items():
            self._on.setdefault(link, {})[job.id] = circle.peak_gbps
        return self._changed([job.id])

    def end(self, job_id: str) -> Slowdowns:
        """Leave the links to the others."""
        talking = self._talking.pop(job_id, None)
        if self.diary is not None:
            self.diary.end(job_id)
        if talking is None:  # it used none
            return ()
        others: dict[str, None] = {}
        for link in talking.circles:
            if self._clash(link):
                others.update(dict.fromkeys(self._on[link]))
                if self.diary is not None:
                    self.diary.meetings.part(link)
            del self._on[link][job_id]
        others.pop(job_id, None)
        del self._told[job_id], self.courses[job_id]
        return self._changed(others)

    def shift(self, running: Running) -> Slowdowns:
        """Let the iterations of a job start with a shift, and an agent keep them so."""
        job_id = running.job.id
        talking = self._talking.get(job_id)
        if talking is None or (talking.shifted and talking.since_s == running.shift_s):
            return ()
        self._talking[job_id] = talking._replace(since_s=running.shift_s, shifted=True)
        return self._changed([job_id])

    def note(self, now_s: float) -> None:
        """Write down what has changed, as of now."""
        if self.diary is not None:
            self.diary.note(now_s)

    def recorded(self) -> Mapping[str, Any]:
        """Return how iterations went and what contention cost, if that was written down."""
        if self.diary is None:
            return {}
        meetings = self.diary.meetings.costliest(self._cluster)
        return {"iterations": self.diary.iterations.summary(), "meetings": meetings}

    def _clash(self, link: int) -> bool:
        """Say whether the jobs on a link might ask for more than it has."""
        return sum(self._on[link].values()) > self._cluster.uplink_gbps[link] * (1.0 + _ROUNDING)

    def _changed(self, job_ids: Iterable[str]) -> Slowdowns:
        """Play the groups of some jobs; return the slowdowns that are not what they were."""
        seen: set[str] = set()
        slowdowns = []
        for first in job_ids:
            if first in seen:
                continue
            group, links = self._group(first)
            seen.update(group)
            for job_id, course in self._play(group, links):
                self.courses[job_id] = course
                if self.diary is not None:
                    self.diary.change(job_id, course, self._talking[job_id].iteration_s)
                slowdown = course.mean_s / self._talking[job_id].computing_s
                if self._told.get(job_id) != slowdown:
                    self._told[job_id] = slowdown
                    slowdowns.append((job_id, slowdown))
            if self.diary is not None:
                for link in links:
                    self._note_meeting(self.diary, link)
        return slowdowns

    def _note_meeting(self, diary: Diary, link: int) -> None:
        """Note who meets on a link on which jobs clash, and what they ask for in vain now."""
        guests = [(job_id, self._talking[job_id]) for job_id in self._on[link]]
        above_gbps = sum([self.courses[job_id].above_gbps for job_id, _ in guests])
        diary.meetings.meet(
            link, tuple([Guest(job_id, each.circles[link], each.since_s) for job_id, each in guests]), above_gbps
        )

    def _group(self, first: str) -> tuple[list[str], set[int]]:
        """Return the jobs that a job may feel, however far away, and the links on which they clash."""
        group, links = {first: None}, set()
        waiting = [first]
        while waiting:
            for link in self._talking[waiting.pop()].circles:
                if link not in links and self._clash(link):
                    links.add(link)
                    new = [job_id for job_id in self._on[link] if job_id not in group]
                    group.update(dict.fromkeys(new))
                    waiting += new
        return list(group), links

    def _play(self, group: list[str], links: set[int]) -> Iterable[tuple[str, Course]]:
        """Return how the jobs of a group get on, from memory if such a group was played before."""
        if len(group) == 1:
            return [(group[0], _alone(self._talking[group[0]].iteration_s))]
        order, key = self._reduced(group, links)
        courses = self._known.get(key)
        if courses is None:
            courses = self._settled(key)
            self._kept += sum(len(course.times_s) for course in courses)
            if self._kept > REMEMBERED:
                self._known.clear()
                self._kept = 0
            self._known[key] = courses
        return zip(order, courses, strict=True)

    def _reduced(self, group: list[str], links: set[int]) -> tuple[list[str], _Group]:
        """Return the jobs of a group in an order that depends on nothing but what they are, and what that is."""
        number: dict[int, int] = {}
        used = {
            job_id: [(link, circle) for link, circle in self._talking[job_id].circles.items() if link in links]
            for job_id in group
        }

        def kind(job_id: str) -> tuple[float, list[tuple[Arc, ...]], float]:
            talking = self._talking[job_id]
            return talking.iteration_s, [circle.arcs for _, circle in used[job_id]], talking.since_s

        order = sorted(group, key=kind)
        shifts_s = [self._talking[job_id].since_s for job_id in order if self._talking[job_id].shifted]
        origin_s = min(shifts_s, default=self._talking[order[0]].since_s)
        parts = []
        for job_id in order:
            talking = self._talking[job_id]
            on = tuple([(number.setdefault(link, len(number)), circle) for link, circle in used[job_id]])
            start_s = talking.since_s - origin_s
            if not talking.shifted:
                start_s = round(start_s / talking.iteration_s * STARTS) % STARTS * talking.iteration_s / STARTS
            parts.append((on, start_s, talking.shifted))
        return order, (tuple(parts), tuple([self._cluster.uplink_gbps[link] for link in number]))

    def _settled(self, group: _Group) -> tuple[Course, ...]:
        """Play a group until its course is known."""
        parts, link_gbps = group
        talkers = [Talker(dict(on), shift_s) for on, shift_s, _ in parts]
        shifted = [is_shifted for _, _, is_shifted in parts]
        settled = partial(settle, link_gbps=link_gbps, jitter=self._jitter, rng=self._rng)
        return with_agents(talkers, shifted, self._jitter, settled).courses


def with_agents(
    talkers: Sequence[Talker], shifted: Sequence[bool], jitter: float, played: Callable[[Sequence[Talker]], Played]
) -> Played:
    """Play jobs, the shifted ones on one beat if that can be kept, and otherwise as it comes."""
    held = _held(talkers, shifted, jitter)
    if held:
        found = played(held)
        beats = [(talker.period_s, course.mean_s) for talker, course in zip(held, found.courses, strict=True)]
        if all(mean_s <= period_s * (1.0 + TOLERANCE) for period_s, mean_s in beats if period_s):
            return found
    return played(talkers)


def _held(talkers: Sequence[Talker], shifted: Sequence[bool], jitter: float) -> list[Talker]:
    """Return the jobs, the shifted ones on a beat; none if that would slow one of them too much."""
    ones = list(compress(talkers, shifted))
    if not ones:
        return []
    kept = on_beat(ones, jitter)
    if any(talker.period_s > talker.iteration_s * (1.0 + TOLERANCE) for talker in kept):
        return []
    following = iter(kept)
    return [next(following) if is_shifted else talker for talker, is_shifted in zip(talkers, shifted, strict=True)]


def _alone(iteration_s: float) -> Course:
    """Return the course of a job with nobody in its way."""
    return Course(np.array([iteration_s]), np.ones(1, np.int64), iteration_s, 0.0, 0)
