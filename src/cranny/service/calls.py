"""Calls of other threads that the service loop handles, and their answers."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from cranny.model.errors import CrannyError

RETRY_S = 1.0  # before a report that could not be stored is retried; doubled each time
MAX_RETRY_S = 60.0
ROUND_S = 0.05  # calls within this time are stored together; readers wait no longer for the lock


class Call(NamedTuple):
    """Work for the scheduler, and the future of its result."""

    work: Callable[[float], Any]
    future: Future[Any]


CallResult = tuple[Call, Any, CrannyError | None]


def answer(results: Iterable[CallResult]) -> None:
    """Complete the futures of calls."""
    for call, value, problem in results:
        call.future.set_exception(problem) if problem is not None else call.future.set_result(value)


class CallQueue:
    """Calls in the order in which they came."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Call | None] = SimpleQueue()
        self._closed = False

    def put(self, call: Call | None) -> None:
        """Append a call; None ends the loop that handles them."""
        self._queue.put(call)

    def put_until_stored(
        self, work: Callable[[float], Any], faults: tuple[type[CrannyError], ...], after_s: float = RETRY_S
    ) -> None:
        """Append a fact: after a fault it is tried again, until its events are stored or the loop has ended."""
        future: Future[Any] = Future()

        def retry(done: Future[Any]) -> None:
            if isinstance(done.exception(), faults) and not self._closed:
                again = (work, faults, min(2 * after_s, MAX_RETRY_S))
                timer = threading.Timer(after_s, self.put_until_stored, again)
                timer.daemon = True
                timer.start()

        future.add_done_callback(retry)
        self.put(Call(work, future))

    def get(self, timeout_s: float) -> Call | None:
        """Return the next call; raise `Empty` if none comes in time."""
        return self._queue.get(timeout=timeout_s)

    def batch(self, call: Call) -> Iterator[Call]:
        """Yield a call and those queued behind it, as many as fit into one round."""
        until_s = time.perf_counter() + ROUND_S
        following: Call | None = call
        while following is not None:
            if following.future.set_running_or_notify_cancel():  # not cancelled by its caller
                yield following
            if time.perf_counter() >= until_s:
                return
            try:
                following = self._queue.get_nowait()
            except Empty:
                return
        self._queue.put(None)  # ends the loop after this round

    def close(self, error: CrannyError) -> None:
        """Fail all pending calls, and retry none."""
        self._closed = True
        self.refuse_all(error)

    def refuse_all(self, error: CrannyError) -> None:
        """Fail all pending calls."""
        while True:
            try:
                call = self._queue.get_nowait()
            except Empty:
                return
            if call is not None and call.future.set_running_or_notify_cancel():
                call.future.set_exception(error)
