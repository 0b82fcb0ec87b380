"""Jobs that change each other's speed: what is left of each, and which of them ends first.

One job that starts or ends may change the speed of hundreds, so they are kept in arrays and changed all at once.
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cranny.network.isolated import Shared
from cranny.sim.job_log import Work

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FIRST = 64  # room at first


class Pace:
    """Running jobs that share a network."""

    def __init__(self) -> None:
        self.next_s = math.inf  # when the first of them ends
        self._works: dict[int, Work] = {}
        self._number: dict[str, int] = {}
        self._state: Floats = np.zeros((5, 0))
        self._grow(FIRST)

    @property
    def first(self) -> Work:
        """The job that ends first."""
        return self._works[int(self._end_s.argmin())]

    def set(self, shared: Shared, works: Mapping[str, Work], now_s: float) -> None:
        """Let jobs go on at another speed from now on, and foresee when they end."""
        if shared.started is not None:
            self._enter(shared.started, works[shared.ids[shared.started]])
        at = shared.numbers
        left_s = self._left_s[at]
        left_s -= np.minimum((now_s - self._since_s[at]) / self._slowdown[at], left_s)
        slowdown = shared.slowdown * self._stretch[at]
        self._left_s[at], self._since_s[at], self._slowdown[at] = left_s, now_s, slowdown
        self._end_s[at] = now_s + left_s * slowdown
        self.next_s = float(self._end_s.min())

    def hold_up(self, work: Work, lost_s: float) -> bool:
        """Let a job end so much later; say whether it is here."""
        number = self._number.get(work.job.id)
        if number is None:
            return False
        self._left_s[number] += lost_s / self._slowdown[number]
        self._end_s[number] += lost_s
        self.next_s = float(self._end_s.min())
        return True

    def leave(self, work: Work) -> None:
        """Write down how far a job is that stops, if it is here."""
        number = self._number.pop(work.job.id, None)
        if number is not None:
            del self._works[number]
            work.left_s, work.since_s, work.slowdown = self._state[:3, number].tolist()
            self._end_s[number] = math.inf
            self.next_s = float(self._end_s.min())

    def leave_all(self) -> None:
        """Write down how far all jobs are."""
        for work in list(self._works.values()):
            self.leave(work)

    def _enter(self, number: int, work: Work) -> None:
        if number >= len(self._end_s):
            self._grow(number + 1)
        self._works[number] = work
        self._number[work.job.id] = number
        self._state[:3, number] = work.left_s, work.since_s, work.slowdown
        self._stretch[number] = work.stretch

    def _grow(self, more: int) -> None:
        """Make room for more jobs."""
        rows = np.full((5, more), math.inf)
        self._state = np.concatenate([self._state, rows], axis=1)
        self._left_s, self._since_s, self._slowdown, self._end_s, self._stretch = self._state
