"""The state of a cluster: the only place where GPUs are given out and taken back."""

import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cranny.core.accounting import Accounting, Running, attained_gpu_s
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.cluster import Cluster
from cranny.model.errors import PlacementError, StalePlanError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Move, Plan, Shift, Start

# What a checked action will change: the job that leaves, the job that enters.
Change = tuple[Running | None, Running | None]


class ClusterState:
    """Who holds which GPU. Plans are committed whole or not at all; everybody else reads snapshots.

    A snapshot shares the state's accounting. Only when the state changes while somebody still holds a snapshot are
    the accounting copied, so the usual round of snapshot, decide, commit copies nothing.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.version = 0
        self._accounting = Accounting(cluster)
        self._failed: set[int] = set()
        # References to the accounting when no snapshot shares them, counted just as `_own` counts them.
        self._alone = sys.getrefcount(self._accounting)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def free(self) -> npt.NDArray[np.int64]:
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

    @property
    def cross_bytes(self) -> float:
        """Bytes that one iteration of every running job moves between machines."""
        return self._accounting.cross_bytes

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
        """Say whether a machine is gone, not merely drained."""
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
        return Snapshot(self._accounting, self.version, now_s, waiting)

    def copy(self) -> "ClusterState":
        """Return a state that stands as this one does and goes its own way from now on."""
        new = ClusterState(self.cluster)
        new.version, new._accounting, new._failed = self.version, self._accounting.copy(), self._failed.copy()
        return new

    # -- writing ---------------------------------------------------------------------------------------

    def commit(self, plan: Plan, now_s: float = 0.0) -> None:
        """Apply a plan whole, or raise and change nothing."""
        if plan.version != self.version:
            raise StalePlanError(f"plan is for version {plan.version}, the state is at {self.version}")
        changes = self._check(plan.actions, now_s)
        accounting = self._own()
        for old, new in changes:
            if old is not None:
                accounting.turn(old, -1)
            if new is not None:
                accounting.turn(new, 1)

    def place(self, job: Job, placement: Placement, now_s: float = 0.0) -> None:
        """Start one job; the same as a plan with one start, without the plan."""
        if job.id in self._accounting.running:
            raise PlacementError(f"job {job.id!r} is already running")
        started = self._accounting.fit(job, placement, now_s)
        self._own().turn(started, 1)

    def move(self, job_id: str, placement: Placement, now_s: float = 0.0) -> None:
        """Carry one job over to other machines."""
        self.commit(Plan(self.version, (Move(job_id, placement),)), now_s)

    def release(self, job_id: str) -> Running:
        """Take back the GPUs of a job and return what it was."""
        running = self.find(job_id)
        self._own().turn(running, -1)
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
            self._accounting.turn(running, -1)
        self._failed.add(machine)
        return lost

    def drain(self, machine: int) -> None:
        """Give out no more GPUs of a machine; jobs on it go on."""
        self._set_up(machine, up=False)

    def repair(self, machine: int) -> None:
        """Give out the GPUs of a failed or drained machine again."""
        self._failed.discard(self._set_up(machine, up=True))

    def _set_up(self, machine: int, *, up: bool) -> int:
        """Let a machine take jobs or not; return its index as a plain int."""
        self._accounting.know(machine)
        self._own().set_up(int(machine), up=up)
        return int(machine)

    def _own(self) -> Accounting:
        """Return accounting that may be written to: a copy if a snapshot still reads the present ones."""
        if sys.getrefcount(self._accounting) > self._alone:
            self._accounting = self._accounting.copy()
        self.version += 1
        return self._accounting

    def _check(self, actions: Sequence[Action], now_s: float) -> list[Change]:
        """Work out what each action changes, with those before it done; raise if any cannot be."""
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
            else:
                for machine, gpus in old.held.items():
                    taken[machine] = taken.get(machine, slots[machine]) | gpus
                if isinstance(action, Move):
                    had_gpu_s = attained_gpu_s(old, now_s)
                    moved = self._accounting.fit(old.submitted, action.placement, now_s, had_gpu_s, taken)
                    after = moved._replace(shift_s=old.shift_s)
            jobs[action.job_id] = after
            changes.append((old, after))
        return changes
