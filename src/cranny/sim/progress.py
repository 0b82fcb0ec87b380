"""Progress of jobs that change each other's speed: the remaining time of each, and which ends first.

One job that starts or ends may change the speed of hundreds, so they are kept in arrays and updated all at once.
"""

import math
from collections.abc import Mapping

import numpy as np

from cranny.core.protocol import SharedSlowdowns
from cranny.model.arrays import Floats
from cranny.sim.record import SimulatedJob

FIRST = 64  # initial capacity


class SharedProgress:
    """Running jobs that share a network."""

    def __init__(self) -> None:
        self.next_s = math.inf  # when the first of them ends
        self._jobs: dict[int, SimulatedJob] = {}
        self._number: dict[str, int] = {}
        self._state: Floats = np.zeros((5, 0))
        self._grow(FIRST)

    @property
    def first(self) -> SimulatedJob:
        """The job that ends first."""
        return self._jobs[int(self._end_s.argmin())]

    def set(self, shared: SharedSlowdowns, simulated_jobs: Mapping[str, SimulatedJob], now_s: float) -> None:
        """Set the speeds of jobs from now on, and predict when they end."""
        if shared.started is not None:
            number, simulated = shared.started, simulated_jobs[shared.ids[shared.started]]
            if number >= len(self._end_s):
                self._grow(number + 1)
            self._jobs[number], self._number[simulated.job.id] = simulated, number
            self._state[:3, number] = simulated.remaining_s, simulated.since_s, simulated.slowdown
            self._stretch[number] = simulated.stretch
        at = shared.numbers
        remaining_s = self._remaining_s[at]
        remaining_s -= np.minimum((now_s - self._since_s[at]) / self._slowdown[at], remaining_s)
        slowdown = shared.slowdown * self._stretch[at]
        self._remaining_s[at], self._since_s[at], self._slowdown[at] = remaining_s, now_s, slowdown
        self._end_s[at] = now_s + remaining_s * slowdown
        self.next_s = float(self._end_s.min())

    def delay(self, simulated: SimulatedJob, lost_s: float) -> bool:
        """Delay the end of a job; say whether it is here."""
        number = self._number.get(simulated.job.id)
        if number is None:
            return False
        self._remaining_s[number] += lost_s / self._slowdown[number]
        self._end_s[number] += lost_s
        self.next_s = float(self._end_s.min())
        return True

    def remove(self, simulated: SimulatedJob) -> None:
        """Write the progress of a job that stops back to it, if it is here."""
        number = self._number.pop(simulated.job.id, None)
        if number is not None:
            del self._jobs[number]
            simulated.remaining_s, simulated.since_s, simulated.slowdown = self._state[:3, number].tolist()
            self._end_s[number] = math.inf
            self.next_s = float(self._end_s.min())

    def remove_all(self) -> None:
        """Write the progress of all jobs back to them."""
        for simulated in list(self._jobs.values()):
            self.remove(simulated)

    def _grow(self, more: int) -> None:
        """Add capacity for more jobs."""
        rows = np.full((5, more), math.inf)
        self._state = np.concatenate([self._state, rows], axis=1)
        self._remaining_s, self._since_s, self._slowdown, self._end_s, self._stretch = self._state
