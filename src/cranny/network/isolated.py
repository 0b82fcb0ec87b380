"""What a network does to running jobs: how much longer each runs than on one machine."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cranny.core.accounting import Running
from cranny.core.queue import Slowdown

# Jobs by id, and how many times longer than on one machine each of them runs from now on.
Slowdowns = Iterable[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Shared:
    """New slowdowns of jobs that share a network, by the numbers under which it knows them."""

    numbers: npt.NDArray[np.int64]
    slowdown: npt.NDArray[np.float64]
    ids: Mapping[int, str]
    started: int | None = None  # the job among them that starts

    def __iter__(self) -> Iterator[tuple[str, float]]:
        """Go through jobs and their slowdowns."""
        return zip((self.ids[number] for number in self.numbers.tolist()), self.slowdown.tolist(), strict=True)


class Network(Protocol):
    """What the network does to running jobs."""

    def start(self, running: Running) -> Slowdowns:
        """Let a job in; return its slowdown, and those of others that it changes."""

    def end(self, job_id: str) -> Slowdowns:
        """Let a job out; return the slowdowns of others that this changes."""

    def shift(self, running: Running) -> Slowdowns:
        """Delay the next iteration of a job by its new shift; return the slowdowns that this changes."""


class Alone:
    """A network in which no job notices another: a slowdown follows from the job's own placement."""

    def __init__(self, slowdown: Slowdown) -> None:
        self._slowdown = slowdown

    def start(self, running: Running) -> Slowdowns:
        """Return how the job's own communication slows it down."""
        cost = running.communication
        return ((running.job.id, self._slowdown(running.job, cost) if cost.comm_s else 1.0),)

    def end(self, job_id: str) -> Slowdowns:  # noqa: ARG002 - whoever it was
        """Change nothing."""
        return ()

    def shift(self, running: Running) -> Slowdowns:  # noqa: ARG002 - whichever it is
        """Change nothing."""
        return ()
