"""Job records, folded from the event log: the same events always give the same records."""

from collections import Counter, deque
from dataclasses import replace
from typing import Any

from cranny.core.constraints import Constraints
from cranny.core.feasibility import Feasibility
from cranny.model.cluster import Cluster
from cranny.model.cluster_change import Renumbering
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.service.clock import JUMP_S
from cranny.service.event_chain import EventRow
from cranny.service.event_kinds import check_kind
from cranny.service.job_record import (
    HELD,
    OVER,
    Attempt,
    JobRecord,
    KeptPace,
    LastStep,
    Leaving,
    ResumedAt,
    Status,
)
from cranny.service.job_spec import CheckpointFields, JobSpec
from cranny.service.learned_profile import LearnedProfile
from cranny.service.locations import Location
from cranny.service.managed_cluster import ManagedCluster, foreign_of, reservation_of
from cranny.service.open_jobs import OpenJobs

RECENT_JOBS = 2_000  # jobs that are over and stay in memory


class JobRecords:
    """The records of all jobs, with drained machines, policy setting and recommendations."""

    def __init__(self, cluster: Cluster, recent_jobs: int = RECENT_JOBS) -> None:
        self.cluster = cluster
        self.recent_jobs = recent_jobs
        self.jobs: dict[str, JobRecord] = {}  # the unfinished ones, and those that finished last
        self.submitted = 0  # jobs ever
        self.finished: deque[str] = deque()  # jobs that are over, in this order, as long as they are in `jobs`
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}  # (user, client's key) -> job, digest of the body
        self.counts: Counter[Status] = Counter()
        self.open_jobs = OpenJobs()
        self.stopping: set[str] = set()  # cancelled jobs whose processes may still run
        self.too_large: set[str] = set()  # jobs that waited when the cluster became too small for them
        self.fixed: set[str] = set()  # unfinished jobs that no policy may stop, move or resize
        self.shifted: set[str] = set()  # running jobs that the policy has shifted
        self.paced: set[str] = set()  # running jobs that keep a period
        self._named: dict[tuple[str, str], set[str]] = {}  # unfinished jobs by user and name
        self.drained: set[int] = set()
        self.managed = ManagedCluster()  # what a manager below says of the cluster
        self.externals: dict[str, str] = {}  # the manager's id of a job -> the latest job in memory that has it
        self.policy: dict[str, Any] = {}
        self.recommended: dict[str, dict[str, Any]] = {}  # job -> what the policy would do
        self.profiles: dict[tuple[str, str], LearnedProfile] = {}  # by user and name of jobs
        self.reserved: dict[str, None] = {}  # waiting jobs with a recommended placement, in the order of these
        self.promised: dict[str, dict[str, Any]] = {}  # waiting job -> what the policy has promised it
        self.saved: dict[str, float] = {}
        self.cluster_digest = ""
        self.layouts = 0  # how often the log has said which cluster it is for; older ones do not
        self.log_id = ""  # empty in logs older than log ids
        self.location: Location | None = None  # of the service that opened the log last
        self.fenced: dict[tuple[str, int], Attempt] = {}  # given up with their host, which may still run them
        self.about = ""  # description of the cluster
        self.mode = ""
        self.seq = 0
        self.snapshot_seq = 0  # the last event of the last snapshot of the log
        self.last_s = 0.0
        self.epoch_s: float | None = None  # the first event, from which all jobs count their slots

    def constraints_of(self, job_id: str) -> Constraints | None:
        """Return the placement constraints of a job, with the machines that are reserved for others now."""
        record = self.jobs.get(job_id)
        if record is None or not (self.managed.reservations or record.spec.constraints.reservation):
            return record.constraints if record is not None else None
        reserved = self.managed.reserved_from(record, self.cluster)
        known = record.constraints or Constraints()
        return known._replace(excluded=known.excluded | reserved) if reserved else record.constraints

    def constrained(self, record: JobRecord) -> bool:
        """Say whether a job could not run just anywhere now."""
        return self.constraints_of(record.id) is not None

    def had(self, job_id: str) -> bool:
        """Say whether there was a job of this id, also one that is no longer in memory."""
        number = job_id.removeprefix("job-")
        known = number.isdecimal() and len(number) < 18 and int(number) <= self.submitted
        return known and int(number) > 0 and job_id == f"job-{int(number)}"

    def limit_s_of(self, job_id: str) -> float | None:
        """Return the seconds after which a run of a job is ended, if there is such a limit."""
        record = self.jobs.get(job_id)
        return record.spec.time_limit_s if record is not None else None

    def may_stop(self, job_id: str) -> bool:
        """Say whether a policy may stop a running job for another one: it allows that, and is not cancelled."""
        record = self.jobs.get(job_id)
        return record is not None and record.spec.may_stop and job_id not in self.stopping

    def apply(self, row: EventRow) -> None:
        """Apply an event."""
        self.seq, self.last_s = row.seq, max(self.last_s, row.at_s)
        self.epoch_s = row.at_s if self.epoch_s is None else self.epoch_s
        check_kind(row.seq, row.kind)
        take = getattr(self, f"_{row.kind}")
        record = self.jobs.get(row.job) if row.job is not None else None
        take(row) if record is None else take(row, record)
        if len(self.finished) > self.recent_jobs:
            self._forget_finished()

    def _forget_finished(self) -> None:
        """Forget the oldest jobs that are over, beyond the recent ones; the log still has them."""
        for _ in range(len(self.finished) - self.recent_jobs):
            job_id = self.finished.popleft()
            record = self.jobs[job_id]
            if record.leaving or any(each == job_id for each, _ in self.fenced):  # processes may be left
                self.finished.append(job_id)
                continue
            del self.jobs[job_id]
            self.recommended.pop(job_id, None)
            if record.client_key is not None:
                self.keys.pop((record.user, record.client_key), None)
            if self.externals.get(record.external) == job_id:
                del self.externals[record.external]
            if not record.spec.name:  # what it has shown of itself is for no other job
                self.profiles.pop(record.key, None)
            if not self._named.get(record.key, True):
                del self._named[record.key]

    def _set(self, record: JobRecord, status: Status) -> None:
        if record.status == status:
            return
        self.counts[record.status] -= 1
        self.counts[status] += 1
        record.status = status
        self.promised.pop(record.id, None)
        self.stopping.discard(record.id)
        if status == "stopping":
            self.stopping.add(record.id)
        if status in OVER:
            self.open_jobs.remove(record.user, record.spec)
            self.fixed.discard(record.id)
            self._named[record.key].discard(record.id)
            self.finished.append(record.id)

    def _submitted(self, row: EventRow) -> None:
        body, job_id = row.body, str(row.job)
        spec = JobSpec.model_validate(body["spec"])
        job, wanted = spec.job(job_id, body["user"], row.at_s), spec.constraints_on(self.cluster)
        record = JobRecord(job_id, body["user"], spec, job, wanted, row.at_s)
        if "external" in body:
            record.external, record.external_priority = body["external"]["id"], body["external"]["priority"]
            record.external_spec = body["spec"]
            self.externals[record.external] = job_id
        record.job = self._as_learned(record.key, job if record.external_priority is None else record.as_stated())
        self.jobs[job_id] = record
        self.submitted += 1
        self.counts["waiting"] += 1
        self.open_jobs.add(record.user, record.spec)
        self._named.setdefault(record.key, set()).add(job_id)
        if spec.never_stopped:
            self.fixed.add(job_id)
        if body.get("key"):
            record.client_key = body["key"]
            self.keys[record.user, body["key"]] = (job_id, body["digest"])

    def _profiled(self, row: EventRow, record: JobRecord) -> None:
        """Adopt what a job has shown of itself, for all unfinished jobs of its name."""
        self.profiles[record.key] = LearnedProfile.of(row.body)
        for job_id in self.alike(record):
            other = self.jobs[job_id]
            before, other.job = other.job.speeds, self._as_learned(other.key, other.as_stated())
            if other.attempts and before != other.job.speeds:
                other.attempts[-1].control_seq = row.seq  # shares follow speeds

    def _given(self, row: EventRow, record: JobRecord) -> None:
        """Note which GPUs the manager has given to an attempt."""
        for attempt in (each for each in record.attempts if each.number == row.body["attempt"]):
            attempt.given = tuple(row.body["gpus"])

    def _continued(self, row: EventRow, record: JobRecord) -> None:
        number, *went_on = (row.body[name] for name in ("attempt", *ResumedAt._fields))
        for attempt in record.attempts:
            if attempt.number == number:
                attempt.resumed = ResumedAt(*went_on)

    def alike(self, record: JobRecord) -> list[str]:
        """Return the unfinished jobs of the same user and name, in order."""
        return sorted(self._named.get(record.key, ()), key=lambda job_id: self.jobs[job_id].submitted_s)

    def _as_learned(self, key: tuple[str, str], job: Job) -> Job:
        """Return a job as others of its name have shown it to be."""
        known = self.profiles.get(key)
        return job if known is None else known.applied(job, self.cluster)

    def _placed(self, row: EventRow, record: JobRecord) -> None:
        body, gpus = row.body, tuple(row.body["gpus"])
        where = Placement(**body["placement"])
        reason = body["why"], body["facts"]
        attempt = Attempt(body["attempt"], row.at_s, where, *reason, gpus, None, control_seq=row.seq)
        attempt.location, attempt.cluster = self.location, self.cluster
        record.attempts.append(attempt)
        record.reason = ""
        self._set(record, "starting")

    def _moved(self, row: EventRow, record: JobRecord) -> None:
        before = record.attempts[-1].placement
        same = len(row.body["placement"]["machines"]) == len(before.machines)
        shifted = record.attempts[-1].shifted
        self._leave(row, record, "moved", "moved" if same else "resized")
        self._placed(row, record)
        if shifted:  # the policy still counts with it
            self._shifted(row, record)

    def _launched(self, row: EventRow, record: JobRecord) -> None:
        attempt = record.attempts[-1]
        if attempt.number == row.body["attempt"]:
            attempt.started_s = row.at_s
            if row.body.get("external"):
                record.external = row.body["external"]
                self.externals[record.external] = record.id
            if record.status == "starting":
                self._set(record, "running")

    def _stopping(self, row: EventRow, record: JobRecord) -> None:
        record.wanted, record.reason = False, row.body["reason"]
        self._set(record, "stopping")

    def _stopped(self, row: EventRow, record: JobRecord) -> None:
        self._leave(row, record, "stopped", "stopped")
        record.reason = row.body["reason"]
        self._set(record, "waiting")

    def _ended(self, row: EventRow, record: JobRecord) -> None:
        body = row.body
        self._close(row, record, body["outcome"])
        _note_end(row, record.attempts[-1])
        record.failures += body["counts"]
        record.reason = body["reason"]
        status: Status = body["status"]
        if status in OVER:
            record.ended_s = row.at_s
        self._set(record, status)

    def _retried(self, _row: EventRow, record: JobRecord) -> None:
        self._set(record, "waiting")

    def _vacated(self, row: EventRow, record: JobRecord) -> None:
        if self.fenced.pop((record.id, row.body["attempt"]), None) is not None:
            return
        for attempt in record.leaving:
            if attempt.number == row.body["attempt"]:
                _note_end(row, attempt)
                record.leaving.remove(attempt)
                return

    def _cancelled(self, row: EventRow, record: JobRecord) -> None:
        record.wanted, record.reason, record.ended_s = False, f"cancelled by {row.body['by']}", row.at_s
        self.reserved.pop(record.id, None)
        self._set(record, "cancelled")

    def _shifted(self, _row: EventRow, record: JobRecord) -> None:
        """Note that the job is shifted; which period and shift follow from that, another event says."""
        record.attempts[-1].shifted = True
        self.shifted.add(record.id)

    def _paced(self, row: EventRow, record: JobRecord) -> None:
        attempt, period_s = record.attempts[-1], row.body["period_s"]
        attempt.pace = None if period_s is None else KeptPace(period_s, row.body["shift_s"])
        attempt.iteration_s = row.body.get("iteration_s")
        attempt.control_seq = row.seq
        self.paced.discard(record.id) if period_s is None else self.paced.add(record.id)

    def _aggregated(self, row: EventRow, record: JobRecord) -> None:
        attempt, body = record.attempts[-1], row.body
        attempt.placement, attempt.why, attempt.facts = Placement(**body["placement"]), body["why"], body["facts"]
        attempt.cluster = self.cluster
        attempt.control_seq = row.seq

    def _leave(self, row: EventRow, record: JobRecord, outcome: str, reason: str) -> None:
        self._close(row, record, outcome)
        attempt, checkpoint = record.attempts[-1], record.spec.checkpoint
        if attempt.gpus:  # it may have been launched
            record.leaving.append(attempt)
        if isinstance(checkpoint, CheckpointFields):
            attempt.leaves, attempt.control_seq = Leaving(reason, row.at_s + checkpoint.grace_s), row.seq

    def _close(self, row: EventRow, record: JobRecord, outcome: str) -> None:
        record.attempts[-1].ended_s, record.attempts[-1].outcome = row.at_s, outcome
        self.shifted.discard(record.id)
        self.paced.discard(record.id)

    def _promised(self, row: EventRow, record: JobRecord) -> None:
        self.promised[record.id] = row.body

    def _recommended(self, row: EventRow, record: JobRecord) -> None:
        self.recommended[record.id] = {"seq": row.seq, "at_s": row.at_s, "job": record.id, **row.body}
        self.reserved[record.id] = None

    def _withdrawn(self, _row: EventRow, record: JobRecord) -> None:
        """Forget a recommended placement that the policy would no longer make."""
        del self.recommended[record.id], self.reserved[record.id]

    def _observed(self, row: EventRow, record: JobRecord) -> None:
        if row.body.get("ended"):
            record.ended_s = row.at_s
            self._set(record, "done")
            return
        record.observed, record.observed_s = Placement(**row.body["placement"]), row.at_s
        record.observed_on = self.cluster
        self.reserved.pop(record.id, None)
        for name, value in row.body["saved"].items():
            self.saved[name] = self.saved.get(name, 0.0) + value
        self._set(record, "running")

    def _opened(self, row: EventRow) -> None:
        if "layout" in row.body:
            self.layouts += 1
        elif self.cluster_digest and self.cluster_digest != row.body["cluster"]:
            was = f", {self.about}" if self.about else ""
            raise InputError(
                f"the event log belongs to another cluster{was}, and is older than logs that say which: serve "
                "that cluster once, or choose another --database"
            )
        if self.mode and self.mode != row.body["mode"]:
            raise InputError(
                f"the event log belongs to a service in {self.mode!r} mode; choose another --database"
            )
        if self.last_s - row.at_s > JUMP_S:  # the events before were stored by a clock that was ahead
            self.last_s = row.at_s
        self.mode = row.body["mode"]
        self.cluster_digest = row.body["cluster"]
        self.about = row.body.get("about", "")
        self.log_id = row.body.get("log", self.log_id)
        self.location = Location(**row.body["at"]) if "at" in row.body else None

    def _fenced(self, row: EventRow) -> None:
        """Note the attempts of a host that is said to be dead: if it comes back, they must be stopped there."""
        for job_id, number in row.body["attempts"]:
            known = self.jobs.get(job_id)
            for attempt in known.attempts if known is not None else ():
                if attempt.number == number:
                    self.fenced[job_id, number] = attempt

    def _snapshot(self, row: EventRow) -> None:
        """Note which events a snapshot has; it changes nothing else."""
        self.snapshot_seq = row.body["through"]

    def _archived(self, _row: EventRow) -> None:
        """Do nothing: the event says which events were moved to an archive."""

    def _audit(self, _row: EventRow) -> None:
        """Do nothing: the event is for people who read the log."""

    def _policy(self, row: EventRow) -> None:
        """Take over another policy, which shifts jobs by itself or not at all."""
        self.policy = row.body
        for job_id in self.shifted:
            self.jobs[job_id].attempts[-1].shifted = False
        self.shifted.clear()

    def renumber(self, cluster: Cluster) -> None:
        """Go on with another cluster: what is not over is numbered as there, and what is over keeps its own."""
        numbers = Renumbering(self.cluster, cluster)
        drained = {self.cluster.node_names[machine] for machine in self.drained} | self.managed.drained_away
        index = {machine.name: number for number, machine in enumerate(cluster.machines)}
        self.drained = {index[name] for name in drained if name in index}
        self.managed.drained_away = drained - index.keys()
        self.recommended.clear()
        self.reserved.clear()
        for record in self.jobs.values():
            live = [*record.leaving, *(record.attempts[-1:] if record.status in HELD else ())]
            for attempt in (each for each in live if each.cluster is self.cluster):
                if numbers.is_known(attempt.placement):
                    attempt.placement, attempt.cluster = numbers.placement(attempt.placement), cluster
            where = record.observed
            if where is not None and not record.over and numbers.is_known(where):
                record.observed, record.observed_on = numbers.placement(where), cluster
            if not record.over:
                record.constraints = record.spec.constraints_on(cluster)
        waiting, fits = [each for each in self.jobs.values() if each.status == "waiting"], Feasibility(cluster)
        self.too_large = {each.id for each in waiting if fits.why_too_large(each.job)}
        self.cluster = cluster

    def _cluster(self, row: EventRow) -> None:
        """Note that the cluster is another one; what follows from that was done when the engine took it over."""
        self.layouts += 1
        self.about = row.body["about"]
        self.cluster_digest = row.body["cluster"]

    def _availability(self, row: EventRow) -> None:
        self.managed.unavailable, self.managed.failed = dict(row.body["unavailable"]), dict(row.body["failed"])

    def _foreign(self, row: EventRow) -> None:
        for external in row.body["gone"]:
            self.managed.foreign.pop(external, None)
        for each in map(foreign_of, row.body["there"]):
            self.managed.foreign[each.id] = each

    def _reservations(self, row: EventRow) -> None:
        self.managed.reservations = tuple(map(reservation_of, row.body["reservations"]))

    def _prioritized(self, row: EventRow) -> None:
        for job_id, priority in row.body["priorities"].items():
            record = self.jobs.get(job_id)
            if record is not None and not record.over:
                record.external_priority = priority
                record.job = replace(record.job, priority=priority)

    def _drained(self, row: EventRow) -> None:
        self.drained.add(row.body["machine"])

    def _resumed(self, row: EventRow) -> None:
        self.drained.discard(row.body["machine"])


def _note_end(row: EventRow, attempt: Attempt) -> None:
    """Note how the processes of an attempt ended, and how far it came."""
    attempt.exit_code = row.body["exit_code"]
    last = row.body.get("last")
    attempt.last = None if last is None else LastStep(**last)
