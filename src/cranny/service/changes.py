"""Server-sent events: what changed, from the log, and what a rank writes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

from cranny.service.auth import Caller, UnknownCallerError
from cranny.service.limits import TooManyError
from cranny.service.logs import Reader
from cranny.service.loop import Service
from cranny.service.store import Row

KEEP_ALIVE_S = 15.0
AT_ONCE = 500  # events read together
MOST_LISTENERS = 500
FOLLOW_S = 0.3  # between two looks at a log


class Bell:
    """Wakes all who wait for new events; rung by the loop's thread."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.closed = False

    def ring(self) -> None:
        """Wake everybody."""
        for loop, event in list(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    def close(self) -> None:
        """Let everybody go."""
        self.closed = True
        self.ring()

    def listen(self) -> tuple[asyncio.AbstractEventLoop, asyncio.Event]:
        """Begin to listen."""
        if len(self._waiting) >= MOST_LISTENERS:
            raise TooManyError(f"{MOST_LISTENERS} already follow the changes")
        entry = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(entry)
        return entry

    def leave(self, entry: tuple[asyncio.AbstractEventLoop, asyncio.Event]) -> None:
        """Listen no more."""
        self._waiting.discard(entry)


def shown(row: Row, service: Service, caller: Caller) -> dict[str, Any]:
    """Return what a caller may see of an event; commands and environments are never part of it."""
    told: dict[str, Any] = {"seq": row.seq, "at_s": row.at_s, "kind": row.kind, "job": row.job}
    record = service.desk.ledger.jobs.get(row.job) if row.job is not None else None
    if record is not None and caller.role == "user" and caller.user != record.user:
        return told
    body = {name: value for name, value in row.body.items() if name in _SHOWN}
    if row.kind == "submitted" and record is not None:
        body |= {"gpus": record.job.gpus, "name": record.spec.name, "user": record.user}
    if "placement" in row.body:
        machines = service.desk.cluster.machines
        where = dict.fromkeys(row.body["placement"]["machines"])
        body["machines"] = [machines[machine].name for machine in where]
    return told | body


_SHOWN = frozenset(
    ("attempt", "outcome", "exit_code", "status", "reason", "by", "machine", "name", "order", "period_s", "mode")
) | {"shift_s", "saved", "ended"}


def frame(data: object, event: str, number: int | None = None) -> str:
    """Write one server-sent event."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n"


async def changes(
    service: Service, bell: Bell, known: Callable[[], Caller], after: int, *, follow: bool, limit: int
) -> AsyncIterator[str]:
    """Yield what happened after an event, and then what happens, as long as the one who asked is known."""

    def read(most: int) -> tuple[Caller, list[Row]]:
        return known(), list(service.store.read(after, most))

    entry = bell.listen()
    try:
        yield ": cranny\n\n"
        while not bell.closed:
            entry[1].clear()
            try:
                caller, rows = await run_in_threadpool(read, min(limit, AT_ONCE))
            except UnknownCallerError:  # logged out, or the token was revoked
                return
            for row in rows:
                after = row.seq
                yield frame(shown(row, service, caller), row.kind, row.seq)
            limit -= 0 if follow else len(rows)
            if rows and limit > 0:
                continue
            if not follow:
                return
            try:
                await asyncio.wait_for(entry[1].wait(), KEEP_ALIVE_S)
            except TimeoutError:
                yield ": still here\n\n"
    finally:
        bell.leave(entry)


async def follow_log(reader: Reader, bell: Bell, known: Callable[[], Caller], offset: int) -> AsyncIterator[str]:
    """Yield what a rank writes until its job is over, as long as the one who asked is known."""

    def read() -> dict[str, Any]:
        known()
        return reader.read(offset)

    while not bell.closed:
        try:
            part = await run_in_threadpool(read)
        except UnknownCallerError:
            return
        if part["text"]:
            offset = part["next_offset"]
            yield frame({"text": part["text"], "next_offset": offset}, "text")
            continue
        if part["ended"]:
            yield frame({"next_offset": offset}, "end")
            return
        await asyncio.sleep(FOLLOW_S)
