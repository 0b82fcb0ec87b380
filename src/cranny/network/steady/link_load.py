"""The network at a moment: what links and switches carry, and which links hold which jobs back."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cranny.core.accounting import Running
from cranny.core.flows import Flows
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.network.steady.rates import Rates, stream

FULL = 1.0 - 1e-9  # share of its capacity from which a link counts as full, whatever the rounding
HELD_BACK = 1.0 - 1e-9  # share of the rate alone below which others hold a job back


class JobStream(NamedTuple):
    """A running job that uses links: its flows, and the rate it would have alone."""

    job_id: str
    flows: Flows
    alone_gbps: float


class JobRate(NamedTuple):
    """What a job streams."""

    job_id: str
    rate_gbps: float
    alone_gbps: float
    links: tuple[int, ...]  # that it uses
    held_by: tuple[int, ...]  # full links where no job is faster; empty if its own limit sets its rate

    @property
    def bottleneck(self) -> int | None:
        """The link that holds it at its rate, the first where several do; None if its own limit does."""
        return self.held_by[0] if self.held_by else None

    @property
    def lost_gbps(self) -> float:
        """What other jobs take from its rate; 0 for a job that no link holds."""
        return max(0.0, self.alone_gbps - self.rate_gbps) if self.bottleneck is not None else 0.0

    @property
    def held_back(self) -> bool:
        """Whether other jobs make it slower than it would be alone."""
        return self.rate_gbps < HELD_BACK * self.alone_gbps


class Bottleneck(NamedTuple):
    """A full link, the jobs that it holds at their rates, and all jobs on it; slowest first."""

    link: int
    held: tuple[JobRate, ...]
    jobs: tuple[JobRate, ...]

    @property
    def lost_gbps(self) -> float:
        """How much faster the jobs that it holds would be alone, added up."""
        return sum(job.lost_gbps for job in self.held)


@dataclass(frozen=True, eq=False)
class Load:
    """The steady state of some running jobs: rates, links, and switches with their PAT."""

    cluster: Cluster
    jobs: tuple[JobRate, ...]  # those that use links
    link_gbps: Floats  # (links,) carried
    link_flows: Floats  # (links,)
    link_jobs: Ints  # (links,)
    pat_gbps: Floats  # (racks,) what each rack's switch can aggregate; 0 if it cannot
    pat_used_gbps: Floats  # (racks,)
    switch_jobs: Ints  # (racks,) jobs that aggregate there, or would with more memory

    @classmethod
    def of(cls, cluster: Cluster, job_streams: Iterable[JobStream]) -> "Load":
        """Compute what these jobs do to the network of a cluster."""
        job_streams = tuple(job_streams)
        rates = Rates.of(cluster)
        numbers = rates.add_all([each.flows for each in job_streams], [each.alone_gbps for each in job_streams])
        (left_gbps, left_pat_gbps), (link_flows, switch_jobs) = rates.left_gbps(), rates.flows()
        capacity = np.array(cluster.uplink_gbps)
        count = len(capacity)
        link_gbps = np.subtract(capacity, left_gbps, out=np.zeros(count), where=np.isfinite(capacity))
        used = [np.unique(each.flows.resource[each.flows.resource < count]) for each in job_streams]
        fastest_gbps = np.zeros(count)
        for number, links in zip(numbers, used, strict=True):
            fastest_gbps[links] = np.maximum(fastest_gbps[links], rates.rate_gbps(number))

        def rate(job_stream: JobStream, number: int, links: Ints) -> JobRate:
            gbps = rates.rate_gbps(number)
            full = link_gbps[links] >= FULL * capacity[links]
            holding = links[full & (gbps >= HELD_BACK * fastest_gbps[links])]
            held_by = () if rates.bottleneck(number) is None else tuple(holding.tolist())
            return JobRate(job_stream.job_id, gbps, job_stream.alone_gbps, tuple(links.tolist()), held_by)

        pat_gbps = np.array([cluster.pat_gbps[rack] or 0.0 for rack in cluster.rack_nodes], dtype=np.float64)
        return cls(
            cluster,
            tuple(map(rate, job_streams, numbers, used)),
            link_gbps=link_gbps,
            link_flows=link_flows,
            link_jobs=np.bincount(np.concatenate([*used, np.empty(0, np.int64)]), minlength=count),
            pat_gbps=pat_gbps,
            pat_used_gbps=pat_gbps - left_pat_gbps,
            switch_jobs=switch_jobs.round().astype(np.int64),
        )

    @cached_property
    def share(self) -> Floats:
        """How full each link is, (links,), from 0 to 1."""
        share: Floats = self.link_gbps / np.array(self.cluster.uplink_gbps)
        return share.clip(0.0, 1.0)

    @cached_property
    def full(self) -> Ints:
        """The links that are full."""
        return np.flatnonzero(self.share >= FULL)

    @cached_property
    def holds_back(self) -> Ints:
        """How many jobs each link holds back, (links,): it is full, and no job on it is faster than they are.

        Several full links may hold a job at the same rate; it counts on each of them.
        """
        held = np.zeros(len(self.share), dtype=np.int64)
        for job in self.jobs:
            if job.held_back:
                held[list(job.held_by)] += 1
        return held

    @cached_property
    def bottlenecks(self) -> tuple[Bottleneck, ...]:
        """Links that hold jobs at their rates, those first that cost their jobs most Gbps."""
        held: dict[int, list[JobRate]] = {}
        on: dict[int, list[JobRate]] = {}
        for job in sorted(self.jobs, key=lambda job: (round(job.rate_gbps, 6), job.job_id)):
            if job.bottleneck is not None:
                held.setdefault(job.bottleneck, []).append(job)
            for link in job.links:
                on.setdefault(link, []).append(job)
        found = [Bottleneck(link, tuple(jobs), tuple(on[link])) for link, jobs in held.items()]
        return tuple(sorted(found, key=lambda each: (-round(each.lost_gbps, 6), -len(each.held), each.link)))

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values."""
        cluster = self.cluster
        racks = cluster.rack_names
        in_rack = dict(enumerate(cluster.rack_of)) | {node: rack for rack, node in enumerate(cluster.rack_nodes)}
        return {
            "links": [
                {
                    "link": cluster.link_name(link),
                    "rack": racks[in_rack[link]] if link in in_rack else None,
                    "capacity_gbps": cluster.uplink_gbps[link],
                    "carried_gbps": float(self.link_gbps[link]),
                    "share": float(self.share[link]),
                    "flows": float(self.link_flows[link]),
                    "jobs": int(self.link_jobs[link]),
                    "holds_back": int(self.holds_back[link]),
                }
                for link in range(len(cluster.uplink_gbps))
                if link != cluster.root
            ],
            "switches": [
                {
                    "rack": name,
                    "pat_gbps": float(self.pat_gbps[rack]),
                    "used_gbps": float(self.pat_used_gbps[rack]),
                    "jobs": int(self.switch_jobs[rack]),
                }
                for rack, name in enumerate(racks)
            ],
            "jobs": [
                {
                    "job": job.job_id,
                    "rate_gbps": job.rate_gbps,
                    "alone_gbps": job.alone_gbps,
                    "bottleneck": None if job.bottleneck is None else cluster.link_name(job.bottleneck),
                }
                for job in self.jobs
            ],
            "bottlenecks": [
                {
                    "link": cluster.link_name(each.link),
                    "lost_gbps": each.lost_gbps,
                    "held": [job.job_id for job in each.held],
                    "jobs": [job.job_id for job in each.jobs],
                }
                for each in self.bottlenecks
            ],
        }


def job_streams(cluster: Cluster, running: Iterable[Running]) -> list[JobStream]:
    """Return what running jobs stream, those that use links."""
    found = []
    for each in running:
        if each.communication.link_gbps:
            flows, gigabits = stream(cluster, each.job, each.placement)
            found.append(JobStream(each.job.id, flows, gigabits / each.communication.comm_s))
    return found


def load_at(cluster: Cluster, runs: pl.DataFrame, streams: pl.DataFrame, at_s: float) -> Load:
    """Return the network as it was at a time, from the records of a replay."""
    now = runs.filter((pl.col("start_s") <= at_s) & (pl.col("end_s") > at_s)).select("job_id", "start_s").unique()
    rows = streams.filter(pl.col("from_s") <= at_s).join(
        now, on=["job_id", "start_s"], how="semi", maintain_order="left"
    )
    rows = rows.filter(pl.col("stream") == pl.col("stream").max().over("job_id"))  # the latest of each job
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
