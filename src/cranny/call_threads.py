"""Calls at the same time in threads of this process, for compiled work, during which other threads run.

Nothing is sent to other processes and back, which for a long trace takes more time and memory than its replay.
"""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self, TypeVar

from cranny.model.errors import CrannyError
from cranny.process_pool import LOOK_S, Call

T = TypeVar("T")
Ended = tuple[int, Any, BaseException | None]  # the number of a call, its result, what it raised


class NotNeededError(CrannyError):
    """Stops a call whose result is not needed any more."""

    def __init__(self) -> None:
        super().__init__("stopped: the result is not needed any more")


class CallThreads:
    """Threads that run calls until they are left; calls under way then stop where they call `proceed`.

    With one thread calls run in that of the caller.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._left = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._left.set()

    def proceed(self, _done: int = 0) -> None:
        """Raise if the threads were left, as by Ctrl-C: what the call does is not needed any more."""
        if self._left.is_set():
            raise NotNeededError

    def ended(self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]) -> Iterator[tuple[int, T]]:
        """Call `work` with each of the arguments; yield the number of a call and its result as they end."""
        if min(len(calls), self._threads) <= 1:
            for number, arguments in enumerate(calls):
                result = work(*arguments)
                _return_memory()
                yield number, result
            return
        waiting: deque[Call] = deque(enumerate(calls))
        ended: SimpleQueue[Ended] = SimpleQueue()
        for _ in range(min(self._threads, len(calls))):
            Thread(target=self._work, args=(work, waiting, ended), daemon=True).start()
        for _ in calls:
            number, result, error = _next(ended)
            if error is not None:
                raise error
            yield number, result

    def _work(self, work: Callable[..., Any], waiting: deque[Call], ended: "SimpleQueue[Ended]") -> None:
        """Run waiting calls until none is left."""
        while not self._left.is_set():
            try:
                number, arguments = waiting.popleft()
            except IndexError:
                return
            try:
                result = work(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised where the results are needed
                ended.put((number, None, error))
            else:
                _return_memory()
                ended.put((number, result, None))
                del result  # it belongs to the caller now


def _return_memory() -> None:
    """Return freed memory to the system: the C library keeps the arrays of a long replay, hundreds of MB."""
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)


def _next(ended: "SimpleQueue[Ended]") -> Ended:
    """Wait for the next call that ends, in steps, so that Ctrl-C is seen."""
    while True:
        try:
            return ended.get(timeout=LOOK_S)
        except Empty:
            continue
