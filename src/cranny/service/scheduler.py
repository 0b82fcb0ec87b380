"""The scheduler: turns requests and reports into events of the log, and lets the engine decide. It does no I/O.

Everything here runs under one lock. Launches and stops are left in `instructions`, to be executed once the events
are stored.
"""

import hashlib
import json
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from cranny.backends.protocol import Ended
from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.cluster_change import difference, keeping
from cranny.model.cluster_values import cluster_digest, cluster_values
from cranny.model.errors import CrannyError
from cranny.model.event import Cancelled, MachineDrained, MachineRepaired
from cranny.model.plan import Action, Aggregate, Move, Shift, Start, Stop
from cranny.policies import DEFAULT_POLICY
from cranny.service.attempt_outcome import outcome
from cranny.service.engines import (
    MANAGED,
    JointByPriority,
    adopt_profile,
    build_policy,
    complete_setting,
    engine_with,
    follow,
    forget_shifts,
    replay,
)
from cranny.service.event_chain import EventRow
from cranny.service.executor import AttemptLaunched
from cranny.service.job_record import HELD, Attempt, JobRecord, LastStep, ResumedAt
from cranny.service.job_records import JobRecords
from cranny.service.job_spec import JobSpec, parse
from cranny.service.learned_profile import LearnedProfile
from cranny.service.limits import ConflictError, Limits, NotFoundError
from cranny.service.locations import Location
from cranny.service.logged_placement import gpus_of, plain, reasons
from cranny.service.machine_lookup import find_machine, needed_gpus
from cranny.service.managed_cluster import availability
from cranny.service.paces import CHANGED, MeasuredIterations, Paces, differs
from cranny.service.promise_log import changed_promises, recall_promises
from cranny.service.rebuild import first_cluster, rebuild, submitted_with
from cranny.service.recommend import Recommend, Recommendation, Recommender, observed_start
from cranny.service.store import EventStore
from cranny.service.submit_check import SubmitCheck
from cranny.service.user_rights import Rights, check_quotas
from cranny.service.utilization import UtilizationHistory

Mode = Literal["run", "recommend"]
FIRST_SETTING = {"name": DEFAULT_POLICY}  # of a log in which no policy was set yet
REPACE_S = 10.0  # between two changes of periods by what jobs report


class Instruction(NamedTuple):
    """What the executor is to do: launch, stop or give up an attempt, let it save and leave, set its control."""

    do: Literal["launch", "stop", "leave", "control", "give up"]
    record: JobRecord
    attempt: Attempt


class PolicyError(CrannyError):
    """The policy failed, or returned an invalid plan."""


