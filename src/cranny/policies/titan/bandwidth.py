"""Titan's bandwidth constraint (Eq. 1, third row): what two machines exchange in a phase must pass in time."""

from dataclasses import dataclass

from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA, exchange_graph, footprint, parts
from cranny.model.collective import PLACED
from cranny.model.job import Job

# Loads within rounding of the limit are within it.
SLACK = 1 + 1e-9
# Beyond so many machines, idle ones are opened in ever larger numbers when links are too busy.
MANY_MACHINES = 32


# What a rank exchanges with another: that rank, the phase, bytes sent and got, and bytes all times that it comes.
Exchange = tuple[int, int, float, float, float]


def exchanges(job: Job) -> list[list[Exchange]]:
    """Return what each rank exchanges, phase by phase."""
    found: list[list[Exchange]] = [[] for _ in range(job.gpus)]
    phases = [(phase, phase.share * k_bytes) for what, k_bytes in parts(job, ()) for phase in what.phases]
    for number, (phase, sent) in enumerate(phases):
        got = sent if phase.exchange else 0.0
        for a, b in phase.pairs:
            found[a].append((b, number, sent, got, sent * phase.times))
            found[b].append((a, number, got, sent, sent * phase.times))
    return found


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The constraint for a given time that a phase may take."""

    phase_budget_s: float

    def limit_bytes(self, gbps: float) -> float:
        """Return what passes at this rate within the budget."""
        return gbps * GIGA / BITS_PER_BYTE * self.phase_budget_s * SLACK

    def need_gbps(self, job: Job) -> float:
        """Return the rate that one pair of ranks needs in the job's smallest phase: no split needs less."""
        placed = job.collective in PLACED  # its pairs depend on the placement, but a ring's are smallest
        patterns = ((exchange_graph(job), job.profile.grad_bytes),) if placed else parts(job, ())
        smallest = min((phase.share * k for what, k in patterns for phase in what.phases), default=0.0)
        return smallest * BITS_PER_BYTE / GIGA / self.phase_budget_s

    def blocked_link(self, job: Job, view: Snapshot, machines: tuple[int, ...]) -> int | None:
        """Return a link that the placement would overload in some phase, or None if it meets the constraint."""
        if machines.count(machines[0]) == len(machines):
            return None
        distinct, links, costs = footprint(view.cluster, job, machines)
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
