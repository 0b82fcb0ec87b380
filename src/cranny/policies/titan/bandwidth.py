"""Titan's bandwidth constraint (Eq. 1, third row): what two machines exchange in a phase must pass in time."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cranny.core.feasibility import kind_of
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.core.traffic import BITS_PER_BYTE, GIGA, exchange_graph, footprint, parts
from cranny.model.cluster import Cluster
from cranny.model.collective import PLACED, Pattern
from cranny.model.job import Job

Patterns = tuple[tuple[Pattern, float], ...]  # each with the bytes of its K

# Loads within rounding of the limit are within it.
SLACK = 1 + 1e-9
# Beyond so many machines, idle ones are opened in ever larger numbers when links are too busy.
MANY_MACHINES = 32
# Of more machines on offer there are too many sets to search at the pace of a replay, and what `Titan` tries first
# (idle machines one by one, quiet machines, single racks) is mostly as good.
SEARCHED_MACHINES = 128


# What a rank exchanges with another: that rank, the phase, bytes sent and got.
Exchange = tuple[int, int, float, float]


@lru_cache(maxsize=256)
def exchanges(what: Patterns) -> list[list[Exchange]]:
    """Return what each rank exchanges, phase by phase; a phase that comes again counts once."""
    found: list[list[Exchange]] = [[] for _ in range(what[0][0].ranks)]
    first = 0
    for pattern, k_bytes in what:
        pairs = pattern.arrays
        sent = pairs.share[pairs.phase] * k_bytes
        back = np.where(pairs.exchange[pairs.phase], sent, 0.0)
        columns = (pairs.a, pairs.b, pairs.phase + first, sent, back)
        for a, b, phase, out, into in zip(*(column.tolist() for column in columns), strict=True):
            found[a].append((b, phase, out, into))
            found[b].append((a, phase, into, out))
        first += len(pairs.share)
    return found


def patterns(job: Job) -> Patterns:
    """Return what a job runs; where its pairs depend on the placement, the ring, whose pairs are smallest."""
    return ((exchange_graph(job), job.profile.grad_bytes),) if job.collective in PLACED else parts(job, ())


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The constraint for a given time that a phase may take."""

    phase_budget_s: float

    def limit_bytes(self, gbps: float) -> float:
        """Return what passes at this rate within the budget; without one also over links that are full."""
        if self.phase_budget_s == math.inf:
            return math.inf
        return gbps * GIGA / BITS_PER_BYTE * self.phase_budget_s * SLACK

    def need_gbps(self, job: Job) -> float:
        """Return the rate that one pair of ranks needs in the job's smallest phase: no split needs less."""
        smallest = min((phase.share * k for what, k in patterns(job) for phase in what.phases), default=0.0)
        return smallest * BITS_PER_BYTE / GIGA / self.phase_budget_s

    def blocked_link(self, job: Job, view: Snapshot, machines: tuple[int, ...]) -> int | None:
        """Return a link that the placement would overload in some phase, or None if it meets the constraint."""
        if machines.count(machines[0]) == len(machines):
            return None
        distinct, links, costs, _ = footprint(view.cluster, job, machines)
        # Most placements are far from any limit: compare the largest peak with the narrowest link first.
        most = max([each.peak * k_bytes for each, k_bytes in costs])
        if most <= self.limit_bytes(view.least_free_gbps(links)):
            return None
        # Of the pairs, only those matter that communicate over a link which is too narrow for the largest peak.
        narrow = {link for link in links if self.limit_bytes(view.link_free_gbps(link)) < most}
        behind = [not narrow.isdisjoint(view.cluster.paths[machine]) for machine in distinct]
        for each, k_bytes in costs:
            for i, j, share in each.peaks:
                if behind[i] or behind[j]:
                    link = view.narrowest_link(distinct[i], distinct[j])
                    if share * k_bytes > self.limit_bytes(view.link_free_gbps(link)):
                        return link
        return None


UNLIMITED = Bandwidth(math.inf)
WAIVED = "bandwidth constraint waived: no placement was found that meets it on the empty cluster"


class Attainable:
    """Remembers for which jobs a placement is found that meets the constraint on the empty cluster.

    Others would wait for good. The paper places every job as it arrives, and line 18 of its Algorithm 2 deploys
    the workers that remain whatever the bandwidth: so the constraint is waived for them.
    """

    def __init__(self, meets: Callable[[Job, Snapshot], bool]) -> None:
        self._meets = meets
        self._known: dict[tuple[Cluster, tuple[object, ...]], bool] = {}

    def __call__(self, job: Job, cluster: Cluster) -> bool:
        """Say whether the job could meet the constraint if nothing else ran."""
        kind = (cluster, kind_of(job))
        if kind not in self._known:
            self._known[kind] = self._meets(job, ClusterState(cluster).snapshot())
        return self._known[kind]
