"""Recommending only: say what the policy would do, and what that would have saved, while others run the jobs."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from cranny.core.engine import Engine
from cranny.core.queue import QueuePolicy
from cranny.core.state import ClusterState
from cranny.core.traffic import traffic
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Start
from cranny.model.validate import counted
from cranny.service.fork import Fork
from cranny.service.job_records import JobRecord, JobRecords, placement_of, plain, reasons
from cranny.service.limits import ConflictError

Recommendation = tuple[str, dict[str, Any]]  # the job, and what is noted of it


class Recommender:
    """The cluster as it would be if every recommendation were followed, kept from one event to the next.

    What is as recommended is not decided again: a job that passes nobody finds its place beside the others, one
    that was started where it should be changes nothing, one that ended leaves room. After anything else all is
    decided anew, from how things really stand.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def forget(self) -> None:
        """Decide anew at the next event."""
        self._engine = None

    def anew(self, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield what the policy would start now, where that is news."""
        self._engine = Fork.of(engine, records).engine()
        return self._news(self._engine.tick(now_s), engine.state, records)

    def came(self, job: Job, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield what follows from a job that was filed in the queue."""
        if self._engine is None or not _one_by_one(self._engine) or self._passes(job, engine):
            return self.anew(engine, records, now_s)
        return self._news(self._engine.submit(job, now_s), engine.state, records)

    def left(self, job_id: str, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield what follows from the end of a job."""
        if self._engine is None or not _one_by_one(self._engine) or job_id not in self._engine.state:
            return self.anew(engine, records, now_s)
        return self._news(self._engine.finish(job_id, now_s), engine.state, records)

    def followed(self, record: JobRecord, now_s: float) -> bool:
        """Take in where a job was started; say whether that is where it should be, so that nothing follows."""
        engine, where = self._engine, record.observed
        if engine is None or where is None or record.id not in engine.state:
            return False
        if engine.state.find(record.id).placement.machines != where.machines:
            return False
        engine.state.release(record.id)  # it begins now, not when it was recommended
        engine.state.place(record.job, where, now_s)
        return True

    def _passes(self, job: Job, engine: Engine) -> bool:
        """Say whether a job stands in the queue before one that has its place already."""
        known = self._engine.state if self._engine is not None else ()
        behind = takewhile(lambda waiting: waiting.job is not job, reversed(engine.queue))
        return any(waiting.job.id in known for waiting in behind)

    def _news(
        self, actions: Sequence[Action], state: ClusterState, records: JobRecords
    ) -> Iterator[Recommendation]:
        """Yield the starts that were not recommended before."""
        if not all(isinstance(action, Start) for action in actions):
            self.forget()  # those whom it would stop or move are not ours to stop: they go on
        for action in actions:
            if not isinstance(action, Start):
                continue
            placement = plain(action.placement)
            known = records.recommended.get(action.job.id)
            if known is None or known["placement"] != placement:
                cost = _cost(state, records.jobs[action.job.id], action.placement)
                facts = {**action.placement.facts, **cost}
                text = reasons(action.placement, action.job.id)
                yield action.job.id, {"placement": placement, "text": text, "facts": facts}


def _one_by_one(engine: Engine) -> bool:
    """Say whether the policy places one job after the other, so that the last changes nothing for the others."""
    return isinstance(engine.policy, QueuePolicy) and engine.policy.order != "knapsack"


def ended(engine: Engine, record: JobRecord) -> dict[str, Any]:
    """Take in that a job ended that somebody else ran; return what is noted of it."""
    if record.observed is None or record.over:
        raise ConflictError(f"{record.id} was not seen running")
    engine.state.release(record.id)
    return {"ended": True}


def started(
    engine: Engine, records: JobRecords, record: JobRecord, machines: Sequence[int], now_s: float
) -> dict[str, Any]:
    """Take in where somebody else started a job; return what is noted of it."""
    if record.status != "waiting":
        raise ConflictError(f"{record.id} does not wait: {record.status}")
    if len(machines) != record.job.gpus:
        raise InputError(
            f"machines: names {len(machines)}, the job has {counted(record.job.gpus, 'rank')}; name one a rank"
        )
    placement = Placement(machines)
    saved = _saved(engine.state, records, record, placement, now_s)
    engine.state.place(record.job, placement, now_s)
    engine.queue.take(record.id)
    return {"placement": plain(placement), "saved": saved}


def _cost(state: ClusterState, record: JobRecord, placement: Placement) -> dict[str, float]:
    """Return what a placement costs the cluster as it stands."""
    view = state.snapshot()
    return {
        "machines": len(placement.counts),
        "idle_machines": sum(view.is_idle(machine) for machine in placement.counts),
        "cross_bytes": traffic(record.job, placement.machines).cross_machine_bytes,
    }


def _saved(
    state: ClusterState, records: JobRecords, record: JobRecord, actual: Placement, now_s: float
) -> dict[str, float]:
    """Return what the recommendation would have saved beside what was done; below zero where it costs more."""
    known = records.recommended.get(record.id)
    if known is None:
        return {"jobs": 0}
    cost = _cost(state, record, actual)
    better = _cost(state, record, placement_of(known["placement"]))
    return {"jobs": 1, **{name: cost[name] - better[name] for name in cost}, "wait_s": now_s - known["at_s"]}
