"""Moves of running jobs that an admin has chosen."""

from collections.abc import Sequence

from cranny.model.errors import PlacementError
from cranny.model.plan import Plan
from cranny.policies.cranny.moves import MoveGroup, actions
from cranny.service.limits import ConflictError
from cranny.service.scheduler import Scheduler


def make_moves(scheduler: Scheduler, groups: Sequence[MoveGroup], now_s: float) -> None:
    """Make moves that were found a moment ago; all are refused if one is no longer possible."""
    if scheduler.mode != "run":
        raise ConflictError("the jobs are run by another scheduler: move them there")
    made = actions(groups)
    for move in (move for group in groups for move in group.moves):
        record = scheduler.find(move.job_id)
        attempt = record.attempt
        there = attempt is not None and attempt.placement.machines == move.source.machines
        if record.status != "running" or not record.spec.may_stop or not there:
            raise ConflictError(f"{record.id} has changed meanwhile; no job was moved, retry")
    try:
        scheduler.engine.state.commit(Plan(scheduler.engine.state.version, made), now_s)
    except PlacementError as error:
        raise ConflictError(f"the cluster has changed meanwhile; no job was moved, retry: {error}") from None
    for at, action in enumerate(made):
        scheduler.log_action(action, made[at + 1 :], now_s)
    scheduler.tick(now_s)
