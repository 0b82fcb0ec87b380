"""The state of a cluster: the only place where GPUs are given out and taken back."""

import weakref
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cranny.core.machine_set import members
from cranny.core.machine_set import FreeMachines
from cranny.core.snapshot import Books, Lease, Running, Snapshot, Waiting
from cranny.core.traffic import SILENT, communication
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError, StalePlanError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Shift, Start

# What a checked action will change: the job that leaves, the job that enters.
Change = tuple[Running | None, Running | None]


class ClusterState:
    """Who holds which GPU. Plans are committed whole or not at all; everybody else reads snapshots.

    A snapshot shares the state's books. Only when the state changes while somebody still holds a snapshot are
    the books copied, so the usual round of snapshot, decide, commit copies nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = 0
        self._size = [machine.gpus for machine in cluster.machines]
        self._full = [(1 << size) - 1 for size in self._size]
        self._unit = cluster.share_unit
        self._share = [self._unit // size for size in self._size]
        nodes = len(cluster.parent)
        self._books = Books(self._size.copy(), self._full.copy(), [0.0] * nodes, [0] * nodes, {})
        self._lease: weakref.ref[Lease] | None = None
        self._up = [True] * len(self._size)
        self._failed: set[int] = set()
        self._reset_totals()

    def _reset_totals(self) -> None:
        """Count everything that is otherwise kept up to date with each change."""
        most = max(self._size)
        self._in_use, self._idle = [0] * (most + 1), [0] * (most + 1)  # sets, see `FreeMachines`
        self.used_machines = 0
        self.held_gpus = 0
        self.cross_bytes = 0.0
        self.idle_units = 0  # GPUs without a rank on used machines, in `cluster.share_unit`ths of a machine
        for machine in range(len(self._size)):
            if self._up[machine]:
                idle = self._books.slots[machine] == self._full[machine]
                self._file(machine, self._books.free[machine], idle)
            held = self._size[machine] - self._books.slots[machine].bit_count()
            self.held_gpus += held
            if held:
                self.used_machines += 1
                self.idle_units += (self._size[machine] - held) * self._share[machine]
        for running in self._books.running.values():
            self.cross_bytes += running.communication.cross_bytes
            self.idle_units += sum(self._share[machine] for machine in running.placement.spare)

    @classmethod
    def resume(cls, view: Snapshot) -> "ClusterState":
        """Make a state of its own that goes on from a snapshot."""
        state = cls(view.cluster)
        state._books = view._books.copy()  # noqa: SLF001 - the state owns the books that snapshots lend
        state.version = view.version
        for machine in members(state._books.down):
            state._up[machine] = False
        state._reset_totals()
        return state

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def free(self) -> npt.NDArray[np.int64]:
        """Free GPUs of each machine, (machines,); none on a machine that is down."""
        return np.array(self._books.free, dtype=np.int64)

    @property
    def running(self) -> dict[str, Running]:
        """Running jobs by id."""
        return self._books.running.copy()

    @property
    def running_jobs(self) -> int:
        """How many jobs run."""
        return len(self._books.running)

    @property
    def fragmentation(self) -> float:
        """Mean share of GPUs without a rank, over the machines in use; 0 when none is."""
        if not self.used_machines:
            return 0.0
        return self.idle_units / (self._unit * self.used_machines)

    def is_up(self, machine: int) -> bool:
        """Say whether a machine takes jobs."""
        return self._up[machine]

    def has_failed(self, machine: int) -> bool:
        """Say whether a machine is gone, not merely drained."""
        return machine in self._failed

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._books.running

    def find(self, job_id: str) -> Running:
        """Return a running job."""
        try:
            return self._books.running[job_id]
        except KeyError:
            raise PlacementError(f"job {job_id!r} is not running") from None

    def snapshot(self, now_s: float = 0.0, waiting: Sequence[Waiting] = ()) -> Snapshot:
        """Return a read-only view of the cluster as it is now."""
        lease = self._lease() if self._lease is not None else None
        if lease is None:
            lease = Lease()
            self._lease = weakref.ref(lease)
        machines = FreeMachines(tuple(self._in_use), tuple(self._idle))
        return Snapshot(self.cluster, self.version, now_s, waiting, machines, self._books, lease)

    # -- writing ---------------------------------------------------------------------------------------

    def commit(self, plan: Plan, now_s: float = 0.0) -> None:
        """Apply a plan whole, or raise and change nothing."""
        if plan.version != self.version:
            raise StalePlanError(f"plan is for version {plan.version}, the state is at {self.version}")
        actions = plan.actions
        if len(actions) == 1 and isinstance(actions[0], Start):  # as nearly all plans
            start = actions[0]
            if start.job.id in self._books.running:
                raise PlacementError(f"job {start.job.id!r} is already running")
            started = self._fit(start.job, start.placement, now_s, {}, start.attained_gpu_s)
            self._apply(((None, started),))
        else:
            self._apply(self._check(actions, now_s))

    def place(self, job: Job, placement: Placement, now_s: float = 0.0) -> None:
        """Start one job."""
        self.commit(Plan(self.version, (Start(job, placement),)), now_s)

    def move(self, job_id: str, placement: Placement, now_s: float = 0.0) -> None:
        """Carry one job over to other machines."""
        self.commit(Plan(self.version, (Move(job_id, placement),)), now_s)

    def release(self, job_id: str) -> Running:
        """Take back the GPUs of a job and return what it was."""
        running = self.find(job_id)
        self._apply(((running, None),))
        return running

    def fail(self, machine: int) -> tuple[Running, ...]:
        """Take a machine down at once; return the jobs that had ranks on it, which are released."""
        machine = self._know(machine)
        lost = tuple(running for running in self._books.running.values() if machine in running.held)
        self._apply([(running, None) for running in lost])
        self._set_up(machine, up=False)
        self._failed.add(machine)
        return lost

    def drain(self, machine: int) -> None:
        """Give out no more GPUs of a machine; jobs on it go on."""
        self._set_up(self._know(machine), up=False)

    def repair(self, machine: int) -> None:
        """Give out the GPUs of a failed or drained machine again."""
        machine = self._know(machine)
        self._failed.discard(machine)
        self._set_up(machine, up=True)

    def _check(self, actions: Sequence[Action], now_s: float) -> list[Change]:
        """Work out what each action changes, with those before it done; raise if any cannot be."""
        changes: list[Change] = []
        taken: dict[int, int] = {}  # machine -> its free GPUs with the actions so far done
        jobs: dict[str, Running | None] = {}
        for action in actions:
            if isinstance(action, Start):
                if jobs.get(action.job.id, self._books.running.get(action.job.id)) is not None:
                    raise PlacementError(f"job {action.job.id!r} is already running")
                new = self._fit(action.job, action.placement, now_s, taken, action.attained_gpu_s)
                jobs[action.job.id] = new
                changes.append((None, new))
                continue
            old = jobs[action.job_id] if action.job_id in jobs else self.find(action.job_id)
            if old is None:
                raise PlacementError(f"job {action.job_id!r} is stopped earlier in the same plan")
            after: Running | None = None
            if isinstance(action, Shift):
                after = old._replace(shift_s=action.shift_s)
            else:
                for machine, gpus in old.held.items():
                    taken[machine] = taken.get(machine, self._books.slots[machine]) | gpus
                if isinstance(action, Move):
                    after = self._fit(old.job, action.placement, old.started_s, taken, old.attained_gpu_s)
            jobs[action.job_id] = after
            changes.append((old, after))
        return changes

    def _fit(
        self, job: Job, placement: Placement, now_s: float, taken: dict[int, int], attained_gpu_s: float
    ) -> Running:
        """Choose the GPUs of a placement, or say why it does not fit."""
        machines = placement.machines
        if len(machines) != job.gpus:
            raise PlacementError(f"job {job.id!r} has {job.gpus} ranks, its placement {len(machines)}")
        held: dict[int, int] = {}
        if placement.gpus is None:
            for machine, count in _counts(machines, placement.spare):
                free = self._open_slots(job, machine, taken)
                gpus = _lowest_bits(free, count)
                if gpus is None:
                    name, have = self.cluster.machines[machine].name, free.bit_count()
                    raise PlacementError(f"job {job.id!r} needs {count} GPUs of {name}, {have} are free")
                held[machine] = gpus
        else:
            for machine, gpu in zip(machines + placement.spare, placement.gpus, strict=True):
                if not (self._open_slots(job, machine, taken) & ~held.get(machine, 0)) >> gpu & 1:
                    name = self.cluster.machines[machine].name
                    raise PlacementError(f"job {job.id!r} needs GPU {gpu} of {name}, which is not free")
                held[machine] = held.get(machine, 0) | 1 << gpu
        for machine, gpus in held.items():
            taken[machine] = taken.get(machine, self._books.slots[machine]) & ~gpus
        cost = SILENT if len(held) == 1 else communication(self.cluster, job, machines)
        return Running(job, placement, held, cost, now_s, attained_gpu_s)

    def _open_slots(self, job: Job, machine: int, taken: dict[int, int]) -> int:
        """Return the GPUs of a machine that a job may be given, as bits."""
        if not 0 <= machine < len(self._size):
            self._know(machine)
        described = self.cluster.machines[machine]
        if not self._up[machine]:
            raise PlacementError(f"job {job.id!r}: machine {described.name} is down")
        if job.gpu_type is not None and described.gpu_type != job.gpu_type:
            raise PlacementError(f"job {job.id!r} wants {job.gpu_type} GPUs; {described.name} has none")
        return taken[machine] if machine in taken else self._books.slots[machine]

    def _know(self, machine: int) -> int:
        """Return the index of a machine as a plain int, or say that there is no such machine."""
        if not 0 <= machine < len(self._size):
            raise PlacementError(f"there is no machine {machine}; the last is {len(self._size) - 1}")
        return int(machine)

    def _apply(self, changes: Sequence[Change]) -> None:
        """Write checked changes; nothing here can fail."""
        if self._lease is not None and self._lease() is not None:
            self._books = self._books.copy()  # somebody still reads the old books
        self._lease = None
        self.version += 1
        running = self._books.running
        for old, new in changes:
            if old is not None:
                del running[old.job.id]
                self._turn(old, -1)
            if new is not None:
                running[new.job.id] = new
                self._turn(new, 1)
        if not running:
            self.cross_bytes = 0.0  # no rounding is left over

    def _turn(self, running: Running, sign: int) -> None:
        """Book a job in (sign 1) or out (sign -1)."""
        books = self._books
        for machine, gpus in running.held.items():
            full, before = self._full[machine], books.slots[machine]
            after = before ^ gpus
            books.slots[machine] = after
            taken = sign * gpus.bit_count()
            self.held_gpus += taken
            self.idle_units -= taken * self._share[machine]
            if before == full:
                self.used_machines += 1
                self.idle_units += self._unit
            elif after == full:
                self.used_machines -= 1
                self.idle_units -= self._unit
            if self._up[machine]:
                free = books.free[machine]
                books.free[machine] = free - taken
                self._file(machine, free, before == full)
                self._file(machine, free - taken, after == full)
        for machine in running.placement.spare:
            self.idle_units += sign * self._share[machine]
        cost = running.communication
        if cost.link_gbps:
            self.cross_bytes += sign * cost.cross_bytes
            for link, gbps in cost.link_gbps.items():
                books.link_users[link] += sign
                books.link_use_gbps[link] += sign * gbps
                if not books.link_users[link]:
                    books.link_use_gbps[link] = 0.0  # no rounding is left over

    def _file(self, machine: int, free: int, idle: bool) -> None:  # noqa: FBT001
        """Put a machine into the set of its kind, or take it out if it is there."""
        (self._idle if idle else self._in_use)[free] ^= 1 << machine

    def _set_up(self, machine: int, *, up: bool) -> None:
        self._apply([])
        if self._up[machine] == up:
            return
        books = self._books
        if up:
            books.free[machine] = books.slots[machine].bit_count()
            self._file(machine, books.free[machine], books.slots[machine] == self._full[machine])
        else:
            self._file(machine, books.free[machine], books.slots[machine] == self._full[machine])
            books.free[machine] = 0
        self._up[machine] = up
        books.down ^= 1 << machine


def _counts(machines: tuple[int, ...], spare: tuple[int, ...]) -> list[tuple[int, int]]:
    """Count the GPUs wanted on each machine."""
    first = machines[0]
    if not spare and machines.count(first) == len(machines):  # most jobs sit on one machine
        return [(first, len(machines))]
    counts: dict[int, int] = {}
    for machine in machines + spare:
        counts[machine] = counts.get(machine, 0) + 1
    return list(counts.items())


def _lowest_bits(free: int, count: int) -> int | None:
    """Return the `count` lowest set bits of `free`, or None if it has fewer."""
    have = free.bit_count()
    if have <= count:
        return free if have == count else None
    rest = free
    for _ in range(count):
        rest &= rest - 1
    return free ^ rest
