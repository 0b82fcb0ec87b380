"""CASSINI: choose among the plans of another policy the one whose jobs share links best, and shift the jobs.

S. Rajasekaran, M. Ghobadi, A. Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI
2024, Sec. 4.2 and Algorithm 2. Circles, scores and shifts are `network.interleave`.

Symbols of the paper and their names here:

    Candidates         what the host returns (`core.protocol.Host`), `candidates` of them at most
    Jobs, Links        the jobs that run once a candidate is done, and the links that several of them cross
    G_c, score_c       `affinity.AffinityGraph` there, and the mean score of its links (lines 3-23)
    top_placement      the best candidate (lines 24-25); of equal ones that with the best score, then the first
    t_j                a `Shift` for each job that shares a link (line 26)

The host decides which jobs run and with how many workers; CASSINI respects that, and decides on which machines,
and when iterations start. It asks its host at every decision. If the host has nothing to do, but jobs have ended
since, or show that they are others than was thought, shifts are computed anew.

Departure: a candidate whose affinity graph has a loop is not dropped, but settled; `loops="drop"` does as the
paper (lines 13-15). If all candidates are dropped, the host's first is done without shifts.

Departure: candidates are ranked by how long iterations would take with the shifts that they would really get: by
simulating all jobs that share links, phase by phase (`network.phases`). A mean score counts a link that no job is
slowed on as much as one on which all are, so that a candidate with more contended links may have the better score.
The host's own plan without new shifts is simulated as well, and done if none is faster. `rank="score"` does as the
paper (line 24), with the scores of shifts that candidates would really get; in graphs with loops these may be
worse than what each link wants for itself. So are candidates ranked where more than 12 jobs share links.

Departure: titan and netpack as hosts are ours; their candidates are variations of one plan (`_shared.candidates`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cranny.core.protocol import Host, Placer, Slowdown, Timed, default_order
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement, Rationale
from cranny.model.plan import Action, Aggregate, Move, Plan, Shift, Start, Stop
from cranny.model.validate import whole
from cranny.network.interleave.affinity import AffinityGraph, SharedLink, has_loop, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.shifts import Interleaving, as_they_run, choose, shifted
from cranny.network.interleave.unified_circle import QUICK, Search
from cranny.policies._shared.candidates import host_of, vary_plan

if TYPE_CHECKING:
    from cranny.network.phases.link_groups import GroupRuns, LinkJob

MOST_CANDIDATES = 1000
MOST_SIMULATED = 12  # jobs that share links; ten candidates take 0.2 s for four such jobs, 0.5 s for five
_SAME_S = 1e-9
_FASTER = 1e-6  # of the time: less is no reason for another candidate
Loops = Literal["settle", "drop"]
Rank = Literal["time", "score"]

# A job as it trains, and where: what its circles follow from.
_PlacedJob = tuple[Job, Placement]
_Known = dict[tuple[str, Placement], tuple[Job, Mapping[int, Circle]]]


class Cassini:
    """Ask a host for plans, and take the one whose jobs interleave best."""

    def __init__(
        self,
        host: Placer,
        *,
        candidates: int = 10,
        precision_deg: float = 5.0,
        loops: Loops = "settle",
        rank: Rank = "time",
    ) -> None:
        if loops not in ("settle", "drop"):
            raise InputError(f"cassini: loops must be 'settle' or 'drop', not {loops!r}")
        if rank not in ("time", "score"):
            raise InputError(f"cassini: rank must be 'time' or 'score', not {rank!r}")
        self._given = host
        self.host: Host = host_of(host)
        self.order: str = default_order(self.host)
        self.count = whole(candidates, "cassini: candidates", most=MOST_CANDIDATES)
        self.search = Search(precision_deg=precision_deg, budget=QUICK.budget)
        self.loops: Loops = loops
        self.rank: Rank = rank
        self._runs: GroupRuns | None = None  # groups of jobs that were simulated
        self._known: _Known = {}  # circles of the last decision
        self._shifted: dict[str, _PlacedJob] = {}  # what ran, and where, when shifts were last computed
        self._sent: dict[str, tuple[float, float]] = {}  # shifts, and when their jobs started

    def in_order(self, order: str, slowdown: Slowdown) -> "Cassini":
        """Return the same with the host's queue in an order."""
        made = copy(self)
        made.host, made.order = host_of(self._given, order, slowdown), order
        return made

    def key(self, waiting: Waiting) -> Any:
        """Order the queue as the host does."""
        return self.host.key(waiting)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return the host's reason."""
        return self.host.why_wait(job, view)

    def next_s(self, view: Snapshot) -> float:
        """Be asked when the host wants to be."""
        return self.host.next_s(view) if isinstance(self.host, Timed) else math.inf

    def plan(self, view: Snapshot) -> Plan:
        """Algorithm 2."""
        return self._best(list(self.host.candidates(view, self.count)), view)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job: where the host would, or on machines that are alike, whichever interleaves best."""
        placement = self.host.place(job, view)
        if placement is None:
            return None
        plan = self._best(
            vary_plan(Plan(view.version, (Start(job, placement),)), view, self.count), view, remember=False
        )
        return next(action.placement for action in plan.actions if isinstance(action, Start))

    def _best(self, plans: Sequence[Plan], view: Snapshot, *, remember: bool = True) -> Plan:
        """Choose a plan, and add the shifts."""
        placed = [_after(plan, view) for plan in plans]
        if len(plans) == 1 and not plans[0].actions and placed[0] == self._shifted:
            return plans[0]
        known: _Known = {}
        links = [self._links(jobs, view, known) for jobs in placed]  # lines 2-11
        self._known = known
        by_score = self.rank == "score" or max(map(_sharing, links)) > MOST_SIMULATED
        found = self._by_score(links) if by_score else self._by_time(links, placed, view)
        if found is None:
            return plans[0]
        number, chosen = found
        plan = plans[number]
        if remember:
            self._shifted = placed[number]
        shifts_s = self._shifts(plan, chosen, view, remember=remember)
        if not shifts_s and not plan.actions:
            return plan
        actions: list[Action] = []
        for action in plan.actions:
            if isinstance(action, Start | Move):  # whose placement now also explains how it interleaves
                old = action.placement
                why = InterleavingRationale(action.job_id, old.rationale, number, len(plans), chosen)
                placement = Placement(old.machines, old.spare, old.gpus, why, old.server, old.aggregate)
                action = action._replace(placement=placement)  # noqa: PLW2901 - the same with a reason
            actions.append(action)
        return Plan(plan.version, (*actions, *[Shift(job_id, shift_s) for job_id, shift_s in shifts_s.items()]))

    def _by_score(self, links: Sequence[list[SharedLink]]) -> tuple[int, Interleaving] | None:
        """Return the candidate with the best score, and its shifts (lines 12-26); None if all were dropped."""
        found = choose(links, self.search, self.loops)
        return None if found is None else (found.number, found.interleaving)

    def _by_time(
        self, links: Sequence[list[SharedLink]], placed: Sequence[Mapping[str, _PlacedJob]], view: Snapshot
    ) -> tuple[int, Interleaving]:
        """Return the candidate that is simulated to be fastest, and its shifts; or the host's plan without any."""
        graphs = {
            number: AffinityGraph.of(each, self.search)
            for number, each in enumerate(links)
            if self.loops == "settle" or not has_loop(each)
        }
        host_s = self._times_s(placed[0], {}, view)
        best: tuple[int, Interleaving] | None = None
        least = math.inf
        for number in sorted(graphs, key=lambda number: -graphs[number].score):
            found = shifted(graphs[number])
            times_s = self._times_s(placed[number], found.shifts_s, view)
            time = sum(times_s[job_id] / time_s for job_id, time_s in host_s.items())
            if time < least * (1.0 - _FASTER):
                best, least = (number, found), time
        if best is None or len(host_s) < least * (1.0 - _FASTER):
            starts_s = {job_id: job.since_s for job_id, job in self._link_jobs(placed[0], {}, view).items()}
            return 0, as_they_run(AffinityGraph.of(links[0], self.search), starts_s)
        return best

    def _times_s(
        self, jobs: Mapping[str, _PlacedJob], shifts_s: Mapping[str, float], view: Snapshot
    ) -> dict[str, float]:
        """Return how long iterations of jobs would take on average, with some shifts."""
        from cranny.network.phases.link_groups import GroupRuns, LinkJobs  # Numba only where jobs are simulated

        self._runs = self._runs or GroupRuns()
        on_links = LinkJobs(view.cluster.uplink_gbps, self._runs)
        for job_id, job in self._link_jobs(jobs, shifts_s, view).items():
            on_links.add(job_id, job)
        return {job_id: job.profile.iteration_s for job_id, (job, _) in jobs.items()} | on_links.mean_times_s()

    def _link_jobs(
        self, jobs: Mapping[str, _PlacedJob], shifts_s: Mapping[str, float], view: Snapshot
    ) -> "dict[str, LinkJob]":
        """Return the jobs that use links, with new shifts; those without one go on as they do, or start now."""
        from cranny.network.phases.link_groups import LinkJob

        found = {}
        for job_id, (job, placement) in jobs.items():
            on = self._known[job_id, placement][1]
            if not on:
                continue
            running = view.running.get(job_id)
            since_s, is_shifted = view.now_s, False
            if job_id in shifts_s:
                since_s, is_shifted = shifts_s[job_id], True
            elif running is not None and running.placement is placement:
                had = self._sent.get(job_id)
                is_shifted = had is not None and had[0] == running.started_s
                since_s = running.shift_s if is_shifted else running.started_s
            found[job_id] = LinkJob(on, since_s, is_shifted, job.profile.iteration_s)
        return found

    def _links(self, jobs: Mapping[str, _PlacedJob], view: Snapshot, known: _Known) -> list[SharedLink]:
        """Return the links that carry more than one job, with the jobs' circles."""
        found: dict[str, Mapping[int, Circle]] = {}
        for job_id, (job, placement) in jobs.items():
            key = job_id, placement
            kept = known.get(key) or self._known.get(key)
            if kept is None or kept[0] is not job:
                server, aggregate = placement.server, placement.aggregate
                kept = job, circles(view.cluster, job, placement.machines, server, aggregate=aggregate)
            known[key] = kept
            found[job_id] = kept[1]
        return shared_links(found, view.cluster.uplink_gbps, view.cluster.node_names)

    def _shifts(self, plan: Plan, chosen: Interleaving, view: Snapshot, *, remember: bool) -> dict[str, float]:
        """Return the shifts that jobs do not have yet."""
        fresh = {action.job_id for action in plan.actions if isinstance(action, Start | Move)}
        new: dict[str, float] = {}
        sent: dict[str, tuple[float, float]] = {}
        for job_id, shift_s in chosen.shifts_s.items():
            started_s = view.now_s if job_id in fresh else view.running[job_id].started_s
            had = None if job_id in fresh else self._sent.get(job_id)
            if had is None or had[0] != started_s or abs(had[1] - shift_s) > _SAME_S:
                new[job_id] = shift_s
            sent[job_id] = started_s, shift_s
        if remember:
            self._sent = {job_id: had for job_id, had in self._sent.items() if job_id in view.running} | sent
        return new


