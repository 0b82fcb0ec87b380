"""The routes about machines, links, the policy and what changes."""

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import Field

from cranny.core.queue import ORDERS
from cranny.model.collective import COLLECTIVES
from cranny.model.fields import Fields, Name
from cranny.model.profile import library
from cranny.policies import TABLE
from cranny.service import serialize
from cranny.service.api.dependencies import AnAdmin, Anyone, Serving, still_known
from cranny.service.api.request_timeout import answered, prepared
from cranny.service.api.sse import Bell, changes
from cranny.service.job_records import STATUSES, placement_of
from cranny.service.service import Service

router = APIRouter(prefix="/api/v1", tags=["cluster"])

MOST_POINTS = 1_000
MOST_NODES = 10_000


class PolicyFields(Fields):
    """A choice of policy."""

    name: Name
    order: Name | None = None
    period_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)


@router.get("/me")
def me(caller: Anyone) -> Any:
    """Say who you are."""
    return {"user": caller.user, "role": caller.role}


@router.get("/cluster")
def cluster(request: Request, service: Serving, _caller: Anyone) -> Any:
    """Show the whole at a glance."""
    with service.lock:
        desk = service.desk
        state, ledger = desk.engine.state, desk.ledger
        told = {
            "name": desk.cluster.name,
            "description": desk.cluster.describe(),
            "machines": len(desk.cluster.machines),
            "gpus": desk.cluster.gpus,
            "free_gpus": int(state.free.sum()),
            "held_gpus": state.held_gpus,
            "used_machines": state.used_machines,
            "fragmentation": state.fragmentation,
            "mode": desk.mode,
            "policy": _policy(service),
            "counts": {status: ledger.counts[status] for status in STATUSES},
            "seq": service.stored,
            "now_s": service.now_s(),
        }
    return {**told, "largest_startable_gpus": request.app.state.gauges.largest()}


@router.get("/history")
def history(service: Serving, _caller: Anyone, minutes: Annotated[float, Query(gt=0, le=100_000)] = 60.0) -> Any:
    """Show how full the cluster was."""
    with service.lock:
        now_s = service.now_s()
        points = service.history.since(now_s - minutes * 60, MOST_POINTS)
    return {"gpus": service.desk.cluster.gpus, "points": [point._asdict() for point in points]}


@router.get("/links")
def links(service: Serving, _caller: Anyone) -> Any:
    """Show what links carry."""
    with service.lock:
        view = service.desk.engine.state.snapshot()
    return {"links": serialize.links(view)}


@router.get("/nodes")
def nodes(
    service: Serving,
    _caller: Anyone,
    limit: Annotated[int, Query(ge=1, le=MOST_NODES)] = 1_000,
    after: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Any:
    """List machines and who holds their GPUs, a page at a time."""
    with service.lock:
        view, drained = service.desk.engine.state.snapshot(), set(service.desk.ledger.drained)
    total = len(view.cluster.machines)
    first = min(after + 1, total) if after is not None else 0
    past = min(first + limit, total)
    return {
        "nodes": serialize.nodes(view, drained, first, past),
        "next": past - 1 if past < total else None,
        "total": total,
    }


@router.post("/nodes/{name}/drain")
async def drain(name: str, service: Serving, caller: AnAdmin) -> Any:
    """Give a machine no more jobs; those on it go on."""
    return await _turn(service, name, caller.user, up=False)


@router.post("/nodes/{name}/resume")
async def resume(name: str, service: Serving, caller: AnAdmin) -> Any:
    """Give a machine jobs again."""
    return await _turn(service, name, caller.user, up=True)


async def _turn(service: Service, name: str, by: str, *, up: bool) -> Any:
    machine = service.desk.machine(name)
    change = service.desk.resume if up else service.desk.drain
    await answered(service, service.ask(lambda now_s: change(machine, by, now_s)))
    return await asyncio.to_thread(_node, service, machine)


def _node(service: Service, machine: int) -> Any:
    with service.lock:
        view, drained = service.desk.engine.state.snapshot(), set(service.desk.ledger.drained)
    return serialize.nodes(view, drained, machine, machine + 1)[0]


@router.get("/policy")
def policy(service: Serving, _caller: Anyone) -> Any:
    """Show which policy decides."""
    with service.lock:
        return _policy(service)


def _policy(service: Service) -> Any:
    setting = service.desk.ledger.policy
    entry = TABLE[setting["name"]]
    shown = {name: setting[name] for name in ("name", "order", "period_s", "options")}
    return {**shown, "about": entry.about, "paper": entry.paper}


@router.put("/policy")
async def set_policy(body: PolicyFields, service: Serving, caller: AnAdmin) -> Any:
    """Let another policy decide from now on."""
    setting = body.model_dump()
    await prepared(setting["name"], await asyncio.to_thread(service.prepare, setting))
    await answered(service, service.set_policy(setting, caller.user))
    return await asyncio.to_thread(policy, service, caller)


@router.get("/policies")
def policies(_caller: Anyone) -> Any:
    """List the policies and queue orders."""
    told = {name: {"about": each.about, "paper": each.paper, "order": each.order} for name, each in TABLE.items()}
    return {"policies": told, "orders": ORDERS}


@router.get("/models")
def models(_caller: Anyone) -> Any:
    """List the models and collectives that a job may name."""
    return {"models": sorted(library()), "collectives": sorted(COLLECTIVES)}


@router.get("/recommendations")
def recommendations(service: Serving, _caller: Anyone, limit: Annotated[int, Query(ge=1, le=1_000)] = 100) -> Any:
    """Show what a service that only recommends would do, latest last, and what that would have saved."""
    with service.lock:
        ledger = service.desk.ledger
        known = [each for job, each in ledger.recommended.items() if ledger.jobs[job].status != "cancelled"]
        latest = sorted(known, key=lambda each: each["seq"])[-limit:]
        saved = dict(ledger.saved)
    built = service.desk.cluster
    told = [{**each, "placement": serialize.placement(placement_of(each["placement"]), built)} for each in latest]
    return {"recommendations": told, "saved": saved}


@router.get("/events")
async def events(
    request: Request,
    service: Serving,
    _caller: Anyone,
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 1_000,
    last: Annotated[str | None, Header(alias="Last-Event-ID", max_length=20)] = None,
    *,
    follow: bool = True,
) -> StreamingResponse:
    """Follow all changes as server-sent events, from now on or after an event."""
    start = service.stored
    if last is not None and last.isdecimal():
        start = int(last)
    elif after is not None:
        start = after
    bell: Bell = request.app.state.bell
    bell.check_room()
    stream = changes(service, bell, partial(still_known, request), start, follow=follow, limit=limit)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
