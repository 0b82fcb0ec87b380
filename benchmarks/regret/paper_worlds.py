"""Worlds of NetPack's, CASSINI's and HAS's evaluations, with the set-ups of `cranny.repro`."""

from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.regret.world import PHASES_ONLY, SHIFTING, Contender, World, reasons
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, equal_s, fairness
from cranny.repro.cassini import replays as cassini
from cranny.repro.cassini.paper import CassiniTrace
from cranny.repro.experiment import Cell
from cranny.repro.has import resets
from cranny.repro.has.static import JOBS as HAS_JOBS
from cranny.repro.has.throughputs import BETWEEN_GBPS, GPU_TYPES, GPUS_PER_MACHINE, counts, fits, problem
from cranny.repro.netpack import replays as netpack
from cranny.repro.netpack.setups import NetpackSetup, source
from cranny.run import Result
from cranny.scenario import Scenario
from cranny.sim.record import DONE

HAS_LEFT_OUT = reasons(SHIFTING, PHASES_ONLY)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetpackWorld(World):
    """A set-up of NetPack's; every policy in its own queue order."""

    setup: NetpackSetup

    def scenario(self, contender: Contender, seed: int, traces: Path | None) -> Scenario:
        """Return the scenario of a policy."""
        setup = replace(self.setup, jobs=min(self.jobs, self.setup.jobs))
        base = netpack.scenario(source(traces), Cell(setup, contender.policy, seed))
        trace = base.whole_trace
        with_cost = replace(trace, frame=trace.frame.with_columns(restart_s=pl.lit(self.restart_s)))
        return replace(base, trace=with_cost, order=contender.order, options=dict(contender.options))


@dataclass(frozen=True, slots=True, kw_only=True)
class CassiniWorld(World):
    """A trace of CASSINI's, in phases."""

    trace: CassiniTrace

    def scenario(self, contender: Contender, seed: int, traces: Path | None) -> Scenario:  # noqa: ARG002 - drawn
        """Return the scenario of a policy, with the options that the reproduction gives its host."""
        base = cassini.scenario(Cell(self.trace, contender.policy, seed))
        drawn = sorted(cassini.jobs(self.trace, seed), key=lambda job: job.submit_s)[: self.jobs]
        jobs = [replace(job, restart_s=self.restart_s) for job in drawn]
        return replace(
            base, trace=jobs, order=contender.order, options={**base.options, **dict(contender.options)}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HasWorld(World):
    """HAS's jobs on mixed GPUs: all at once on three machines, or one after the other on more of them."""

    machines: int = len(GPU_TYPES)
    load: float = 0.0  # of jobs that come one after the other, in GPUs of the slowest type; 0: all come at once

    def cluster(self) -> Cluster:
        """Return machines of each type in turn."""
        kinds = islice(cycle(GPU_TYPES), self.machines)
        made = tuple(Machine(f"{kind}-{at}", GPUS_PER_MACHINE, kind) for at, kind in enumerate(kinds))
        return Cluster.of(Switch("core", made, (BETWEEN_GBPS,) * len(made)))

    def work(self, seed: int) -> list[Job]:
        """Return the paper's jobs, or jobs drawn from them."""
        rates = _rates(seed)
        kinds = resets.jobs(rates if self.load else rates[:HAS_JOBS], self.restart_s)
        if not self.load:
            return kinds[: self.jobs]
        rng = np.random.default_rng([seed, 3])
        drawn = [kinds[at] for at in rng.integers(len(kinds), size=self.jobs)]
        gap_s = float(np.mean([job.gpus * (job.duration_s or 0.0) for job in drawn])) / (
            self.load * GPUS_PER_MACHINE * self.machines
        )
        times_s = np.cumsum(rng.exponential(gap_s, self.jobs)).tolist()
        return [
            replace(job, id=f"{job.id}-{number}", submit_s=at_s)
            for number, (job, at_s) in enumerate(zip(drawn, times_s, strict=True))
        ]

    def scenario(self, contender: Contender, seed: int, traces: Path | None) -> Scenario:  # noqa: ARG002 - drawn
        """Return the scenario of a policy."""
        options = dict(contender.options)
        return Scenario(
            self.cluster(),
            self.work(seed),
            contender.policy,
            "isolated",
            seed,
            order=contender.order,
            options=options,
        )

    def problem(self, seed: int) -> Problem:
        """Return the paper's jobs that come at once, and the workers that they share."""
        return problem(_rates(seed)[:HAS_JOBS], counts(GPUS_PER_MACHINE * self.machines))

    def fairness(self, result: Result, seed: int) -> float:
        """Return Jain's index of completion times over those of equal shares, or over durations in a stream."""
        done = result.jobs.filter(result.jobs["status"] == DONE)
        if self.load:
            return fairness(done["jct_s"].to_numpy(), done["duration_s"].to_numpy())
        names = [job.id for job in self.work(seed)]
        jct_s = dict(done.select("job_id", "jct_s").iter_rows())
        equal = equal_s(self.problem(seed))
        there = [at for at, name in enumerate(names) if name in jct_s]
        return fairness(np.array([jct_s[names[at]] for at in there]), equal[there])


def _rates(seed: int) -> Floats:
    """Return throughputs of all models, (models, types), that give what the paper states."""
    return fits(1, seed).rates[0]