def _after(plan: Plan, view: Snapshot) -> dict[str, _PlacedJob]:
    """Return the jobs that run once a plan is done, and where."""
    jobs = {job_id: (running.job, running.placement) for job_id, running in view.running.items()}
    for action in plan.actions:
        if isinstance(action, Stop):
            del jobs[action.job_id]
        elif isinstance(action, Aggregate):
            jobs[action.job_id] = jobs[action.job_id][0], action.placement
        elif isinstance(action, Start | Move):
            job = action.job if isinstance(action, Start) else view.running[action.job_id].submitted
            types = [view.cluster.machines[machine].gpu_type for machine in action.placement.machines]
            if len(types) != job.gpus or job.speeds is not None:  # workers and speeds are those of the placement
                speed = float(len(types)) if job.speeds is None else sum(job.speeds[each] for each in types)
                job = job.resized(len(types), speed)
            jobs[action.job_id] = job, action.placement
    return jobs


def _sharing(links: Iterable[SharedLink]) -> int:
    """Count the jobs that share links."""
    return len({job for link in links for job in link.circles})


class InterleavingRationale(NamedTuple):
    """Why a job is placed where it is: the host's reason, and how the job interleaves with others."""

    job_id: str
    inner: Rationale | None
    number: int  # of the candidate
    candidates: int
    chosen: Interleaving

    def facts(self, placement: Placement) -> Mapping[str, object]:
        """Return the reasons as plain values."""
        facts = {} if self.inner is None else dict(self.inner.facts(placement))
        shift_s = self.chosen.shifts_s.get(self.job_id)
        return facts | {
            "candidate": self.number + 1,
            "candidates": self.candidates,
            "score": self.chosen.score,
            "links": [
                {"link": link.name, "jobs": list(link.circles), "score": score} for link, score in self._links()
            ],
            "shift_ms": None if shift_s is None else shift_s * 1e3,
        }

    def text(self, placement: Placement) -> str:
        """Return the reasons as text."""
        lines = [] if self.inner is None else [self.inner.text(placement)]
        shift_s, links = self.chosen.shifts_s.get(self.job_id), self._links()
        fit = f"all shared links score {self.chosen.score:.2f}" if self.chosen.scores else ""
        if not links:
            fit = f"shares no link; those of others score {self.chosen.score:.2f}" if fit else "shares no link"
        lines.append(f"candidate {self.number + 1} of {self.candidates}: {fit}")
        for link, score in links:
            others = ", ".join(job_id for job_id in link.circles if job_id != self.job_id)
            lines.append(f"shares the uplink of {link.name} with {others}: score {score:.2f}")
        if shift_s is not None:
            lines.append(f"shift: {shift_s * 1e3:.0f} ms")
        return "\n".join(lines)

    def _links(self) -> list[tuple[SharedLink, float]]:
        """Return the links that the job shares, and what they score."""
        pairs = zip(self.chosen.graph.links, self.chosen.scores, strict=True)
        return [(link, score) for link, score in pairs if self.job_id in link.circles]
