"""What a network does to running jobs: how much longer each runs than on one machine."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cranny.core.accounting import Running
from cranny.core.protocol import Slowdown, Slowdowns


@dataclass(frozen=True, slots=True)
class SharedSlowdowns:
    """New slowdowns of jobs that share a network, by their numbers in the network."""

    numbers: npt.NDArray[np.int64]
    slowdown: npt.NDArray[np.float64]
    ids: Mapping[int, str]
    started: int | None = None  # the job among them that starts

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Go through jobs and their slowdowns."""
        return zip((self.ids[number] for number in self.numbers.tolist()), self.slowdown.tolist(), strict=True)


class Isolated:
    """A network in which no job slows another: a slowdown follows from the job's own placement."""

    def __init__(self, slowdown: Slowdown) -> None:
        self._slowdown = slowdown

    def start(self, running: Running) -> Slowdowns:
        """Return how the job's own communication slows it down."""
        cost = running.communication
        return ((running.job.id, self._slowdown(running.job, cost) if cost.comm_s else 1.0),)

    def end(self, job_id: str) -> Slowdowns:  # noqa: ARG002 - the same for all
        """Change nothing."""
        return ()

    def shift(self, running: Running) -> Slowdowns:  # noqa: ARG002 - the same for all
        """Change nothing."""
        return ()
