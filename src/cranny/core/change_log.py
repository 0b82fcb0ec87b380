"""What started and ended on a cluster, in order: a policy follows it without reading every job again."""

from collections.abc import Sequence
from typing import NamedTuple

from cranny.core.accounting import Running

KEPT = 4096  # changes at least; a policy that was not asked for longer reads all jobs again


class Change(NamedTuple):
    """A job that began to run, with sign 1, or no longer runs, with sign -1."""

    running: Running
    sign: int


class ChangeLog:
    """The last changes of a cluster."""

    __slots__ = ("_dropped", "_entries", "count")

    def __init__(self) -> None:
        self._entries: list[Change] = []
        self._dropped = 0
        self.count = 0  # of all changes ever

    def add(self, running: Running, sign: int) -> None:
        """Add a change."""
        if len(self._entries) >= 2 * KEPT:
            del self._entries[:KEPT]
            self._dropped += KEPT
        self._entries.append(Change(running, sign))
        self.count += 1

    def between(self, first: int, past: int) -> Sequence[Change] | None:
        """Return the changes from number `first` to before `past`; None if some are no longer kept."""
        if first < self._dropped:
            return None
        return self._entries[first - self._dropped : past - self._dropped]


class ChangePoint(NamedTuple):
    """A moment in the history of a cluster."""

    log: ChangeLog
    logged: int  # changes before it
