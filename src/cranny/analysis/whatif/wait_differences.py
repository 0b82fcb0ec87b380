"""By how much jobs wait longer or shorter in one case than in another, and how sure that is.

Cases are compared on the same jobs and on the same weeks: what makes a week hard makes it hard under every policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cranny.analysis.whatif.groups import ROW, JobsOf
from cranny.analysis.whatif.resampling import Interval, block_edges_s, block_length_s, interval_of_mean
from cranny.model.arrays import Floats
from cranny.traces.inspect import Window


@dataclass(frozen=True, slots=True)
class WaitDifference:
    """How much longer jobs wait on average, negative if shorter; no interval if the window is too short."""

    mean_s: float
    interval: Interval | None

    @property
    def is_clear(self) -> bool:
        """Whether the sign is not in doubt."""
        return self.interval is not None and not self.interval.has_zero


@dataclass(frozen=True, slots=True, eq=False)
class BlockWaits:
    """Waits of the same jobs in every case, added up by the week or day of their submission, (blocks,) each."""

    jobs: Floats
    wait_s: Mapping[str, Floats]  # by case
    resampled: bool  # whether the window has enough blocks
    seed: int

    def mean_s(self, case: str) -> float:
        """Return the mean wait of a case."""
        return float(self.wait_s[case].sum() / self.jobs.sum())

    def difference(self, case: str, other: str) -> WaitDifference:
        """Return how much longer jobs wait in a case than in another; blocks are drawn for both alike."""
        more_s = self.wait_s[case] - self.wait_s[other]
        interval = interval_of_mean(more_s, self.jobs, self.seed) if self.resampled else None
        return WaitDifference(float(more_s.sum() / self.jobs.sum()), interval)

    def shortest(self, cases: Sequence[str]) -> str:
        """Return the case with the shortest mean wait, of equals the first."""
        return min(cases, key=self.mean_s)


def block_waits(jobs: JobsOf, submitted: pl.DataFrame, window: Window, seed: int) -> BlockWaits:
    """Add up waits; `submitted` has submit_s of all rows of the log."""
    length_s = block_length_s(window)
    edges_s = block_edges_s(window, length_s or window[1] - window[0])
    rows = np.sort(next(iter(jobs.values()))[ROW].to_numpy())  # the same in all cases
    submit_s = submitted["submit_s"].to_numpy()[rows]
    block = np.clip(np.searchsorted(edges_s, submit_s, side="right") - 1, 0, edges_s.size - 2)

    def summed(weights: Floats | None = None) -> Floats:
        return np.bincount(block, weights=weights, minlength=edges_s.size - 1).astype(np.float64)

    waits = {name: summed(each.sort(ROW)["wait_s"].to_numpy()) for name, each in jobs.items()}
    return BlockWaits(summed(), waits, length_s is not None, seed)
