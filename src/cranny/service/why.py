"""Why a job is where it is, or why it waits: one reason, the evidence, and what would help."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Literal

from cranny.core.books import Running
from cranny.core.protocol import Placer, Policy
from cranny.core.queue import remaining_s
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import isolated
from cranny.core.wishes import Wish
from cranny.model.job import Job
from cranny.model.number import counted
from cranny.service.ledger import Record
from cranny.service.trial import Stand

Kind = Literal["too-few-gpus", "behind-others", "scattered", "wishes", "period", "placed", "over"]
WAITING: tuple[Kind, ...] = ("too-few-gpus", "behind-others", "scattered", "wishes", "period")
FORESEEN = 1_000  # jobs of the queue whose start is foreseen


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer to why."""

    kind: Kind
    reason: str
    evidence: list[str] = field(default_factory=list)
    next_step: str = ""
    predicted_start_s: float | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def end_s(running: Running, record: Record) -> float:
    """Return when a running job is expected to end, at its time limit at the latest; inf if nobody knows."""
    slowdown = isolated(running.job, running.communication) * running.stretch
    end = running.started_s + remaining_s(running.job, running.attained_gpu_s, slowdown)
    attempt, limit_s = record.attempt, record.spec.time_limit_s
    if attempt is None or limit_s is None:  # nobody else keeps to our time limits
        return end
    return min(end, (attempt.started_s or attempt.placed_s) + limit_s)


def expected_end_s(record: Record, view: Snapshot) -> float | None:
    """Return when a job is expected to end; None if it does not run, is being stopped, or nobody knows."""
    running = view.running.get(record.id)
    if running is None or record.status not in {"starting", "running"}:
        return None
    end = end_s(running, record)
    return None if math.isinf(end) else end


def minutes(seconds: float) -> str:
    """Say how long something takes, as people do."""
    if seconds < 90:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Room:
    """Knows how many free GPUs jobs may have; counted once for those that ask for the same."""

    def __init__(self, view: Snapshot) -> None:
        self.view = view
        self._known: dict[tuple[str | None, Wish | None], int] = {}

    def free(self, record: Record) -> int:
        """Count the free GPUs that a job may have."""
        job, wish, view = record.job, record.wish, self.view
        key = (job.gpu_type, wish)
        if key not in self._known:
            offer = view.offer(job)
            self._known[key] = (offer.only(wish.allowed(view.cluster)) if wish is not None else offer).gpus
        return self._known[key]


def quick(record: Record, room: Room, first: str | None, period_s: float) -> tuple[Kind, str]:
    """Say roughly why a job waits, without asking the policy: for long lists."""
    free = room.free(record)
    least = record.job.least_gpus or record.job.gpus
    if free < least:
        return "too-few-gpus", f"needs {counted(least, 'GPU')}, {free} free"
    if first is not None and first != record.id:
        return "behind-others", f"behind {first}, which is first in the queue"
    if period_s:
        return "period", f"the policy decides every {minutes(period_s)}"
    if record.wish is not None:
        return "wishes", "no machines as wished are free together"
    return "scattered", "enough GPUs are free, but not where the policy would take them"


def foresee(stand: Stand, view: Snapshot) -> dict[str, float]:
    """Foresee when jobs of the queue start, in order and by the numbers of GPUs; those unknown are left out."""
    records = stand.ledger.jobs
    ends = [(end_s(running, records[job_id]), running.job.gpus) for job_id, running in view.running.items()]
    heapify(ends)
    free, now_s = view.machines.gpus, view.now_s
    starts: dict[str, float] = {}
    for waiting in stand.queue[:FORESEEN]:
        job = waiting.job
        least = job.least_gpus or job.gpus
        while free < least and ends:
            end, gpus = heappop(ends)
            now_s, free = max(now_s, end), free + gpus
        if free < least or math.isinf(now_s):
            break
        starts[job.id] = now_s
        free -= least
        limit_s = records[job.id].spec.time_limit_s if job.id in records else None
        left_s = min(remaining_s(job, waiting.attained_gpu_s, 1.0), limit_s or math.inf)
        heappush(ends, (now_s + left_s, least))
    return starts


def why_here(record: Record) -> Explanation:
    """Explain a job that has a placement, or had one."""
    attempt = record.attempt
    if record.over or attempt is None:
        text = {"done": "it has finished", "failed": "it has failed", "cancelled": "it was cancelled"}
        reason = text.get(record.status, "somebody else runs it")
        more = record.reason.removeprefix(record.status)  # "failed with exit code 1" says it once more
        reason += more if more != record.reason else f": {more}" if more else ""
        facts = attempt.facts if attempt is not None else {}
        step = f"read its log: cranny logs {record.id}" if record.status == "failed" and attempt else ""
        return Explanation("over", reason, attempt.why.splitlines() if attempt else [], step, None, facts)
    lines = attempt.why.splitlines()
    return Explanation("placed", lines[0] if lines else "", lines[1:], "", attempt.placed_s, attempt.facts)


