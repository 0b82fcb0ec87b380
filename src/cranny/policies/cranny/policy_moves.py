"""What the policy itself moves: jobs that state what a restart costs them, as far as promises are kept."""

import math
from typing import TYPE_CHECKING

from cranny.core.snapshot import Snapshot
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.validate import not_negative
from cranny.policies.cranny.moves import MoveGroup, MoveRules
from cranny.policies.cranny.periodic_moves import PeriodicMoves

if TYPE_CHECKING:
    from cranny.policies.cranny import Cranny
    from cranny.policies.cranny.followed import Followed

EVERY_S = 3_600.0
LEAST_S = 1.0


class PolicyMoves:
    """Moves that pay, every so often; nothing until a job runs that may move."""

    def __init__(self, every_s: float) -> None:
        not_negative(every_s, "cranny: move_every_s")
        if 0.0 < every_s < LEAST_S:
            raise InputError(f"cranny: move_every_s must be 0 or at least {LEAST_S:g} s, not {every_s!r}")
        self._periodic = PeriodicMoves(every_s) if every_s else None
        self.begun = False

    def may_move(self, job: Job) -> bool:
        """Say whether a job may move while it runs: it states what a restart costs."""
        return self._periodic is not None and job.restart_s > 0

    def started(self, job: Job) -> None:
        """Note a job that runs: moves are looked for from the first on that may move."""
        self.begun = self.begun or self.may_move(job)

    def at(self, view: Snapshot, policy: "Cranny", followed: "Followed") -> list[MoveGroup]:
        """Return the moves that pay if they are due; none otherwise."""
        if self._periodic is None or not self.begun:
            return []
        return self._periodic.at(view, lambda: _rules(policy, followed))

    def next_s(self, now_s: float) -> float:
        """Return when they are due next."""
        return self._periodic.next_s(now_s) if self._periodic is not None and self.begun else math.inf


def _rules(policy: "Cranny", followed: "Followed") -> MoveRules:
    """Return which jobs may move, and where to.

    Machines that are kept for waiting jobs stay free, and when others were promised a start, no job holds more
    GPUs than without its move.
    """

    def movable(job: Job) -> bool:
        return policy.own_moves.may_move(job) and policy.rules.may_stop(job.id)

    now_s, tail = followed.now_s, followed.tail

    def counted_s(job: Job, seconds: float) -> float:
        return tail.counted_s(job.gpus, now_s - job.submit_s, seconds)

    return MoveRules(
        movable,
        policy.left_after,
        policy.rules.constraints_of,
        running_left_s=followed.running_left_s,
        kept=followed.promises.kept_from("", followed.now_s, math.inf),
        may_be_on=followed.may_move,
        counted_s=counted_s,
    )
