"""The routes of jobs."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from cranny.model.errors import CrannyError, InputError
from cranny.model.plan import Start, Stop
from cranny.model.yaml_file import Fields
from cranny.service import serialize
from cranny.service.api.dependencies import (
    AdminCaller,
    AnyCaller,
    ServiceDep,
    UserCaller,
    answered,
    prepared,
    rights_of,
    visible_job,
)
from cranny.service.auth import Caller
from cranny.service.engines import Fork
from cranny.service.explain import Explanation, WaitContext, explain_wait, quick_reason
from cranny.service.job_record import STATUSES, JobRecord, Status
from cranny.service.job_spec import JobSpec
from cranny.service.limits import BusyError, ConflictError
from cranny.service.logged_placement import reasons
from cranny.service.logs import MAX_BYTES, read_log
from cranny.service.measured import recent_s
from cranny.service.predict import expected_end_s, predict_starts
from cranny.service.present import explain_running
from cranny.service.scheduler import PolicyError
from cranny.service.service import Service
from cranny.service.user_rights import check_quotas

router = APIRouter(prefix="/api/v1", tags=["jobs"])

MAX_PAGE = 1_000
MAX_PLANS = 4  # concurrent what-if requests, each of which may take as long as a decision

_plans = threading.BoundedSemaphore(MAX_PLANS)
Key = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


class Observation(Fields):
    """What another scheduler did with a job."""

    machines: list[str | int] | None = None
    ended: bool = False


@router.post("/jobs", status_code=201)
async def submit(
    spec: JobSpec, service: ServiceDep, caller: UserCaller, response: Response, key: Key = None
) -> Any:
    """Submit a job; repeated with the same key and body, it returns the same job."""
    value = spec.model_dump(mode="json", exclude_unset=True)
    if spec.is_resizable:
        chosen = service.scheduler.records.policy
        ready = await asyncio.to_thread(service.prepare, chosen, resizable=True)
        await prepared(chosen["name"], ready, "the request was not accepted")
    record, new = await answered(service, service.submit(caller.user, value, key, rights_of(service, caller)))
    if not new:
        response.status_code = 200
    return await asyncio.to_thread(_line, service, record)


@router.get("/jobs")
def jobs(
    service: ServiceDep,
    caller: AnyCaller,
    status: Annotated[list[Status] | None, Query()] = None,
    user: str | None = None,
    limit: Limit = 100,
    after: str | None = None,
    *,
    newest: bool = False,
) -> Any:
    """List jobs, a page at a time; with status=waiting only, in queue order."""
    owner = caller.user if caller.role == "user" else user
    wanted = frozenset(status or STATUSES)
    with service.lock:
        records = service.scheduler.records
        page: list[JobRecord] = []
        for record in _in_order(service, after, queue=wanted == {"waiting"}, newest=newest):
            if record.status in wanted and owner in (None, record.user):
                page.append(record)
                if len(page) > limit:
                    break
        if owner is None:
            total = sum(records.counts[each] for each in wanted)
        else:
            total = sum(each.status in wanted and each.user == owner for each in records.jobs.values())
        more = page[limit - 1].id if len(page) > limit else None
        lines = _lines(service, page[:limit])
    return {"jobs": lines, "next": more, "total": total}


def _in_order(service: Service, after: str | None, *, queue: bool, newest: bool) -> Iterator[JobRecord]:
    """Yield the jobs after one, in queue order or by number."""
    records = service.scheduler.records.jobs
    if after is not None and not service.scheduler.records.had(after):
        raise InputError(f"after: no job {after!r}")
    if queue:
        started = after is None or after not in records or records[after].status != "waiting"
        for waiting in service.scheduler.engine.queue:
            if started:
                yield records[waiting.job.id]
            started = started or waiting.job.id == after
        return
    number = int(after.removeprefix("job-")) if after is not None else 0
    # Jobs are in the order of their numbers; those that were over first are no longer in memory.
    for job_id, record in reversed(records.items()) if newest else records.items():
        found = int(job_id.removeprefix("job-"))
        if after is None or (found < number if newest else found > number):
            yield record


def _lines(service: Service, records: list[JobRecord]) -> list[Any]:
    """Return jobs with their reason to wait and predicted start; the caller holds the lock."""
    scheduler = service.scheduler
    starts: dict[str, float] = {}
    view = scheduler.engine.state.snapshot(service.now_s())
    context = WaitContext(view, scheduler.records)
    first = scheduler.engine.queue[0].job.id if scheduler.engine.queue else None
    if any(record.status == "waiting" for record in records):
        starts = predict_starts(service.fork(), view)
    lines = []
    for record in records:
        waits: tuple[str, str] = ("", "")
        if record.status == "waiting":
            waits = quick_reason(record, context, first, scheduler.engine.period_s)
        end = expected_end_s(record, view)
        lines.append(serialize.job(record, view, waits, starts.get(record.id), end))
    return lines


def _line(service: Service, record: JobRecord) -> Any:
    with service.lock:
        return _lines(service, [record])[0]


@router.get("/jobs/{job_id}")
def job(job_id: str, service: ServiceDep, caller: AnyCaller) -> Any:
    """Return all fields of a job; secrets in its environment are redacted."""
    with service.lock:
        record = visible_job(service, caller, job_id)
        return serialize.detail(record, service.scheduler.cluster, _line(service, record))


@router.post("/jobs/{job_id}/cancel")
async def cancel(job_id: str, service: ServiceDep, caller: UserCaller) -> Any:
    """Cancel a job; a running one is over when its processes have exited."""
    await asyncio.to_thread(visible_job, service, caller, job_id)
    asked = service.call(lambda now_s: service.scheduler.cancel(job_id, caller.user, now_s))
    return await asyncio.to_thread(_line, service, await answered(service, asked))


@router.get("/jobs/{job_id}/explain")
def explain(job_id: str, service: ServiceDep, caller: AnyCaller) -> Any:
    """Explain why a job was placed where it is, or why it waits, and what would help."""
    record = visible_job(service, caller, job_id)
    with service.lock:
        if record.status != "waiting":
            view = service.scheduler.engine.state.snapshot(service.now_s())
            return serialize.explanation(
                record, explain_running(record, view, service.reports.left.get(record.id, ()))
            )
        fork, now_s, period_s = service.fork(), service.now_s(), service.scheduler.engine.period_s
    return serialize.explanation(record, explain_wait(record, fork, now_s, period_s))


@router.get("/jobs/{job_id}/traffic")
def traffic(job_id: str, service: ServiceDep, caller: AnyCaller) -> Any:
    """Return the traffic between ranks in one iteration of a running job."""
    record = visible_job(service, caller, job_id)
    with service.lock:
        view = service.scheduler.engine.state.snapshot()
    if record.id not in view.running:
        raise ConflictError(f"{record.id} is not running")
    circles = serialize.shared_circles(record.id, view, partial(_pace, service))
    return {**serialize.job_traffic(record, view), "circles": circles}


def _pace(service: Service, job_id: str) -> serialize.RingPace:
    """Return what a job is asked to keep, and what it does."""
    with service.lock:
        attempt = service.scheduler.find(job_id).attempt
    if attempt is None:
        return serialize.UNKNOWN
    points = [point for point in service.reports.points(job_id) if point.attempt == attempt.number]
    return serialize.RingPace(attempt.pace, points[-1].paced if points else None, recent_s(points))


@router.get("/jobs/{job_id}/logs")
def logs(
    job_id: str,
    service: ServiceDep,
    caller: AnyCaller,
    rank: Annotated[int, Query(ge=0)] = 0,
    attempt: Annotated[int | None, Query(ge=1)] = None,
    offset: Annotated[int, Query(ge=-(2**62), le=2**62)] = 0,
    limit: Annotated[int, Query(ge=4, le=MAX_BYTES)] = 65_536,
) -> Any:
    """Return a part of the log of a rank; a negative offset counts from the end."""
    record = visible_job(service, caller, job_id)
    return read_log(service, record.id, rank, attempt, offset, limit)


@router.post("/jobs/{job_id}/observed")
async def observed(job_id: str, body: Observation, service: ServiceDep, caller: AdminCaller) -> Any:
    """Report to a recommend-only service where a job was started, or that it ended."""
    await asyncio.to_thread(visible_job, service, caller, job_id)
    observation = body.model_dump(exclude_none=True)
    asked = service.call(lambda now_s: service.scheduler.observe(job_id, observation, now_s))
    return await asyncio.to_thread(_line, service, await answered(service, asked))


@router.post("/plan")
def plan(spec: JobSpec, service: ServiceDep, caller: AnyCaller) -> Any:
    """Return what would happen to a job if it were submitted now; nothing is started or stored."""
    if not _plans.acquire(blocking=False):
        raise BusyError(f"limit of {MAX_PLANS} concurrent plans reached; retry")
    try:
        return _try_submit(spec, service, caller)
    finally:
        _plans.release()


def _try_submit(spec: JobSpec, service: Service, caller: Caller) -> Any:
    with service.lock:
        fork, now_s = service.fork(), service.now_s()
        cluster, period_s = service.scheduler.cluster, service.scheduler.engine.period_s
        rights, records = rights_of(service, caller), service.scheduler.records
        check_quotas(caller.user, spec, rights, service.limits, records)
        service.scheduler.check(spec, "what-if", caller.user, now_s)
    job, constraints = spec.job("what-if", caller.user, now_s), spec.constraints_on(cluster)
    record = JobRecord(job.id, caller.user, spec, job, constraints, now_s)
    tried = fork.engine(record)
    try:
        actions = tried.submit(record.job, now_s)
    except CrannyError as error:
        raise PolicyError(f"policy {fork.setting['name']}: {error}") from error
    would_stop = [action.job_id for action in actions if isinstance(action, Stop)]
    start = next((each for each in actions if isinstance(each, Start) and each.job.id == record.id), None)
    if start is None:
        why = explain_wait(record, Fork.of(tried, fork.records), now_s, period_s)
    else:
        lines = reasons(start.placement, record.id).splitlines()
        why = Explanation("placed", lines[0], lines[1:], "", now_s, start.placement.facts)
    shown = serialize.explanation(record, why)
    where = serialize.placement(start.placement, cluster) if start is not None else None
    return {"starts": start is not None, "explanation": shown, "would_stop": would_stop, "placement": where}
