"""The network `steady`: links that are shared max-min fairly, and a log of what every job streamed on them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from cranny.core.accounting import Running
from cranny.core.flows import Flows
from cranny.core.protocol import Slowdowns
from cranny.model.cluster import Cluster
from cranny.network.steady.shared_links import SharedLinks

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
