"""Engines of the service, and their policies with constraints and priorities of jobs around them.

A policy is built from its setting. An engine is rebuilt from the event log, with another policy, or forked to try
decisions.
"""

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, NamedTuple

from cranny.core.accounting import attained_gpu_s
from cranny.core.constrained_placer import ConstrainedPlacer
from cranny.core.engine import Engine, period
from cranny.core.protocol import Host, JobRules, Policy, Remembering, RuledPolicy, Shifting, Timed
from cranny.core.queue import ORDERS, QueuePolicy
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_of_values
from cranny.model.errors import InputError, unknown
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Aggregate, Plan, Shift, Start
from cranny.policies import DEFAULT_POLICY, TABLE
from cranny.policies._shared.heterogeneous.sharing_policy import SharingPolicy
from cranny.policies.cassini import Cassini
from cranny.policy_choice import decision_period_s, resolve_policy, seeded_policy
from cranny.service import foreign_jobs
from cranny.service.event_chain import EventRow
from cranny.service.job_record import JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.managed_cluster import FOREIGN, foreign_of
from cranny.service.probing import ProbingPolicy

SEED = 0
MAX_PERIOD_S = 86_400.0
STOPPING = frozenset({"las", "srtf"})  # queue orders that stop running jobs
# Events of the log after which other jobs run than before, or another policy decides.
CHANGES = frozenset(
    {
        *("placed", "moved", "shifted", "aggregated", "stopped", "ended", "observed", "policy", "profiled"),
        *("opened", "cluster", "foreign"),
    }
)


# Events that say what the manager of the cluster says.
MANAGED = frozenset({"cluster", "availability", "foreign", "reservations", "prioritized"})


class QueuedByPriority(QueuePolicy):
    """Orders jobs by priority and then by the queue order, and satisfies their constraints."""

    def __init__(self, constrained: ConstrainedPlacer, order: str, records: JobRecords) -> None:
        super().__init__(constrained, order, isolated)
        self.constrained = constrained
        self._records = records

    def key(self, waiting: Waiting) -> Any:
        """Return the sort key of the queue."""
        return (-waiting.job.priority, super().key(waiting))

    def plan(self, view: Snapshot) -> Plan:
        """Return the plan for now; jobs that the cluster has become too small for do not block the others."""
        hidden = without_fixed if self.order in STOPPING else without_stopping
        large = self._records.too_large & {each.job.id for each in view.waiting} if self._records.too_large else ()
        return super().plan(hidden(view.hiding(large) if large else view, self._records))

    def place_first(self, job: Job, view: Snapshot) -> Placement | None:
        """Place the first job of the queue."""
        return super().place_first(job, without_stopping(view, self._records))


class JointByPriority:
    """A policy that plans for all jobs jointly, with priorities before its own sort key."""

    def __init__(self, policy: Policy, records: JobRecords) -> None:
        self.constrained: ConstrainedPlacer | None = None  # if it keeps constraints
        self._policy = policy
        self._records = records
        if isinstance(policy, RuledPolicy):
            self.constrained = ConstrainedPlacer(policy, records.constraints_of)
            rules = JobRules(records.constraints_of, records.may_stop, records.limit_s_of)
            self._policy = policy.with_rules(rules)
        self.remembering = self._policy if isinstance(self._policy, Remembering) else None

    def key(self, waiting: Waiting) -> Any:
        """Return the sort key of the queue."""
        return (-waiting.job.priority, self._policy.key(waiting))

    def plan(self, view: Snapshot) -> Plan:
        """Return the plan for now; a policy that keeps rules stops no job that must not be, and may see all."""
        if self.constrained:
            return self._policy.plan(view)
        # CASSINI stops no job itself, and shifts those that its host must not see.
        hidden = without_stopping if isinstance(self._policy, Cassini) else without_fixed
        return self._policy.plan(hidden(view, self._records))

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return why a job must wait."""
        return self._policy.why_wait(job, view)

    def next_s(self, view: Snapshot) -> float:
        """Return when to ask it if nothing happens before."""
        return self._policy.next_s(view) if isinstance(self._policy, Timed) else math.inf


class FixedHost:
    """A host of CASSINI that does not see the jobs which it must not stop, move or resize."""

    def __init__(self, host: Host, records: JobRecords) -> None:
        self._host, self._records = host, records

    def key(self, waiting: Waiting) -> Any:
        """Order the queue as the host does."""
        return self._host.key(waiting)

    def plan(self, view: Snapshot) -> Plan:
        """Return the host's plan."""
        return self._host.plan(without_fixed(view, self._records))

    def candidates(self, view: Snapshot, count: int) -> Sequence[Plan]:
        """Return the host's plans."""
        return self._host.candidates(without_fixed(view, self._records), count)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job as the host does."""
        return self._host.place(job, view)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return the host's reason."""
        return self._host.why_wait(job, view)

    def next_s(self, view: Snapshot) -> float:
        """Be asked when the host wants to be."""
        return self._host.next_s(view) if isinstance(self._host, Timed) else math.inf


