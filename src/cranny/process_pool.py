"""Calls at the same time in processes of this machine: the only place that starts any for a simulation."""

import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, connection, current_process, get_context, parent_process
from threading import Event, Thread, current_thread, main_thread
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from cranny.model.errors import CrannyError

T = TypeVar("T")
# How long to wait before looking for Ctrl-C: polars makes the system restart a wait that Ctrl-C has interrupted,
# so that one without an end would not be interrupted at all.
LOOK_S = 0.1
Call = tuple[int, tuple[Any, ...]]  # its number, and its arguments
_shared: list[Any] = []  # in a worker process: arguments of all its calls, which it got once


class DiedError(CrannyError):
    """A process ended before its work did."""

    def __init__(self) -> None:
        super().__init__(
            "a process died: perhaps for lack of memory, or because the script that calls cranny"
            " has no `if __name__ == '__main__':`"
        )


class WorkerPool:
    """Processes that run calls until the pool is left; with one process, calls run in this one.

    Every call gets the arguments `shared` after its own; they are sent to each process once. A process ends after
    `calls_per_process` calls, for those that leave much memory behind. When the pool is left by an error, as by
    Ctrl-C, its processes are killed: what they do is not needed any more.
    """

    def __init__(
        self, processes: int | None = None, *, shared: Sequence[Any] = (), calls_per_process: int | None = None
    ) -> None:
        self._processes = processes or os.cpu_count() or 1
        self._shared = tuple(shared)
        self._calls_per_process = calls_per_process
        self._executor: ProcessPoolExecutor | None = None
        self._others = set(active_children())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._executor is not None:
            if error is not None:  # interrupted, or the rest is not needed
                for child in set(active_children()) - self._others:
                    child.kill()
            self._executor.shutdown(cancel_futures=True)

    def ended(
        self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, T | DiedError]]:
        """Call `work` with each of the arguments; yield the number of a call and its result as they end.

        When a process dies, the calls that were under way in others are lost with it, and which one was to blame
        is unknown; so they run again, one at a time, and the result of one that ends its process is a `DiedError`.
        """
        if min(len(calls), self._processes) <= 1:
            for number, arguments in enumerate(calls):
                yield number, work(*arguments, *self._shared)
            return
        waiting: deque[Call] = deque(enumerate(calls))
        while waiting:
            for suspect in (yield from self._until_one_dies(work, waiting, self._processes)):
                if (yield from self._until_one_dies(work, deque([suspect]), 1)):
                    yield suspect[0], DiedError()

    def _until_one_dies(
        self, work: Callable[..., T], waiting: deque[Call], at_once: int
    ) -> Generator[tuple[int, T], None, list[Call]]:
        """Run waiting calls until none is left or a process dies; return those that were under way then."""
        under_way: dict[Future[T], Call] = {}
        executor = self._ready()  # made before Ctrl-C is held back: making it lets Ctrl-C through again
        try:
            while waiting or under_way:
                # No more at once than there are processes, so that few run again if one dies.
                with _interrupts_held():
                    while waiting and len(under_way) < at_once:
                        submitted = executor.submit(_call, work, waiting[0][1])
                        under_way[submitted] = waiting.popleft()
                ended, _ = wait(under_way, timeout=LOOK_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    result = future.result()  # raises at once what the call raised
                    yield under_way.pop(future)[0], result
        except BrokenProcessPool:
            executor.shutdown()
            self._executor = None
            return list(under_way.values())
        return []

    def _ready(self) -> ProcessPoolExecutor:
        """Return what starts processes, made anew after one has died."""
        if self._executor is None:
            # In a process that a script without guard made, which runs the script again.
            if getattr(current_process(), "_inheriting", False):
                raise SystemExit(1)
            # Spawned, not forked: polars runs threads, which do not survive a fork.
            self._executor = ProcessPoolExecutor(
                self._processes,
                get_context("spawn"),
                _begin,
                self._shared,
                max_tasks_per_child=self._calls_per_process,
            )
        return self._executor


class Pool(Protocol):
    """What runs calls at the same time: processes of this machine, or other machines."""

    def ended(
        self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, T | CrannyError]]:
        """Yield the number of a call and its result as they end, or an error where a call was lost."""


def run_calls(
    pool: Pool,
    work: Callable[..., T],
    calls: Sequence[tuple[Any, ...]],
    progress: Callable[[int], None] | None = None,
    *,
    lost: Callable[[CrannyError], T] | None = None,
    ended: Callable[[int, T], None] | None = None,
) -> list[T]:
    """Call `work` with each of the arguments; return the results in their order.

    What a call raises is raised at once, as is the loss of a call, unless `lost` makes a result of it. `progress`
    is called with the number of calls that have ended, and `ended` with the number of each and its result.
    """
    results: dict[int, T] = {}
    for number, result in pool.ended(work, calls):
        if isinstance(result, CrannyError):
            if lost is None:
                raise result
            results[number] = lost(result)
        else:
            results[number] = result
        if progress is not None:
            progress(len(results))
        if ended is not None:
            ended(number, results[number])
    return [results[number] for number in range(len(calls))]


def _call(work: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return work(*arguments, *_shared)


def _begin(*shared: Any) -> None:
    """Prepare a process: Ctrl-C ends it silently, since the process that started it reports to the user."""
    _shared[:] = shared
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended: it would be an orphan."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back while processes of a pool start: from them, and from what starts them.

    The processes inherit that this thread does not take the signal. Another thread, such as one of polars, may
    take it all the same, and Python would then interrupt this one.
    """
    handler = signal.getsignal(signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    if current_thread() is not main_thread() or not callable(handler):
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    pressed = Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if pressed.is_set():
            handler(signal.SIGINT, None)
