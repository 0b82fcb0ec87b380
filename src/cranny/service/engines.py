"""Engines of the service: rebuilt from the event log, with another policy, or forked to try decisions."""

from collections import ChainMap
from copy import copy
from typing import Any, NamedTuple

from cranny.core.accounting import attained_gpu_s
from cranny.core.engine import Engine
from cranny.core.protocol import Policy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.plan import Plan, Shift, Start
from cranny.service.job_records import JobRecord, JobRecords, placement_of
from cranny.service.policy_setting import build_policy
from cranny.service.store import EventRow


def engine_with(engine: Engine, setting: dict[str, Any], records: JobRecords) -> Engine:
    """Return an engine with another policy; jobs with equal keys keep their order in the queue."""
    other = Engine(engine.state, build_policy(setting, records), setting["period_s"])
    other.queue.fill(list(engine.queue))
    return other


def replay(row: EventRow, engine: Engine, records: JobRecords) -> Engine:
    """Apply an event of the log to engine and records, without consulting the policy; return the engine then."""
    if row.kind == "policy":
        engine = engine_with(engine, row.body, records)
    _change(row, engine, records)
    records.apply(row)
    if row.kind == "submitted":
        engine.queue.add(Waiting(records.jobs[str(row.job)].job))
    return engine


def _change(row: EventRow, engine: Engine, records: JobRecords) -> None:
    """Apply what an event changed in the cluster state and the queue."""
    state, body, job_id = engine.state, row.body, str(row.job)
    if row.kind == "placed":
        waiting = engine.queue.take(job_id)
        start = Start(waiting.job, placement_of(body["placement"]), waiting.attained_gpu_s)
        state.commit(Plan(state.version, (start,)), row.at_s)
    elif row.kind == "moved":
        state.move(job_id, placement_of(body["placement"]), row.at_s)
    elif row.kind == "shifted":
        state.commit(Plan(state.version, (Shift(job_id, body["shift_s"]),)), row.at_s)
    elif row.kind == "stopped":
        running = state.release(job_id)
        engine.queue.add(Waiting(running.submitted, attained_gpu_s(running, row.at_s)))
    elif row.kind == "ended" or (row.kind == "observed" and body.get("ended")):
        state.release(job_id)
    elif row.kind == "observed":
        state.place(engine.queue.take(job_id).job, placement_of(body["placement"]), row.at_s)
    elif row.kind == "retried":
        engine.queue.add(Waiting(records.jobs[job_id].job))
    elif row.kind == "cancelled":
        engine.queue.take(job_id)
    elif row.kind == "drained":
        state.drain(body["machine"])
    elif row.kind == "resumed":
        state.repair(body["machine"])


class Fork(NamedTuple):
    """A copy of cluster state, queue and policy setting; cheap to make, never changed afterwards."""

    state: ClusterState
    setting: dict[str, Any]  # the policy is built anew from it, since a query may change the memory of a policy
    queue: list[Waiting]
    records: JobRecords

    @classmethod
    def of(cls, engine: Engine, records: JobRecords) -> "Fork":
        """Copy the current state."""
        return cls(engine.state.copy(), records.policy, list(engine.queue), records)

    def policy(self, extra: JobRecord | None = None) -> Policy:
        """Return a new policy as configured; `extra` is a hypothetical job that is not in the records."""
        records = self.records
        if extra is not None:
            records = copy(records)
            records.jobs = ChainMap({extra.id: extra}, self.records.jobs)  # type: ignore[assignment]
        return build_policy(self.setting, records)

    def engine(self, extra: JobRecord | None = None) -> Engine:
        """Return an engine that starts from this state."""
        engine = Engine(self.state.copy(), self.policy(extra))
        engine.queue.fill(self.queue)
        return engine
