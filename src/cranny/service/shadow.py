"""Recommending only: say what the policy would do, and what that would have saved, while others run the jobs."""

from collections.abc import Iterator, Sequence
from typing import Any

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.core.traffic import traffic
from cranny.model.errors import InputError
from cranny.model.placement import Placement
from cranny.model.plan import Start
from cranny.service.ledger import Ledger, Record, placement_of, plain
from cranny.service.limits import ConflictError
from cranny.service.trial import Stand


def recommendations(engine: Engine, ledger: Ledger, now_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the policy would start now, where that is news."""
    tried = Stand.of(engine, ledger).engine()
    for action in tried.tick(now_s):
        if not isinstance(action, Start):
            continue  # those whom it would stop are not ours to stop
        placement = plain(action.placement)
        known = ledger.recommended.get(action.job.id)
        if known is None or known["placement"] != placement:
            facts = {
                **action.placement.facts,
                **_cost(engine.state, ledger.jobs[action.job.id], action.placement),
            }
            yield action.job.id, {"placement": placement, "text": action.placement.explain(), "facts": facts}


def ended(engine: Engine, record: Record) -> dict[str, Any]:
    """Take in that a job ended that somebody else ran; return what is noted of it."""
    if record.observed is None or record.over:
        raise ConflictError(f"{record.id} was not seen running")
    engine.state.release(record.id)
    return {"ended": True}


def started(
    engine: Engine, ledger: Ledger, record: Record, machines: Sequence[int], now_s: float
) -> dict[str, Any]:
    """Take in where somebody else started a job; return what is noted of it."""
    if record.status != "waiting":
        raise ConflictError(f"{record.id} does not wait: {record.status}")
    if len(machines) != record.job.gpus:
        raise InputError(f"machines: names {len(machines)}, the job has {record.job.gpus} ranks")
    placement = Placement(machines)
    saved = _saved(engine.state, ledger, record, placement, now_s)
    engine.state.place(record.job, placement, now_s)
    engine.queue.take(record.id)
    return {"placement": plain(placement), "saved": saved}


def _cost(state: ClusterState, record: Record, placement: Placement) -> dict[str, float]:
    """Return what a placement costs the cluster as it stands."""
    view = state.snapshot()
    return {
        "machines": len(placement.counts),
        "idle_machines": sum(view.is_idle(machine) for machine in placement.counts),
        "cross_bytes": traffic(record.job, placement.machines).cross_machine_bytes,
    }


def _saved(
    state: ClusterState, ledger: Ledger, record: Record, actual: Placement, now_s: float
) -> dict[str, float]:
    """Return what the recommendation would have saved beside what was done; below zero where it costs more."""
    known = ledger.recommended.get(record.id)
    if known is None:
        return {"jobs": 0}
    cost = _cost(state, record, actual)
    better = _cost(state, record, placement_of(known["placement"]))
    return {"jobs": 1, **{name: cost[name] - better[name] for name in cost}, "wait_s": now_s - known["at_s"]}
