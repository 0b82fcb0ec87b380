"""A value that changes at moments and holds in between, such as the free GPUs of a cluster."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]
Window = tuple[float, float]  # seconds, from and to


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The value from each moment to the next, the last one up to the end of the window."""

    at_s: Column  # (steps,) ascending; the first is the start of the window
    value: Column  # (steps,)
    end_s: float

    @classmethod
    def of(cls, start_s: Column, end_s: Column, weight: Column, window: Window, base: float = 0.0) -> Self:
        """Add to `base` the weights of all stretches, each from its start to before its end."""
        first_s, last_s = window
        start_s, end_s = np.clip(start_s, first_s, last_s), np.clip(end_s, first_s, last_s)
        at_s, place = np.unique(np.concatenate([[first_s], start_s, end_s]), return_inverse=True)
        change = np.bincount(place[1:], weights=np.concatenate([weight, -weight]), minlength=at_s.size)
        inside = at_s < last_s
        inside[0] = True
        return cls(at_s[inside], np.asarray(base + np.cumsum(change)[inside], dtype=np.float64), last_s)

    @property
    def _lengths_s(self) -> Column:
        lengths_s = np.diff(self.at_s, append=self.end_s)
        return lengths_s if lengths_s.sum() > 0 else np.ones_like(lengths_s)

    @property
    def mean(self) -> float:
        """Mean over time."""
        return float(np.average(self.value, weights=self._lengths_s))

    def share_from(self, least: float) -> float:
        """Return the share of time in which the value is `least` or more."""
        return float(np.average(self.value >= least, weights=self._lengths_s))

    def at(self, times_s: Column) -> Column:
        """Return the value at some times; outside the window that of its nearer end."""
        place = np.searchsorted(self.at_s, times_s, side="right") - 1
        return self.value[np.maximum(place, 0)]