def why_wait(record: Record, stand: Stand, now_s: float, period_s: float) -> Explanation:
    """Explain why a job waits, on a copy of how things stand."""
    place = next((number for number, each in enumerate(stand.queue, 1) if each.job.id == record.id), None)
    if place is None:  # it was started since
        return why_here(record)
    policy = stand.asked(record)
    view = stand.state.snapshot(now_s, stand.queue)
    room = Room(view)
    kind, text = _dominant(record, policy, room, period_s)
    starts = foresee(stand, view)
    free = room.free(record)
    evidence = [f"{place} of {counted(len(stand.queue), 'waiting job')} in the queue", _free_line(view)]
    soon = _soonest(record, room, stand)
    if soon:
        evidence.append(soon)
        if kind == "too-few-gpus":
            text = f"{text}; {soon}"
    late = _late(record, starts.get(record.id), now_s)
    if late:
        evidence.append(late)
    if record.reason:
        evidence.append(record.reason)
    facts = {
        "gpus": record.job.gpus,
        "free_gpus": free,
        "place_in_queue": place,
        "jobs_in_queue": len(stand.queue),
    }
    step = _next_step(kind, record, policy, room, stand)
    return Explanation(kind, text, evidence, step, starts.get(record.id), facts)


def _dominant(record: Record, policy: Policy, room: Room, period_s: float) -> tuple[Kind, str]:
    """Find the one reason that matters most."""
    job, view = record.job, room.view
    kind, text = quick(record, room, None, 0.0)
    if kind == "too-few-gpus":
        return kind, text
    placer: Placer | None = getattr(policy, "placer", None)
    told = policy.why_wait(job, view)
    if placer is None:
        return "scattered", told
    if placer.place(job, view) is not None:
        first = view.waiting[0].job.id if view.waiting else record.id
        if first != record.id:
            return "behind-others", f"could start now, but stands behind {first}, which is first in the queue"
        return "period", f"starts when the policy decides next, which it does every {minutes(period_s)}"
    inner: Placer = getattr(placer, "placer", placer)
    if record.wish is not None and inner.place(job, view) is not None:
        return "wishes", told
    return "scattered", told


def _free_line(view: Snapshot) -> str:
    """Say where GPUs are free."""
    free = view.free
    some = [int(machine) for machine in (-free).argsort(kind="stable")[:3] if free[machine]]
    names = ", ".join(f"{free[machine]} on {view.cluster.machines[machine].name}" for machine in some)
    total = counted(int(free.sum()), "GPU")
    return f"{total} free on {counted(int((free > 0).sum()), 'machine')}" + (f": most {names}" if names else "")


def _soonest(record: Record, room: Room, stand: Stand) -> str:
    """Say which running job ends first that frees what is missing, or most of it."""
    view = room.view
    missing = record.job.gpus - room.free(record)
    records = stand.ledger.jobs
    known = [(end_s(running, records[job_id]), running) for job_id, running in view.running.items()]
    known = sorted(((end, running) for end, running in known if not math.isinf(end)), key=lambda pair: pair[0])
    if not known:
        return "no running job says when it ends" if view.running else ""
    end, running = next((pair for pair in known if pair[1].job.gpus >= missing), known[0])
    return f"{running.job.id} ends in about {minutes(end - view.now_s)} and frees {running.job.gpus}"


def _late(record: Record, start_s: float | None, now_s: float) -> str:
    """Say whether a deadline is in danger."""
    if record.spec.deadline_s is None:
        return ""
    due_s = record.submitted_s + record.spec.deadline_s
    end = max(start_s or now_s, now_s) + (record.spec.duration_s or 0.0)
    word = "will be missed" if end > due_s else "can still be kept"
    return f"its deadline is in {minutes(due_s - now_s)} and {word}"


def _next_step(kind: Kind, record: Record, policy: Policy, room: Room, stand: Stand) -> str:
    """Say what would help."""
    view = room.view
    if kind == "too-few-gpus":
        cluster = view.cluster
        down = [m for m in range(len(cluster.machines)) if not view.is_up(m) and view.is_idle(m)]
        if down:
            names = cluster.machines[down[0]].name
            return f"resume {names}, which takes no jobs: cranny resume {names}"
        free = room.free(record)
        if free and not record.job.least_gpus:
            fewer = f"{free} GPUs or fewer" if free > 1 else "1 GPU"
            return f"ask for {fewer}, or say least_gpus if the job can run with fewer"
        return "wait for running jobs to end, or cancel one"
    if kind == "behind-others":
        ahead = max((_priority(stand, each.job.id) for each in view.waiting[:100]), default=0)
        backfill = getattr(policy, "order", "") not in {"backfill", ""}
        step = f"submit it with a priority above {ahead}"
        return step + (", or let jobs pass: cranny policy set NAME --order backfill" if backfill else "")
    if kind == "wishes":
        return "leave out the wish that binds: wishes.same_rack or wishes.exclude"
    if kind == "period":
        return "wait; it is next"
    return "wait until machines come free as a whole, or try another policy: cranny plan shows where it would go"


def _priority(stand: Stand, job_id: str) -> int:
    records: Mapping[str, Record] = stand.ledger.jobs
    return records[job_id].spec.priority if job_id in records else 0


def largest_startable(stand: Stand, now_s: float) -> int:
    """Return the GPUs of the largest job that the policy would start if nobody else waited."""
    placer: Placer | None = getattr(stand.asked(), "placer", None)
    view = stand.state.snapshot(now_s)
    free = view.machines.gpus
    if placer is None or not free:
        return free

    def starts(gpus: int) -> bool:
        return placer.place(Job(id="what-if", gpus=gpus), view) is not None

    if starts(free):
        return free
    low, high = 0, free
    while high - low > 1:  # a policy that takes a job takes smaller ones too, or nearly so
        middle = (low + high) // 2
        low, high = (middle, high) if starts(middle) else (low, middle)
    return low
