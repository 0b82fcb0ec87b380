"""What a what-if takes on a log of a million rows: seconds, CPU-seconds and memory, by stage, and its page."""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import sacct_log
from benchmarks.measure import Budget, Measured
from cranny.analysis.whatif.tables import write_page
from cranny.analysis.whatif.what_if import what_if
from cranny.model.errors import CrannyError
from cranny.traces.read import read_trace

ROWS = 1_000_000
POLICIES = ("titan", "best-fit", "consolidate-idle")
HERE = Path(__file__).parents[1]  # where the package `benchmarks` is found
LOOK_S = 0.1  # between two looks at the memory


def run() -> Measured:
    """Make the log, and let another process make the page, whose memory is looked at meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "sacct.txt"
        sacct_log.write_log(log, ROWS)
        metrics = {"log_mb": log.stat().st_size / 1e6, **_measured(log)}
    budgets = [
        Budget("seconds", metrics["seconds"], 60.0),
        Budget("peak_gb", metrics["peak_gb"], 3.0),
        Budget("page_mb", metrics["page_mb"], 5.0),
    ]
    return Measured("what-if-million", metrics, budgets)


def _measured(log: Path) -> dict[str, float]:
    """Return what the process that makes the page reports, and the most memory of it and those that it started."""
    command = [sys.executable, "-m", "benchmarks.what_if_million", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HERE) as process:  # noqa: S603 - ourselves
        peak = _PeakMemory(process.pid)
        output, _ = process.communicate()
        peak.stop()
    if process.returncode:
        raise CrannyError(f"what-if-million: the what-if failed with exit code {process.returncode}")
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return {**found, "peak_gb": peak.gigabytes}


class _PeakMemory(threading.Thread):
    """Looks at the memory of a process and those that it started; what they share counts once."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.gigabytes = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until it is stopped."""
        while not self._ended.wait(LOOK_S):
            self.gigabytes = max(self.gigabytes, sum(map(_proportional_gb, _family(self._pid))))

    def stop(self) -> None:
        """Stop looking."""
        self._ended.set()
        self.join()


def _family(pid: int) -> Iterator[int]:
    """Yield a process and those that it started."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:  # it has ended
        return
    for child in children:
        yield from _family(int(child))


def _proportional_gb(pid: int) -> float:
    """Return the memory of a process, of what it shares with others its part."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:  # it has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e9


def _cpu_s() -> float:
    """Return the CPU-seconds of this process and of those that it started and that ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usages)


@contextmanager
def _stage(name: str, metrics: dict[str, float]) -> Iterator[None]:
    """Add what a stage takes."""
    began_s, began_cpu_s = time.perf_counter(), _cpu_s()
    yield
    metrics[f"{name}_s"] = time.perf_counter() - began_s
    metrics[f"{name}_cpu_s"] = _cpu_s() - began_cpu_s


def main(log: Path) -> None:
    """Make the page of a log, and print what its stages took."""
    metrics: dict[str, float] = {}
    page = log.with_suffix(".html")
    began_s = time.perf_counter()
    with _stage("read", metrics):
        trace = read_trace(log)
    with _stage("replay", metrics):
        answer = what_if(trace, sacct_log.cluster(), POLICIES, search=False, processes=os.cpu_count())
    with _stage("page", metrics):
        write_page(answer, page)
    metrics["seconds"] = time.perf_counter() - began_s
    metrics["cpu_s"] = _cpu_s()
    metrics["page_mb"] = page.stat().st_size / 1e6
    metrics["jobs"] = len(trace)
    sys.stdout.write(json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
