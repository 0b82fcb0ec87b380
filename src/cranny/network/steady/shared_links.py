"""Jobs that share links: each runs as fast as its max-min fair share of the network lets it.

Every running job that spans machines streams all the time, as in NetPack's estimate (ASPLOS 2024, Sec. 4): its
rate is what its busiest link carries of it. A job alone on its links communicates as fast as with `isolated`;
rates are computed anew whenever such a job starts or ends, and a job's speed follows its rate.
"""

import numpy as np

from cranny.core.accounting import Running
from cranny.core.flows import Flows
from cranny.core.protocol import SharedSlowdowns, Slowdowns
from cranny.model.cluster import Cluster
from cranny.network.steady.rates import Rates, stream


class SharedLinks:
    """Jobs on links that are shared max-min fairly, and how much longer than on one machine each runs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates = Rates.of(cluster)
        self._ids: dict[int, str] = {}  # by their numbers among the rates
        self._pull = np.zeros(0)  # gigabits that an iteration moves, by the seconds it takes without communication
        self._number: dict[str, int] = {}

    def start(self, running: Running) -> Slowdowns:
        """Add a job to the links that it uses."""
        job, alone = running.job, running.communication
        if not alone.link_gbps:
            return ((job.id, 1.0),)
        flows, gigabits = stream(self._cluster, job, running.placement)
        alone_gbps = gigabits / alone.comm_s
        number = self._rates.add(flows, most_gbps=alone_gbps)
        self._record(running, alone_gbps, flows)
        if number >= len(self._pull):
            self._pull = np.concatenate([self._pull, np.zeros(number + 1)])
        self._pull[number] = gigabits / job.profile.iteration_s
        self._ids[number], self._number[job.id] = job.id, number
        return self._slowdowns(number)

    def end(self, job_id: str) -> Slowdowns:
        """Remove a job from its links."""
        number = self._number.pop(job_id, None)
        if number is None:
            return ()
        self._rates.remove(number)
        del self._ids[number]
        return self._slowdowns()

    def attempt(self, running: Running) -> tuple[float, SharedSlowdowns]:
        """Return how slow one job more would be that uses links, and how slow it would make others."""
        job = running.job
        flows, gigabits = stream(self._cluster, job, running.placement)
        tried = self._rates.attempt(flows, gigabits / running.communication.comm_s)
        slowdown = 1.0 + self._pull[tried.others] / tried.rates_gbps
        own = 1.0 + gigabits / job.profile.iteration_s / tried.own_gbps
        return own, SharedSlowdowns(tried.others, slowdown, self._ids, None)

    @property
    def in_use(self) -> bool:
        """Whether any job uses links."""
        return bool(self._number)

    def number(self, job_id: str) -> int | None:
        """Return the number of a job among those that use links; None if it uses none."""
        return self._number.get(job_id)

    def _record(self, running: Running, alone_gbps: float, flows: Flows) -> None:
        """Do nothing more: a network with a log has it here."""

    def _slowdowns(self, started: int | None = None) -> SharedSlowdowns:
        """Return the slowdowns of the jobs whose rate has just changed."""
        changed = self._rates.changed()
        return SharedSlowdowns(
            changed, 1.0 + self._pull[changed] / self._rates.rates_gbps(changed), self._ids, started
        )