class Scheduler:
    """The queue, the cluster state and the job records, with the events that are not stored yet."""

    def __init__(self, cluster: Cluster, mode: Mode, limits: Limits) -> None:
        self._configured = cluster  # as the caller describes it; the log may have come to another one
        self.mode = mode
        self.limits = limits
        self.records = JobRecords(cluster, limits.recent_jobs)
        self.log_store: EventStore | None = None  # to look for a client's key that is not in memory
        self.engine = self._new_engine()
        self.history = UtilizationHistory()
        self.rows: list[EventRow] = []
        self.instructions: deque[Instruction] = deque()
        self._checks = SubmitCheck(complete_setting(FIRST_SETTING), self.records)
        self._recommender = Recommender()  # used in recommend-only mode
        self._paces = Paces(cluster)
        self._iterations = MeasuredIterations()
        self.paced_s = 0.0  # when jobs got their slots last

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        return self.records.cluster

    def _new_engine(self) -> Engine:
        return Engine(ClusterState(self.cluster), build_policy(complete_setting(FIRST_SETTING), self.records))

    def restore(self, store: EventStore) -> None:
        """Rebuild everything from the event log."""
        self.rows, self.instructions = [], deque()
        self._recommender.forget()
        first = first_cluster(store) or self._configured  # events of an older version before it are meant there
        self.records, self.history = JobRecords(first, self.limits.recent_jobs), UtilizationHistory()
        self.engine = self._new_engine()
        self.engine = rebuild(store, self.engine, self.records, self.history)
        self.follow_cluster()

    def follow_cluster(self) -> None:
        """Take over another cluster, or policy, in what follows from it."""
        self._checks = SubmitCheck(self.records.policy or complete_setting(FIRST_SETTING), self.records)
        self._paces = Paces(self.cluster)
        self._recommender.forget()
        recall_promises(self.engine, self.records)

    @property
    def asked_at_start(self) -> bool:
        """Whether the policy promises starts and decides at every event: then a service asks it as it starts."""
        policy = self.engine.policy
        remembers = isinstance(policy, JointByPriority) and policy.remembering is not None
        return self.mode == "run" and remembers and not self.engine.period_s

    def open(self, now_s: float, location: Location | None = None) -> None:
        """Log that the service was started, and with which cluster if that is another one than before.

        A machine that is gone stays as long as jobs hold it. A log that is older than layouts, and of another
        cluster, is refused.
        """
        there = None
        if self.records.layouts:
            there = keeping(self._configured, self.cluster, needed_gpus(self.engine.state))
        cluster = there or self._configured
        digest, about = cluster_digest(cluster), cluster.describe()
        body: dict[str, Any] = {"mode": self.mode, "cluster": digest, "about": about}
        known = self.records.cluster_digest
        if difference(self.cluster, cluster) if there else known in ("", digest):
            body["layout"] = cluster_values(cluster)
        if not self.records.seq:  # an id that keeps the job folders of several logs apart
            body["log"] = secrets.token_hex(6)
        if location is not None:
            body["at"] = location._asdict()
        self.log("opened", None, body, now_s)
        managed = self.records.managed
        if (out := availability(self.cluster, self._configured, **managed.said)) != managed.out_of_service:
            self.log("availability", None, out, now_s)

    def submit(
        self, user: str, value: Any, key: str | None, now_s: float, rights: Rights | None = None
    ) -> tuple[JobRecord, bool]:
        """Accept a job; return its record, and whether it is new. Without `rights` its user may do everything."""
        digest = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
        if key is not None and (before := submitted_with(self.records, self.log_store, user, key)) is not None:
            if before[1] != digest:
                raise ConflictError(f"idempotency key {key!r} was used for a different job, {before[0].id}")
            return before[0], False
        self.limits.refuse_without_account(user)
        spec = parse(value)
        check_quotas(user, spec, rights, self.limits, self.records)
        job_id = f"job-{self.records.submitted + 1}"
        self.check(spec, job_id, user, now_s)
        self.log("submitted", job_id, {"user": user, "spec": value, "key": key, "digest": digest}, now_s)
        record = self.records.jobs[job_id]
        recommend = partial(self._recommender.submitted, record.job)
        self._decide(lambda: self.engine.submit(record.job, now_s), now_s, recommend)
        return record, True

    def check(self, spec: JobSpec, job_id: str, user: str, now_s: float, *, external: bool = False) -> None:
        """Refuse a job that could never start on this cluster; the manager knows what an external one may use."""
        self._checks.check(spec, job_id, user, now_s, external=external)

    def cancel(self, job_id: str, by: str, now_s: float) -> JobRecord:
        """Cancel a job; a running one is over when its processes have exited."""
        record = self.find(job_id)
        job_id = record.id
        if record.over:
            raise ConflictError(f"{job_id} is already {record.status}")
        waits = record.status == "waiting"
        run_elsewhere = record.external_spec is not None if waits else self.mode == "recommend"
        if run_elsewhere:
            raise ConflictError(f"{job_id} is run by another scheduler: cancel it there")
        if waits:
            self.log("cancelled", job_id, {"by": by}, now_s)
            self._decide(lambda: self.engine.handle(Cancelled(job_id), now_s), now_s)
        elif record.attempt is not None:
            if record.status != "stopping":
                self.log("stopping", job_id, {"reason": f"cancelled by {by}"}, now_s)
            self.instructions.append(Instruction("stop", record, record.attempt))  # again at every request
        # What was asked to save need not do so any more.
        self.instructions.extend(Instruction("stop", record, attempt) for attempt in record.leaving)
        return record

    def drain(self, machine: int, by: str, now_s: float) -> None:
        """Place no more jobs on a machine."""
        if machine not in self.records.drained:
            self.log("drained", None, self._of(machine, by), now_s)
            self._decide(lambda: self.engine.handle(MachineDrained(machine), now_s), now_s)

    def resume(self, machine: int, by: str, now_s: float) -> None:
        """Place jobs on a machine again."""
        if machine in self.records.drained:
            self.log("resumed", None, self._of(machine, by), now_s)
            if not self.records.managed.is_down(self.cluster.machines[machine].name):
                self._decide(lambda: self.engine.handle(MachineRepaired(machine), now_s), now_s)

    def _of(self, machine: int, by: str) -> dict[str, Any]:
        """Return the body of an event about a machine: its name, too, since numbers change with the cluster."""
        return {"machine": machine, "name": self.cluster.machines[machine].name, "by": by}

    def set_policy(self, setting: dict[str, Any], by: str, now_s: float) -> None:
        """Switch to another policy, and let it decide at once."""
        self.switch(setting, by, now_s)
        self.tick(now_s)

    def switch(self, setting: dict[str, Any], by: str, now_s: float) -> None:
        """Switch to another policy from the next event on."""
        chosen = complete_setting(setting)
        engine = engine_with(self.engine, chosen, self.records)
        without = isinstance(engine.policy, JointByPriority) and engine.policy.constrained is None
        for each in self.records.jobs.values() if without else ():
            if each.constraints and not each.over:
                raise ConflictError(f"policy {chosen['name']!r} does not support constraints; {each.id} has some")
        forget_shifts(engine.state, now_s)
        self.engine = engine
        recall_promises(engine, self.records)
        self.log("policy", None, {**chosen, "by": by}, now_s)
        self._checks = SubmitCheck(chosen, self.records)

    def tick(self, now_s: float) -> None:
        """Let the policy decide now."""
        self._decide(lambda: self.engine.tick(now_s), now_s, due=True)

    def find(self, job_id: str) -> JobRecord:
        """Return the record of a job, by its id or that of the manager below."""
        record = self.records.jobs.get(self.records.externals.get(job_id, job_id))
        if record is None and self.records.had(job_id):
            raise ConflictError(f"{job_id} is over, and no longer in memory")
        if record is None:
            raise NotFoundError(f"no job {job_id!r}")
        return record

    def attempt_launched(self, report: AttemptLaunched, now_s: float) -> None:
        """Log that the processes of an attempt were started."""
        record = self.find(report.job_id)
        attempt = record.attempt
        if attempt is not None and attempt.number == report.attempt and attempt.started_s is None:
            named = {"external": report.external} if report.external not in ("", record.external) else {}
            self.log("launched", record.id, {"attempt": report.attempt, **named}, now_s)

    def attempt_ended(self, report: Ended, now_s: float, last: LastStep | None = None) -> None:
        """Release the GPUs of an attempt whose processes have exited; a failed job may be retried."""
        ended = {"exit_code": report.exit_code, "last": None if last is None else last._asdict()}
        record = self.find(report.job_id)
        attempt = record.attempt
        current = attempt is not None and attempt.number == report.attempt
        if attempt is None or not current or record.status not in HELD:
            fenced = (record.id, report.attempt) in self.records.fenced
            if fenced or any(each.number == report.attempt for each in record.leaving):
                self.log("vacated", record.id, {"attempt": report.attempt, **ended}, now_s)
            return
        status, counts, reason = outcome(record, attempt, report)
        body = {"attempt": report.attempt, "outcome": report.reason, **ended, "status": status, "counts": counts}
        self.log("ended", record.id, {**body, "reason": reason}, now_s)
        self._decide(lambda: self.engine.finish(record.id, now_s), now_s)
        if status == "waiting":
            self.log("retried", record.id, {}, now_s)
            self._decide(lambda: self.engine.submit(record.job, now_s), now_s)

    def profiled(self, job_id: str, profile: LearnedProfile, now_s: float) -> None:
        """Adopt what a running job has shown of itself, and let the policy decide with it."""
        record = self.find(job_id)
        if record.over:
            return
        self.log("profiled", job_id, profile.values(), now_s)
        adopt_profile(self.engine, self.records, record)
        for other in (self.records.jobs[each] for each in self.records.alike(record)):
            if other.status in HELD:
                self.instructions.append(Instruction("control", other, other.attempts[-1]))
        self._decide(lambda: self.engine.tick(now_s), now_s)

    def continued(self, job_id: str, attempt: int, at: ResumedAt, now_s: float) -> None:
        """Log from where an attempt went on."""
        if attempt <= len(self.find(job_id).attempts):
            self.log("continued", job_id, {"attempt": attempt, **at._asdict()}, now_s)

    def observe(self, job_id: str, body: dict[str, Any], now_s: float) -> JobRecord:
        """Log where another scheduler started a job, or that it ended; update the recommendations."""
        record = self.find(job_id)
        if self.mode != "recommend":
            raise ConflictError("this service runs jobs itself; observations need --recommend-only")
        if body.get("ended"):
            if record.observed is None or record.over:
                raise ConflictError(f"{record.id} was not observed running")
            self.log("observed", record.id, {"ended": True}, now_s)
            self._decide(tuple, now_s, partial(self._recommender.finished, record.id))
        else:
            machines = [find_machine(self.cluster, str(each)) for each in body.get("machines") or ()]
            started = observed_start(self.engine.state, self.records, record, machines, now_s)
            self.log("observed", record.id, started, now_s)
            if not self._recommender.followed(record, now_s):
                self._decide(tuple, now_s)
        return record

    def _decide(
        self,
        decide: Callable[[], Sequence[Action]],
        now_s: float,
        recommend: Recommend | None = None,
        *,
        due: bool = False,
    ) -> None:
        """Let the engine handle an event, and log what it decided.

        In recommend-only mode nothing is decided: what the policy would do is logged, as `recommend` finds it or
        planned anew. A policy with a period recommends only when due.
        """
        actions: Sequence[Action] = ()
        found: list[Recommendation] = []
        self.records.managed.now_s = now_s
        try:
            if self.mode == "run":
                actions = decide()
                if self.engine.period_s:  # it was not asked, but must know what it would know from the log
                    follow(self.engine, now_s)
            elif self.engine.period_s and not due:
                self._recommender.forget()
            else:
                found = list((recommend or self._recommender.replan)(self.engine, self.records, now_s))
        except CrannyError as error:
            self._recommender.forget()
            raise PolicyError(f"policy {self.records.policy.get('name')}: {error}") from error
        for at, action in enumerate(actions):
            self.log_action(action, actions[at + 1 :], now_s)
        for job_id, body in found:
            self.log("withdrawn" if body is None else "recommended", job_id, body or {}, now_s)
        for job_id, promise in list(changed_promises(self.engine, self.records)) if self.mode == "run" else ():
            self.log("promised", job_id, promise, now_s)
        if self.records.shifted or self.records.paced:
            self._pace(now_s)

    def measures(self, job_id: str, attempt: int, iteration_s: float, now_s: float) -> bool:
        """Note what iterations of a job were measured to take; say whether periods ought to follow that now."""
        if job_id not in self.records.shifted:
            return False
        self._iterations.note(job_id, attempt, iteration_s)
        if now_s < self._iterations.followed_s + REPACE_S:
            return False
        known_s = self._iteration_s(job_id)
        return known_s is None or abs(iteration_s - known_s) > CHANGED * known_s

    def measured(self, job_id: str, attempt: int, iteration_s: float, now_s: float) -> None:
        """Let shifted jobs keep periods that fit what was measured of all of them since periods changed last."""
        current = attempt == len(self.find(job_id).attempts)
        if current and self.measures(job_id, attempt, iteration_s, now_s):
            self._iterations.follow(now_s)
            self._pace(now_s)

    def _iteration_s(self, job_id: str) -> float | None:
        """Return what iterations of a running job were measured to take; None if that is not known."""
        current = self.records.jobs[job_id].attempts[-1]
        measured_s = self._iterations.of(job_id, current.number)
        return current.iteration_s if measured_s is None else measured_s

    def _pace(self, now_s: float) -> None:
        """Log what shifted jobs keep from now on, if that changed: all switch or none, since periods must fit.

        Jobs that are no longer shifted run freely.
        """
        shifted, paced = self.records.shifted, self.records.paced
        self._iterations.keep(shifted)
        measured_s = {job_id: self._iteration_s(job_id) for job_id in sorted(shifted | paced)}
        known_s = {job_id: each for job_id, each in measured_s.items() if each is not None and job_id in shifted}
        kept = self._paces.kept(self.engine.state.running, shifted, known_s) if shifted else {}
        attempts = {job_id: self.records.jobs[job_id].attempts[-1] for job_id in measured_s}
        if not any(differs(kept.get(job_id), attempt.pace) for job_id, attempt in attempts.items()):
            return
        self.paced_s = now_s
        for job_id, attempt in attempts.items():
            pace = kept.get(job_id)
            if pace != attempt.pace:
                body: dict[str, Any] = {"period_s": None} if pace is None else pace._asdict()
                self.log("paced", job_id, {**body, "iteration_s": measured_s[job_id]}, now_s)
                self.instructions.append(Instruction("control", self.records.jobs[job_id], attempt))

    def log_action(self, action: Action, later: Sequence[Action], now_s: float) -> None:
        """Log an action that was committed, of several; the executor is to carry it out."""
        job_id = action.job_id
        record = self.records.jobs[job_id]
        if isinstance(action, Shift):
            self.log("shifted", job_id, {"shift_s": action.shift_s}, now_s)
            return
        if isinstance(action, Aggregate):
            where = {**plain(action.placement), "gpus": plain(record.attempts[-1].placement)["gpus"]}
            why, facts = reasons(action.placement, job_id), action.placement.facts
            self.log("aggregated", job_id, {"placement": where, "why": why, "facts": facts}, now_s)
            self.instructions.append(Instruction("control", record, record.attempts[-1]))
            return
        if isinstance(action, Stop | Move):
            self.instructions.append(Instruction("leave", record, record.attempts[-1]))
        if isinstance(action, Stop):
            self.log("stopped", job_id, {"reason": action.reason}, now_s)
            return
        placement = action.placement
        gpus: Sequence[int] = ()  # none if the same plan stops or moves it again: then it is never launched
        if not any(isinstance(each, Stop | Move) and each.job_id == job_id for each in later):
            held = self.engine.state.find(job_id).held
            gpus = placement.gpus or gpus_of(placement.machines + placement.spare, held)
        body = {
            "attempt": len(record.attempts) + 1,
            "placement": {**plain(placement), "gpus": list(gpus or placement.gpus or ()) or None},
            "gpus": list(gpus[: len(placement.machines)]),
            "why": reasons(placement, job_id),
            "facts": placement.facts,
        }
        self.log("placed" if isinstance(action, Start) else "moved", job_id, body, now_s)
        if record.attempts[-1].gpus:
            self.instructions.append(Instruction("launch", record, record.attempts[-1]))

    def log(self, kind: str, job: str | None, body: dict[str, Any], now_s: float) -> None:
        """Append an event, to be stored at the end of the round."""
        managed = kind in MANAGED or "layout" in body
        if managed or (
            self.mode == "recommend" and kind != "policy"
        ):  # the engine must see what it did not decide
            self.log_as_replayed(kind, job, body, now_s)
            return
        row = EventRow(self.records.seq + 1, now_s, kind, job, body)
        self.records.apply(row)
        self._logged(row)

    def log_as_replayed(self, kind: str, job: str | None, body: dict[str, Any], now_s: float) -> None:
        """Append an event that the engine has not decided, and let it take that over as from a log."""
        row = EventRow(self.records.seq + 1, now_s, kind, job, body)
        self.engine = replay(row, self.engine, self.records)
        if "layout" in body:
            self.follow_cluster()
        self._logged(row)

    def _logged(self, row: EventRow) -> None:
        self.rows.append(row)
        self.history.note(self.records, self.engine.state)
