"""A harness for the local backend, and ways to look at the processes of this machine."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

from tests.backends.contract import CLUSTER, Harness

from cranny.backends.local import LocalBackend
from cranny.backends.process import PROC, Process, carrying
from cranny.backends.protocol import Backend, Launch

MARK = "TEST_OF_CRANNY"  # a variable that tells our processes from those of other tests


class Marked(LocalBackend):
    """A local backend that marks the processes of its jobs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(CLUSTER, devices=())
        self._folder = folder

    def launch(self, what: Launch) -> None:
        super().launch(replace(what, env={**what.env, MARK: f"{self._folder}/{what.job_id}"}))


class LocalHarness(Harness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._before = zombies()  # other tests' affair

    def make(self) -> Backend:
        return Marked(self.folder)

    def argv(self, run_s: float, exit_code: int = 0, *, stubborn: bool = False) -> tuple[str, ...]:
        ignore = 'trap "" TERM; ' if stubborn else ""
        return ("/bin/sh", "-c", f"{ignore}echo up | tee -a {self.folder}/runs; sleep {run_s}; exit {exit_code}")

    def begun(self, what: Launch) -> Launch:
        for rank in what.ranks:
            appears(what.log_dir / f"rank-{rank.rank}.log")
        return what

    def over(self, what: Launch) -> Launch:
        appears(what.log_dir / f"attempt-{what.attempt}.result")
        found = json.loads((what.log_dir / f"attempt-{what.attempt}.pid").read_text())
        while Process(found["pid"], found["started"]).alive():
            time.sleep(0.01)
        return what

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())

    def left(self, job_id: str) -> int:
        return len(carrying(MARK, f"{self.folder}/{job_id}")) + len(zombies() - self._before)


def zombies() -> set[int]:
    """Return our own children that have ended and were not reaped."""
    found = set()
    for stat in PROC.glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state == "Z" and int(parent) == os.getpid():
            found.add(int(stat.parent.name))
    return found


def appears(path: Path, seconds: float = 60.0) -> str:
    """Wait until a file has text, and return it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"{path} did not appear")
