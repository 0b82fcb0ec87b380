"""NetPack's experiments replayed: all policies on all set-ups, and by what factor NetPack is better."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, Self

from cranny.model.profile import library
from cranny.report.confidence import Estimate, estimate
from cranny.repro.experiment import Cell, Results, run_cells
from cranny.repro.netpack.paper import IN_ORDER, NETPACK, TEXT, Measure
from cranny.repro.netpack.setups import HOUR_S, MODELS, OWN_ORDER, NetpackExperiment, NetpackSetup
from cranny.run import Progress, Result
from cranny.scenario import Scenario
from cranny.sim.record import DONE

OWN = {NETPACK, "netpack-lean", *TEXT.forms} - {IN_ORDER}  # with their own queue, whatever the others have


def cell(setup: NetpackSetup, scheme: str, seed: int) -> Cell[NetpackSetup]:
    """Return the replay of a policy; what comes to the same is the same replay.

    NetPack brings its own queue, so the order of a set-up is that of the others; with that very order, its
    placement alone is NetPack.
    """
    if scheme == IN_ORDER and setup.order == OWN_ORDER:
        scheme = NETPACK
    return Cell(replace(setup, order=OWN_ORDER) if scheme in OWN else setup, scheme, seed)


class NetpackRun(NamedTuple):
    """What remains of a replay: means over its jobs.

    `jct` in hours; `de`, the share of a job's JCT that it would have needed without network and queue; `machines`
    of a job that is on several.
    """

    measures: Mapping[str, float]

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep what figures show."""
        done = result.jobs.filter(result.jobs["status"] == DONE)
        several = done.filter(done["machines"] > 1)["machines"]
        return cls(
            {
                "jct": result.summary["mean_jct_s"] / HOUR_S,
                "de": _mean(done["duration_s"] / done["jct_s"]),
                "machines": _mean(several),
            }
        )


class NetpackResults(Results[NetpackSetup, NetpackRun]):
    """All replays of some experiments, with NetPack's lead."""

    __slots__ = ()

    def of(self, setup: NetpackSetup, scheme: str) -> list[NetpackRun]:
        """Return the replays of a policy by seed, or of what comes to the same."""
        return super().of(*cell(setup, scheme, 0)[:2])

    def paired(
        self, setup: NetpackSetup, scheme: str, other: NetpackSetup, base: str, measure: str
    ) -> list[tuple[float, float]]:
        """Return a measure of two policies, or of what comes to the same, for each seed that both have."""
        return super().paired(*cell(setup, scheme, 0)[:2], *cell(other, base, 0)[:2], measure)

    def advantage(self, setup: NetpackSetup, scheme: str, measure: Measure) -> Estimate:
        """Return by what factor NetPack is better, seed by seed."""
        both = (scheme, NETPACK) if measure == "jct" else (NETPACK, scheme)
        return self.ratio(setup, *both, measure)

    def reduction(self, setup: NetpackSetup, *schemes: str) -> Estimate:
        """Return by what share NetPack's JCT is lower, seed by seed the mean over the schemes."""
        ours, theirs = self.values(setup, NETPACK, "jct"), [self.values(setup, each, "jct") for each in schemes]
        return estimate(
            [fmean(1.0 - own / one for one in others) for own, *others in zip(ours, *theirs, strict=False)]
        )


def plan(experiments: Sequence[NetpackExperiment], seeds: int) -> list[Cell[NetpackSetup]]:
    """Return all replays, each once."""
    return list(
        dict.fromkeys(
            cell(setup, scheme, seed)
            for experiment in experiments
            for panel in experiment.panels.values()
            for setup in panel.values()
            for seed in range(experiment.seeds(seeds))
            for scheme in experiment.schemes
        )
    )


def run_replays(
    experiments: Sequence[NetpackExperiment],
    seeds: int,
    file: Path | None,
    processes: int,
    progress: Progress | None = None,
) -> NetpackResults:
    """Replay everything, the largest clusters first: what takes long should not come last."""
    cells = sorted(plan(experiments, seeds), key=lambda one: -one.setup.all_gpus)
    runs = run_cells(partial(scenario, file), cells, processes, progress, keep=NetpackRun.of)
    return NetpackResults(runs, seeds, file is None)


def scenario(file: Path | None, one: Cell[NetpackSetup]) -> Scenario:
    """Return the jobs of a set-up under one policy."""
    setup, scheme, seed = one
    return Scenario(
        setup.cluster(),
        setup.trace(seed, file),
        NETPACK if scheme in TEXT.forms else scheme,
        "steady",
        seed,
        order=setup.order,
        collective="ina",
        options=TEXT.forms.get(scheme, {}),
        profiles={name: library()[name] for name in MODELS},
    )


def _mean(values: Any) -> float:
    """Return the mean of a column, 0 if it is empty."""
    return float(values.mean() or 0.0)
