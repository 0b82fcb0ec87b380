"""Predictions: when running jobs end, and when waiting jobs start."""

import math
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import or_

from cranny.core.accounting import Running
from cranny.core.backfill import remaining_s
from cranny.core.constraints import Constraints
from cranny.core.machine_set import FreeMachines, members, within
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.service.engines import Fork
from cranny.service.job_record import JobRecord

MAX_PREDICTED = 1_000  # jobs of the queue whose start is predicted
KINDS = 50  # of jobs among them, by the machines that they may have


def end_s(running: Running, record: JobRecord | None) -> float:
    """Return when a running job is expected to end, at its time limit at the latest; inf if unknown.

    A job of others has no record here.
    """
    slowdown = isolated(running.job, running.communication) * running.stretch
    end = running.started_s + remaining_s(running.job, running.attained_gpu_s, slowdown)
    attempt = None if record is None else record.attempt
    limit_s = None if record is None else record.spec.time_limit_s
    if attempt is None or limit_s is None:  # another scheduler does not enforce our time limits
        return end
    return min(end, (attempt.started_s or attempt.placed_s) + limit_s)


def expected_end_s(record: JobRecord, view: Snapshot) -> float | None:
    """Return when a job is expected to end; None if it does not run, is being stopped, or that is unknown."""
    running = view.running.get(record.id)
    if running is None or record.status not in {"starting", "running"}:
        return None
    end = end_s(running, record)
    return None if math.isinf(end) else end


class EligibleMachines:
    """The machines that jobs may use, computed once for each kind of jobs, which have the same requirements."""

    def __init__(self, view: Snapshot) -> None:
        self._view = view
        self.kinds = [_all(view.machines)]  # sets of machines; the first is for jobs without requirements
        self._known: dict[object, int] = {}

    def kind(self, job: Job, constraints: Constraints | None) -> int:
        """Return the number of a job's kind."""
        if job.gpu_type is None and job.speeds is None and job.partition is None and constraints is None:
            return 0
        key = (job.gpu_type, None if job.speeds is None else frozenset(job.speeds), job.partition, constraints)
        if key not in self._known:
            self._known[key] = len(self.kinds)
            allowed = constraints.allowed(self._view.cluster) if constraints is not None else -1  # all
            self.kinds.append(_all(self._view.available(job)) & allowed)
        return self._known[key]

    def machines(self, job: Job, constraints: Constraints | None) -> int:
        """Return the machines that are up and that a job may use, as a set."""
        return self.kinds[self.kind(job, constraints)]


def _all(machines: FreeMachines) -> int:
    """Return all machines that are up, also those without a free GPU, as a set."""
    return reduce(or_, (*machines.in_use, *machines.idle), 0)


class _ExpectedFree:
    """The numbers of free GPUs as they are expected to become.

    Machines form a group if every kind of jobs may use either all of them or none. Mostly there is one kind, which
    may use any machine.
    """

    def __init__(self, view: Snapshot, kinds: list[int]) -> None:
        self._up = up = kinds[0]
        self._group_of: dict[int, int] = {}  # of machines that some kinds may not use; the others are group 0
        count = 1
        for kind in kinds:
            parted: dict[int, int] = {}
            for machine in members(up & ~kind):
                group = self._group_of.get(machine, 0)
                count += group not in parted
                self._group_of[machine] = parted.setdefault(group, count - 1)
        self._free = [0] * count
        for machine, group in self._group_of.items():
            self._free[group] += view.free_on(machine)
        self._free[0] = view.machines.gpus - sum(self._free)
        self.groups: list[list[int]] = []  # that each kind may use
        for kind in kinds:
            others = {self._group_of[machine] for machine in members(up & ~kind)}
            self.groups.append([group for group in range(count) if group not in others])

    def free(self, groups: list[int]) -> int:
        """Count the free GPUs of groups."""
        return sum([self._free[group] for group in groups])

    def held(self, running: Running) -> dict[int, int]:
        """Count the GPUs of a job by groups, without those on machines that are down."""
        counts: dict[int, int] = {}
        for machine, gpus in running.held.items():
            if self._up >> machine & 1:
                group = self._group_of.get(machine, 0)
                counts[group] = counts.get(group, 0) + gpus.bit_count()
        return counts

    def give(self, counts: dict[int, int]) -> None:
        """Free GPUs."""
        for group, gpus in counts.items():
            self._free[group] += gpus

    def take(self, groups: list[int], gpus: int) -> dict[int, int]:
        """Take free GPUs from groups, the one with most first; return how many of each."""
        counts: dict[int, int] = {}
        for group in sorted(groups, key=self._free.__getitem__, reverse=True):
            counts[group] = some = min(gpus, self._free[group])
            self._free[group] -= some
            gpus -= some
            if not gpus:
                break
        return counts


