"""Running cells in processes of this machine."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool

from cranny.analysis.sweep.cell import Cell, Inputs, Outcome
from cranny.process_pool import pool, starting

Work = Callable[[Cell, Inputs], Outcome]

DIED = Outcome(reason="its process died, perhaps for lack of memory")
_held: list[Inputs] = []  # by a worker process, which gets them once


def in_processes(
    work: Work, cells: Iterable[Cell], inputs: Inputs, processes: int
) -> Iterator[tuple[Cell, Outcome]]:
    """Run cells, each in one of several processes, and yield them as they end.

    When a process dies, nobody can tell which cell it was, for the others are lost with it; so all that were
    under way are run again, one at a time.
    """
    if processes == 1:
        for cell in cells:
            yield cell, work(cell, inputs)
        return
    waiting = deque(cells)
    while waiting:
        for suspect in (yield from _until_one_dies(work, waiting, inputs, processes)):
            if (yield from _until_one_dies(work, deque([suspect]), inputs, 1)):
                yield suspect, DIED


def _until_one_dies(
    work: Work, waiting: deque[Cell], inputs: Inputs, processes: int
) -> Generator[tuple[Cell, Outcome], None, list[Cell]]:
    """Run waiting cells until none is left or a process dies; return those that were under way then."""
    under_way: dict[Future[Outcome], Cell] = {}
    try:
        with pool(processes, _hold, (inputs,)) as ready:
            while waiting or under_way:
                # No more at once than there are processes, so that few are under suspicion if one dies.
                with starting():
                    while waiting and len(under_way) < processes:
                        under_way[ready.submit(_run, work, waiting[0])] = waiting[0]
                        waiting.popleft()
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ended:
                    outcome = future.result()
                    yield under_way.pop(future), outcome
    except BrokenProcessPool:
        return list(under_way.values())
    return []


def _hold(inputs: Inputs) -> None:
    """Give a process what its cells need."""
    _held[:] = [inputs]


def _run(work: Work, cell: Cell) -> Outcome:
    return work(cell, _held[0])
