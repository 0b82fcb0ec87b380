"""CASSINI: choose among the plans of another policy the one whose jobs share links best, and shift the jobs.

S. Rajasekaran, M. Ghobadi, A. Akella, "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI
2024, Sec. 4.2 and Algorithm 2. Circles, scores and shifts are `network.interleave`.

Symbols of the paper and their names here:

    Candidates         what the host returns (`core.protocol.Host`), `candidates` of them at most
    Jobs, Links        the jobs that run once a candidate is done, and the links that several of them cross
    G_c, score_c       `affinity.AffinityGraph` there, and the mean score of its links (lines 3-23)
    top_placement      the candidate with the best mean score (lines 24-25); of equal ones the host's first
    t_j                a `Shift` for each job that shares a link (line 26)

The host decides which jobs run and with how many workers; CASSINI respects that, and decides on which machines,
and when iterations start. It asks its host at every decision. If the host has nothing to do, but jobs have ended
since, shifts are computed anew.

Departure: a candidate whose affinity graph has a loop is not dropped, but settled; `loops="drop"` does as the
paper (lines 13-15). If all candidates are dropped, the host's first is done without shifts.

Departure: candidates are scored by the shifts that they would really get, which in graphs with loops may be worse
than what each link wants for itself.

Departure: titan and netpack as hosts are ours; their candidates are variations of one plan (`_shared.candidates`).
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple

from cranny.core.protocol import Host, Placer, Slowdown, default_order
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.circle import Circle
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement, Rationale
from cranny.model.plan import Action, Move, Plan, Shift, Start, Stop
from cranny.model.validate import whole
from cranny.network.interleave.affinity import SharedLink, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.shifts import Interleaving, choose
from cranny.network.interleave.unified_circle import QUICK, Search
from cranny.policies._shared.candidates import host_of, vary_plan

MOST_CANDIDATES = 1000
_SAME_S = 1e-9
Loops = Literal["settle", "drop"]

# A job as it trains, and where: what its circles follow from.
_PlacedJob = tuple[Job, Placement]
_Known = dict[tuple[str, Placement], tuple[Job, Mapping[int, Circle]]]


class Cassini:
    """Ask a host for plans, and take the one whose jobs interleave best."""

    def __init__(
        self, host: Placer, *, candidates: int = 10, precision_deg: float = 5.0, loops: Loops = "settle"
    ) -> None:
        if loops not in ("settle", "drop"):
            raise InputError(f"cassini: loops must be 'settle' or 'drop', not {loops!r}")
        self._given = host
        self.host: Host = host_of(host)
        self.order: str = default_order(self.host)
        self.count = whole(candidates, "cassini: candidates", most=MOST_CANDIDATES)
        self.search = Search(precision_deg=precision_deg, budget=QUICK.budget)
        self.loops: Loops = loops
        self._known: _Known = {}  # circles of the last decision
        self._shifted: dict[str, Placement] = {}  # where jobs were when shifts were last computed
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
        if len(plans) == 1 and not plans[0].actions and _placements(placed[0]) == self._shifted:
            return plans[0]
        known: _Known = {}
        links = [self._links(jobs, view, known) for jobs in placed]  # lines 2-11
        self._known = known
        found = choose(links, self.search, self.loops)  # lines 12-26
        if found is None:
            return plans[0]
        plan, chosen = plans[found.number], found.interleaving
        if remember:
            self._shifted = _placements(placed[found.number])
        shifts_s = self._shifts(plan, chosen, view, remember=remember)
        if not shifts_s and not plan.actions:
            return plan
        actions: list[Action] = []
        for action in plan.actions:
            if isinstance(action, Start | Move):  # whose placement now also explains how it interleaves
                old = action.placement
                why = InterleavingRationale(action.job_id, old.rationale, found.number, len(plans), chosen)
                placement = Placement(old.machines, old.spare, old.gpus, why, old.server, old.aggregate)
                action = action._replace(placement=placement)  # noqa: PLW2901 - the same with a reason
            actions.append(action)
        return Plan(plan.version, (*actions, *[Shift(job_id, shift_s) for job_id, shift_s in shifts_s.items()]))

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
        fresh = {action.job_id for action in plan.actions if not isinstance(action, Shift | Stop)}
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
        elif isinstance(action, Start | Move):
            job = action.job if isinstance(action, Start) else view.running[action.job_id].submitted
            types = [view.cluster.machines[machine].gpu_type for machine in action.placement.machines]
            if len(types) != job.gpus or job.speeds is not None:  # workers and speeds are those of the placement
                speed = float(len(types)) if job.speeds is None else sum(job.speeds[each] for each in types)
                job = job.resized(len(types), speed)
            jobs[action.job_id] = job, action.placement
    return jobs


def _placements(jobs: Mapping[str, _PlacedJob]) -> dict[str, Placement]:
    """Return where each job is."""
    return {job_id: placement for job_id, (_, placement) in jobs.items()}


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
        shift_s = self.chosen.shifts_s.get(self.job_id)
        fit = f"its links score {self.chosen.score:.2f}"
        if shift_s is None:
            fit = "shares no link" + (
                f"; those of others score {self.chosen.score:.2f}" if self.chosen.scores else ""
            )
        lines.append(f"candidate {self.number + 1} of {self.candidates}: {fit}")
        for link, score in self._links():
            others = ", ".join(job_id for job_id in link.circles if job_id != self.job_id)
            lines.append(f"shares the uplink of {link.name} with {others}: score {score:.2f}")
        if shift_s is not None:
            lines.append(f"shift: {shift_s * 1e3:.0f} ms")
        return "\n".join(lines)

    def _links(self) -> list[tuple[SharedLink, float]]:
        """Return the links that the job shares, and what they score."""
        pairs = zip(self.chosen.graph.links, self.chosen.scores, strict=True)
        return [(link, score) for link, score in pairs if self.job_id in link.circles]
