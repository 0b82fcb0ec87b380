"""Titan's own greedy algorithms, Alg. 1-3 of the paper: a first answer where the bandwidth constraint binds.

Departure: line 9 of Alg. 1 admits a worker when one of its pairs fits; as its text says, we require it of all
pairs, and of all workers of a machine together. In Alg. 3 non-idle machines are tried before idle ones, which is
what its second step is for.
"""

from collections.abc import Sequence

from cranny.core.machine_set import FreeMachines, members
from cranny.core.snapshot import Snapshot
from cranny.model.collective import PLACED
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import Bandwidth, exchanges
from cranny.policies.titan.search import MAX_MACHINES, FeasiblePlacement

Load = tuple[int, int, int]  # phase, from machine, to machine


def merge(job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth) -> FeasiblePlacement | None:
    """Algorithm 3: deploy on idle machines alone, then again on non-idle ones and the idle ones of before."""
    if job.collective in PLACED or len(view.cluster.machines) > MAX_MACHINES:
        return None
    idle = [machine for group in available.idle for machine in members(group)]
    in_use = [machine for group in available.in_use[1:] for machine in members(group)]
    on_idle = _Deployment(job, view, bandwidth)
    on_idle.fill(sorted(idle))
    final = _Deployment(job, view, bandwidth)
    final.fill(sorted(in_use))
    final.fill(on_idle.used)
    if len(final.machine_of) < job.gpus:
        return None
    opened = sum(view.is_idle(machine) for machine in final.used)
    ranks = tuple(final.machine_of[rank] for rank in range(job.gpus))
    return FeasiblePlacement((opened, len(final.used)), ranks)


class _Deployment:
    """The worker sets deployed so far, and what they put between machines."""

    def __init__(self, job: Job, view: Snapshot, bandwidth: Bandwidth) -> None:
        self._view = view
        self._bandwidth = bandwidth
        self._ranks = range(job.gpus)
        self._exchanges = exchanges(job)
        self._load: dict[Load, float] = {}
        self.machine_of: dict[int, int] = {}
        self.used: list[int] = []

    def fill(self, machines: Sequence[int]) -> None:
        """Algorithm 2: deploy, again and again, the largest worker set that a machine can take."""
        left = list(machines)
        while left and len(self.machine_of) < len(self._ranks):
            sets = {machine: self._feasible(machine) for machine in left}
            machine = max(left, key=lambda each: len(sets[each][0]))  # ties go to the lowest
            ranks, load = sets[machine]
            if not ranks:
                return
            self.machine_of |= dict.fromkeys(ranks, machine)
            self._load |= load
            self.used.append(machine)
            left.remove(machine)

    def _feasible(self, machine: int) -> tuple[list[int], dict[Load, float]]:
        """Algorithm 1: the workers that a machine can take besides those deployed, and the loads they make."""
        room = self._view.free_on(machine)
        ranks: list[int] = []
        load: dict[Load, float] = {}
        for rank in self._ranks:
            if len(ranks) == room:
                break
            if rank in self.machine_of:
                continue
            added: dict[Load, float] = {}
            for other, phase, sent, got, _ in self._exchanges[rank]:
                elsewhere = self.machine_of.get(other)
                if elsewhere is not None:
                    for key, moved in (((phase, machine, elsewhere), sent), ((phase, elsewhere, machine), got)):
                        if moved:
                            added[key] = added.get(key, load.get(key, self._load.get(key, 0.0))) + moved
            free, limit = self._view.bandwidth_gbps, self._bandwidth.limit_bytes
            if all(moved <= limit(free(*key[1:])) for key, moved in added.items()):
                ranks.append(rank)
                load |= added
        return ranks, load
