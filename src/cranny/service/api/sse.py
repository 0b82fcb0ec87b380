"""Server-sent events: the event log as a stream."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.concurrency import run_in_threadpool

from cranny.service.auth import Caller, UnauthenticatedError
from cranny.service.event_chain import EventRow
from cranny.service.job_record import Attempt, JobRecord
from cranny.service.limits import BusyError
from cranny.service.service import Service
from cranny.service.writer_lock import StoreError

KEEP_ALIVE_S = 15.0
PAGE = 500  # events read at a time
MAX_SUBSCRIBERS = 500
MAX_PER_USER = 100  # event streams

_log = logging.getLogger("cranny.service")


class EventNotifier:
    """Wakes event streams when events were stored; notified by the thread of the service loop."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._of_user: Counter[str] = Counter()
        self.closed = False

    def notify(self) -> None:
        """Wake all streams."""
        for loop in {loop for loop, _ in list(self._waiting)}:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._wake, loop)

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        for waits_in, event in self._waiting:
            if waits_in is loop:
                event.set()

    def close(self) -> None:
        """End all streams."""
        self.closed = True
        self.notify()

    def check_capacity(self, user: str) -> None:
        """Refuse one more stream if there are too many, or too many of a user; to be called before it begins."""
        if len(self._waiting) >= MAX_SUBSCRIBERS:
            raise BusyError(f"limit of {MAX_SUBSCRIBERS} event streams reached; retry later")
        if self._of_user[user] >= MAX_PER_USER:
            raise BusyError(f"{user} has {MAX_PER_USER} event streams, the limit; close some")

    @contextmanager
    def subscribe(self, user: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set when new events were stored."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(entry)
        self._of_user[user] += 1
        try:
            yield entry[1]
        finally:
            self._waiting.discard(entry)
            self._of_user[user] -= 1


def shown(row: EventRow, service: Service, caller: Caller) -> dict[str, Any]:
    """Return the fields of an event that a caller may see; commands and environments are never among them."""
    public: dict[str, Any] = {"seq": row.seq, "at_s": row.at_s, "kind": row.kind, "job": row.job}
    if row.kind == "audit":  # for administrators only
        return public | row.body if caller.role == "admin" else public
    record = service.scheduler.records.jobs.get(row.job) if row.job is not None else None
    if row.job is not None and caller.role == "user" and (record is None or caller.user != record.user):
        return public  # of another user, or of a job that is no longer in memory
    body = {name: value for name, value in row.body.items() if name in _SHOWN}
    if row.kind == "submitted" and record is not None:
        body |= {"gpus": record.job.gpus, "name": record.spec.name, "user": record.user}
    machines = service.scheduler.cluster.machines
    if "machine" in row.body and "name" not in body and row.body["machine"] < len(machines):
        body["name"] = machines[row.body["machine"]].name
    if "placement" in row.body:
        of = next((each.cluster for each in _attempts(record) if each.number == row.body.get("attempt")), None)
        names = machines if of is None else of.machines
        where = dict.fromkeys(row.body["placement"]["machines"])
        body["machines"] = [names[machine].name for machine in where if machine < len(names)]
    return public | body


def _attempts(record: JobRecord | None) -> list[Attempt]:
    return [] if record is None else record.attempts


def audited(row: EventRow, service: Service) -> dict[str, Any]:
    """Return an event for an auditor: what was done, and by whom."""
    event = shown(row, service, Caller("", "admin"))
    reason = str(row.body.get("reason", ""))
    by = reason.removeprefix("cancelled by ") if row.kind == "stopping" else event.get("by", "")
    return {"action": row.kind, **event, "by": by}


_SHOWN = frozenset(
    ("attempt", "outcome", "exit_code", "status", "reason", "by", "machine", "name", "order", "period_s", "mode")
) | {"shift_s", "saved", "ended", "change", "unavailable", "failed"}


def frame(data: object, event: str, number: int | None = None) -> str:
    """Return one server-sent event as text."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n"


def in_memory(service: Service, after: int, most: int) -> list[EventRow] | None:
    """Return the events after one if all are still in memory; None if the database must be read."""
    recent = list(service.recent)
    if after >= service.stored:
        return []
    if not recent or recent[0].seq > after + 1:
        return None
    return recent[after + 1 - recent[0].seq :][:most]


async def changes(
    service: Service,
    notifier: EventNotifier,
    known: Callable[[], Awaitable[Caller]],
    after: int,
    *,
    user: str,
    follow: bool,
    limit: int,
) -> AsyncIterator[str]:
    """Yield the events after one, and then new ones as long as the caller stays authenticated."""
    with notifier.subscribe(user) as event:
        yield ": cranny\n\n"
        while not notifier.closed:
            event.clear()
            most = min(limit, PAGE)
            try:
                caller = await known()
                rows = in_memory(service, after, most)
                if rows is None:
                    rows = await run_in_threadpool(list, service.store.read(after, most))
            except UnauthenticatedError:  # logged out, or the token was revoked
                return
            except StoreError as error:  # clients reconnect from the last event they have
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
