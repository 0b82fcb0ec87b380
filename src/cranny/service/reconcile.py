"""Reconciles the log with what the manager of a cluster says: differences become events, and then one decision.

The manager is the truth about what is there and runs; the log is the truth about what was asked. A reading is what
the manager said at some time: what the log has learned since is not undone by it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cranny.backends.cluster_reading import ClusterReading, ExternalJob, ForeignJob
from cranny.model.cluster_change import ClusterDifference, difference, keeping
from cranny.model.cluster_values import cluster_digest, cluster_values
from cranny.model.errors import InputError, PlacementError
from cranny.service import foreign_jobs
from cranny.service.job_record import HELD, JobRecord
from cranny.service.job_spec import parse
from cranny.service.machine_lookup import needed_gpus
from cranny.service.managed_cluster import availability, foreign_values, reservation_values
from cranny.service.scheduler import Scheduler

MAX_NEW = 1_000  # jobs that a reading submits, those of the highest priority; the next one submits others
ENDS_S = 60.0  # by which ends of jobs of others must differ to be others
REPRIORITIZE_S = 60.0  # between two changes of the order of the queue by priorities of the manager
MANAGER = "the cluster's manager"
NO_COMMAND = {"command": ["true"]}  # of a job whose command only the manager knows


class Reconciled(NamedTuple):
    """What a reading has changed."""

    change: ClusterDifference | None  # of the cluster
    refused: Mapping[str, str]  # jobs of the manager that could never start here -> why
    overfull: Sequence[str]  # machines on which others hold more GPUs than are free


class Reconciler:
    """Takes readings over, one after the other."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._asked_s = 0.0  # when the reading that was taken over last was asked for
        self._read_s = -math.inf  # when the last one was read, by the clock of its source
        self._prioritized_s = 0.0
        self._refused: dict[str, tuple[Mapping[str, Any], str]] = {}  # jobs that could not start -> spec, why
        self._layouts = 0  # for which cluster they could not

    def take(self, reading: ClusterReading, asked_s: float, now_s: float) -> Reconciled:
        """Log how the cluster differs from what is known, and decide once; `asked_s` is when it was asked for.

        A reading that was asked for before the last one has come late, and changes nothing. Nor does one that says
        itself that it is older; the next one does, as the source's clock may have been set back.
        """
        asked_s = min(asked_s, reading.read_s)  # a source may answer with what it has read before
        stale, self._read_s = reading.read_s < self._read_s, reading.read_s
        if asked_s < self._asked_s or stale:
            return Reconciled(None, self._why_refused(), ())
        self._asked_s = asked_s
        logged = len(self._scheduler.rows)
        change = self._take_cluster(reading, now_s)
        self._take_availability(reading, now_s)
        known = reservation_values(self._scheduler.records.managed.reservations)
        if (reserved := reservation_values(reading.reservations)) != known:
            self._scheduler.log("reservations", None, {"reservations": reserved}, now_s)
        self._take_observed(reading, asked_s, now_s)
        self._release_foreign(reading, now_s)
        self._take_waiting(reading, asked_s, now_s)  # of which some may run, and are then no jobs of others
        overfull = self._take_foreign(reading, now_s)
        self._prioritize(reading, now_s)
        if len(self._scheduler.rows) != logged:
            self._scheduler.tick(now_s)
        return Reconciled(change, self._why_refused(), overfull)

    def _why_refused(self) -> dict[str, str]:
        return {external: why for external, (_, why) in self._refused.items()}

    def _take_cluster(self, reading: ClusterReading, now_s: float) -> ClusterDifference | None:
        """Go on with the machines that are there, and those that our jobs still hold."""
        scheduler = self._scheduler
        cluster = keeping(reading.cluster, scheduler.cluster, needed_gpus(scheduler.engine.state))
        change = difference(scheduler.cluster, cluster)
        if not change:
            return None
        body = {"layout": cluster_values(cluster), "cluster": cluster_digest(cluster), "about": cluster.describe()}
        scheduler.log("cluster", None, {**body, "change": change.describe()}, now_s)
        return change

    def _take_availability(self, reading: ClusterReading, now_s: float) -> None:
        scheduler = self._scheduler
        body = availability(scheduler.cluster, reading.cluster, reading.unavailable, reading.failed)
        if body != scheduler.records.managed.out_of_service:
            scheduler.log("availability", None, body, now_s)

    def _release_foreign(self, reading: ClusterReading, now_s: float) -> None:
        """Give back what jobs of others held that are no longer there."""
        there = {each.id for each in reading.foreign}
        gone = [external for external in self._scheduler.records.managed.foreign if external not in there]
        if gone:
            self._scheduler.log("foreign", None, {"there": [], "gone": gone}, now_s)

    def _take_foreign(self, reading: ClusterReading, now_s: float) -> Sequence[str]:
        """Let jobs of others hold what they do; return the machines on which that is more than is free."""
        scheduler, records = self._scheduler, self._scheduler.records
        found = {each.id: _normal(each) for each in reading.foreign if not self._is_ours(each.id)}
        known = records.managed.foreign
        gone = [external for external in records.managed.foreign if external not in found]
        new = {external: each for external, each in found.items() if not _alike(known.get(external), each)}
        late = foreign_jobs.short(scheduler.engine.state, (each for each in found.values() if each.id not in new))
        there = [*new.values(), *late]
        if gone or there:
            scheduler.log("foreign", None, {"there": foreign_values(there), "gone": gone}, now_s)
        state = scheduler.engine.state
        return sorted({name for each in found.values() for name in foreign_jobs.lacking(state, each)})

    def _take_observed(self, reading: ClusterReading, asked_s: float, now_s: float) -> None:
        """Note the ends of jobs that the manager runs by itself, for a service that only recommends."""
        records, there = self._scheduler.records, {each.id for each in reading.foreign}
        for external, job_id in list(records.externals.items()) if self._scheduler.mode == "recommend" else ():
            record = records.jobs[job_id]
            since_s = record.observed_s
            if record.status == "running" and since_s is not None and since_s < asked_s and external not in there:
                self._observe(record, {"ended": True}, now_s)

    def _is_ours(self, external: str) -> bool:
        """Say whether a job of the manager runs for us: it holds its GPUs already."""
        records = self._scheduler.records
        record = records.jobs.get(records.externals.get(external, ""))
        return record is not None and record.status in HELD

    def _take_waiting(self, reading: ClusterReading, asked_s: float, now_s: float) -> None:
        """Submit jobs that the manager wants placed, and withdraw those that it no longer does."""
        records = self._scheduler.records
        wanted = {each.id: each for each in reading.waiting}
        if records.layouts != self._layouts:  # others might fit this cluster
            self._refused, self._layouts = {}, records.layouts
            self._set_aside(wanted, reading, now_s)
        for external, job_id in list(records.externals.items()):
            record = records.jobs[job_id]
            if record.status != "waiting" or record.external_spec is None or record.waits_since_s >= asked_s:
                continue
            if external not in wanted or {**NO_COMMAND, **wanted[external].spec} != record.external_spec:
                self._withdraw(record, reading, now_s)
        new: list[ExternalJob] = []
        for each in wanted.values():
            known = records.jobs.get(records.externals.get(each.id, ""))
            refused = self._refused.get(each.id)
            if (refused is None or refused[0] != each.spec) and (
                known is None or (known.over and _ended_s(known) < asked_s)
            ):
                new.append(each)
        new.sort(key=lambda each: (-each.priority, each.submitted_s))
        for each in new[:MAX_NEW]:
            self._submit(each, now_s)
        self._refused = {external: why for external, why in self._refused.items() if external in wanted}

    def _set_aside(self, wanted: Mapping[str, ExternalJob], reading: ClusterReading, now_s: float) -> None:
        """Refuse waiting jobs that could never start on this cluster: they would block the queue."""
        records = self._scheduler.records
        for external, job in wanted.items():
            record = _waiting(records.jobs.get(records.externals.get(external, "")))
            if record is None or record.external_spec is None:
                continue
            try:
                self._scheduler.check(record.spec, record.id, record.user, now_s, external=True)
            except InputError as error:
                self._withdraw(record, reading, now_s)
                self._refused[external] = job.spec, str(error)

    def _submit(self, job: ExternalJob, now_s: float) -> None:
        """Submit a job of the manager; one that could never start is refused until it, or the cluster, changes."""
        self._refused.pop(job.id, None)
        scheduler, value = self._scheduler, {**NO_COMMAND, **job.spec}
        job_id = f"job-{scheduler.records.submitted + 1}"
        try:
            scheduler.check(parse(value), job_id, job.user, now_s, external=True)
        except InputError as error:
            self._refused[job.id] = job.spec, str(error)
            return
        body = {"user": job.user, "spec": value, "key": None, "digest": ""}
        external = {"id": job.id, "priority": job.priority, "submitted_s": job.submitted_s}
        scheduler.log_as_replayed("submitted", job_id, {**body, "external": external}, now_s)

    def _withdraw(self, record: JobRecord, reading: ClusterReading, now_s: float) -> None:
        """Take a job out of the queue that is no longer to be placed.

        A service that only recommends sees where the manager has started it, if all of it can be seen.
        """
        started = next((each for each in reading.foreign if each.id == record.external), None)
        if self._scheduler.mode == "recommend" and started is not None:
            there = {machine.name for machine in self._scheduler.cluster.machines}
            ranks = [name for name, gpus in started.gpus.items() if name in there for _ in range(gpus)]
            if len(ranks) == record.job.gpus:
                self._observe(record, {"machines": ranks}, now_s)
                return
        self._scheduler.log_as_replayed("cancelled", record.id, {"by": MANAGER}, now_s)

    def _observe(self, record: JobRecord, what: dict[str, Any], now_s: float) -> None:
        """Note where the manager has started a job, or that it ended, if that fits what is known."""
        try:
            self._scheduler.observe(record.id, what, now_s)
        except PlacementError:  # other jobs are believed to hold its GPUs still: it counts as one of others
            self._scheduler.log_as_replayed("cancelled", record.id, {"by": MANAGER}, now_s)

    def _prioritize(self, reading: ClusterReading, now_s: float) -> None:
        """Sort the queue as the manager does, if the order of its jobs has changed, and not too often."""
        records = self._scheduler.records
        if now_s < self._prioritized_s + REPRIORITIZE_S:
            return
        changed = {
            record.id: each.priority
            for each in reading.waiting
            if (record := _waiting(records.jobs.get(records.externals.get(each.id, "")))) is not None
        }
        before = sorted(changed, key=lambda job_id: -(records.jobs[job_id].external_priority or 0.0))
        if before != sorted(before, key=lambda job_id: -changed[job_id]):
            self._prioritized_s = now_s
            self._scheduler.log("prioritized", None, {"priorities": changed}, now_s)


def _waiting(record: JobRecord | None) -> JobRecord | None:
    return record if record is not None and record.status == "waiting" else None


def _ended_s(record: JobRecord) -> float:
    return record.submitted_s if record.ended_s is None else record.ended_s


def _alike(known: ForeignJob | None, job: ForeignJob) -> bool:
    """Say whether a job of others is as it was; that its end is estimated a little otherwise is no event."""
    if known is None or known._replace(ends_s=job.ends_s) != job:
        return False
    if known.ends_s is None or job.ends_s is None:
        return known.ends_s == job.ends_s
    return abs(known.ends_s - job.ends_s) < ENDS_S


def _normal(job: ForeignJob) -> ForeignJob:
    """Return a job with plain values, as an event of the log would have it."""
    return job._replace(gpus=dict(job.gpus), resources={name: dict(own) for name, own in job.resources.items()})
