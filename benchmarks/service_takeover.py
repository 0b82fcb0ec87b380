"""Seconds from the death of a service to the first answer of its standby."""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from benchmarks.measure import Budget, Measured
from benchmarks.service_log import is_ready

TAKEOVERS = 10
CLUSTER = "2x4x8"
WAIT_S = 600.0


def run() -> Measured:
    """Kill one service after another, each with a standby that waits for its log in PostgreSQL."""
    with import_module("tests.service.postgres").running_postgres() as postgres, ExitStack() as last:
        folder = Path(last.enter_context(tempfile.TemporaryDirectory()))
        database = postgres.create_database()
        first, seconds = _Served(database, folder / "0", last), []
        _wait_until(lambda: is_ready(first.url))
        for number in range(TAKEOVERS):
            standby = _Served(database, folder / str(number + 1), last)
            _wait_until(lambda standby=standby: "on standby" in standby.said)  # type: ignore[misc]
            first.process.kill()
            began = time.perf_counter()
            _wait_until(lambda standby=standby: is_ready(standby.url))  # type: ignore[misc]
            seconds.append(time.perf_counter() - began)
            first = standby
    metrics = {"median_s": statistics.median(seconds), "worst_s": max(seconds), "takeovers": len(seconds)}
    return Measured("service-takeover", metrics, [Budget("worst_s", max(seconds), 5.0)])


class _Served:
    """A `cranny serve` that is killed at the end."""

    def __init__(self, database: str, folder: Path, last: ExitStack) -> None:
        folder.mkdir()
        self._messages = folder / "messages.txt"
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "cranny.cli", "serve", "--cluster", CLUSTER, "--folder", str(folder)]
        argv += ["--port", str(port), "--database", database, "--jobs-as-root"]
        environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
        with self._messages.open("w") as messages:
            self.process = subprocess.Popen(argv, stdout=messages, stderr=messages, env=environment)  # noqa: S603
        last.callback(self.process.wait)
        last.callback(self.process.kill)

    @property
    def said(self) -> str:
        """What it has printed, in one line."""
        return " ".join(self._messages.read_text(encoding="utf-8").split())


def _wait_until(holds: Callable[[], bool]) -> None:
    end = time.perf_counter() + WAIT_S
    while not holds():
        if time.perf_counter() > end:
            raise TimeoutError(f"a service was not ready within {WAIT_S:g} s")
        time.sleep(0.02)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
