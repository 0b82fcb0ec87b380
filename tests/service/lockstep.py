"""Ranks that go from step to step together, as those of a synchronous training do."""

import mmap
import time
from pathlib import Path

POLL_S = 0.001
BYTES = 8  # of a step


class Lockstep:
    """One rank among others, which note in a file of the attempt how many steps they have done."""

    def __init__(self, file: Path, rank: int, ranks: int) -> None:
        with file.open("ab") as made:
            made.truncate(BYTES * ranks)
            made.flush()
        with file.open("r+b") as opened:
            self._steps = memoryview(mmap.mmap(opened.fileno(), BYTES * ranks)).cast("q")
        self._rank = rank

    def wait(self, step: int) -> None:
        """Say that this rank has done so many steps, and wait until all have."""
        self._steps[self._rank] = step
        while min(self._steps) < step:
            time.sleep(POLL_S)
