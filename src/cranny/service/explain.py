"""Why a job is where it is, or why it waits: one reason, the evidence, and what would help."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from cranny.core.constraints import ConstrainedPlacer
from cranny.core.protocol import PlacerPolicy, Policy
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.validate import counted
from cranny.service.fork import Fork
from cranny.service.job_records import JobRecord, placement_of
from cranny.service.predict import EligibleMachines, end_s, predict_starts
from cranny.service.suggestions import Suggestions

Kind = Literal[
    "too-few-gpus", "behind-others", "scattered", "constraints", "period", "recommended", "placed", "over"
]
WAITING: tuple[Kind, ...] = ("too-few-gpus", "behind-others", "scattered", "constraints", "period", "recommended")
_JOB = re.compile(r"\bjob '([^']+)'")  # as policies name jobs


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to why."""

    kind: Kind
    reason: str
    evidence: list[str] = field(default_factory=list)
    next_step: str = ""
    predicted_start_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def minutes(seconds: float) -> str:
    """Say how long something takes, as people do."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def plain_job_ids(text: str) -> str:
    """Name jobs as everybody does here, where ids say that they are jobs: job-2, not job 'job-2'."""
    return _JOB.sub(r"\1", text)


class WaitContext:
    """Knows how many free GPUs jobs may have; counted once for those that ask for the same.

    `recommended` says what a service that starts nothing would do with jobs.
    """

    def __init__(self, view: Snapshot, recommended: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.view = view
        self.recommended = recommended
        self.eligible = EligibleMachines(view)
        self._known: dict[int, int] = {}

    def free(self, record: JobRecord) -> int:
        """Count the free GPUs that a job may have."""
        kind = self.eligible.kind(record.job, record.constraints)
        if kind not in self._known:
            self._known[kind] = self.view.machines.only(self.eligible.kinds[kind]).gpus
        return self._known[kind]


def quick_reason(record: JobRecord, context: WaitContext, first: str | None, period_s: float) -> tuple[Kind, str]:
    """Say roughly why a job waits, without asking the policy: for long lists."""
    free = context.free(record)
    least = record.job.least_gpus or record.job.gpus
    if free < least:
        return "too-few-gpus", f"needs {counted(least, 'GPU')}, {free} free"
    if record.id in context.recommended:
        return "recommended", _recommended_line(record, context)
    if first is not None and first != record.id:
        meant = f"the free GPUs are meant for {first} and others before it"
        behind = f"behind {first}, which is first in the queue"
        return "behind-others", meant if first in context.recommended else behind
    if period_s:
        return "period", f"the policy decides every {minutes(period_s)}"
    if record.constraints is not None:
        return "constraints", "no machines that satisfy its constraints are free together"
    return "scattered", "enough GPUs are free, but not where the policy would take them"


def _recommended_line(record: JobRecord, context: WaitContext) -> str:
    """Say where a job should go that others have not started yet."""
    machines = context.view.cluster.machines
    counts = placement_of(context.recommended[record.id]["placement"]).counts
    some = [f"{gpus} on {machines[machine].name}" for machine, gpus in list(counts.items())[:3]]
    more = f" and {len(counts) - 3} more machines" if len(counts) > 3 else ""
    return f"has a recommended place and is yet to be started there: {', '.join(some)}{more}"


def explain_placement(record: JobRecord) -> Explanation:
    """Explain a job that has a placement, or had one."""
    attempt, where = record.attempt, record.observed
    if where is not None and not record.over:
        ranks, machines = counted(len(where.machines), "rank"), counted(len(where.counts), "machine")
        return Explanation("placed", f"somebody else runs it, with {ranks} on {machines}")
    if record.over or attempt is None:
        text = {"done": "it has finished", "failed": "it has failed", "cancelled": "it was cancelled"}
        reason = text.get(record.status, "")
        more = record.reason.removeprefix(record.status)  # "failed with exit code 1" says it once more
        reason += more if more != record.reason else f": {more}" if more else ""
        facts = attempt.facts if attempt is not None else {}
        step = f"read its log: cranny logs {record.id}" if record.status == "failed" and attempt else ""
        return Explanation("over", reason, attempt.why.splitlines() if attempt else [], step, None, facts)
    lines = attempt.why.splitlines()
    return Explanation("placed", lines[0] if lines else "", lines[1:], "", attempt.placed_s, attempt.facts)


def explain_wait(record: JobRecord, fork: Fork, now_s: float, period_s: float) -> Explanation:
    """Explain why a job waits, on a copy of how things stand."""
    place = next((number for number, each in enumerate(fork.queue, 1) if each.job.id == record.id), None)
    if place is None:  # it was started since
        return explain_placement(record)
    policy = fork.policy(record)
    view = fork.state.snapshot(now_s, fork.queue)
    context = WaitContext(view, fork.records.recommended)
    kind, text = _dominant(record, policy, context, period_s)
    starts = predict_starts(fork, view, record)
    free = context.free(record)
    evidence = [_place_line(place, len(fork.queue)), _free_line(view)]
    soon = _soonest(record, context, fork)
    if soon and kind not in {"period", "recommended"}:
        evidence.append(soon)
        if kind == "too-few-gpus":
            text = f"{text}; {soon}"
    late = _late(record, starts.get(record.id), now_s)
    if late:
        evidence.append(late)
    if record.reason:
        evidence.append(plain_job_ids(record.reason))
    facts = {
        "gpus": record.job.gpus,
        "free_gpus": free,
        "place_in_queue": place,
        "jobs_in_queue": len(fork.queue),
    }
    step = _next_step(kind, record, fork, context)
    return Explanation(kind, text, evidence, step, starts.get(record.id), facts)


def _dominant(record: JobRecord, policy: Policy, context: WaitContext, period_s: float) -> tuple[Kind, str]:
    """Find the one reason that matters most."""
    job, view = record.job, context.view
    kind, text = quick_reason(record, context, None, 0.0)
    if kind in {"too-few-gpus", "recommended"}:
        return kind, text
    told = plain_job_ids(policy.why_wait(job, view))
    if not isinstance(policy, PlacerPolicy):
        return "behind-others" if told.startswith("behind ") else "scattered", told
    placer = policy.placer
    if placer.place(job, view) is not None:
        first = view.waiting[0].job.id if view.waiting else record.id
        if first in context.recommended:
            return quick_reason(record, context, first, 0.0)
        if first != record.id:
            return "behind-others", f"could start now, but stands behind {first}, which is first in the queue"
        return "period", f"starts when the policy decides next, which it does every {minutes(period_s)}"
    inner = placer.placer if isinstance(placer, ConstrainedPlacer) else placer
    if record.constraints is not None and inner.place(job, view) is not None:
        return "constraints", told
    return "scattered", told


def _place_line(place: int, waiting: int) -> str:
    """Say where in the queue a job stands."""
    if waiting == 1:
        return "no other job waits"
    return f"{'first' if place == 1 else f'number {place:,}'} of {waiting:,} waiting jobs"


def _free_line(view: Snapshot) -> str:
    """Say where GPUs are free."""
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
    """Say which running job ends first that frees what is missing, or most of it."""
    view, records = context.view, fork.records.jobs
    missing = record.job.gpus - context.free(record)
    machines = context.eligible.machines(record.job, record.constraints)
    coming = [
        (end_s(each, records[job_id]), each.gpus_on(machines), job_id) for job_id, each in view.running.items()
    ]
    coming = [each for each in coming if each[1]]
    known = sorted(each for each in coming if not math.isinf(each[0]))
    if not known:
        return "no running job says when it ends" if coming else ""
    end, gives, job_id = next((each for each in known if each[1] >= missing), known[0])
    if end < view.now_s:
        return f"{job_id} should have ended {minutes(view.now_s - end)} ago and frees {gives}"
    return f"{job_id} ends in about {minutes(end - view.now_s)} and frees {gives}"


def _late(record: JobRecord, start_s: float | None, now_s: float) -> str:
    """Say whether a deadline is in danger."""
    if record.spec.deadline_s is None:
        return ""
    due_s = record.submitted_s + record.spec.deadline_s
    if due_s <= now_s:
        return f"its deadline passed {minutes(now_s - due_s)} ago"
    end = max(start_s or now_s, now_s) + (record.spec.duration_s or 0.0)
    word = "will be missed" if end > due_s else "can still be kept"
    return f"its deadline is in {minutes(due_s - now_s)} and {word}"


def _next_step(kind: Kind, record: JobRecord, fork: Fork, context: WaitContext) -> str:
    """Say what would help."""
    if kind == "recommended":
        return "start it where it is recommended, and tell the service so"
    if kind == "period":
        return "wait; it is next"
    suggestions = Suggestions(record, fork, context.view, context.free(record))
    if kind == "too-few-gpus":
        return suggestions.too_few_gpus()
    if kind == "behind-others":
        return suggestions.behind_others()
    return suggestions.constraints() if kind == "constraints" else suggestions.scattered()


def largest_startable(fork: Fork, now_s: float) -> int:
    """Return the GPUs of the largest job that the policy would start if nobody else waited."""
    policy = fork.policy()
    view = fork.state.snapshot(now_s)
    free = view.machines.gpus
    if not isinstance(policy, PlacerPolicy) or not free:
        return free
    placer = policy.placer

    def starts(gpus: int) -> bool:
        return placer.place(Job(id="what-if", gpus=gpus), view) is not None

    if starts(free):
        return free
    low, high = 0, free
    while high - low > 1:  # a policy that takes a job takes smaller ones too, or nearly so
        middle = (low + high) // 2
        low, high = (middle, high) if starts(middle) else (low, middle)
    return low
