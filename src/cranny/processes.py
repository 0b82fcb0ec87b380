"""Calls side by side in processes of this machine."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, TypeVar

T = TypeVar("T")


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
    leave much memory behind. When one call fails, those that have not begun are dropped.
    """
    workers = min(len(calls), processes)
    if workers <= 1:
        results = []
        for done, arguments in enumerate(calls, 1):
            results.append(work(*arguments))
            if progress is not None:
                progress(done)
        return results
    # Spawned, not forked: polars runs threads, which do not survive a fork.
    with ProcessPoolExecutor(workers, get_context("spawn"), max_tasks_per_child=calls_per_process) as pool:
        futures = [pool.submit(work, *arguments) for arguments in calls]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()  # raises at once what the call raised
                if progress is not None:
                    progress(done)
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise
