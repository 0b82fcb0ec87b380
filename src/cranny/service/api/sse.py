"""Server-sent events: what changed, from the log."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool

from cranny.service.auth import Caller, UnauthenticatedError
from cranny.service.limits import BusyError
from cranny.service.service import Service
from cranny.service.store import EventRow, StoreError

KEEP_ALIVE_S = 15.0
AT_ONCE = 500  # events read together
MAX_SUBSCRIBERS = 500

_log = logging.getLogger("cranny.service")


class EventNotifier:
    """Wakes all who wait for new events; rung by the loop's thread."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.AbstractEventLoop, set[asyncio.Event]] = {}
        self.closed = False

    def ring(self) -> None:
        """Wake everybody."""
        for loop in list(self._waiting):
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        for event in self._waiting.get(loop, ()):
            event.set()

    def close(self) -> None:
        """Let everybody go."""
        self.closed = True
        self.ring()

    def check_capacity(self) -> None:
        """Refuse one more listener if there are too many; to be asked before a stream begins."""
        if sum(map(len, self._waiting.values())) >= MAX_SUBSCRIBERS:
            raise BusyError(f"{MAX_SUBSCRIBERS} already follow the changes; try again later")

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Listen for a while."""
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.setdefault(loop, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[loop].discard(event)
            if not self._waiting[loop]:
                del self._waiting[loop]


def shown(row: EventRow, service: Service, caller: Caller) -> dict[str, Any]:
    """Return what a caller may see of an event; commands and environments are never part of it."""
    told: dict[str, Any] = {"seq": row.seq, "at_s": row.at_s, "kind": row.kind, "job": row.job}
    record = service.scheduler.records.jobs.get(row.job) if row.job is not None else None
    if record is not None and caller.role == "user" and caller.user != record.user:
        return told
    body = {name: value for name, value in row.body.items() if name in _SHOWN}
    if row.kind == "submitted" and record is not None:
        body |= {"gpus": record.job.gpus, "name": record.spec.name, "user": record.user}
    machines = service.scheduler.cluster.machines
    if "machine" in row.body:
        body["name"] = machines[row.body["machine"]].name
    if "placement" in row.body:
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


def at_hand(service: Service, after: int, most: int) -> list[EventRow] | None:
    """Return the events after one if all of them are still in memory; None if the database must be asked."""
    recent = list(service.recent)
    if after >= service.stored:
        return []
    if not recent or recent[0].seq > after + 1:
        return None
    return recent[after + 1 - recent[0].seq :][:most]


def _read(service: Service, after: int, most: int) -> list[EventRow]:
    return list(service.store.read(after, most))


async def changes(
    service: Service,
    notifier: EventNotifier,
    known: Callable[[], Awaitable[Caller]],
    after: int,
    *,
    follow: bool,
    limit: int,
) -> AsyncIterator[str]:
    """Yield what happened after an event, and then what happens, as long as the one who asked is known."""
    with notifier.listening() as event:
        yield ": cranny\n\n"
        while not notifier.closed:
            event.clear()
            most = min(limit, AT_ONCE)
            try:
                caller = await known()
                rows = at_hand(service, after, most)
                if rows is None:
                    rows = await run_in_threadpool(_read, service, after, most)
            except UnauthenticatedError:  # logged out, or the token was revoked
                return
            except StoreError as error:  # a browser asks again, from where it was
                _log.error("%s", error)
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
                await asyncio.wait_for(event.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                yield ": still here\n\n"
