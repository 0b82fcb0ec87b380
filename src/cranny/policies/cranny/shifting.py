"""Time: jobs that contend for links only while they communicate are shifted, so that they use them at other times.

Which shifts those are, CASSINI says (NSDI 2024; `network.interleave`): those at which jobs ask each link for
the least beyond what it has. Whether they help, the iterations say, played out phase by phase as the network
`phases` does (`network.phases`). The jobs that contend with each other, even through others, are a group; each
group has the best of

    as they run   no new shifts
    interleaved   CASSINI's shifts
    as started    as if none of them had ever been shifted

by the sum over its jobs of GPUs x the time of an iteration, in that of one alone. So where times do not vary, no
group is slower than without shifts, neither than before the decision nor than if nothing had been shifted at all.

In a service, iterations of jobs that are not shifted drift, until they send at the same time as others: when one
waits for a link, so does the other. There `as they run` is that jobs without shifts start together.

A candidate for a placement is priced by the times of the group that it would join, with the shifts that it would
get: jobs that send at other times may share a link at little cost.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from cranny.core.accounting import Running
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Shift
from cranny.network.interleave.affinity import AffinityGraph, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.shifts import shifted
from cranny.network.phases.link_groups import GroupRuns, LinkJob, LinkJobs
from cranny.policies.cranny.link_effects import NAMED, Effect
from cranny.policies.cranny.tail import Tail

MOST_SHIFTED = 12  # jobs of a group; in larger ones none is shifted, since the search would take too long
FASTER = 1e-6  # of the time: less is no reason for shifts
LEAST_S = (
    2.0**-30
)  # of a shift, since 0 stands for none; a power of two, which is taken off again without rounding


class SharingJob(NamedTuple):
    """A job that uses links, as it is on them."""

    on_links: LinkJob
    gpus: int
    submit_s: float
    started_s: float
    end_s: float  # expected


Group = Mapping[str, SharingJob]


class Timing(NamedTuple):
    """How long iterations of the jobs of a group take on average with some new shifts, by their ids."""

    times_s: Mapping[str, float]
    shifts_s: Mapping[str, float]


class PhasedLinks:
    """Running jobs on links that they share in phases, kept up to date as they start and end."""

    def __init__(self, cluster: Cluster, tail: Tail | None = None, *, drifting: bool = False) -> None:
        self._cluster = cluster
        self._tail = tail
        self._drifting = drifting  # whether jobs that are not shifted come to send at the same time
        self._runs = GroupRuns()
        self._jobs: dict[str, SharingJob] = {}
        self._links = self._made({})
        self._timings: dict[frozenset[tuple[str, float, bool]], Timing] = {}  # of the groups that run now
        self._changed = False  # whether they may be others

    # -- what runs -----------------------------------------------------------------------------------------

    def start(self, running: Running, end_s: float) -> None:
        """Add a job that is expected to end at a certain time."""
        job = self._phased(running, end_s)
        if job is not None:
            self._jobs[running.job.id] = job
            self._links.add(running.job.id, job.on_links)
            self._changed = True

    def end(self, job_id: str) -> None:
        """Remove a job."""
        if self._jobs.pop(job_id, None) is not None:
            self._links.remove(job_id)
            self._changed = True
            # It may come back as another: what was learned of it changes its circles.
            self._timings = {key: known for key, known in self._timings.items() if job_id not in known.times_s}

    def shifts(self) -> list[Shift]:
        """Return the shifts that make groups faster."""
        return [
            Shift(job_id, shift_s)
            for timing in self._timings_now().values()
            for job_id, shift_s in timing.shifts_s.items()
            if not (self._links.jobs[job_id].shifted and self._links.jobs[job_id].since_s == shift_s)
        ]

    # -- what one job more does ----------------------------------------------------------------------------

    def alone(self, job: Job, placement: Placement) -> float:
        """Return how many times longer than on one machine a job runs with its links to itself."""
        found = self._circles(job, placement)
        return next(iter(found.values())).iteration_s / job.profile.iteration_s if found else 1.0

    def effect(self, running: Running, seconds: float) -> Effect:
        """Return what a job would do that starts now and runs for so long on one machine; nothing changes."""
        job_id, job = running.job.id, self._phased(running, running.started_s)
        if job is None:
            return Effect(1.0)
        self._links.add(job_id, job.on_links)
        ids, contended = next(self._links.groups([job_id]))
        self._links.remove(job_id)
        if len(ids) == 1:
            return Effect(job.on_links.iteration_s / job.on_links.computing_s)
        after = self._timing({each: self._jobs.get(each, job) for each in sorted(ids)}, contended).times_s
        own = after[job_id] / job.on_links.computing_s
        before = {each: time_s for known in self._timings_now().values() for each, time_s in known.times_s.items()}
        lost_gpu_s, longer = 0.0, {}
        for each in ids:
            if each != job_id:
                other = self._jobs[each]
                together_s = min(max(other.end_s - running.started_s, 0.0), seconds * own)
                longer[each] = after[each] / before[each]
                lost_s = together_s * (longer[each] - 1.0)
                if self._tail is not None:
                    lost_s = self._tail.counted_s(other.gpus, other.end_s - other.submit_s, lost_s)
                lost_gpu_s += other.gpus * lost_s
        most = sorted(longer, key=lambda each: -longer[each])[:NAMED]
        return Effect(own, lost_gpu_s, tuple([(each, longer[each]) for each in most]))

    # -- groups --------------------------------------------------------------------------------------------

    def _timings_now(self) -> Mapping[frozenset[tuple[str, float, bool]], Timing]:
        """Return the best timing of each group that runs now."""
        if self._changed:
            known, self._timings = self._timings, {}
            for ids, contended in self._links.groups(self._jobs):
                group = {each: self._jobs[each] for each in sorted(ids)}
                key = frozenset((each, job.on_links.since_s, job.on_links.shifted) for each, job in group.items())
                self._timings[key] = known.get(key) or self._timing(group, contended)
            self._changed = False
        return self._timings

    def _timing(self, group: Group, contended: Iterable[int]) -> Timing:
        """Return the best timing of a group."""
        best = Timing(self._played(self._as_they_run(group), {}), {})
        if not 1 < len(group) <= MOST_SHIFTED:
            return best
        for shifts_s in self._options(group, frozenset(contended)):
            found = Timing(self._played(group, shifts_s), shifts_s)
            if _total(group, found) < _total(group, best) * (1.0 - FASTER):
                best = found
        return best

    def _as_they_run(self, group: Group) -> Group:
        """Return a group whose jobs without shifts all start together if they drift, which is the worst."""
        if not self._drifting:
            return group
        return {
            job_id: job if job.on_links.shifted else job._replace(on_links=job.on_links._replace(since_s=0.0))
            for job_id, job in group.items()
        }

    def _options(self, group: Group, contended: frozenset[int]) -> Iterator[dict[str, float]]:
        """Yield shifts that are worth a try."""
        on = {
            job_id: {link: circle for link, circle in job.on_links.circles.items() if link in contended}
            for job_id, job in group.items()
        }
        links = shared_links(on, self._cluster.uplink_gbps, self._cluster.node_names)
        yield _positive(shifted(AffinityGraph.of(links)).shifts_s)
        if any(job.on_links.shifted for job in group.values()):
            free = {
                job_id: job.on_links._replace(since_s=job.started_s, shifted=False)
                for job_id, job in group.items()
            }
            yield _positive(self._made(free).starts_s(next(iter(group))))

    def _played(self, group: Group, shifts_s: Mapping[str, float]) -> dict[str, float]:
        """Return how long iterations of a group's jobs take on average with new shifts."""
        jobs = {
            job_id: job.on_links._replace(since_s=shifts_s[job_id], shifted=True)
            if job_id in shifts_s
            else job.on_links
            for job_id, job in group.items()
        }
        return self._made(jobs).mean_times_s()

    def _made(self, jobs: Mapping[str, LinkJob]) -> LinkJobs:
        """Return links with some jobs."""
        made = LinkJobs(self._cluster.uplink_gbps, self._runs)
        for job_id, job in jobs.items():
            made.add(job_id, job)
        return made

    def _phased(self, running: Running, end_s: float) -> SharingJob | None:
        """Return a running job as it is on links; None if it uses none."""
        job = running.job
        found = self._circles(job, running.placement)
        if not found:
            return None
        is_shifted = running.shift_s > 0
        since_s = running.shift_s if is_shifted else running.started_s
        on_links = LinkJob(found, since_s, is_shifted, job.profile.iteration_s)
        return SharingJob(on_links, job.gpus, running.submitted.submit_s, running.started_s, end_s)

    def _circles(self, job: Job, placement: Placement) -> dict[int, Circle]:
        """Return the circles of a job on the links that it uses."""
        found = circles(self._cluster, job, placement.machines, placement.server, aggregate=placement.aggregate)
        return {link: circle for link, circle in found.items() if circle.arcs}


def _total(group: Group, timing: Timing) -> float:
    """Return what iterations of all jobs take, each in those alone, times GPUs."""
    return sum(job.gpus * timing.times_s[job_id] / job.on_links.iteration_s for job_id, job in group.items())


def _positive(shifts_s: Mapping[str, float]) -> dict[str, float]:
    """Return shifts of which none is 0, which would stand for none.

    All are moved by the same time, so that jobs start in relation to each other exactly as before: where groups
    never repeat themselves, a billionth of a second makes a difference of 0.5 % in what they come to.
    """
    return {job_id: shift_s + LEAST_S for job_id, shift_s in shifts_s.items()}
