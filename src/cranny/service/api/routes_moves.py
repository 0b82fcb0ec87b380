"""The routes of moves: which running jobs should move, and moving them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from cranny.model.yaml_file import Fields
from cranny.policies.cranny.moves import MARGIN, MoveGroup, facts
from cranny.service import made_moves
from cranny.service.api.dependencies import AdminCaller, AnyCaller, AuditDep, ServiceDep, answered
from cranny.service.limits import BusyError
from cranny.service.movable_jobs import movable_jobs
from cranny.service.service import Service

router = APIRouter(prefix="/api/v1", tags=["cluster"])

MAX_PRICE = 1e6
MAX_MARGIN = 1e6

_searching = threading.BoundedSemaphore(1)  # a search may take a second


class MoveRequest(Fields):
    """Which moves to make."""

    margin: Annotated[float, Field(ge=0, le=MAX_MARGIN, allow_inf_nan=False)] = MARGIN
    price_per_gpu_hour: Annotated[float, Field(ge=0, le=MAX_PRICE, allow_inf_nan=False)] = 1.0


@router.get("/moves")
def moves(
    service: ServiceDep,
    _caller: AnyCaller,
    margin: Annotated[float, Query(ge=0, le=MAX_MARGIN, allow_inf_nan=False)] = MARGIN,
    price_per_gpu_hour: Annotated[float, Query(ge=0, le=MAX_PRICE, allow_inf_nan=False)] = 1.0,
) -> Any:
    """Return moves of running jobs that save more than their restarts cost; only jobs that allow it move."""
    return facts(_found(service, margin), service.scheduler.cluster, price_per_gpu_hour)


@router.post("/moves")
async def make_moves(body: MoveRequest, service: ServiceDep, audit: AuditDep, caller: AdminCaller) -> Any:
    """Find the moves of running jobs that pay now, and make them."""
    found = await asyncio.to_thread(_found, service, body.margin)
    if found:
        await answered(service, service.call(lambda now_s: made_moves.make_moves(service.scheduler, found, now_s)))
        audit.record("moves-made", caller.user, jobs=[move.job_id for group in found for move in group.moves])
    return facts(found, service.scheduler.cluster, body.price_per_gpu_hour)


def _found(service: Service, margin: float) -> list[MoveGroup]:
    with _one_search():
        return movable_jobs(service, margin).find()


@contextmanager
def _one_search() -> Iterator[None]:
    if not _searching.acquire(timeout=1.0):
        raise BusyError("moves are being searched for already; retry")
    try:
        yield
    finally:
        _searching.release()