ServicePolicy = QueuedByPriority | JointByPriority


def without_stopping(view: Snapshot, records: JobRecords) -> Snapshot:
    """Return a view that hides cancelled jobs, so that no policy stops, moves or reckons with them.

    Their GPUs stay held until their processes have exited.
    """
    going = [job_id for job_id in records.stopping if job_id in view.running] if records.stopping else []
    return view.hiding(going) if going else view


def _foreign(view: Snapshot, records: JobRecords) -> list[str]:
    """Return the running jobs of others, which no policy may touch."""
    return [job_id for job_id in view.running if job_id.startswith(FOREIGN)] if records.managed.foreign else []


def without_fixed(view: Snapshot, records: JobRecords) -> Snapshot:
    """Return a view that also hides the jobs that no policy may stop, move or resize, for one without rules."""
    hidden = [job_id for job_id in records.stopping | records.fixed if job_id in view.running]
    hidden += _foreign(view, records)
    return view.hiding(hidden) if hidden else view


def complete_setting(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Check a policy setting and fill in its defaults."""
    name = setting["name"]
    options = dict(setting.get("options") or {})
    seeded_policy(name, SEED, options)  # refuses unknown names and options
    period_s = period(setting.get("period_s") or decision_period_s(name))
    if period_s > MAX_PERIOD_S:
        raise InputError(f"period_s must be at most {MAX_PERIOD_S:.0f}")
    order = setting.get("order") or TABLE[name].order
    if order not in ORDERS:
        raise unknown("queue order", order, ORDERS)
    return {"name": name, "order": order, "period_s": period_s, "options": options}


def build_policy(setting: Mapping[str, Any], records: JobRecords) -> ServicePolicy:
    """Return the policy that a setting describes."""
    _, policy, order = resolve_policy(setting["name"], setting["order"], setting["options"], SEED, isolated)
    if isinstance(policy, Shifting):
        policy.expect_phases(drifting=True)  # as real jobs do, which can start iterations when they are asked to
    if isinstance(policy, Cassini):
        policy.host = FixedHost(policy.host, records)
    if isinstance(policy, SharingPolicy):
        policy = ProbingPolicy(policy, records)
    if type(policy) is not QueuePolicy:
        return JointByPriority(policy, records)
    return QueuedByPriority(ConstrainedPlacer(policy.placer, records.constraints_of), order, records)


def engine_with(
    engine: Engine, setting: dict[str, Any], records: JobRecords, state: ClusterState | None = None
) -> Engine:
    """Return an engine with another policy, or state; jobs with equal keys keep their order in the queue."""
    other = Engine(engine.state if state is None else state, build_policy(setting, records), setting["period_s"])
    other.queue.fill(list(engine.queue))
    return other


def engine_on(engine: Engine, cluster: Cluster, records: JobRecords, now_s: float) -> Engine:
    """Return an engine on a cluster that followed the one before; the policy is built anew, and decides there."""
    others = list(records.managed.foreign.values())
    foreign_jobs.let_go(engine.state, others)
    records.renumber(cluster)
    state = engine.state.on(cluster)
    setting = records.policy or complete_setting({"name": DEFAULT_POLICY})
    other = engine_with(engine, setting, records, state)
    foreign_jobs.hold(state, others, now_s)
    follow_availability(state, records)
    return other


def follow_availability(state: ClusterState, records: JobRecords) -> None:
    """Let those machines take jobs that neither an operator nor the manager has taken out of service."""
    for number, machine in enumerate(state.cluster.machines):
        up = number not in records.drained and not records.managed.is_down(machine.name)
        if up != state.is_up(number):
            state.repair(number) if up else state.drain(number)


def forget_shifts(state: ClusterState, now_s: float) -> None:
    """Forget the shifts of another policy: jobs run freely until the present one shifts them."""
    freed = tuple([Shift(job_id, 0.0) for job_id, running in state.running.items() if running.shift_s])
    if freed:
        state.commit(Plan(state.version, freed), now_s)


def replay(row: EventRow, engine: Engine, records: JobRecords) -> Engine:
    """Apply an event of the log to engine and records, without consulting the policy; return the engine then."""
    engine = _apply(row, engine, records)
    if row.kind == "profiled":
        adopt_profile(engine, records, records.jobs[str(row.job)])
    if row.kind in CHANGES:
        follow(engine, row.at_s)
    return engine


def _apply(row: EventRow, engine: Engine, records: JobRecords) -> Engine:  # noqa: C901 - one case a kind
    state, body, job_id = engine.state, row.body, str(row.job)
    if row.kind in MANAGED or "layout" in body:
        return _apply_managed(row, engine, records)
    if row.kind == "submitted":
        records.apply(row)
        engine.queue.add(Waiting(records.jobs[job_id].job))
        return engine
    if row.kind == "policy":
        forget_shifts(state, row.at_s)
        engine = engine_with(engine, body, records)
    elif row.kind == "placed":
        waiting = engine.queue.take(job_id)
        start = Start(waiting.job, Placement(**body["placement"]), waiting.attained_gpu_s)
        state.commit(Plan(state.version, (start,)), row.at_s)
    elif row.kind == "moved":
        state.move(job_id, Placement(**body["placement"]), row.at_s)
    elif row.kind == "shifted":
        state.commit(Plan(state.version, (Shift(job_id, body["shift_s"]),)), row.at_s)
    elif row.kind == "aggregated":
        state.commit(Plan(state.version, (Aggregate(job_id, Placement(**body["placement"])),)), row.at_s)
    elif row.kind == "stopped":
        running = state.release(job_id)
        engine.queue.add(Waiting(running.submitted, attained_gpu_s(running, row.at_s)))
    elif row.kind == "ended" or (row.kind == "observed" and body.get("ended")):
        state.release(job_id)
    elif row.kind == "observed":
        state.place(records.jobs[job_id].job, Placement(**body["placement"]), row.at_s)  # or refuse it
        engine.queue.take(job_id)
    elif row.kind == "retried":
        engine.queue.add(Waiting(records.jobs[job_id].job))
    elif row.kind == "cancelled":
        engine.queue.take(job_id)
    elif row.kind in {"drained", "resumed"}:
        state.drain(body["machine"])  # or refuse it
    records.apply(row)
    if row.kind == "resumed":
        follow_availability(state, records)
    return engine


def _apply_managed(row: EventRow, engine: Engine, records: JobRecords) -> Engine:
    """Apply an event that says what the manager of the cluster says."""
    body = row.body
    if "layout" in body:
        engine = engine_on(engine, cluster_of_values(body["layout"]), records, row.at_s)
        records.apply(row)
    elif row.kind == "foreign":
        there = list(map(foreign_of, body["there"]))
        known = [records.managed.foreign.get(each) for each in (*body["gone"], *(each.id for each in there))]
        foreign_jobs.let_go(engine.state, [each for each in known if each is not None])
        records.apply(row)
        foreign_jobs.hold(engine.state, there, row.at_s)
    elif row.kind == "prioritized":
        moved = [engine.queue.take(job_id) for job_id in body["priorities"] if engine.queue.has(job_id)]
        records.apply(row)
        engine.queue.fill(Waiting(records.jobs[each.job.id].job, each.attained_gpu_s) for each in moved)
    else:
        records.apply(row)
        follow_availability(engine.state, records)
    return engine


def adopt_profile(engine: Engine, records: JobRecords, record: JobRecord) -> None:
    """Let the engine decide about jobs as their new profile has them."""
    for job_id in records.alike(record):
        job = records.jobs[job_id].job
        if engine.queue.has(job_id):
            engine.queue.replace(job)
        elif job_id in engine.state:
            engine.state.retrain(job)


def follow(engine: Engine, now_s: float) -> None:
    """Let a policy that remembers take over what has started and ended, without asking it."""
    policy = engine.policy
    if isinstance(policy, JointByPriority) and policy.remembering is not None:
        policy.remembering.follow(engine.state.snapshot(now_s))


class Fork(NamedTuple):
    """A copy of cluster state, queue and policy; cheap to make, never changed afterwards."""

    state: ClusterState
    setting: dict[str, Any]  # the policy is built anew from it, since a query may change the memory of a policy
    queue: list[Waiting]
    records: JobRecords
    remembering: Remembering | None  # a copy of the policy itself, if it knows more than the state says

    @classmethod
    def of(cls, engine: Engine, records: JobRecords) -> "Fork":
        """Copy the current state."""
        policy = engine.policy.remembering if isinstance(engine.policy, JointByPriority) else None
        remembering = deepcopy(policy) if policy is not None else None
        return cls(engine.state.copy(), records.policy, list(engine.queue), records, remembering)

    def with_setting(self, change: Mapping[str, Any]) -> "Fork":
        """Return the same under another setting of the policy, which then remembers nothing."""
        return self._replace(setting={**self.setting, **change}, remembering=None) if change else self

    def policy(self, extra: JobRecord | None = None) -> ServicePolicy:
        """Return a policy as the one that decides; `extra` is a job that is not in the records, or changed."""
        records = self.records
        if extra is not None:
            records = copy(records)
            records.jobs = ChainMap({extra.id: extra}, self.records.jobs)  # type: ignore[assignment]
        if self.remembering is None:
            return build_policy(self.setting, records)
        return JointByPriority(self.remembering.going_on(extra.id if extra is not None else None), records)

    def engine(self, extra: JobRecord | None = None) -> Engine:
        """Return an engine that starts from this state."""
        engine = Engine(self.state.copy(), self.policy(extra))
        engine.queue.fill(self.queue)
        return engine
