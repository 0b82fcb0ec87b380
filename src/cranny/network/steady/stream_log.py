"""A log of what jobs stream, from which the load of the network at any time is computed afterwards."""

from itertools import pairwise

import numpy as np
import polars as pl

from cranny.core.flows import Flows
from cranny.model.cluster import Cluster
from cranny.network.steady.link_load import JobStream, Load

# A row for each use that a job makes of a resource, see `Flows`; rows of a job that starts stand together.
STREAMS = {
    "job_id": pl.String,
    "start_s": pl.Float64,
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

    def note(self, job_id: str, start_s: float, alone_gbps: float, flows: Flows) -> None:
        """Note a job that starts, or goes on elsewhere."""
        self._starts.append((job_id, start_s, alone_gbps))
        self._flows.append(flows)

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
                "alone_gbps": np.array(alone_gbps)[start],
                **{name: np.concatenate(parts) for name, parts in uses},
            },
            schema=STREAMS,
        )


def load_at(cluster: Cluster, runs: pl.DataFrame, streams: pl.DataFrame, at_s: float) -> Load:
    """Return the network as it was at a time, from the records of a replay."""
    now = runs.filter((pl.col("start_s") <= at_s) & (pl.col("end_s") > at_s)).select("job_id", "start_s").unique()
    rows = streams.filter(pl.col("start_s") <= at_s).join(
        now, on=["job_id", "start_s"], how="semi", maintain_order="left"
    )
    if not rows.height:
        return Load.of(cluster, ())
    ids, alone_gbps = rows["job_id"], rows["alone_gbps"]
    columns = [rows[name].to_numpy() for name in Flows._fields]
    # A job runs once at a time: where its id changes, the rows of another begin.
    firsts = [0, *(np.flatnonzero((ids != ids.shift(1)).to_numpy()[1:]) + 1).tolist(), rows.height]
    return Load.of(
        cluster,
        [
            JobStream(ids[first], Flows._make(column[first:past] for column in columns), alone_gbps[first])
            for first, past in pairwise(firsts)
        ],
    )
