"""Calls side by side in processes of this machine."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, current_process, get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Any, TypeVar

from cranny.model.errors import CrannyError

T = TypeVar("T")


class DiedError(CrannyError):
    """A process ended before its work did."""


def run_each(
    work: Callable[..., T],
    calls: Sequence[tuple[Any, ...]],
    processes: int,
    progress: Callable[[int], None] | None = None,
    *,
    calls_per_process: int | None = None,
) -> list[T]:
    """Call `work` with each of the arguments; return the results in their order.

    `progress` is told how many calls have ended. A process ends after `calls_per_process` calls, for those that
    leave much memory behind. When one call fails, the others are dropped.
    """
    workers = min(len(calls), processes)
    if workers <= 1:
        results = []
        for done, arguments in enumerate(calls, 1):
            results.append(work(*arguments))
            if progress is not None:
                progress(done)
        return results
    try:
        with pool(workers, calls_per_process=calls_per_process) as ready:
            with starting():
                futures = [ready.submit(work, *arguments) for arguments in calls]
            for done, future in enumerate(as_completed(futures), 1):
                future.result()  # raises at once what the call raised
                if progress is not None:
                    progress(done)
            return [future.result() for future in futures]
    except BrokenProcessPool:
        raise DiedError(
            "a process died: perhaps for lack of memory, or because the script that calls cranny"
            " has no `if __name__ == '__main__':`"
        ) from None


@contextmanager
def pool(
    processes: int,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    *,
    calls_per_process: int | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Make processes, each of which calls `begin` first; on any error they end with what they were at."""
    if getattr(current_process(), "_inheriting", False):  # run again by a process that a script without guard made
        raise SystemExit(1)
    others = set(active_children())
    # Spawned, not forked: polars runs threads, which do not survive a fork.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), _begin, (begin, arguments), max_tasks_per_child=calls_per_process
    ) as made:
        try:
            yield made
        except BaseException:  # interrupted, or nobody wants the rest
            for child in set(active_children()) - others:
                child.terminate()
            raise


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    """Make a process ready: Ctrl-C ends it without a word, since the one that started it tells the user."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, however that ended: nobody else would."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def starting() -> Iterator[None]:
    """Hold Ctrl-C back from processes of a pool that start here, until they are ready for it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
