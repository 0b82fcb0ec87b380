"""The placement of one job: of several sets of machines, the one that costs the fewest GPU-seconds."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.rank_map_in_racks import mapped_in_racks
from cranny.policies.cranny.free_gpus import FreeGpus, Room
from cranny.policies.cranny.link_effects import Effect, LinkEffects, alone

if TYPE_CHECKING:
    from cranny.policies.cranny.machine_kernel import ClusterArrays, MachineSet

Held = tuple[tuple[int, int], ...]  # machines, and the GPUs taken of each


class Priced(NamedTuple):
    """A placement, and what it costs in GPU-seconds."""

    placement: Placement
    effect: Effect
    own_gpu_s: float  # by which the job's communication makes it longer
    machines_gpu_s: float  # by which its machines are in use longer, and their holes worse

    @property
    def total_gpu_s(self) -> float:
        """All terms together."""
        return self.own_gpu_s + self.effect.others_gpu_s + self.machines_gpu_s


class Placing:
    """Prices the sets of machines that a job could have."""

    def __init__(self, gpus: FreeGpus, links: LinkEffects | None, *, rank_map: bool, racks: bool) -> None:
        self._gpus = gpus
        self._links = links
        self._rank_map = rank_map
        self._racks = racks
        cluster = gpus.cluster
        self.room = Room(len(cluster.machines), len(cluster.rack_nodes), int(gpus.size.max()))

    def best(self, job: Job, view: Snapshot, seconds: float, kept: Collection[int] = ()) -> Priced | None:
        """Return the cheapest placement of a job that runs for so long on one machine; None if it does not fit."""
        from cranny.policies.cranny.machine_kernel import NONE, cheapest_machine

        at = self._gpus.seen_by(job, view, kept)
        now_s = view.now_s
        if job.gpus < len(at.waste):
            machine = int(cheapest_machine(at, job.gpus, now_s, seconds))
            if machine != NONE:
                placement = view.placement(job, (machine,) * job.gpus)
                return Priced(placement, Effect(1.0), 0.0, self._cost(at, ((machine, job.gpus),), now_s, seconds))
        options = [
            self._priced(job, held, at, view, seconds)
            for held in dict.fromkeys(self._sets(job.gpus, at, now_s, seconds))
        ]
        return min(options, key=lambda option: option.total_gpu_s, default=None)

    def _sets(self, gpus: int, at: "ClusterArrays", now_s: float, seconds: float) -> Iterator[Held]:
        """Yield sets of machines that hold a job."""
        from cranny.policies.cranny import machine_kernel as kernel

        room = self.room
        if self._racks:
            inside = 0
            for kind in (kernel.ANY, kernel.IN_USE):
                inside = int(kernel.in_one_rack(at, kind, gpus, now_s, seconds, room.best, room.trial))
                if inside:
                    yield _held(room.best, inside)
            if not inside:
                used = int(kernel.over_racks(at, gpus, now_s, seconds, room.best, room.racks))
                if used:
                    yield _held(room.best, used)
        for kind in (kernel.ANY, kernel.IN_USE):
            used = int(kernel.anywhere(at, kind, gpus, now_s, seconds, room.best))
            if used:
                yield _held(room.best, used)

    def _priced(self, job: Job, held: Held, at: "ClusterArrays", view: Snapshot, seconds: float) -> Priced:
        ranks = self._ranks(job, held, view)
        placement = view.placement(job, ranks, server=ranks[0] if job.collective == "ina" else None)
        running = view.as_running(job, placement)
        effect = alone(running) if self._links is None else self._links.effect(running, seconds)
        own_gpu_s = (effect.slowdown - 1.0) * seconds * job.gpus
        return Priced(placement, effect, own_gpu_s, self._cost(at, held, view.now_s, seconds * effect.slowdown))

    def _ranks(self, job: Job, held: Held, view: Snapshot) -> tuple[int, ...]:
        """Return the machine of each rank: those that exchange most share one, or a rack."""
        if not self._rank_map:
            return tuple([machine for machine, gpus in held for _ in range(gpus)])
        return mapped_in_racks(job, view.cluster, dict(held))

    def _cost(self, at: "ClusterArrays", held: Held, now_s: float, seconds: float) -> float:
        from cranny.policies.cranny.machine_kernel import set_cost

        trial = self.room.trial
        for place, (machine, gpus) in enumerate(held):
            trial.machines[place], trial.gpus[place] = machine, gpus
        return float(set_cost(at, trial, len(held), now_s, seconds))


def _held(found: "MachineSet", used: int) -> Held:
    """Return a set of machines as plain numbers, those of a rack together as the kernels found them."""
    return tuple(zip(found.machines[:used].tolist(), found.gpus[:used].tolist(), strict=True))
