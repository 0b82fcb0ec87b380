"""Worlds of logs: jobs in a row out of a log of Microsoft's, or drawn from Acme's statistics, on equal machines.

A seed has its own twentieth of a log. Jobs of more than two days are passed over: a few of them would decide the
99th percentile of a part. Arrivals are brought to a load, or stay as they are where the cluster has room for all.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.regret.world import Contender, World
from cranny.analysis.sweep.cell import at_load
from cranny.model.cluster import Cluster
from cranny.model.event import Event, MachineFailed, MachineRepaired
from cranny.repro.netpack.setups import BUSY_S
from cranny.repro.titan.paper import TitanTrace
from cranny.repro.titan.replays import sources
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

WINDOWS = 20  # of a log: one for each seed, tuned or held out
LONGEST_S = 2 * 86_400.0
LARGEST = 0.5  # of the cluster that one job may ask for
MACHINES_PER_RACK, GPUS_PER_MACHINE, LINK_GBPS = 8, 8, 100.0
TRACES = {"itp": "itp", "philly": "philly", "acme": "acme-part"}  # with their keys in Titan's evaluation
STARTS_S = {"philly": BUSY_S}
BETWEEN_FAILURES_S, REPAIR_S = 5 * 86_400.0, 4 * 3600.0  # of a machine


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWorld(World):
    """Jobs of a mix on racks of eight machines of eight GPUs."""

    mix: str  # one of TRACES
    racks: int
    load: float | None = (
        None  # GPU-seconds asked for, by those there are from first to last arrival; None: as logged
    )
    network: str = "isolated"
    collective: str = "ring"
    oversubscription: float = 1.0
    failures: bool = False

    def cluster(self) -> Cluster:
        """Return the cluster."""
        return Cluster.fat_tree(self.racks, MACHINES_PER_RACK, GPUS_PER_MACHINE, LINK_GBPS, self.oversubscription)

    def scenario(self, contender: Contender, seed: int, traces: Path | None) -> Scenario:
        """Return the scenario of a policy."""
        cluster, trace = self.cluster(), self.trace(seed, traces)
        span_s = float(trace.frame["submit_s"][-1])
        return Scenario(
            cluster,
            trace,
            contender.policy,
            self.network,
            seed,
            order=contender.order,
            collective=self.collective,
            options=dict(contender.options),
            machine_events=failures(len(cluster.machines), span_s, seed) if self.failures else (),
        )

    def trace(self, seed: int, traces: Path | None) -> Trace:
        """Return the jobs of a seed, each with its restart cost."""
        gpus = self.cluster().gpus
        trace = _window(
            sources(traces, quick=False)[TRACES[self.mix]], self.mix, seed, self.jobs, int(LARGEST * gpus)
        )
        if self.load is not None:
            trace = at_load(trace, self.load, gpus)
        return replace(trace, frame=trace.frame.with_columns(restart_s=pl.lit(self.restart_s)))


@lru_cache(maxsize=2)
def _window(source: TitanTrace, mix: str, seed: int, jobs: int, largest: int) -> Trace:
    """Return so many jobs of a log in a row, from time 0 on; if there is no log, jobs like its."""
    if not source.file:
        drawn = generate_trace(source.preset, 2 * jobs, seed, max_gpus=largest)  # some are too long
        return replace(drawn, frame=_from_zero(_fitting(drawn.frame, largest).head(jobs)))
    log = _log(source.file)
    frame = _fitting(log.frame, largest).filter(pl.col("submit_s") >= STARTS_S.get(mix, 0.0))
    first = seed % WINDOWS * (frame.height // WINDOWS)
    return replace(log, frame=_from_zero(frame.slice(first, jobs)))


@lru_cache(maxsize=1)
def _log(file: str) -> Trace:
    """Read what a replay needs of a log; models are drawn by the seed."""
    log = read_trace(file)
    return replace(log, frame=log.frame.select("job_id", "submit_s", "gpus", "duration_s"))


def _fitting(frame: pl.DataFrame, largest: int) -> pl.DataFrame:
    return frame.filter(pl.col("gpus").is_between(1, largest), pl.col("duration_s") <= LONGEST_S)


def _from_zero(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("submit_s") - pl.col("submit_s").first())


def failures(machines: int, span_s: float, seed: int) -> list[tuple[float, Event]]:
    """Draw failures of machines during the arrivals of jobs; each is repaired some hours later."""
    rng = np.random.default_rng([seed, 2])
    events: list[tuple[float, Event]] = []
    for machine in range(machines):
        at_s = float(rng.exponential(BETWEEN_FAILURES_S))
        while at_s < span_s:
            events += [(at_s, MachineFailed(machine)), (at_s + REPAIR_S, MachineRepaired(machine))]
            at_s += REPAIR_S + float(rng.exponential(BETWEEN_FAILURES_S))
    return events
