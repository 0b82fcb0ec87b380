"""A read-only view of a cluster at one moment: all that a policy may read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Accounting, Running
from cranny.core.change_log import Change, ChangeLog, ChangePoint
from cranny.core.explanation import DefaultRationale
from cranny.core.machine_set import FreeMachines, members, within
from cranny.core.traffic import communication
from cranny.model.arrays import Flags, Floats, Ints
from cranny.model.errors import PlacementError
from cranny.model.job import Job
from cranny.model.placement import Placement

ALL = -1  # machines, as a set
MOST_WORKERS = 1 << 62  # of a job on a machine, if resources beside GPUs do not limit them


class Waiting(NamedTuple):
    """A job in the queue, and the GPU-seconds it attained before it was stopped."""

    job: Job
    attained_gpu_s: float = 0.0


class Lease:
    """A token that all snapshots of one accounting hold: it is gone when the last of them is."""

    __slots__ = ("__weakref__",)


class _RunningJobs(Mapping[str, Running]):
    """The running jobs of a snapshot; it keeps the snapshot alive, and so its accounting unchanged."""

    __slots__ = ("_view",)

    def __init__(self, view: "Snapshot") -> None:
        self._view = view

    def __getitem__(self, job_id: str) -> Running:
        return self._view._accounting.running[job_id]  # noqa: SLF001 - part of the snapshot

    def __iter__(self) -> Iterator[str]:
        yield from self._view._accounting.running  # noqa: SLF001

    def __len__(self) -> int:
        return len(self._view._accounting.running)  # noqa: SLF001


class Snapshot:
    """The cluster as it was when the snapshot was taken; later changes do not show.

    Made for every decision, so it is cheap to make: it shares the accounting of the state, which copies it before
    a write as long as some snapshot holds the `lease` of that accounting.
    """

    __slots__ = (
        "_accounting",
        "_changes",
        "_lease",
        "_logged",
        "_machines",
        "cluster",
        "now_s",
        "version",
        "waiting",
    )

    def __init__(
        self,
        accounting: Accounting,
        version: int,
        now_s: float,
        waiting: Sequence[Waiting],
        lease: "Lease | None" = None,
        changes: ChangeLog | None = None,
    ) -> None:
        self._accounting = accounting
        self._changes = changes
        self._logged = 0 if changes is None else changes.count
        self._lease = lease
        self.cluster = accounting.cluster
        self.version = version
        self.now_s = now_s
        self.waiting = waiting  # the queue in the policy's order; valid while the policy plans
        self._machines: FreeMachines | None = None

    @property
    def machines(self) -> FreeMachines:
        """Machines by their free GPUs; made when first read, since many decisions do not."""
        if self._machines is None:
            self._machines = FreeMachines(tuple(self._accounting.in_use), tuple(self._accounting.idle))
        return self._machines

    @property
    def free(self) -> Ints:
        """Free GPUs of each machine, (machines,)."""
        free = np.array(self._accounting.free, dtype=np.int64)
        free.setflags(write=False)
        return free

    @property
    def running(self) -> Mapping[str, Running]:
        """Running jobs by id."""
        return _RunningJobs(self)

    def all_running(self) -> dict[str, Running]:
        """Return running jobs by id, copied: faster where every one of them is read."""
        return self._accounting.running.copy()

    @property
    def is_what_if(self) -> bool:
        """Whether the cluster was never like this."""
        return self._changes is None

    @property
    def point(self) -> ChangePoint | None:
        """Where this view is in the history of its cluster; a what-if is not in it."""
        return None if self._changes is None else ChangePoint(self._changes, self._logged)

    def changes_since(self, point: ChangePoint | None) -> Sequence[Change] | None:
        """Return what started and ended since a point of the same history; None if that is not known."""
        if point is None or self._changes is not point.log:
            return None
        return point.log.between(point.logged, self._logged)

    def free_on(self, machine: int) -> int:
        """Return the free GPUs of one machine."""
        return self._accounting.free[machine]

    def free_between(self, first: int, past: int) -> int:
        """Return the free GPUs of the machines from `first` to before `past`."""
        return sum(self._accounting.free[first:past])

    def slots_on(self, machine: int) -> int:
        """Return which GPUs of a machine are free, as bits; none when the machine is down."""
        return self._accounting.slots[machine] if self._accounting.free[machine] else 0

    def is_up(self, machine: int) -> bool:
        """Say whether a machine takes jobs."""
        return self._accounting.is_up(machine)

    def is_idle(self, machine: int) -> bool:
        """Say whether no GPU of a machine is held."""
        return self._accounting.is_idle(machine)

    @property
    def up(self) -> Flags:
        """Whether each machine takes jobs, (machines,)."""
        return self.membership(self.up_machines)

    @property
    def up_machines(self) -> int:
        """The machines that take jobs, as a set."""
        return ~self._accounting.down

    def available(self, job: Job) -> FreeMachines:
        """Return the free machines that a job may use: those of its types and its partition, if it has any."""
        eligible = self.eligible(job)
        return self.machines if eligible == ALL else self.machines.only(eligible)

    def usable(self, job: Job, free: Ints) -> Ints:
        """Return those of some GPUs, (machines,), that a job can use."""
        eligible = self.eligible(job)
        return free if eligible == ALL else np.where(self.membership(eligible), free, 0)

    def eligible(self, job: Job) -> int:
        """Return the machines that a job can use, by type of GPU and partition, free or not; `ALL` if any will do.

        A partition that the cluster does not list is no restriction.
        """
        if job.gpu_type is None and job.speeds is None:
            return ALL if job.partition is None else self.cluster.machines_in.get(job.partition, ALL)
        machines_with = self.cluster.machines_with
        eligible = ALL if job.gpu_type is None else machines_with.get(job.gpu_type, 0)
        fast = ALL if job.speeds is None else sum(machines_with.get(each, 0) for each in job.speeds)
        inside = ALL if job.partition is None else self.cluster.machines_in.get(job.partition, ALL)
        return eligible & fast & inside

    def membership(self, machines: int) -> Flags:
        """Return whether each machine is in a set, (machines,)."""
        count = len(self.cluster.machines)
        packed = within(machines, 0, count).to_bytes(-(-count // 8), "little")
        return np.unpackbits(np.frombuffer(packed, np.uint8), count=count, bitorder="little").view(np.bool_)

    def link_free_gbps(self, link: int) -> float:
        """Return what running jobs leave of a link."""
        return max(0.0, self.cluster.uplink_gbps[link] - self._accounting.link_use_gbps[link])

    def least_free_gbps(self, links: Sequence[int]) -> float:
        """Return what running jobs leave of the fullest of some links."""
        capacity, use = self.cluster.uplink_gbps, self._accounting.link_use_gbps
        return max(0.0, min([capacity[link] - use[link] for link in links]))

    def link_use_gbps(self, link: int) -> float:
        """Return the mean rate that running jobs put on a link."""
        return self._accounting.link_use_gbps[link]

    @property
    def uplink_use_gbps(self) -> Floats:
        """Mean rate that running jobs put on the uplink of each machine, (machines,)."""
        return np.array(self._accounting.link_use_gbps[: len(self.cluster.machines)])

    def link_users(self, link: int) -> int:
        """Return how many running jobs use a link."""
        return self._accounting.link_users[link]

    def busy_machines(self, need_gbps: float) -> int:
        """Return the set of machines whose uplink has less than `need_gbps` left."""
        machines = len(self.cluster.machines)
        left = np.array(self.cluster.uplink_gbps[:machines]) - self.uplink_use_gbps
        return int.from_bytes(np.packbits(left < need_gbps, bitorder="little").tobytes(), "little")

    def narrowest_link(self, a: int, b: int) -> int:
        """Return the link between two different machines with the least bandwidth left."""
        up, down = self.cluster.paths[a], self.cluster.paths[b]
        if len(up) == len(down):
            route = [link for pair in zip(up, down, strict=True) if pair[0] != pair[1] for link in pair]
        else:
            shared = set(up) & set(down)
            route = [link for link in (*up, *down) if link not in shared]
        return min(route, key=self.link_free_gbps)

    def bandwidth_gbps(self, a: int, b: int) -> float:
        """Return what running jobs leave between two machines: Titan's P(s, s')."""
        return self.link_free_gbps(self.narrowest_link(a, b))

    def placement(
        self,
        job: Job,
        machines: tuple[int, ...],
        *,
        spare: tuple[int, ...] = (),
        gpus: tuple[int, ...] | None = None,
        note: str = "",
        server: int | None = None,
    ) -> Placement:
        """Make a placement with its rationale: what was free when it was chosen."""
        rationale = DefaultRationale(job, self.cluster, self.available(job), note)
        return Placement.made(machines, spare, gpus, rationale, server)

    def as_running(self, job: Job, placement: Placement) -> Running:
        """Return a job as it would run with this placement, or say why it does not fit."""
        return self._accounting.fit(job, placement, self.now_s)

    def as_tried(self, job: Job, placement: Placement) -> Running:
        """Return a job as it would run on machines known to have room, without the GPUs that it would hold."""
        if job.speeds is not None or len(placement.machines) != job.gpus:
            return self.as_running(job, placement)
        where = placement.machines, placement.server, placement.aggregate
        return Running(job, placement, {}, communication(self.cluster, job, *where), self.now_s)

    def without(self, job_id: str) -> "Snapshot":
        """Return the view as it would be with this job stopped."""
        accounting = self._accounting.copy()
        if job_id not in accounting.running:
            raise PlacementError(f"job {job_id!r} is not running")
        accounting.apply(accounting.running[job_id], -1)
        return Snapshot(accounting, self.version, self.now_s, self.waiting)

    def hiding(self, job_ids: Iterable[str]) -> "Snapshot":
        """Return the view without some jobs, waiting or running; the GPUs that these hold stay in use."""
        accounting, hidden = self._accounting.copy(), set(job_ids)
        for job_id in hidden & accounting.running.keys():
            del accounting.running[job_id]
        waiting = [each for each in self.waiting if each.job.id not in hidden]
        return Snapshot(accounting, self.version, self.now_s, waiting)

    def only(self, machines: int) -> "Snapshot":
        """Return the view in which no machines but those of a set take jobs."""
        accounting = self._accounting.copy()
        every = (1 << len(self.cluster.machines)) - 1
        for machine in members(every & ~machines & ~accounting.down):
            accounting.set_up(machine, up=False)
        return Snapshot(accounting, self.version, self.now_s, self.waiting)

    def room_for(self, job: Job) -> Ints:
        """Return how many workers of a job each machine has resources for beside GPUs, (machines,)."""
        room = np.full(len(self.cluster.machines), MOST_WORKERS, np.int64)
        for name, amount in (job.resources or {}).items():
            left = self._accounting.resources.get(name)
            room = np.minimum(room, 0 if left is None else np.maximum(np.array(left, np.int64), 0) // amount)
        return room

    def at_most(self, gpus: Ints) -> "Snapshot":
        """Return the view in which machines have at most so many free GPUs, (machines,); itself if they do."""
        more = np.array(self._accounting.free, np.int64) - gpus
        surplus = np.flatnonzero(more > 0)
        if not surplus.size:
            return self
        accounting = self._accounting.copy()
        for machine in surplus.tolist():
            accounting.withhold(machine, int(more[machine]))
        return Snapshot(accounting, self.version, self.now_s, self.waiting)

    def after(self, placement: Placement, job: Job | None = None) -> "Snapshot":
        """Return the view as it would be with this placement made."""
        job = job or Job(id="what-if", gpus=len(placement.machines))
        accounting = self._accounting.copy()
        accounting.apply(accounting.fit(job, placement, self.now_s), 1)
        return Snapshot(accounting, self.version, self.now_s, self.waiting)
