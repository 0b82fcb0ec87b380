"""Jobs that share links: each runs as fast as its max-min fair share of the network lets it.

Every running job that spans machines streams all the time, as in NetPack's estimate (ASPLOS 2024, Sec. 4): its
rate is what its busiest link carries of it. A job alone on its links communicates as fast as with `isolated`;
rates are computed anew whenever such a job starts or ends, and a job's speed follows its rate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from cranny.core.accounting import Running
from cranny.core.flows import Flows
from cranny.core.protocol import SharedSlowdowns, Slowdowns
from cranny.model.cluster import Cluster
from cranny.network.steady.rates import Rates, stream

# A row for each use that a job makes of a resource, see `Flows`; rows of a stream stand together. A job has one
# stream from its start on, and another when other switches aggregate for it.
STREAMS = {
    "job_id": pl.String,
    "start_s": pl.Float64,
    "stream": pl.Int64,
    "from_s": pl.Float64,
    "alone_gbps": pl.Float64,
    "resource": pl.Int64,
    "root": pl.Int64,
    "leaf": pl.Int64,
    "merged": pl.Float64,
    "few": pl.Float64,
    "many": pl.Float64,
}


class StreamLog:
    """The flows of every job that used links, from the time it started there."""

    def __init__(self) -> None:
        self._starts: list[tuple[str, float, float]] = []
        self._flows: list[Flows] = []
        self._from_s: list[float] = []  # of as many as were stamped

    def add(self, job_id: str, start_s: float, alone_gbps: float, flows: Flows) -> None:
        """Add the stream of a job that starts, goes on elsewhere, or is aggregated elsewhere."""
        self._starts.append((job_id, start_s, alone_gbps))
        self._flows.append(flows)

    def stamp(self, now_s: float) -> None:
        """Say when the streams began that were added last."""
        self._from_s += [now_s] * (len(self._starts) - len(self._from_s))

    def frame(self) -> pl.DataFrame:
        """Return everything in columns."""
        if not self._starts:
            return pl.DataFrame(schema=STREAMS)
        start = np.repeat(np.arange(len(self._starts)), [len(flows.resource) for flows in self._flows])
        job_id, start_s, alone_gbps = zip(*self._starts, strict=True)
        uses = zip(Flows._fields, zip(*self._flows, strict=True), strict=True)
        return pl.DataFrame(
            {
                "job_id": pl.Series(job_id).gather(start),
                "start_s": np.array(start_s)[start],
                "stream": start,
                "from_s": np.array(self._from_s)[start],
                "alone_gbps": np.array(alone_gbps)[start],
                **{name: np.concatenate(parts) for name, parts in uses},
            },
            schema=STREAMS,
        )


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
        if number is None:  # it used none
            return ()
        self._rates.remove(number)
        del self._ids[number]
        return self._slowdowns()

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


class Steady(SharedLinks):
    """A network whose links are shared max-min fairly, with a log of what jobs streamed."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.streams = StreamLog()

    def shift(self, running: Sequence[Running]) -> Slowdowns:  # noqa: ARG002 - the same for all
        """Change nothing: jobs stream all the time."""
        return ()

    def note(self, now_s: float) -> None:
        """Write down when streams began."""
        self.streams.stamp(now_s)

    def recorded(self) -> Mapping[str, Any]:
        """Return what jobs streamed."""
        return {"streams": self.streams.frame()}

    def _record(self, running: Running, alone_gbps: float, flows: Flows) -> None:
        self.streams.add(running.job.id, running.started_s, alone_gbps, flows)
