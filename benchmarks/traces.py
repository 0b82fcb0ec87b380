"""Seconds of the processor that it takes to read a table of jobs."""

import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Budget, Measured, timed_ms
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace

JOBS = 100_000
RUNS = 3


def run() -> Measured:
    """Read a generated trace as Parquet and as CSV; the least of several runs, since noise only ever adds."""
    frame = generate_trace("itp", jobs=JOBS, seed=0).frame
    metrics = {}
    with tempfile.TemporaryDirectory() as folder:
        for ending, write in (("parquet", frame.write_parquet), ("csv", frame.write_csv)):
            path = Path(folder) / f"trace.{ending}"
            write(path)
            reading = partial(read_trace, path)
            metrics[f"{ending}_cpu_s"] = min(timed_ms(reading)[0] for _ in range(RUNS)) / 1e3
    return Measured("traces", metrics, [Budget(name, seconds, 0.5) for name, seconds in metrics.items()])
