"""NetPack's experiments replayed: all policies on all set-ups, and by what factor NetPack is better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cranny.model.profile import library
from cranny.report.confidence import Estimate, estimate
from cranny.repro.experiment import Progress, paired_ratio, run_cells
from cranny.repro.netpack.paper import NETPACK
from cranny.repro.netpack.setups import (
    HOUR_S,
    IN_ORDER,
    MODELS,
    OWN_ORDER,
    PRINTED,
    Measure,
    NetpackExperiment,
    NetpackSetup,
)
from cranny.run import simulate
from cranny.sim.record import DONE

OWN = (NETPACK, "netpack-lean", PRINTED)  # with their own queue, whatever the others have
OPTIONS: Mapping[str, Mapping[str, Any]] = {PRINTED: {"printed": True}}


@dataclass(frozen=True, slots=True)
class NetpackCell:
    """One replay: a set-up, a policy and a seed."""

    setup: NetpackSetup
    scheme: str
    seed: int


def cell(setup: NetpackSetup, scheme: str, seed: int) -> NetpackCell:
    """Return the replay of a policy; what comes to the same is the same replay.

    NetPack brings its own queue, so the order of a set-up is that of the others; with that very order, its
    placement alone is NetPack.
    """
    if scheme == IN_ORDER and setup.order == OWN_ORDER:
        scheme = NETPACK
    return NetpackCell(replace(setup, order=OWN_ORDER) if scheme in OWN else setup, scheme, seed)


@dataclass(frozen=True, slots=True)
class NetpackRun:
    """What remains of a replay: means over its jobs."""

    jct_s: float
    de: float  # share of a job's JCT that it would have needed without network and queue
    wait_s: float
    slowdown: float
    machines: float  # of a job that is on several


@dataclass(frozen=True, slots=True)
class NetpackReplays:
    """All replays of some experiments."""

    experiments: tuple[NetpackExperiment, ...]
    runs: Mapping[NetpackCell, NetpackRun]
    seeds: int
    generated: bool  # whether no real log was given

    def of(self, setup: NetpackSetup, scheme: str) -> list[NetpackRun]:
        """Return the replays of a policy by seed."""
        cells = (cell(setup, scheme, seed) for seed in range(self.seeds))
        return [self.runs[one] for one in cells if one in self.runs]

    def values(self, setup: NetpackSetup, scheme: str, measure: Measure) -> list[float]:
        """Return a measure by seed: JCT in hours, or DE."""
        return [one.jct_s / HOUR_S if measure == "jct" else one.de for one in self.of(setup, scheme)]

    def advantage(self, setup: NetpackSetup, scheme: str, measure: Measure) -> Estimate:
        """Return by what factor NetPack is better, seed by seed."""
        theirs, ours = self.values(setup, scheme, measure), self.values(setup, NETPACK, measure)
        return paired_ratio(theirs, ours) if measure == "jct" else paired_ratio(ours, theirs)

    def reduction(self, setup: NetpackSetup, scheme: str) -> float:
        """Return by what share NetPack's JCT is lower, the mean of the seeds."""
        theirs, ours = self.values(setup, scheme, "jct"), self.values(setup, NETPACK, "jct")
        return estimate([1.0 - other / one for one, other in zip(theirs, ours, strict=True)]).mean


def plan(experiments: Sequence[NetpackExperiment], seeds: int) -> list[NetpackCell]:
    """Return all replays, each once."""
    return list(
        dict.fromkeys(
            cell(setup, scheme, seed)
            for experiment in experiments
            for panel in experiment.panels.values()
            for setup in panel.values()
            for seed in range(seeds)
            for scheme in experiment.schemes
        )
    )


def run_replays(
    experiments: Sequence[NetpackExperiment],
    seeds: int,
    file: Path | None,
    processes: int,
    progress: Progress | None = None,
) -> NetpackReplays:
    """Replay everything, the largest clusters first: what takes long should not come last."""
    cells = sorted(plan(experiments, seeds), key=lambda one: -one.setup.all_gpus)
    runs = run_cells(replay, cells, (file,), processes, progress)
    return NetpackReplays(tuple(experiments), runs, seeds, file is None)


def replay(one: NetpackCell, file: Path | None) -> NetpackRun:
    """Replay the jobs of a set-up under one policy."""
    setup, scheme = one.setup, one.scheme
    result = simulate(
        setup.cluster(),
        setup.trace(one.seed, file),
        NETPACK if scheme in (PRINTED, IN_ORDER) else scheme,
        "steady",
        one.seed,
        order=setup.order,
        collective="ina",
        options=OPTIONS.get(scheme),
        profiles={name: library()[name] for name in MODELS},
    )
    done = result.jobs.filter(result.jobs["status"] == DONE)
    summary = result.summary
    return NetpackRun(
        summary["mean_jct_s"],
        _mean(done["duration_s"] / done["jct_s"]),
        summary["mean_wait_s"],
        summary["mean_comm_slowdown"],
        _mean(done.filter(done["machines"] > 1)["machines"]),
    )


def _mean(values: Any) -> float:
    """Return the mean of a column, 0 if it is empty."""
    return float(values.mean() or 0.0)
