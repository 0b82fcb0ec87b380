"""Replay of the event log: brings engine and records to where it ends, without consulting the policy."""

from typing import Any

from cranny.core.accounting import attained_gpu_s
from cranny.core.engine import Engine
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.plan import Plan, Shift, Start
from cranny.service.job_records import JobRecords, placement_of
from cranny.service.policy_setting import build_policy
from cranny.service.store import EventRow


def engine_with(setting: dict[str, Any], state: ClusterState, records: JobRecords, queue: list[Waiting]) -> Engine:
    """Return an engine with another policy; jobs with equal keys keep their order in the queue."""
    engine = Engine(state, build_policy(setting, records), setting["period_s"])
    engine.queue.fill(queue)
    return engine


class Restorer:
    """Applies events to an engine and to the job records."""

    def __init__(self, records: JobRecords, engine: Engine) -> None:
        self.records = records
        self.engine = engine

    def apply(self, row: EventRow) -> None:
        """Apply an event of the log."""
        if row.kind == "policy":
            self.engine = engine_with(row.body, self.engine.state, self.records, list(self.engine.queue))
        self._change(row)
        self.records.apply(row)
        if row.kind == "submitted":
            self.engine.queue.add(Waiting(self.records.jobs[str(row.job)].job))

    def _change(self, row: EventRow) -> None:
        engine, state, body, job_id = self.engine, self.engine.state, row.body, str(row.job)
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
        elif row.kind == "ended":
            state.release(job_id)
        elif row.kind == "retried":
            engine.queue.add(Waiting(self.records.jobs[job_id].job))
        elif row.kind == "cancelled":
            engine.queue.take(job_id)
        elif row.kind == "observed":
            self._observed(row)
        elif row.kind == "drained":
            state.drain(body["machine"])
        elif row.kind == "resumed":
            state.repair(body["machine"])

    def _observed(self, row: EventRow) -> None:
        state, job_id = self.engine.state, str(row.job)
        if row.body.get("ended"):
            state.release(job_id)
        else:
            waiting = self.engine.queue.take(job_id)
            state.place(waiting.job, placement_of(row.body["placement"]), row.at_s)
