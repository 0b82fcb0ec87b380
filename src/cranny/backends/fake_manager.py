"""A manager of a cluster in memory, for tests of its users: a source and a backend, as Slurm is.

It never gives more GPUs of a machine than there are, and which of them it gives is its own matter. Jobs run for as
long as they say, by a clock that is given.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cranny.backends.cluster_reading import ClusterReading, ExternalJob, ForeignJob, Reservation
from cranny.backends.protocol import BackendError, Ended, JobChannel, Launch, Reason
from cranny.model.cluster import Cluster
from cranny.model.topology_spec import Machine, Switch

State = Literal["held", "released", "running", "over"]


@dataclass
class ManagedJob:
    """A job as the manager has it."""

    id: str
    user: str
    gpus: int
    run_s: float
    spec: Mapping[str, Any] | None  # None for a job that is not to be placed
    priority: float = 0.0
    submitted_s: float = 0.0
    state: State = "held"
    where: Counter[str] = field(default_factory=Counter)  # machine -> GPUs, once it is released
    started_s: float = 0.0
    ended: tuple[Reason, int | None] | None = None
    attempt: tuple[str, int] | None = None  # for which it was released
    runs: int = 0  # how often it was started


class FakeManager:
    """Machines and jobs; outlives the services that use it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.racks: dict[str, dict[str, Machine]] = {}
        self.drained: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.jobs: dict[str, ManagedJob] = {}
        self.reservations: list[Reservation] = []
        self._reported: set[tuple[str, int]] = set()  # attempts whose ends were reported
        self.shown: dict[str, str] = {}  # reasons, by job

    # -- what happens to the cluster ---------------------------------------------------------------------

    def join(self, machine: Machine, rack: str = "rack") -> None:
        """Add a machine, or let one return with other resources; its jobs are lost if it has too few GPUs."""
        self.leave(machine.name, lost=False)
        self.racks.setdefault(rack, {})[machine.name] = machine
        if self.held(machine.name) > machine.gpus:
            self._lose(machine.name)

    def leave(self, name: str, *, lost: bool = True) -> None:
        """Remove a machine; jobs on it are lost."""
        for rack in list(self.racks):
            self.racks[rack].pop(name, None)
            if not self.racks[rack]:
                del self.racks[rack]
        if lost:
            self.failed.pop(name, None)
            self.drained.pop(name, None)
            self._lose(name)

    def fail(self, name: str) -> None:
        """Take a machine down; jobs on it are lost."""
        self.failed[name] = "not responding"
        self._lose(name)

    def drain(self, name: str) -> None:
        """Let a machine take no new jobs."""
        self.drained[name] = "maintenance"

    def resume(self, name: str) -> None:
        """Let a machine take jobs again."""
        self.failed.pop(name, None)
        self.drained.pop(name, None)

    @property
    def machines(self) -> dict[str, Machine]:
        """All machines by name."""
        return {name: machine for own in self.racks.values() for name, machine in own.items()}

    def held(self, name: str) -> int:
        """Count the GPUs of a machine that jobs hold."""
        return sum(job.where[name] for job in self.jobs.values() if job.state == "running")

    # -- what happens to jobs ----------------------------------------------------------------------------

    def submit(self, user: str, gpus: int, run_s: float, priority: float = 0.0, **spec: Any) -> str:
        """Submit a job that is to be placed; return its id."""
        return self._add(ManagedJob("", user, gpus, run_s, {"gpus": gpus, **spec}, priority))

    def start_other(self, user: str, where: Mapping[str, int], run_s: float) -> str | None:
        """Start a job of others on machines, if it fits; return its id."""
        if any(self._free(name) < gpus for name, gpus in where.items()):
            return None
        job_id = self._add(ManagedJob("", user, sum(where.values()), run_s, None))
        self.jobs[job_id].where.update(where)
        self._start(self.jobs[job_id])
        return job_id

    def cancel(self, job_id: str) -> None:
        """Cancel a job, whatever its state."""
        if self.jobs[job_id].state != "over":
            self._end(self.jobs[job_id], "cancelled", None)

    def pass_time(self) -> None:
        """Start what can start, and end what is due."""
        for job in self.jobs.values():
            if job.state == "running" and self._clock() >= job.started_s + job.run_s:
                self._end(job, "finished", 0)
        for job in self.jobs.values():
            if job.state == "released" and all(self._free(name) >= gpus for name, gpus in job.where.items()):
                self._start(job)
            elif job.state == "released" and any(self._size(name) < gpus for name, gpus in job.where.items()):
                self._end(job, "lost", None)  # it could wait there for ever

    def _add(self, job: ManagedJob) -> str:
        job.id = str(1000 + len(self.jobs))
        job.submitted_s = self._clock()
        self.jobs[job.id] = job
        return job.id

    def _size(self, name: str) -> int:
        return self.machines[name].gpus if name in self.machines else 0

    def _free(self, name: str) -> int:
        machine = self.machines.get(name)
        down = machine is None or name in self.failed or name in self.drained
        return 0 if machine is None or down else machine.gpus - self.held(name)

    def _start(self, job: ManagedJob) -> None:
        job.state, job.started_s = "running", self._clock()
        job.runs += 1
        for name in job.where:
            if self.held(name) > self.machines[name].gpus:
                raise AssertionError(f"a GPU of {name} was given twice")

    def _end(self, job: ManagedJob, reason: Reason, exit_code: int | None) -> None:
        job.state, job.ended = "over", (reason, exit_code)

    def _lose(self, name: str) -> None:
        for job in self.jobs.values():
            if job.state in ("running", "released") and job.where[name]:
                self._end(job, "lost", None)

    # -- the source --------------------------------------------------------------------------------------

    def read(self) -> ClusterReading:
        """Return what is there now."""
        self.pass_time()
        racks = tuple(
            Switch(rack, tuple(own.values()), (100.0,) * len(own)) for rack, own in sorted(self.racks.items())
        )
        if not racks:
            raise BackendError("the cluster has no machines")
        foreign = [
            ForeignJob(job.id, job.user, dict(job.where), {}, job.started_s + job.run_s)
            for job in self.jobs.values()
            if job.state == "running" and job.attempt is None
        ]
        waiting = [
            ExternalJob(job.id, job.user, job.spec, job.priority, job.submitted_s)
            for job in self.jobs.values()
            if job.state == "held" and job.spec is not None
        ]
        return ClusterReading(
            Cluster.of(Switch("top", racks, (400.0,) * len(racks))),
            self._clock(),
            dict(self.drained),
            dict(self.failed),
            foreign,
            waiting,
            list(self.reservations),
        )

    def show(self, reasons: Mapping[str, str]) -> None:
        """Note reasons for users."""
        self.shown.update(reasons)

    # -- the backend -------------------------------------------------------------------------------------

    def nodes(self) -> Cluster:
        """Return the machines."""
        return self.read().cluster

    def launch(self, what: Launch) -> None:
        """Release a job to run where it was placed; one that did not come from here is submitted.

        An attempt that was launched before, by a call that could not say so, is found again.
        """
        if any(job.attempt == (what.job_id, what.attempt) for job in self.jobs.values()):
            self._reported.discard((what.job_id, what.attempt))
            return
        job = self.jobs.get(what.external)
        if job is not None and job.spec is not None and job.attempt is not None and job.state == "over":
            again = ManagedJob("", job.user, job.gpus, job.run_s, job.spec, job.priority)  # as after a requeue
            job = self.jobs[self._add(again)]
        elif job is None:
            run_s = float(what.argv[1]) if len(what.argv) > 1 else math.inf
            job = self.jobs[self._add(ManagedJob("", what.user, len(what.ranks), run_s, {}))]
        if job.state != "held":
            raise BackendError(f"job {what.job_id!r}: {job.id} is {job.state} in the manager")
        job.state, job.attempt, job.where = "released", (what.job_id, what.attempt), Counter(what.machines)
        self.pass_time()

    def external_id(self, job_id: str) -> str:
        """Return the manager's id of a job."""
        job = self._latest(job_id)
        return "" if job is None else job.id

    def stop(self, job_id: str, grace_s: float | None = None) -> None:  # noqa: ARG002 - jobs end at once
        """Cancel a job."""
        job = self._latest(job_id)
        if job is not None and job.state != "over":
            self._end(job, "cancelled", None)

    def signal(self, job_id: str, number: int) -> None:
        """Do nothing: jobs have no handlers."""

    def channel(self, job_id: str) -> JobChannel | None:  # noqa: ARG002
        """Return None: jobs have no channels."""
        return None

    def poll(self) -> Sequence[Ended]:
        """Return the attempts that ended since the last poll."""
        self.pass_time()
        return [self._ended(job) for job in self.jobs.values() if self._is_new_end(job)]

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Take over attempts of an earlier service."""
        self.pass_time()
        by_attempt = {job.attempt: job for job in self.jobs.values() if job.attempt is not None}
        ended = []
        for what in launches:
            job = by_attempt.get((what.job_id, what.attempt))
            if job is None:
                ended.append(Ended(what.job_id, what.attempt, None, "lost"))
            elif job.state == "over":
                ended.append(self._ended(job))
        return ended

    def close(self) -> None:
        """Do nothing: jobs go on."""

    def _latest(self, job_id: str) -> ManagedJob | None:
        own = [job for job in self.jobs.values() if job.attempt is not None and job.attempt[0] == job_id]
        return own[-1] if own else None

    def _is_new_end(self, job: ManagedJob) -> bool:
        return job.state == "over" and job.attempt is not None and job.attempt not in self._reported

    def _ended(self, job: ManagedJob) -> Ended:
        reason, exit_code = job.ended or ("lost", None)
        job_id, attempt = job.attempt or ("", 0)
        self._reported.add((job_id, attempt))
        return Ended(job_id, attempt, exit_code, reason)
