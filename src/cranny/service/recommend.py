"""Recommend-only mode: what the policy would do, and what that would save, while another scheduler decides."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

from cranny.core.engine import Engine
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.core.traffic import traffic
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Start
from cranny.model.validate import counted
from cranny.service.engines import Fork, JointByPriority
from cranny.service.job_record import JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.limits import ConflictError
from cranny.service.logged_placement import plain, reasons

Recommendation = tuple[str, dict[str, Any] | None]  # the job, and the body of its event; none if it is withdrawn
Recommend = Callable[[Engine, JobRecords, float], Iterator[Recommendation]]


class Recommender:
    """Keeps the cluster as it would be if every recommendation were followed, from one event to the next.

    Recommendations that still hold are kept: a job at the end of the queue is placed beside the others, a
    job started as recommended changes nothing, a finished job frees its GPUs. After any other event everything is
    replanned from the actual state.
    """

    def __init__(self) -> None:
        self._engine: Engine | None = None

    def forget(self) -> None:
        """Replan at the next event."""
        self._engine = None

    def replan(self, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield the new recommendations of the policy on the actual state, and withdraw those that it drops."""
        self._engine = planned = Fork.of(engine, records).engine()
        starts = list(self._new_starts(planned.tick(now_s), engine.state, records))
        yield from ((job_id, None) for job_id in records.reserved.copy() if job_id not in planned.state)
        yield from starts

    def submitted(self, job: Job, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield the new recommendations after a job entered the queue."""
        planned = self._kept
        if planned is None or _passes(job, planned, engine.queue, records):
            return self.replan(engine, records, now_s)
        return self._new_starts(planned.submit(job, now_s), engine.state, records)

    def finished(self, job_id: str, engine: Engine, records: JobRecords, now_s: float) -> Iterator[Recommendation]:
        """Yield the new recommendations after a job ended."""
        planned = self._kept
        if planned is None or job_id not in planned.state:
            return self.replan(engine, records, now_s)
        return self._new_starts(planned.finish(job_id, now_s), engine.state, records)

    @property
    def _kept(self) -> Engine | None:
        """The engine, if its policy keeps what it planned: it places jobs one by one, or plans with a memory."""
        policy = self._engine.policy if self._engine is not None else None
        if isinstance(policy, JointByPriority):
            return self._engine if policy.remembering is not None else None
        return self._engine if isinstance(policy, QueuePolicy) and policy.order != "knapsack" else None

    def followed(self, record: JobRecord, now_s: float) -> bool:
        """Return whether a job was started as recommended; if so, no recommendation changes."""
        engine, where = self._engine, record.observed
        if engine is None or where is None or record.id not in engine.state:
            return False
        if engine.state.find(record.id).placement.machines != where.machines:
            return False
        engine.state.release(record.id)  # it begins now, not when it was recommended
        engine.state.place(record.job, where, now_s)
        return True

    def _new_starts(
        self, actions: Sequence[Action], state: ClusterState, records: JobRecords
    ) -> Iterator[Recommendation]:
        """Yield the starts that were not recommended before."""
        if not all(isinstance(action, Start) for action in actions):
            self.forget()  # this service cannot stop or move running jobs, so the planned state would be wrong
        for action in actions:
            if not isinstance(action, Start):
                continue
            placement = plain(action.placement)
            known = records.recommended.get(action.job.id)
            if known is None or known["placement"] != placement:
                job = records.jobs[action.job.id].job
                facts = {**action.placement.facts, **_cost(state, job, action.placement)}
                text = reasons(action.placement, job.id)
                yield action.job.id, {"placement": placement, "text": text, "facts": facts}


def _passes(job: Job, planned: Engine, queue: Sequence[Waiting], records: JobRecords) -> bool:
    """Say whether a job goes before one that already has a recommended placement."""
    behind = takewhile(lambda waiting: waiting.job is not job, reversed(queue))
    passed = [records.jobs[waiting.job.id] for waiting in behind if waiting.job.id in planned.state]
    if isinstance(planned.policy, JointByPriority):  # what it has started stays, whatever the order of the queue
        priority = records.jobs[job.id].spec.priority
        return any(record.spec.priority < priority for record in passed)
    return bool(passed)


def observed_start(
    state: ClusterState, records: JobRecords, record: JobRecord, machines: Sequence[int], now_s: float
) -> dict[str, Any]:
    """Return the body of the event that another scheduler started a job, with what following us would have saved.

    Savings are negative where the recommended placement costs more.
    """
    if record.status != "waiting":
        raise ConflictError(f"{record.id} is not waiting, but {record.status}")
    if len(machines) != record.job.gpus:
        raise InputError(
            f"machines: {len(machines)} given, the job has {counted(record.job.gpus, 'rank')}; give one per rank"
        )
    placement, known = Placement(machines), records.recommended.get(record.id)
    if known is None:
        return {"placement": plain(placement), "saved": {"jobs": 0}}
    cost, better = (_cost(state, record.job, each) for each in (placement, Placement(**known["placement"])))
    saved = {"jobs": 1, **{name: cost[name] - better[name] for name in cost}, "wait_s": now_s - known["at_s"]}
    return {"placement": plain(placement), "saved": saved}


def _cost(state: ClusterState, job: Job, placement: Placement) -> dict[str, float]:
    """Return what a placement costs on the current cluster state."""
    view = state.snapshot()
    return {
        "machines": len(placement.counts),
        "idle_machines": sum(view.is_idle(machine) for machine in placement.counts),
        "cross_bytes": traffic(job, placement.machines).cross_machine_bytes,
    }
