"""The accounting of a cluster: which job holds which GPU, and every total that follows from it.

Only `ClusterState` writes to its accounting. A snapshot reads it, or writes to a copy of its own for a what-if.
"""

from collections.abc import Iterable
from typing import NamedTuple

from cranny.core.traffic import SILENT, Communication, communication
from cranny.model.cluster import Cluster
from cranny.model.cluster_change import Renumbering
from cranny.model.errors import PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement


class Running(NamedTuple):
    """A job that holds GPUs.

    `job` is as it trains here. Where it has another number of workers than it asked for, or GPUs of another speed,
    `resized` is the job as submitted, and its work takes `stretch` times as long, communication aside.
    """

    job: Job
    placement: Placement
    held: dict[int, int]  # machine -> its GPUs, as bits
    communication: Communication
    started_s: float
    attained_gpu_s: float = 0.0  # in earlier runs
    shift_s: float = 0.0
    resized: Job | None = None
    stretch: float = 1.0

    @property
    def submitted(self) -> Job:
        """The job as it was submitted."""
        return self.job if self.resized is None else self.resized

    def gpus_on(self, machines: int) -> int:
        """Count the GPUs that it holds on a set of machines."""
        return sum(gpus.bit_count() for machine, gpus in self.held.items() if machines >> machine & 1)


def attained_gpu_s(running: Running, now_s: float) -> float:
    """Return the GPU-seconds that a job has had, in this run and those before."""
    return running.attained_gpu_s + (now_s - running.started_s) * running.job.gpus


