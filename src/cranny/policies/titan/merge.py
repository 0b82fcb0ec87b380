"""Titan's own greedy algorithms, Alg. 1-3 of the paper: a first answer where the bandwidth constraint binds.

Departure: line 9 of Alg. 1 admits a worker when one of its pairs fits; as its text says, we require it of all
pairs, and of all workers of a machine together. In Alg. 3 non-idle machines are tried before idle ones, which is
what its second step is for.
"""

from collections.abc import Iterator, Sequence

from cranny.core.machine_set import FreeMachines, members
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import Bandwidth, exchanges, patterns
from cranny.policies.titan.search import FeasiblePlacement

Load = tuple[int, int, bool]  # of a machine: the phase, the other machine, whether to it or from it


def merge(job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth) -> FeasiblePlacement | None:
    """Algorithm 3: deploy on idle machines alone, then again on non-idle ones and the idle ones of before."""
    on_idle = _Deployment(job, view, bandwidth)
    on_idle.fill(available.idle)
    final = _Deployment(job, view, bandwidth)
    final.fill(available.in_use)
    final.fill(available.only(sum(1 << machine for machine in on_idle.used)).idle)
    if len(final.machine_of) < job.gpus:
        return None
    opened = sum(view.is_idle(machine) for machine in final.used)
    ranks = tuple(final.machine_of[rank] for rank in range(job.gpus))
    return FeasiblePlacement((opened, len(final.used)), ranks)


class _Deployment:
    """The worker sets deployed so far."""

    def __init__(self, job: Job, view: Snapshot, bandwidth: Bandwidth) -> None:
        self._view = view
        self._bandwidth = bandwidth
        self._ranks = range(job.gpus)
        self._exchanges = exchanges(patterns(job))
        self._largest_bytes = [0.0] * job.gpus  # of a worker in a phase with any that is deployed
        self._limit_bytes: dict[tuple[int, int], float] = {}  # between two machines
        self.machine_of: dict[int, int] = {}
        self.used: list[int] = []

    def fill(self, machines: Sequence[int]) -> None:
        """Algorithm 2: deploy, again and again, the largest worker set that a machine can take.

        `machines` are those with 0, 1, 2, ... GPUs free, as sets. Ties go to the lowest machine. A machine takes
        no more workers than it has GPUs free: the roomiest come first, and others only if they can still win.
        """
        groups = list(machines)
        while len(self.machine_of) < len(self._ranks):
            best, ranks = -1, list[int]()
            for room, machine in _roomiest_first(groups, len(self._ranks) - len(self.machine_of)):
                if (room, -machine) < (len(ranks), -best):
                    break  # neither this one nor those after it can win
                found = self._feasible(machine)
                if (len(found), -machine) > (len(ranks), -best):
                    best, ranks = machine, found
            if not ranks:
                return
            self.machine_of |= dict.fromkeys(ranks, best)
            for rank in ranks:
                for other, _, sent, got in self._exchanges[rank]:
                    self._largest_bytes[other] = max(self._largest_bytes[other], sent, got)
            self.used.append(best)
            groups[self._view.free_on(best)] ^= 1 << best

    def _feasible(self, machine: int) -> list[int]:
        """Algorithm 1: the workers that a machine can take besides those deployed on others."""
        room = self._view.free_on(machine)
        most_bytes = self._bandwidth.limit_bytes(self._view.link_free_gbps(machine))
        ranks: list[int] = []
        load: dict[Load, float] = {}
        for rank in self._ranks:
            if len(ranks) == room:
                break
            if rank not in self.machine_of and self._largest_bytes[rank] <= most_bytes:
                added = self._added(rank, machine, load)
                if added is not None:
                    ranks.append(rank)
                    load |= added
        return ranks

    def _added(self, rank: int, machine: int, load: dict[Load, float]) -> dict[Load, float] | None:
        """Return the loads that a worker changes besides others on the machine; None if one is too much."""
        added: dict[Load, float] = {}
        for other, phase, sent, got in self._exchanges[rank]:
            elsewhere = self.machine_of.get(other)
            if elsewhere is not None:
                limit_bytes = self._limit(machine, elsewhere)
                for key, moved in (((phase, elsewhere, True), sent), ((phase, elsewhere, False), got)):
                    if moved:
                        added[key] = added.get(key, load.get(key, 0.0)) + moved
                        if added[key] > limit_bytes:
                            return None
        return added

    def _limit(self, a: int, b: int) -> float:
        """Return what passes between two machines in time."""
        found = self._limit_bytes.get((a, b))
        if found is None:
            found = self._bandwidth.limit_bytes(self._view.bandwidth_gbps(a, b))
            self._limit_bytes[a, b] = found
        return found


def _roomiest_first(groups: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Yield machines with how many of at most `most` workers they have room for; of equals the lowest first."""
    whole = 0
    for group in groups[most:]:
        whole |= group
    for room, group in [(most, whole), *reversed(list(enumerate(groups[:most])))]:
        for machine in members(group) if room else ():
            yield room, machine