def predict_starts(fork: Fork, view: Snapshot, extra: JobRecord | None = None) -> dict[str, float]:
    """Predict when waiting jobs start, in queue order and by eligible GPUs; unpredictable ones are skipped.

    A policy that promises starts may know a later one than that GPUs are free now, and is right then; its promises
    are the latest. `extra` is a hypothetical job that is not in the records.
    """
    starts, reserved = _in_queue_order(fork, view, extra), fork.records.reserved
    if fork.remembering is None:
        return starts
    starts = {job_id: at_s for job_id, at_s in starts.items() if at_s > view.now_s or job_id in reserved}
    for job_id, at_s in fork.remembering.promised_starts().items():
        starts[job_id] = max(view.now_s, min(at_s, starts.get(job_id, math.inf)))
    return starts


def _in_queue_order(fork: Fork, view: Snapshot, extra: JobRecord | None) -> dict[str, float]:
    """Predict starts as if all jobs started in the order of the queue, wherever GPUs are free."""
    records, eligible = fork.records.jobs, EligibleMachines(view)
    queue: list[tuple[Waiting, JobRecord | None, int]] = []
    for waiting in fork.queue[:MAX_PREDICTED]:
        job_id = waiting.job.id
        record = extra if extra is not None and extra.id == job_id else records.get(job_id)
        kind = eligible.kind(waiting.job, record.constraints if record is not None else None)
        if kind == KINDS:
            break
        queue.append((waiting, record, kind))
    context = _ExpectedFree(view, eligible.kinds)
    # When GPUs are freed, and which; the number in between breaks ties.
    ends = [
        (end_s(running, records.get(job_id)), number, context.held(running))
        for number, (job_id, running) in enumerate(view.running.items())
    ]
    heapify(ends)
    now_s, starts = view.now_s, dict[str, float]()
    for number, (waiting, record, kind) in enumerate(queue, len(ends)):
        job, groups = waiting.job, context.groups[kind]
        least = job.least_gpus or job.gpus
        free = context.free(groups)
        while free < least and ends:
            end, _, back = heappop(ends)
            context.give(back)
            now_s, free = max(now_s, end), context.free(groups)
        if free < least or math.isinf(now_s) or not _ever_fits(record, eligible.kinds[kind], view.cluster):
            break
        starts[job.id] = now_s
        limit_s = record.spec.time_limit_s if record is not None else None
        left_s = min(remaining_s(job, waiting.attained_gpu_s, 1.0), limit_s or math.inf)
        heappush(ends, (now_s + left_s, number, context.take(groups, least)))
    return starts


def _ever_fits(record: JobRecord | None, machines: int, cluster: Cluster) -> bool:
    """Say whether the constraints of a job on racks can be met by the machines that it may use, if nothing ran."""
    if record is None or record.constraints is None or not record.constraints.required:
        return True
    in_racks = [
        sum([cluster.machines[machine].gpus for machine in members(within(machines, *span))])
        for span in cluster.rack_spans
    ]
    return record.constraints.met_by(record.job.least_gpus or record.job.gpus, in_racks)