class Accounting:
    """GPUs, links and running jobs of a cluster, with their totals."""

    def __init__(self, cluster: Cluster) -> None:
        sizes = [machine.gpus for machine in cluster.machines]
        self.cluster = cluster
        self._full = [(1 << size) - 1 for size in sizes]  # (machines,) all GPUs of a machine, as bits
        self._unit = cluster.share_unit
        self._share = [self._unit // size for size in sizes]  # (machines,) a GPU, in units of its machine
        self.free = sizes  # (machines,) GPUs that jobs can be placed on; none on a machine that is down
        self.slots = self._full.copy()  # (machines,) GPUs that no job holds, as bits
        self.down = 0  # machines that take no jobs, as a set
        self.in_use = [0] * (max(sizes) + 1)  # sets of machines, see `FreeMachines`
        self.idle = [0] * (max(sizes) + 1)
        for machine, size in enumerate(sizes):
            self.idle[size] |= 1 << machine
        self.link_use_gbps = [0.0] * len(cluster.parent)
        self.link_users = [0] * len(cluster.parent)
        self.running: dict[str, Running] = {}
        self.used_machines = 0
        self.held_gpus = 0
        self.idle_units = 0  # GPUs without a rank on used machines, in units of a machine
        self.cross_bytes = 0.0  # of one iteration of every running job
        self.crossing_jobs = 0
        self.resources: dict[str, list[int]] = {}  # name -> what is left of it on each machine
        for name in {name: None for machine in cluster.machines for name in machine.resources}:
            self.resources[name] = [machine.resources.get(name, 0) for machine in cluster.machines]

    def copy(self) -> "Accounting":
        """Copy everything that is ever written to."""
        new = object.__new__(Accounting)
        for name, value in vars(self).items():
            setattr(new, name, value.copy() if name in _WRITTEN else value)
        if self.resources:
            new.resources = {name: left.copy() for name, left in self.resources.items()}
        return new

    def is_up(self, machine: int) -> bool:
        """Say whether a machine takes jobs."""
        return not self.down >> machine & 1

    def is_idle(self, machine: int) -> bool:
        """Say whether no GPU of a machine is held."""
        return self.slots[machine] == self._full[machine]

    @property
    def fragmentation(self) -> float:
        """Mean share of GPUs without a rank, over the machines in use; 0 when none is."""
        return self.idle_units / (self._unit * self.used_machines) if self.used_machines else 0.0

    def fit(
        self,
        job: Job,
        placement: Placement,
        now_s: float,
        attained_gpu_s: float = 0.0,
        taken: dict[int, int] | None = None,
    ) -> Running:
        """Choose the GPUs of a placement, or say why it does not fit; nothing is written.

        `taken` holds the free GPUs of machines that earlier actions of the same plan change, and is updated.
        """
        machines = placement.machines
        resized = None
        if len(machines) != job.gpus or job.speeds is not None:
            resized, job = job, self._as_placed(job, machines)
        if placement.gpus is not None:
            held = self._named_gpus(job, placement, taken)
        elif not placement.spare and machines.count(machines[0]) == len(machines):  # as most jobs are
            held = {machines[0]: self._lowest(job, machines[0], len(machines), taken)}
        else:
            held = {
                machine: self._lowest(job, machine, count, taken) for machine, count in placement.counts.items()
            }
        if taken is not None:
            for machine, gpus in held.items():
                taken[machine] = taken.get(machine, self.slots[machine]) & ~gpus
        elif job.resources is not None:
            self.check_resources([(None, job, machines)])
        server = placement.server
        if server is None and len(held) == 1:
            cost = SILENT
        else:
            if server is not None:
                self._check_server(job, server)
            cost = communication(self.cluster, job, machines, server, placement.aggregate)
        if resized is None:
            return Running(job, placement, held, cost, now_s, attained_gpu_s)
        stretch = job.profile.iteration_ms / resized.profile.iteration_ms
        return Running(job, placement, held, cost, now_s, attained_gpu_s, 0.0, resized, stretch)

    def aggregated(self, running: Running, placement: Placement) -> Running:
        """Return a running job as other switches aggregate for it; all else of its placement must be as it was."""
        old = running.placement
        if (placement.machines, placement.spare, placement.server) != (old.machines, old.spare, old.server):
            raise PlacementError(f"job {running.job.id!r}: other switches do not move it")
        cost = communication(self.cluster, running.job, placement.machines, placement.server, placement.aggregate)
        return running._replace(placement=placement, communication=cost)

    def retrained(self, running: Running, job: Job) -> Running:
        """Return a running job with another profile or other speeds; it stays where it is."""
        where = running.placement
        resized = None
        if len(where.machines) != job.gpus or job.speeds is not None:
            resized, job = job, self._as_placed(job, where.machines)
        cost = running.communication
        if cost is not SILENT:
            cost = communication(self.cluster, job, where.machines, where.server, where.aggregate)
        stretch = 1.0 if resized is None else job.profile.iteration_ms / resized.profile.iteration_ms
        return running._replace(job=job, communication=cost, resized=resized, stretch=stretch)

    def renumbered(self, running: Running, numbers: Renumbering) -> Running:
        """Return a job that runs on a cluster before this one as it runs here, on the same GPUs."""
        where, job = numbers.placement(running.placement), running.job
        held = {numbers.machine(machine): gpus for machine, gpus in running.held.items()}
        for machine, gpus in held.items():
            if gpus & ~self._full[machine]:
                name = self.cluster.machines[machine].name
                raise PlacementError(f"job {job.id!r} holds GPUs that {name} no longer has")
        cost = running.communication
        if cost is not SILENT:
            cost = communication(self.cluster, job, where.machines, where.server, where.aggregate)
        return running._replace(placement=where, held=held, communication=cost)

    def _as_placed(self, job: Job, machines: tuple[int, ...]) -> Job:
        """Return a job as it trains on these machines, with their number of workers and their speed."""
        if not job.may_have(len(machines)):
            raise PlacementError(f"job {job.id!r} has {job.gpus} ranks, its placement {len(machines)}")
        if job.speeds is None:
            return job.resized(len(machines), float(len(machines)))
        speed = 0.0
        for machine in machines:
            self.check_machine(machine)
            described = self.cluster.machines[machine]
            if described.gpu_type not in job.speeds:
                raise PlacementError(
                    f"job {job.id!r} cannot run on {described.gpu_type or 'the'} GPUs of {described.name}"
                )
            speed += job.speeds[described.gpu_type]
        return job.resized(len(machines), speed)

    def _check_server(self, job: Job, server: int) -> None:
        """Raise if the job has no parameter server, or the machine cannot run it."""
        if job.collective != "ina":
            raise PlacementError(f"job {job.id!r} has no parameter server: its collective is {job.collective!r}")
        self.check_machine(server)
        if not self.is_up(server):
            raise PlacementError(f"job {job.id!r}: machine {self.cluster.machines[server].name} is down")

    def _lowest(self, job: Job, machine: int, count: int, taken: dict[int, int] | None) -> int:
        """Return the lowest free GPUs of a machine, as bits."""
        plain = job.gpu_type is None and job.partition is None
        if plain and taken is None and not self.down and 0 <= machine < len(self.slots):
            free = self.slots[machine]
        else:
            free = self._free_slots(job, machine, taken)
        have = free.bit_count()
        if have <= count:
            if have == count:
                return free
            name = self.cluster.machines[machine].name
            raise PlacementError(f"job {job.id!r} needs {count} GPUs of {name}, {have} are free")
        if count == 1:
            return free & -free
        rest = free
        for _ in range(count):
            rest &= rest - 1
        return free ^ rest

    def _named_gpus(self, job: Job, placement: Placement, taken: dict[int, int] | None) -> dict[int, int]:
        """Return the GPUs that a placement names, as bits."""
        held: dict[int, int] = {}
        for machine, gpu in zip(placement.machines + placement.spare, placement.gpus or (), strict=True):
            if gpu < 0 or not (self._free_slots(job, machine, taken) & ~held.get(machine, 0)) >> gpu & 1:
                name = self.cluster.machines[machine].name
                raise PlacementError(f"job {job.id!r} needs GPU {gpu} of {name}, which is not free")
            held[machine] = held.get(machine, 0) | 1 << gpu
        return held

    def _free_slots(self, job: Job, machine: int, taken: dict[int, int] | None) -> int:
        """Return the free GPUs of a machine that a job may use, as bits."""
        if not 0 <= machine < len(self.slots):
            self.check_machine(machine)
        described = self.cluster.machines[machine]
        if self.down and not self.is_up(machine):
            raise PlacementError(f"job {job.id!r}: machine {described.name} is down")
        if job.gpu_type is not None and described.gpu_type != job.gpu_type:
            raise PlacementError(f"job {job.id!r} needs {job.gpu_type} GPUs; {described.name} has none")
        if job.partition is not None and not self.cluster.machines_in.get(job.partition, -1) >> machine & 1:
            raise PlacementError(f"job {job.id!r} is of partition {job.partition!r}; {described.name} is not")
        return taken[machine] if taken and machine in taken else self.slots[machine]

    def check_machine(self, machine: int) -> None:
        """Raise if there is no such machine."""
        if not 0 <= machine < len(self.slots):
            raise PlacementError(f"there is no machine {machine}; the last is {len(self.slots) - 1}")

    def check_resources(self, changes: "Iterable[tuple[Running | None, Job | None, tuple[int, ...]]]") -> None:
        """Raise if jobs that start together need more resources of a machine than are left, and others leave."""
        needed: dict[tuple[str, int], int] = {}
        taken: list[tuple[Job, str, int]] = []
        for before, job, machines in changes:
            if before is not None:
                for name, machine, amount in _resources(before.job, before.placement.machines):
                    needed[name, machine] = needed.get((name, machine), 0) - amount
            if job is not None:
                for name, machine, amount in _resources(job, machines):
                    needed[name, machine] = needed.get((name, machine), 0) + amount
                    taken.append((job, name, machine))
        for job, name, machine in taken:
            need, left = needed[name, machine], self.resources[name][machine] if name in self.resources else 0
            if need > left:
                where = self.cluster.machines[machine].name
                raise PlacementError(f"job {job.id!r} needs {need} {name} of {where}, {left} are left")

    def take_resources(self, amounts: Iterable[tuple[str, int, int]], sign: int) -> None:
        """Take resources beside GPUs (sign 1), or give them back (sign -1): name, machine and amount of each."""
        for name, machine, amount in amounts:
            if name in self.resources:
                self.resources[name][machine] -= sign * amount

    def withhold(self, machine: int, count: int) -> None:
        """Let so many of the free GPUs of a machine not be free, the highest; only in the copy of a view."""
        free, bit = self.free[machine], 1 << machine
        (self.idle if self.is_idle(machine) else self.in_use)[free] ^= bit
        self.free[machine] = left = free - count
        self.in_use[left] ^= bit
        for _ in range(count):
            self.slots[machine] ^= 1 << self.slots[machine].bit_length() - 1

    def apply(self, running: Running, sign: int) -> None:
        """Add a running job to all totals (sign 1), or remove it (sign -1)."""
        if sign > 0:
            self.running[running.job.id] = running
        else:
            del self.running[running.job.id]
        for machine, gpus in running.held.items():
            full, before = self._full[machine], self.slots[machine]
            self.slots[machine] = after = before ^ gpus
            taken = sign * gpus.bit_count()
            self.held_gpus += taken
            units = -taken * self._share[machine]
            old_set = new_set = self.in_use
            if before == full:
                self.used_machines += 1
                units += self._unit
                old_set = self.idle
            elif after == full:
                self.used_machines -= 1
                units -= self._unit
                new_set = self.idle
            self.idle_units += units
            if not self.down or self.is_up(machine):
                # The machine moves from the set of its free GPUs to another.
                free, bit = self.free[machine], 1 << machine
                self.free[machine] = left = free - taken
                old_set[free] ^= bit
                new_set[left] ^= bit
        if running.placement.spare:
            self.idle_units += sign * sum(self._share[machine] for machine in running.placement.spare)
        if running.communication.link_gbps:
            self.apply_links(running.communication, sign)
        if running.job.resources is not None:
            self.take_resources(_resources(running.job, running.placement.machines), sign)

    def apply_links(self, cost: Communication, sign: int) -> None:
        """Add what a job sends over links to the totals (sign 1), or remove it (sign -1)."""
        self.cross_bytes += sign * cost.cross_bytes
        self.crossing_jobs += sign
        if not self.crossing_jobs:
            self.cross_bytes = 0.0  # no rounding error remains
        for link, gbps in cost.link_gbps.items():
            self.link_users[link] += sign
            self.link_use_gbps[link] += sign * gbps
            if not self.link_users[link]:
                self.link_use_gbps[link] = 0.0

    def set_up(self, machine: int, *, up: bool) -> None:
        """Mark a machine as up, so that it takes jobs, or as down."""
        if self.is_up(machine) == up:
            return
        groups = self.idle if self.is_idle(machine) else self.in_use
        free = self.slots[machine].bit_count()
        groups[free] ^= 1 << machine
        self.free[machine] = free if up else 0
        self.down ^= 1 << machine


def _resources(job: Job, machines: tuple[int, ...]) -> Iterable[tuple[str, int, int]]:
    """Yield what a job needs on machines beside GPUs: the resource, the machine and the amount."""
    for name, amount in (job.resources or {}).items():
        for machine in dict.fromkeys(machines):
            yield name, machine, amount * machines.count(machine)


_WRITTEN = frozenset({"free", "idle", "in_use", "link_use_gbps", "link_users", "running", "slots"})
