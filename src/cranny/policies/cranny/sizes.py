"""The sizes of jobs seen, and what free GPUs on one machine are worth to jobs like them."""

import numpy as np

from cranny.model.arrays import Floats

FORGET = 0.998  # of its weight a job seen keeps with each that follows: half of it after some 350
EVERY = 32  # jobs, after which values are computed again


class SizesSeen:
    """How often jobs of each size came lately, among those that one machine can hold."""

    def __init__(self, largest: int) -> None:
        self._weight = np.zeros(largest + 1)
        sizes = np.arange(1, largest + 1)
        self._left = np.arange(largest + 1)[:, None] % sizes  # of so many free GPUs, by jobs of each size
        self._each = 1.0  # weight of the next job; all weights shrink against it
        self._seen = 0

    def see(self, gpus: int) -> bool:
        """Count a job; say whether the values are due to be computed again."""
        if gpus < len(self._weight):
            self._each /= FORGET
            self._weight[gpus] += self._each
            if self._each > 1e100:
                self._weight /= self._each
                self._each = 1.0
        self._seen += 1
        return self._seen % EVERY == 1

    def waste(self) -> Floats:
        """Return of each number of free GPUs on a machine how many such jobs leave idle, (largest + 1,).

        The next job is of a size seen, and jobs of the same size fill what is left: those too large use nothing.
        """
        total = self._weight.sum()
        if not total:
            return np.zeros(len(self._weight))
        share = self._weight[1:] / total
        return np.asarray(
            (self._left * share).sum(axis=1)
        )  # BLAS would add in an order that depends on the machine
