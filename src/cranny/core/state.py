"""The state of a cluster: the only writer of which job holds which GPU."""

from collections.abc import Mapping, Sequence
from itertools import islice
from weakref import ref

import numpy as np

from cranny.core.accounting import Accounting, Running, attained_gpu_s
from cranny.core.change_log import ChangeLog
from cranny.core.machine_set import members
from cranny.core.snapshot import Lease, Snapshot, Waiting
from cranny.core.traffic import SILENT
from cranny.model.arrays import Ints
from cranny.model.cluster import Cluster
from cranny.model.cluster_change import Renumbering
from cranny.model.errors import PlacementError, StalePlanError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Aggregate, Move, Plan, Shift, Start

# What a checked action will change: the job as it runs before and after.
Change = tuple[Running | None, Running | None]


class ClusterState:
    """Which job holds which GPU. Plans are committed whole or not at all; all other code reads snapshots.

    Snapshots share the state's accounting. It is copied before a write only if a snapshot of it is in use, so that
    the usual cycle of snapshot, decide, commit copies nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = 0
        self._accounting = Accounting(cluster)
        self._lease = ref(Lease())  # of the present accounting; dead while no snapshot holds it
        self._failed: set[int] = set()
        self._changes = ChangeLog()

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def free(self) -> Ints:
        """Free GPUs of each machine, (machines,); none on a machine that is down."""
        return np.array(self._accounting.free, dtype=np.int64)

    @property
    def running(self) -> dict[str, Running]:
        """Running jobs by id."""
        return self._accounting.running.copy()

    @property
    def running_jobs(self) -> int:
        """How many jobs run."""
        return len(self._accounting.running)

    @property
    def used_machines(self) -> int:
        """Machines of which at least one GPU is held."""
        return self._accounting.used_machines

    @property
    def held_gpus(self) -> int:
        """GPUs that are held, by ranks or as spares."""
        return self._accounting.held_gpus

    @property
    def fragmentation(self) -> float:
        """Mean share of GPUs without a rank, over the machines in use; 0 when none is."""
        return self._accounting.fragmentation

    def totals(self) -> tuple[int, int, float, int, int]:
        """Return used machines, idle units on them, cross-machine bytes, held GPUs and running jobs at once."""
        accounting = self._accounting
        return (
            accounting.used_machines,
            accounting.idle_units,
            accounting.cross_bytes,
            accounting.held_gpus,
            len(accounting.running),
        )

    def is_up(self, machine: int) -> bool:
        """Say whether a machine takes jobs."""
        return self._accounting.is_up(machine)

    @property
    def all_up(self) -> bool:
        """Whether every machine takes jobs."""
        return not self._accounting.down

    def has_failed(self, machine: int) -> bool:
        """Say whether a machine has failed, not merely been drained."""
        return machine in self._failed

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._accounting.running

    def find(self, job_id: str) -> Running:
        """Return a running job."""
        try:
            return self._accounting.running[job_id]
        except KeyError:
            raise PlacementError(f"job {job_id!r} is not running") from None

    def snapshot(self, now_s: float = 0.0, waiting: Sequence[Waiting] = ()) -> Snapshot:
        """Return a read-only view of the cluster as it is now."""
        lease = self._lease()
        if lease is None:
            lease = Lease()
            self._lease = ref(lease)
        return Snapshot(self._accounting, self.version, now_s, waiting, lease, self._changes)

    def copy(self) -> "ClusterState":
        """Return an independent state with the same contents."""
        new = ClusterState(self.cluster)
        new.version, new._accounting, new._failed = self.version, self._accounting.copy(), self._failed.copy()
        return new

    def on(self, cluster: Cluster) -> "ClusterState":
        """Return a state with the same jobs on a cluster that has followed this one, with machines by their names.

        Raises if GPUs of a job are no longer there.
        """
        numbers = Renumbering(self.cluster, cluster)
        new = ClusterState(cluster)
        new.version = self.version + 1
        for machine, number in numbers.machines.items():
            new._accounting.set_up(number, up=self.is_up(machine))
        new._failed = {numbers.machines[each] for each in self._failed if each in numbers.machines}
        for running in self._accounting.running.values():
            new._accounting.apply(new._accounting.renumbered(running, numbers), 1)
        return new

    # -- writing ---------------------------------------------------------------------------------------

    def commit(self, plan: Plan, now_s: float = 0.0) -> None:
        """Apply a plan whole, or raise and change nothing."""
        if plan.version != self.version:
            raise StalePlanError(f"plan is for version {plan.version}, the state is at {self.version}")
        if len(plan.actions) == 1 and isinstance(plan.actions[0], Start):  # as most plans are
            job, placement, had_gpu_s = plan.actions[0]
            self.place(job, placement, now_s, had_gpu_s)
            return
        changes = self._check(plan.actions, now_s)
        accounting = self._writable()
        for old, new in changes:
            if old is not None:
                accounting.apply(old, -1)
                self._changes.add(old, -1)
            if new is not None:
                accounting.apply(new, 1)
                self._changes.add(new, 1)

    def place(self, job: Job, placement: Placement, now_s: float = 0.0, had_gpu_s: float = 0.0) -> None:
        """Start one job; the same as a plan with one start, without the plan."""
        if job.id in self._accounting.running:
            raise PlacementError(f"job {job.id!r} is already running")
        started = self._accounting.fit(job, placement, now_s, had_gpu_s)
        self._writable().apply(started, 1)
        self._changes.add(started, 1)

    def move(self, job_id: str, placement: Placement, now_s: float = 0.0) -> None:
        """Move one job to other machines."""
        self.commit(Plan(self.version, (Move(job_id, placement),)), now_s)

    def retrain(self, job: Job) -> None:
        """Give a running job another profile or other speeds; it stays where it is."""
        old = self.find(job.id)
        new = self._accounting.retrained(old, job)
        accounting = self._writable()
        for running, sign in ((old, -1), (new, 1)):
            accounting.apply(running, sign)
            self._changes.add(running, sign)

    def release(self, job_id: str) -> Running:
        """Release the GPUs of a job and return it as it ran."""
        running = self.find(job_id)
        self._writable().apply(running, -1)
        self._changes.add(running, -1)
        return running

    def fail(self, machine: int) -> tuple[Running, ...]:
        """Take a machine down at once; return the jobs that it was part of, which are released."""
        machine = self._set_up(machine, up=False)
        lost = tuple(
            running
            for running in self._accounting.running.values()
            if machine in running.held or machine == running.placement.server
        )
        for running in lost:
            self._accounting.apply(running, -1)
            self._changes.add(running, -1)
        self._failed.add(machine)
        return lost

    def hold(self, job: Job, machine: int, now_s: float = 0.0, gpus: int = 0) -> None:
        """Let a job that was not placed here hold GPUs of a machine, also of one that takes no jobs.

        It gets those of `gpus`, as bits, or else the lowest that are free.
        """
        if job.id in self._accounting.running:
            raise PlacementError(f"job {job.id!r} is already running")
        free, bits = self.free_slots(machine), gpus
        for gpu in () if gpus else islice(members(free), job.gpus):
            bits |= 1 << gpu
        if bits & ~free or bits.bit_count() != job.gpus:
            name = self.cluster.machines[machine].name
            raise PlacementError(f"job {job.id!r} cannot hold {job.gpus} GPUs of {name}: they are not free")
        held = Running(job, Placement((machine,) * job.gpus), {machine: bits}, SILENT, now_s)
        self._writable().apply(held, 1)
        self._changes.add(held, 1)

    def use(self, machine: int, resources: Mapping[str, int], sign: int) -> None:
        """Let something that is no job here use resources of a machine beside GPUs (sign 1), or no longer (-1)."""
        amounts = ((name, machine, amount) for name, amount in resources.items())
        self._writable().take_resources(amounts, sign)

    def free_slots(self, machine: int) -> int:
        """Return which GPUs of a machine no job holds, as bits, whether it takes jobs or not."""
        self._accounting.check_machine(machine)
        return self._accounting.slots[machine]

    def drain(self, machine: int) -> None:
        """Place no more jobs on a machine; jobs on it go on."""
        self._set_up(machine, up=False)

    def repair(self, machine: int) -> None:
        """Place jobs on a failed or drained machine again."""
        self._failed.discard(self._set_up(machine, up=True))

    def _set_up(self, machine: int, *, up: bool) -> int:
        """Mark a machine as up or down; return its index as a plain int."""
        self._accounting.check_machine(machine)
        self._writable().set_up(int(machine), up=up)
        return int(machine)

    def _writable(self) -> Accounting:
        """Return the accounting for a write: a copy if a snapshot still reads the present one."""
        if self._lease() is not None:
            self._accounting = self._accounting.copy()
            self._lease = ref(Lease())  # nothing reads the copy yet
        self.version += 1
        return self._accounting

    def _check(self, actions: Sequence[Action], now_s: float) -> list[Change]:
        """Compute what each action changes, with those before it done; raise if any cannot be."""
        changes: list[Change] = []
        slots = self._accounting.slots
        taken: dict[int, int] = {}  # machine -> its free GPUs with the actions so far done
        jobs: dict[str, Running | None] = {}
        for action in actions:
            if isinstance(action, Start):
                if jobs.get(action.job.id, self._accounting.running.get(action.job.id)) is not None:
                    raise PlacementError(f"job {action.job.id!r} is already running")
                new = self._accounting.fit(action.job, action.placement, now_s, action.attained_gpu_s, taken)
                jobs[action.job.id] = new
                changes.append((None, new))
                continue
            old = jobs[action.job_id] if action.job_id in jobs else self.find(action.job_id)
            if old is None:
                raise PlacementError(f"job {action.job_id!r} is stopped earlier in the same plan")
            after: Running | None = None
            if isinstance(action, Shift):
                after = old._replace(shift_s=action.shift_s)
            elif isinstance(action, Aggregate):
                after = self._accounting.aggregated(old, action.placement)
            else:
                for machine, gpus in old.held.items():
                    taken[machine] = taken.get(machine, slots[machine]) | gpus
                if isinstance(action, Move):
                    had_gpu_s = attained_gpu_s(old, now_s)
                    moved = self._accounting.fit(old.submitted, action.placement, now_s, had_gpu_s, taken)
                    after = moved._replace(shift_s=old.shift_s)
            jobs[action.job_id] = after
            changes.append((old, after))
        if any(new is not None and new.job.resources is not None for _, new in changes):
            self._accounting.check_resources(
                (old, None, ()) if new is None else (old, new.job, new.placement.machines) for old, new in changes
            )
        return changes
