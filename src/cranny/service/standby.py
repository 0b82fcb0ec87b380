"""Waits for the database and for the writer lock that another service holds: a standby takes over from it."""

import time
from collections.abc import Callable

from cranny.service.store import EventStore
from cranny.service.writer_lock import OtherWriterError, UnavailableError

PAUSE_S = 0.5  # between two tries; PostgreSQL itself waits for the lock for a second


def open_as_writer(url: str, say: Callable[[str], None]) -> EventStore:
    """Open a database and acquire its writer lock; with PostgreSQL, wait for both and say so.

    Disk space is reserved for what must be stored.
    """
    store = _opened(url, say)
    waits = store.engine.dialect.name == "postgresql"
    waiting = ""
    while True:
        try:
            store.acquire()
        except (OtherWriterError, UnavailableError) as error:
            if not waits or store.ended:
                store.close()
                raise
            text = f"{error}; on standby until it ends" if isinstance(error, OtherWriterError) else str(error)
            if text != waiting:
                say(text)
            waiting = text
            time.sleep(PAUSE_S)
        except BaseException:
            store.close()
            raise
        else:
            if waiting:
                say("taking over")
            store.reserve.keep()
            return store


def _opened(url: str, say: Callable[[str], None]) -> EventStore:
    """Open a database; wait for a server that is down."""
    waiting = ""
    while True:
        try:
            return EventStore(url)
        except UnavailableError as error:
            if str(error) != waiting:
                say(f"{error}; waiting for it")
            waiting = str(error)
            time.sleep(PAUSE_S)
