"""How requests wait for the loop: not for ever, and with nothing done that nobody is told of."""

import asyncio
from concurrent.futures import Future
from typing import TypeVar

from cranny.service.limits import BusyError
from cranny.service.service import Service

BEGIN_S = 10.0  # in which work must have begun, or whoever asked is told to ask again

T = TypeVar("T")


async def answered(service: Service, asked: "Future[T]") -> T:
    """Wait for an answer of the loop; work that it has not begun in time is taken back."""
    answer = asyncio.wrap_future(asked)
    await asyncio.wait({answer}, timeout=BEGIN_S)
    if not answer.done() and asked.cancel():
        raise BusyError(f"{service.why_not_ready or 'there is much to do'}; nothing has been done, try again")
    return await answer


async def prepared(name: str, ready: "Future[None]") -> None:
    """Wait until a policy is ready to decide; it goes on getting so if that takes long."""
    _, late = await asyncio.wait({asyncio.wrap_future(ready)}, timeout=BEGIN_S)
    if late:
        raise BusyError(f"policy {name} is being prepared, nothing has changed yet; try again")
