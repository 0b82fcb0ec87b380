"""Replays on a cluster with more or fewer machines, of which only the waiting is kept."""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Self

import polars as pl

from cranny.analysis.whatif.resize_cluster import resized
from cranny.analysis.whatif.waits import mean_by_size
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.report.sampling import numbers
from cranny.run import simulate
from cranny.sim.result import Result
from cranny.traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay: a policy, and how many machines more (or fewer, if negative) it has."""

    policy: str
    change: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a replay did to the waiting; infinite if no job could run."""

    jobs_done: int
    peak_used: int  # machines
    mean_wait_s: float
    mean_s_by_size: Mapping[str, float]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep of a result what the search needs."""
        done = result.jobs.filter(pl.col("status") == "done")
        peak = int(numbers(result.timeline, "used_machines").max(initial=0.0))
        return cls(done.height, peak, result.summary["mean_wait_s"], mean_by_size(done))


class Cells:
    """Runs replays of one trace side by side, in processes that stay until the search is over."""

    def __init__(
        self, cluster: Cluster, trace: Trace, settings: Mapping[str, Any], processes: int | None = None
    ) -> None:
        self._cluster = cluster
        self._trace = trace
        self._settings = dict(settings)
        workers = processes or os.cpu_count() or 1
        # Spawned, not forked: polars runs threads, which do not survive a fork.
        self._pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, cells: Sequence[Cell]) -> list[Outcome]:
        """Run some replays; outcomes in the order of the cells."""
        work = [(self._cluster, self._trace, cell, self._settings) for cell in cells]
        if self._pool is None or len(work) == 1:
            return [_run(each) for each in work]
        return list(self._pool.map(_run, work))


def _run(work: tuple[Cluster, Trace, Cell, Mapping[str, Any]]) -> Outcome:
    """Run one replay."""
    cluster, trace, cell, settings = work
    try:
        return Outcome.of(simulate(resized(cluster, cell.change), trace, cell.policy, **settings))
    except InputError:  # no job of the trace fits so few machines
        return Outcome(0, 0, float("inf"), {})
