"""Jobs that share links: each runs as fast as its max-min fair share of the network lets it.

Every running job that spans machines streams all the time, as in NetPack's estimate (ASPLOS 2024, Sec. 4): its
rate is what its busiest link carries of it. A job alone on its links communicates as fast as with `isolated`;
rates are worked out anew whenever such a job starts or ends, and a job's speed follows its rate.
"""

from collections.abc import Iterable
from typing import NamedTuple

from cranny.core.books import Running
from cranny.core.steady.rates import Rates
from cranny.core.steady.streams import stream
from cranny.model.cluster import Cluster
from cranny.sim.network import Slowdowns


class _Talker(NamedTuple):
    """A running job that uses links."""

    job_id: str
    gigabits: float  # that an iteration moves at the job's rate
    iteration_s: float  # without communication

    def slowdown(self, rate_gbps: float) -> float:
        return 1.0 + self.gigabits / rate_gbps / self.iteration_s


class Steady:
    """A network whose links are shared max-min fairly."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates = Rates.of(cluster)
        self._talkers: dict[int, _Talker] = {}  # by their numbers among the rates
        self._number: dict[str, int] = {}

    def start(self, running: Running) -> Slowdowns:
        """Let a job share the links that it uses."""
        job, alone = running.job, running.communication
        if not alone.link_gbps:
            return ((job.id, 1.0),)
        flows, gigabits = stream(self._cluster, job, running.placement)
        number = self._rates.add(flows, most_gbps=gigabits / alone.comm_s)
        self._talkers[number] = _Talker(job.id, gigabits, job.profile.iteration_s)
        self._number[job.id] = number
        return self._slowdowns({number, *self._rates.changed().tolist()})

    def end(self, job_id: str) -> Slowdowns:
        """Leave the links to the others."""
        number = self._number.pop(job_id, None)
        if number is None:  # it used none
            return ()
        self._rates.remove(number)
        del self._talkers[number]
        return self._slowdowns(self._rates.changed().tolist())

    def _slowdowns(self, numbers: Iterable[int]) -> Slowdowns:
        """Return the slowdowns of jobs, in the order of their numbers so that runs repeat."""
        found = [(self._talkers[number], number) for number in sorted(numbers) if number in self._talkers]
        return [(talker.job_id, talker.slowdown(self._rates.rate_gbps(number))) for talker, number in found]
