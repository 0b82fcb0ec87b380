"""Why a job was placed where it is, or why it waits: one reason, the evidence, and a next step that would help.

A next step is tried on a fork of the state before it is suggested.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cranny.core.constrained_placer import ConstrainedPlacer, lacks_room
from cranny.core.constraints import Constraints
from cranny.core.protocol import PlacerPolicy, Policy
from cranny.core.snapshot import Snapshot
from cranny.model.errors import CrannyError
from cranny.model.placement import Placement
from cranny.model.plan import Start, Stop
from cranny.model.validate import counted
from cranny.service.engines import Fork
from cranny.service.foreign_jobs import shown_id
from cranny.service.job_record import JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.predict import EligibleMachines, end_s, predict_starts

Kind = Literal[
    "too-few-gpus", "behind-others", "scattered", "constraints", "period", "recommended", "placed", "over"
]
WAITING: tuple[Kind, ...] = ("too-few-gpus", "behind-others", "scattered", "constraints", "period", "recommended")
MAX_QUEUE = 2_000  # steps are not tried with a longer queue, which takes too long to copy
MAX_TRIES = 8  # numbers of GPUs that are tried
MAX_PRIORITY = 1_000
_JOB = re.compile(r"\bjob '([^']+)'")  # as policies name jobs
_TIME = re.compile(r"\bat (\d[\d,]*) s\b")  # as policies write times
_DURATION = re.compile(r"\b(\d[\d,]*) s\b")  # and durations
PLACED = "when it was placed: "  # how evidence begins that is of that moment, whatever has changed since
CAN_START = "can start now"  # as policies say of a job that would start if they were asked


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a job waits, runs where it does, or ended."""

    kind: Kind
    reason: str
    evidence: list[str] = field(default_factory=list)
    next_step: str = ""
    predicted_start_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def minutes(seconds: float) -> str:
    """Write a duration in its natural unit."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plain_job_ids(text: str) -> str:
    """Write job ids without quotes: job-2, not job 'job-2'."""
    return _JOB.sub(r"\1", text)


def plain_times(text: str, now_s: float) -> str:
    """Write times as durations from now (in 5 min, not at 1,700,000,300 s), and all durations in natural units."""

    def relative(found: re.Match[str]) -> str:
        left_s = _seconds(found) - now_s
        return f"in {minutes(left_s)}" if left_s >= 0 else f"{minutes(-left_s)} ago"

    return _DURATION.sub(lambda found: minutes(_seconds(found)), _TIME.sub(relative, text))


def _seconds(found: re.Match[str]) -> float:
    return float(found[1].replace(",", ""))


class WaitContext:
    """The view that reasons for waiting refer to; counts the free GPUs once for each kind of job."""

    def __init__(self, view: Snapshot, records: JobRecords) -> None:
        self.view = view
        self.recommended = records.recommended  # by a service in recommend-only mode
        self.reserved = next(iter(records.reserved), None)  # a job that waits to be started as recommended
        self.eligible = EligibleMachines(view)
        self._records = records
        self._known: dict[int, int] = {}

    def constraints(self, record: JobRecord) -> Constraints | None:
        """Return the constraints of a job, with the machines that are reserved for others."""
        known = self._records.jobs.get(record.id) is record
        return self._records.constraints_of(record.id) if known else record.constraints

    def free(self, record: JobRecord) -> int:
        """Count the free GPUs on machines that are eligible for a job."""
        kind = self.eligible.kind(record.job, self.constraints(record))
        if kind not in self._known:
            self._known[kind] = self.view.machines.only(self.eligible.kinds[kind]).gpus
        return self._known[kind]


def quick_reason(record: JobRecord, context: WaitContext, first: str | None, period_s: float) -> tuple[Kind, str]:
    """Return roughly why a job waits, without consulting the policy: for long lists."""
    free = context.free(record)
    least = record.job.least_gpus or record.job.gpus
    if free < least:
        kind = f"{record.job.gpu_type} GPU" if record.job.gpu_type else "GPU"
        return "too-few-gpus", f"needs {counted(least, kind)}, {free} free"
    if record.id in context.recommended:
        machines = context.view.cluster.machines
        counts = Placement(**context.recommended[record.id]["placement"]).counts
        some = ", ".join(f"{gpus} on {machines[machine].name}" for machine, gpus in list(counts.items())[:3])
        more = f" and {len(counts) - 3} more machines" if len(counts) > 3 else ""
        return "recommended", f"has a recommended placement, and is not started yet: {some}{more}"
    if context.reserved is not None:
        return "behind-others", f"the free GPUs are recommended for others, such as {context.reserved}"
    if first is not None and first != record.id:
        return "behind-others", f"behind {first}, which is first in the queue"
    if period_s:
        return "period", f"the policy decides every {minutes(period_s)}"
    if context.constraints(record) is not None:
        return "constraints", "no machines that satisfy its constraints are free together"
    return "scattered", "enough GPUs are free, but not where the policy would place it"


def explain_placement(record: JobRecord) -> Explanation:
    """Explain a job that is placed, or was."""
    attempt, where = record.attempt, record.observed
    if where is not None and not record.over:
        ranks, machines = counted(len(where.machines), "rank"), counted(len(where.counts), "machine")
        return Explanation("placed", f"run by another scheduler, with {ranks} on {machines}")
    if record.over or attempt is None:
        text = {"done": "it has finished", "failed": "it has failed", "cancelled": "it was cancelled"}
        reason = text.get(record.status, "")
        more = record.reason.removeprefix(record.status)  # "failed with exit code 1" repeats the status
        reason += more if more != record.reason else f": {more}" if more else ""
        facts = attempt.facts if attempt is not None else {}
        step = f"read its log: cranny logs {record.id}" if record.status == "failed" and attempt else ""
        then = [f"{PLACED}{line}" for line in attempt.why.splitlines()] if attempt is not None else []
        return Explanation("over", reason, then, step, None, facts)
    first, *then = attempt.why.splitlines() or [""]
    evidence = [f"{PLACED}{line}" for line in then]
    if given := attempt.described_gpus():
        evidence.append(f"the cluster's manager gave it these GPUs: {given}")
    return Explanation("placed", first, evidence, "", attempt.placed_s, attempt.facts)


def explain_wait(record: JobRecord, fork: Fork, now_s: float, period_s: float) -> Explanation:
    """Explain why a job waits, on a fork of the state."""
    place = next((number for number, each in enumerate(fork.queue, 1) if each.job.id == record.id), None)
    if place is None:  # it was started meanwhile
        return explain_placement(record)
    policy = fork.policy(record)
    view = fork.state.snapshot(now_s, fork.queue)
    context = WaitContext(view, fork.records)
    kind, text = _dominant(record, policy, context, period_s)
    starts = predict_starts(fork, view, record)
    free = context.free(record)
    waiting = len(fork.queue)
    number = "first" if place == 1 else f"number {place:,}"
    queued = "no other job waits" if waiting == 1 else f"{number} of {waiting:,} waiting jobs"
    evidence = [queued, _free_line(view)]
    soon = _soonest(record, context, fork)
    if soon and kind not in {"period", "recommended"}:
        evidence.append(soon)
        if kind == "too-few-gpus" and ";" not in text:  # the policy does not know when it starts
            text = f"{text}; {soon}"
    evidence += filter(None, (_late(record, starts.get(record.id), now_s), plain_job_ids(record.reason)))
    facts = {"gpus": record.job.gpus, "free_gpus": free, "place_in_queue": place, "jobs_in_queue": waiting}
    step = Suggestions(record, fork, view, free).step(kind)
    return Explanation(kind, text, evidence, step, starts.get(record.id), facts)


def _dominant(record: JobRecord, policy: Policy, context: WaitContext, period_s: float) -> tuple[Kind, str]:
    """Return the dominant reason for waiting."""
    job, view = record.job, context.view
    kind, text = quick_reason(record, context, None, 0.0)
    if kind == "recommended" or (kind == "too-few-gpus" and isinstance(policy, PlacerPolicy)):
        return kind, text
    reason = plain_times(plain_job_ids(policy.why_wait(job, view)), view.now_s)
    if kind == "too-few-gpus":  # which the policy may know more about, such as when it will start
        return kind, reason if reason.startswith(text) else text
    if not isinstance(policy, PlacerPolicy):
        if reason == CAN_START:
            return _would_start(record, context, period_s)
        if lacks_room(job, view, record.constraints):
            return "constraints", reason
        return "behind-others" if reason.startswith("behind ") else "scattered", reason
    placer = policy.placer
    if placer.place(job, view) is not None:
        return _would_start(record, context, period_s)
    inner = placer.placer if isinstance(placer, ConstrainedPlacer) else placer
    if record.constraints is not None and inner.place(job, view) is not None:
        return "constraints", reason
    return "scattered", reason


def _would_start(record: JobRecord, context: WaitContext, period_s: float) -> tuple[Kind, str]:
    """Return why a job waits that the policy would start now, were it asked about it alone."""
    first = context.view.waiting[0].job.id if context.view.waiting else record.id
    if context.reserved is not None:
        return quick_reason(record, context, first, 0.0)
    if first != record.id:
        return "behind-others", f"{CAN_START}, but is behind {first}, which is first in the queue"
    every = f"; it decides every {minutes(period_s)}" if period_s else ""
    return "period", f"starts when the policy decides next{every}"


def _free_line(view: Snapshot) -> str:
    """Describe where GPUs are free."""
    free = view.free
    some = [int(machine) for machine in (-free).argsort(kind="stable")[:3] if free[machine]]
    if not some:
        return "no GPU is free"
    total = counted(int(free.sum()), "GPU")
    if len(some) == 1:
        return f"{total} free on {view.cluster.machines[some[0]].name}"
    names = ", ".join(f"{free[machine]} on {view.cluster.machines[machine].name}" for machine in some)
    machines = int((free > 0).sum())
    most = f" on {counted(machines, 'machine')}, such as" if machines > len(some) else ":"
    return f"{total} free{most} {names}"


def _soonest(record: JobRecord, context: WaitContext, fork: Fork) -> str:
    """Describe the next end of a running job that frees the missing GPUs, or else the next end at all."""
    view, records = context.view, fork.records.jobs
    missing = record.job.gpus - context.free(record)
    machines = context.eligible.machines(record.job, context.constraints(record))
    frees = {job_id: gpus for job_id, each in view.running.items() if (gpus := each.gpus_on(machines))}
    ends = {job_id: end_s(view.running[job_id], records.get(job_id)) for job_id in frees}
    known = sorted((end, frees[job_id], job_id) for job_id, end in ends.items() if not math.isinf(end))
    if not known:
        return "the ends of the running jobs are unknown" if frees else ""
    end, gpus, job_id = next((each for each in known if each[1] >= missing), known[0])
    job_id = shown_id(job_id)
    if end < view.now_s:
        return f"{job_id} was expected to end {minutes(view.now_s - end)} ago and frees {gpus}"
    return f"{job_id} ends in about {minutes(end - view.now_s)} and frees {gpus}"


def _late(record: JobRecord, start_s: float | None, now_s: float) -> str:
    """Describe whether the deadline of a job can be met."""
    if record.spec.deadline_s is None:
        return ""
    due_s = record.submitted_s + record.spec.deadline_s
    if due_s <= now_s:
        return f"its deadline passed {minutes(now_s - due_s)} ago"
    end = max(start_s or now_s, now_s) + (record.spec.duration_s or 0.0)
    word = "will be missed" if end > due_s else "can still be met"
    return f"its deadline is in {minutes(due_s - now_s)} and {word}"


class Suggestions:
    """Next steps for one waiting job."""

    def __init__(self, record: JobRecord, fork: Fork, view: Snapshot, free: int) -> None:
        """Prepare suggestions; `free` is the number of free GPUs that are eligible for the job."""
        self._record = record
        self._fork = fork
        self._view = view
        self._free = free
        self._first = fork.queue[0].job.id
        self._long = len(fork.queue) > MAX_QUEUE

    def step(self, kind: Kind) -> str:
        """Return what would help a job that waits for a reason of this kind."""
        if kind == "recommended":
            return "start it as recommended, and report that to the service"
        if kind == "period":
            return "wait for the next decision"
        if kind == "too-few-gpus":
            wait = self._wait("wait for running jobs to end, or cancel one")
            return self._resume() or self._relax() or self._fewer() or wait
        if kind == "behind-others":
            return ", or ".join(self._overtake()) or self._wait(
                "wait until the job that it might delay has started"
            )
        if kind == "constraints":
            return self._relax() or self._wait("wait until machines that satisfy its constraints come free")
        return self._fewer() or self._wait("wait until whole machines come free")

    def _overtake(self) -> Iterator[str]:
        """Yield ways past the jobs ahead, for a job that only waits behind others."""
        before = self._fork.records.jobs.get(self._first)
        ahead = before.spec.priority if before is not None else 0  # the highest in the queue
        if ahead < MAX_PRIORITY and (self._long or self._starts(job={"priority": ahead + 1})):
            yield f"submit it with a priority above {ahead}, if you may"
        if self._fork.setting["order"] != "backfill" and self._starts(policy={"order": "backfill"}):
            setting = self._fork.setting
            words = ["cranny policy set", setting["name"], "--order backfill"]
            words += [f"--period {setting['period_s']:g}"] if setting["period_s"] else []
            words += [f"--set {name}={value}" for name, value in setting["options"].items()]
            yield f"enable backfill: {' '.join(words)}"

    def _wait(self, otherwise: str) -> str:
        """Return what to wait for."""
        if self._first != self._record.id:
            return f"wait until {self._first}, which is first in the queue, has started"
        return otherwise

    def _resume(self) -> str:
        """Name the drained machines that would have to be resumed."""
        view, job = self._view, self._record.job
        machines, least = view.cluster.machines, job.least_gpus or job.gpus
        constraints = self._record.constraints
        eligible = view.eligible(job) & ~(constraints.excluded if constraints is not None else 0)
        mine = [number for number in range(len(machines)) if eligible >> number & 1]
        managed = self._fork.records.managed  # what its manager has taken out of service cannot be resumed here
        down = [n for n in mine if not view.is_up(n) and not managed.is_down(machines[n].name)]
        if not down:
            return ""
        state = self._fork.state.copy()
        for number in down:
            state.repair(number)
        back = state.snapshot()
        chosen = _fewest(((back.free_on(number), number) for number in down), least - self._free)
        if chosen and self._starts(repaired=chosen):
            return _resume([machines[number].name for number in chosen])
        ever = sum(machines[number].gpus for number in mine) - sum(machines[number].gpus for number in down)
        if ever >= least:
            return ""
        chosen = _fewest(((machines[number].gpus, number) for number in down), least - ever)
        left = f"the others have {counted(ever, 'GPU')}" if ever else "no other machine is eligible"
        return f"{_resume([machines[number].name for number in chosen])}; {left}"

    def _relax(self) -> str:
        """Name the constraints without which the job would start."""
        record, constraints = self._record, self._record.constraints
        without: dict[str, JobRecord] = {}
        if constraints is not None and constraints.same_rack == "required":
            without["constraints.same_rack"] = replace(record, constraints=constraints._replace(same_rack=None))
        if constraints is not None and constraints.spread > 1:
            without["constraints.spread"] = replace(record, constraints=constraints._replace(spread=1))
        if constraints is not None and constraints.per_machine is not None:
            without["constraints.per_machine"] = replace(
                record, constraints=constraints._replace(per_machine=None)
            )
        if record.job.resources is not None:
            without["resources"] = replace(record, job=replace(record.job, resources=None))
        if constraints is not None and constraints.excluded:
            by = "exclude" if record.spec.constraints.exclude else "features"
            without[f"constraints.{by}"] = replace(record, constraints=constraints._replace(excluded=0))
        if record.job.gpu_type is not None:
            without["constraints.gpu_type"] = replace(record, job=replace(record.job, gpu_type=None))
        binding = [name for name, other in without.items() if self._starts(record=other)]
        return f"drop {' or '.join(binding)}: it would start now" if binding else ""

    def _fewer(self) -> str:
        """Name the largest number of GPUs with which the job would start now."""
        job = self._record.job
        group = job.tp * job.pp
        most = min(self._free, job.gpus - 1) // group
        if not most or not self._starts(job=_sized(group)):
            return ""
        best, tried, too_many = 1, most, most + 1
        for _ in range(MAX_TRIES):  # bisection: a policy that can place a job can nearly always place smaller ones
            if not best < tried < too_many:
                break
            if self._starts(job=_sized(tried * group)):
                best = tried
            else:
                too_many = tried
            tried = (best + too_many) // 2
        gpus = best * group
        step = f"request {counted(gpus, 'GPU')}{' or fewer' if gpus > group else ''}: it would start now"
        if job.least_gpus is None and self._starts(job={"least_gpus": gpus}):
            step += "; or set least_gpus, if it can run with fewer"
        return step

    def _starts(
        self,
        *,
        record: JobRecord | None = None,
        job: dict[str, Any] | None = None,
        policy: dict[str, Any] | None = None,
        repaired: Iterable[int] = (),
    ) -> bool:
        """Return whether the job would start on a fork with these changes."""
        fork, tried = self._fork, record or self._record
        if self._long:
            return False
        try:
            if job is not None:
                tried = replace(tried, job=replace(tried.job, **job))
            queue = [each._replace(job=tried.job) if each.job.id == tried.id else each for each in fork.queue]
            engine = fork.with_setting(policy or {})._replace(queue=queue).engine(tried)
            for machine in repaired:
                engine.state.repair(machine)
            actions = engine.tick(self._view.now_s)
        except CrannyError:  # an invalid job, or an order that the policy does not support
            return False
        own = [each for each in actions if isinstance(each, Start | Stop) and each.job_id == tried.id]
        return bool(own) and isinstance(own[-1], Start)


def _sized(gpus: int) -> dict[str, Any]:
    """Return the fields of a job with a fixed number of GPUs."""
    return {"gpus": gpus, "least_gpus": None, "most_gpus": None}


def _fewest(available: Iterable[tuple[int, int]], wanted: int) -> list[int]:
    """Return the fewest machines with enough GPUs, those with most first; none if all together have too few."""
    chosen = []
    for gpus, machine in sorted(available, key=lambda each: (-each[0], each[1])):
        if wanted <= 0:
            break
        chosen.append(machine)
        wanted -= gpus
    return chosen if wanted <= 0 else []


def _resume(names: list[str]) -> str:
    if len(names) == 1:
        return f"resume {names[0]}, which is drained: cranny resume {names[0]}"
    named = " and ".join(names) if len(names) == 2 else f"{len(names)} machines from {names[0]} to {names[-1]}"
    return f"resume {named}, which are drained: cranny resume {names[0]}, and so on"
