"""The search for moves, every so often."""

import math
from collections.abc import Callable

from cranny.core.snapshot import Snapshot
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import MoveGroup, MoveRules


class PeriodicMoves:
    """Moves that pay, every so often."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_s: float | None = None  # a multiple of that, once the time is known

    def at(self, view: Snapshot, rules: Callable[[], MoveRules]) -> list[MoveGroup]:
        """Return the moves that pay if they are due; none otherwise, and then no rules are asked for."""
        due_s = self._due_s
        if due_s is not None and view.now_s < due_s:
            return []
        self._due_s = self._next_multiple(view.now_s)
        return [] if due_s is None else proposed_moves(view, rules())

    def next_s(self, now_s: float) -> float:
        """Return when they are due next."""
        due_s = self._next_multiple(now_s) if self._due_s is None else self._due_s
        return due_s if due_s > now_s else now_s + self._every_s

    def _next_multiple(self, now_s: float) -> float:
        return self._every_s * (math.floor(now_s / self._every_s) + 1)
