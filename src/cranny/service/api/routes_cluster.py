"""The routes of the cluster: machines, links, policy, recommendations and events."""

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from cranny.core.queue import ORDERS
from cranny.model.collective import COLLECTIVES
from cranny.model.placement import Placement
from cranny.model.profile import library
from cranny.model.yaml_file import Fields, Name
from cranny.policies import TABLE
from cranny.service import serialize
from cranny.service.api.dependencies import AdminCaller, AnyCaller, ServiceDep, answered, prepared, still_known
from cranny.service.api.sse import EventNotifier, changes
from cranny.service.job_record import STATUSES
from cranny.service.machine_lookup import find_machine
from cranny.service.service import Service

router = APIRouter(prefix="/api/v1", tags=["cluster"])

MAX_POINTS = 1_000
MAX_NODES = 10_000


class PolicyRequest(Fields):
    """A policy setting."""

    name: Name
    order: Name | None = None
    period_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


@router.get("/me")
def me(caller: AnyCaller) -> Any:
    """Return user and role of the caller."""
    return {"user": caller.user, "role": caller.role}


@router.get("/cluster")
def cluster(request: Request, service: ServiceDep, _caller: AnyCaller) -> Any:
    """Return a summary of the cluster."""
    with service.lock:
        scheduler = service.scheduler
        state, records = scheduler.engine.state, scheduler.records
        summary = {
            "name": scheduler.cluster.name,
            "description": scheduler.cluster.describe(),
            "machines": len(scheduler.cluster.machines),
            "gpus": scheduler.cluster.gpus,
            "free_gpus": int(state.free.sum()),
            "held_gpus": state.held_gpus,
            "used_machines": state.used_machines,
            "fragmentation": state.fragmentation,
            "mode": scheduler.mode,
            "policy": _policy(service),
            "counts": {status: records.counts[status] for status in STATUSES},
            "source": None if service.watch is None else service.watch.status,
            "seq": service.stored,
            "now_s": service.now_s(),
        }
    return {**summary, "largest_startable_gpus": request.app.state.metrics.largest()}


@router.get("/history")
def history(
    service: ServiceDep, _caller: AnyCaller, minutes: Annotated[float, Query(gt=0, le=100_000)] = 60.0
) -> Any:
    """Return the utilization of the cluster over time."""
    with service.lock:
        now_s = service.now_s()
        points = service.scheduler.history.since(now_s - minutes * 60, MAX_POINTS)
    gpus = service.scheduler.cluster.gpus
    return {"gpus": gpus, "points": [{**point._asdict(), "gpus": point.gpus or gpus} for point in points]}


@router.get("/links")
def links(service: ServiceDep, _caller: AnyCaller) -> Any:
    """Return the load of all links."""
    with service.lock:
        view = service.scheduler.engine.state.snapshot()
    return {"links": serialize.links(view)}


@router.get("/nodes")
def nodes(
    service: ServiceDep,
    _caller: AnyCaller,
    limit: Annotated[int, Query(ge=1, le=MAX_NODES)] = 1_000,
    after: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Any:
    """List machines and the jobs that hold their GPUs, a page at a time."""
    total = len(service.scheduler.cluster.machines)
    first = min(after + 1, total) if after is not None else 0
    past = min(first + limit, total)
    return {"nodes": _nodes(service, first, past), "next": past - 1 if past < total else None, "total": total}


@router.post("/nodes/{name}/drain")
async def drain(name: str, service: ServiceDep, caller: AdminCaller) -> Any:
    """Place no more jobs on a machine; those on it keep running."""
    return await _set_up(service, name, caller.user, up=False)


@router.post("/nodes/{name}/resume")
async def resume(name: str, service: ServiceDep, caller: AdminCaller) -> Any:
    """Place jobs on a machine again."""
    return await _set_up(service, name, caller.user, up=True)


async def _set_up(service: Service, name: str, by: str, *, up: bool) -> Any:
    scheduler = service.scheduler
    change = scheduler.resume if up else scheduler.drain
    await answered(service, service.call(lambda now_s: change(find_machine(scheduler.cluster, name), by, now_s)))
    machine = find_machine(scheduler.cluster, name)
    return (await asyncio.to_thread(_nodes, service, machine, machine + 1))[0]


def _nodes(service: Service, first: int, past: int) -> list[Any]:
    with service.lock:
        view = service.scheduler.engine.state.snapshot()
        return serialize.nodes(view, service.scheduler.records, first, min(past, len(view.cluster.machines)))


@router.get("/policy")
def policy(service: ServiceDep, _caller: AnyCaller) -> Any:
    """Return the policy setting."""
    with service.lock:
        return _policy(service)


def _policy(service: Service) -> Any:
    setting = service.scheduler.records.policy
    entry = TABLE[setting["name"]]
    shown = {name: setting[name] for name in ("name", "order", "period_s", "options")}
    return {**shown, "about": entry.about, "paper": entry.paper}


@router.put("/policy")
async def set_policy(body: PolicyRequest, service: ServiceDep, caller: AdminCaller) -> Any:
    """Switch to another policy."""
    setting = body.model_dump()
    ready = await asyncio.to_thread(service.prepare, setting)
    await prepared(setting["name"], ready, "the policy was not changed yet")
    await answered(service, service.set_policy(setting, caller.user))
    return await asyncio.to_thread(policy, service, caller)


@router.get("/policies")
def policies(_caller: AnyCaller) -> Any:
    """List the policies and queue orders."""
    found = {name: {"about": each.about, "paper": each.paper, "order": each.order} for name, each in TABLE.items()}
    return {"policies": found, "orders": ORDERS}


@router.get("/models")
def models(_caller: AnyCaller) -> Any:
    """List the models and collectives that a job may name."""
    return {"models": sorted(library()), "collectives": sorted(COLLECTIVES)}


@router.get("/recommendations")
def recommendations(
    service: ServiceDep, _caller: AnyCaller, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> Any:
    """Return the recommendations of a recommend-only service, latest last, and what they would have saved."""
    with service.lock:
        records = service.scheduler.records
        known = [each for job, each in records.recommended.items() if records.jobs[job].status != "cancelled"]
        latest = sorted(known, key=lambda each: each["seq"])[-limit:]
        saved = dict(records.saved)
    built = service.scheduler.cluster
    shown = [{**each, "placement": serialize.placement(Placement(**each["placement"]), built)} for each in latest]
    return {"recommendations": shown, "saved": saved}


@router.get("/events")
async def events(
    request: Request,
    service: ServiceDep,
    caller: AnyCaller,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
    last: Annotated[str | None, Header(alias="Last-Event-ID", max_length=20)] = None,
    *,
    follow: bool = True,
) -> StreamingResponse:
    """Stream the event log as server-sent events, from now on or after an event."""
    start = service.stored
    if last is not None and last.isdecimal():
        start = int(last)
    elif after is not None:
        start = after
    notifier: EventNotifier = request.app.state.notifier
    notifier.check_capacity(caller.user)
    known = partial(still_known, request)
    stream = changes(service, notifier, known, start, user=caller.user, follow=follow, limit=limit)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
