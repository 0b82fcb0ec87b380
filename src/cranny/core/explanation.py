"""Why a job is placed where it is: what was free is noted when it is placed, and explained on request."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from cranny.core.machine_set import FreeMachines
from cranny.core.packing import fewest, fewest_with
from cranny.core.partition import crossing_bound
from cranny.core.traffic import exchange_graph, parts, traffic
from cranny.model.cluster import Cluster
from cranny.model.collective import PLACED
from cranny.model.job import Job
from cranny.model.placement import Placement

MEGA = 1e6


class DefaultRationale(NamedTuple):
    """Explains a placement by what was free when it was chosen."""

    job: Job
    cluster: Cluster
    free: FreeMachines
    note: str  # of the policy, such as the constraint that was binding

    def facts(self, placement: Placement) -> Mapping[str, Any]:
        """Return the reasons as plain values."""
        gpus = len(placement.machines)
        counts = placement.counts
        ranks_on: dict[int, list[int]] = {machine: [] for machine in counts}
        for rank, machine in enumerate(placement.machines):
            ranks_on[machine].append(rank)
        free = self.free.in_use_count, self.free.idle_count
        least = fewest(gpus, *free)
        opened = sum(reduce(or_, self.free.idle) >> machine & 1 for machine in counts)
        # Fewest machines when as many idle ones may be opened as this placement does.
        found = [fewest_with(idle, gpus, *free) for idle in range(opened + 1)]
        return {
            "gpus": gpus,
            "ranks_on": {self.cluster.machines[machine].name: ranks for machine, ranks in ranks_on.items()},
            "idle_machines_opened": opened,
            "idle_machines_minimum": least.idle if least else None,
            "machines_used": len(counts),
            "machines_minimum": min((each.machines for each in found if each is not None), default=None),
            "spare_gpus": len(placement.spare),
            "cross_machine_bytes": traffic(self.job, placement.machines).cross_machine_bytes,
            "cross_machine_bytes_bound": self._traffic_bound(placement),
            "note": self.note,
        }

    def text(self, placement: Placement) -> str:
        """Return the reasons as a person would say them."""
        facts = self.facts(placement)
        opened, used = facts["idle_machines_opened"], facts["machines_used"]
        where = "; ".join(f"{name}: {_ranks(ranks)}" for name, ranks in facts["ranks_on"].items())
        onto = _count(len(set(placement.machines)), "machine")
        bound = f"no map onto {onto} can be below {_megabytes(facts['cross_machine_bytes_bound'])}"
        fewest_idle = fewest_used = ""
        if facts["machines_minimum"] is not None:  # otherwise it needs what other jobs give up for it
            fewest_idle = f" (minimum {facts['idle_machines_minimum']})"
            fewest_used = f" (minimum {facts['machines_minimum']} with at most {opened} idle opened)"
        lines = [
            f"job {self.job.id}: {_count(facts['gpus'], 'worker')} on {_count(used, 'machine')} ({where})",
            f"idle machines opened: {opened}{fewest_idle}",
            f"machines used: {used}{fewest_used}",
            f"cross-machine traffic: {_megabytes(facts['cross_machine_bytes'])} an iteration ({bound})",
        ]
        if facts["spare_gpus"]:
            lines.append(f"spare GPUs held: {facts['spare_gpus']}")
        if self.note:
            lines.append(self.note)
        return "\n".join(lines)

    def _traffic_bound(self, placement: Placement) -> float:
        """Return a lower bound, in bytes, for any map onto as many machines."""
        machines = len(set(placement.machines))
        if machines == 1:
            return 0.0
        if self.job.collective in PLACED:  # all maps onto as many machines are equal
            return traffic(self.job, placement.machines).cross_machine_bytes
        largest = max(machine.gpus for machine in self.cluster.machines)
        unit_bytes = parts(self.job, ())[0][1]  # that the shares of the graph refer to
        return crossing_bound(exchange_graph(self.job), (largest,) * machines) * unit_bytes


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _megabytes(count: object) -> str:
    return f"{float(count) / MEGA:,.1f} MB"  # type: ignore[arg-type]


def _ranks(ranks: list[int]) -> str:
    """Write ranks short: 0-3, 8."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    if not ranks:
        return "spare GPUs"
    spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'' if len(ranks) == 1 else 's'} {spans}"
