"""What is replayed: experiments, each with panels of set-ups, and all policies on each of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cranny.model.errors import InputError
from cranny.model.profile import library
from cranny.process_pool import run_each
from cranny.report.confidence import Estimate, estimate
from cranny.repro.netpack.setup import FILE, HOUR_S, MODELS, OWN_ORDER, WORKLOADS, Setup, in_simulator, on_testbed
from cranny.repro.netpack.values import COMB, NETPACK, PAPER_NAMES
from cranny.run import simulate
from cranny.sim.record import DONE

Measure = Literal["jct", "de"]
SCHEMES = (NETPACK, "netpack-lean", *(name for name in PAPER_NAMES if name != NETPACK), "best-fit")
# Forms of NetPack for single experiments: the sign of Eq. 1 as printed, and its placement with another queue.
PRINTED, IN_ORDER = "netpack-printed", "netpack-fifo"
OWN = (NETPACK, "netpack-lean", PRINTED)  # with their own queue, whatever the others have
OPTIONS: Mapping[str, Mapping[str, Any]] = {PRINTED: {"printed": True}}
QUICK_JOBS = 100


@dataclass(frozen=True, slots=True)
class Point:
    """One place on an axis."""

    label: str
    setup: Setup


@dataclass(frozen=True, slots=True)
class Panel:
    """Set-ups that are shown beside each other."""

    title: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One figure of the paper, or a question of ours."""

    key: str
    title: str
    axis: str
    panels: tuple[Panel, ...]
    measure: Measure = "jct"
    schemes: tuple[str, ...] = SCHEMES


def _panel(title: str, base: Setup, **changes: Mapping[str, Any]) -> Panel:
    """Return set-ups that differ from one in some fields, by label."""
    return Panel(title, tuple(Point(label, replace(base, **change)) for label, change in changes.items()))


def _by(field: str, values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    return {label: {field: value} for label, value in values.items()}


LABELS = {"real": "real trace", "poisson": "Poisson", "normal": "normal"}
BOTH = tuple(
    Panel(name, tuple(Point(LABELS[each], made(each)) for each in WORKLOADS))
    for name, made in (("simulator", in_simulator), ("testbed", on_testbed))
)
RATIOS = _by("oversubscription", {"1:1": 1.0, "2:1": 2.0, "4:1": 4.0, "8:1": 8.0, "20:1": 20.0})
MEMORY = _by("pat_gbps", {"1000": 1000.0, "200": 200.0, "50": 50.0, "0": 0.0})
# In 16 racks each, as the paper has them; the same jobs come to all of them.
SERVERS = {"112": {"machines": 7}, "256": {"machines": 16}, "1,008": {"machines": 63}, "10,000": {"machines": 625}}
LOADS = _by("load", {"0.3": 0.3, "0.6": 0.6, "0.9": 0.9})
ORDERS = {order: {"order": order} for order in (OWN_ORDER, "fifo")}

EXPERIMENTS = {
    each.key: each
    for each in (
        Experiment("7", "mean JCT", "jobs", BOTH),
        Experiment("8", "distribution efficiency", "jobs", BOTH, "de"),
        Experiment(
            "9",
            "mean JCT by cluster scale",
            "servers",
            (_panel("real trace", in_simulator("real"), **SERVERS),),
        ),
        Experiment(
            "11",
            "mean JCT by switch memory",
            "PAT, Gbps",
            (
                _panel("testbed, real trace", on_testbed("real"), **MEMORY),
                _panel("testbed, Poisson", on_testbed("poisson"), **MEMORY),
                _panel("simulator, Poisson", in_simulator("poisson"), **MEMORY),
            ),
        ),
        Experiment(
            "12",
            "mean JCT by oversubscription",
            "oversubscription",
            (
                _panel("real trace", in_simulator("real"), **RATIOS),
                _panel("Poisson", in_simulator("poisson"), **RATIOS),
            ),
        ),
        Experiment("13", "mean JCT against Comb", "jobs", BOTH, schemes=(NETPACK, COMB)),
        Experiment(
            "load",
            "mean JCT by load",
            "load",
            (
                _panel("Poisson, 1:1", in_simulator("poisson"), **LOADS),
                _panel("Poisson, 4:1", replace(in_simulator("poisson"), oversubscription=4.0), **LOADS),
            ),
        ),
        Experiment(
            "queue",
            "mean JCT by the baselines' queue order",
            "order",
            tuple(_panel(LABELS[each], in_simulator(each), **ORDERS) for each in ("real", "poisson")),
            schemes=(*SCHEMES, IN_ORDER),
        ),
        Experiment(
            "sign",
            "mean JCT with the sign of Eq. 1 as printed",
            "oversubscription",
            (_panel("Poisson", in_simulator("poisson"), **RATIOS),),
            schemes=(NETPACK, "netpack-lean", PRINTED),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One replay."""

    setup: Setup
    scheme: str
    seed: int


def cell(setup: Setup, scheme: str, seed: int) -> Cell:
    """Return the replay of a policy; what comes to the same is the same replay.

    NetPack brings its own queue, so the order of a set-up is that of the others; with that very order, its
    placement alone is NetPack.
    """
    if scheme == IN_ORDER and setup.order == OWN_ORDER:
        scheme = NETPACK
    return Cell(replace(setup, order=OWN_ORDER) if scheme in OWN else setup, scheme, seed)


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a replay: means over its jobs."""

    jct_s: float
    de: float  # share of a job's JCT that it would have needed without network and queue
    wait_s: float
    slowdown: float
    machines: float  # of a job that is on several


@dataclass(frozen=True, slots=True)
class Study:
    """What the replays found."""

    experiments: tuple[Experiment, ...]
    kept: Mapping[Cell, Kept]
    seeds: int
    generated: bool  # whether no real log was there

    def runs(self, setup: Setup, scheme: str) -> list[Kept]:
        """Return the replays of a policy by seed."""
        cells = (cell(setup, scheme, seed) for seed in range(self.seeds))
        return [self.kept[one] for one in cells if one in self.kept]

    def values(self, setup: Setup, scheme: str, measure: Measure) -> list[float]:
        """Return a measure by seed: JCT in hours, or DE."""
        return [one.jct_s / HOUR_S if measure == "jct" else one.de for one in self.runs(setup, scheme)]

    def advantage(self, setup: Setup, scheme: str, measure: Measure = "jct") -> Estimate:
        """Return by what factor NetPack is better, seed by seed, for both saw the same jobs."""
        theirs, ours = self.values(setup, scheme, measure), self.values(setup, NETPACK, measure)
        pairs = zip(theirs, ours, strict=True)
        return estimate([one / other if measure == "jct" else other / one for one, other in pairs])

    def reduction(self, setup: Setup, scheme: str) -> Estimate:
        """Return by what share NetPack's JCT is lower, seed by seed."""
        theirs, ours = self.values(setup, scheme, "jct"), self.values(setup, NETPACK, "jct")
        return estimate([1.0 - other / one for one, other in zip(theirs, ours, strict=True)])


def source(traces: Path | None) -> Path | None:
    """Return the file of the real trace, if a folder is given."""
    if traces is None:
        return None
    if not (traces / FILE).is_file():
        raise InputError(f"--traces: {traces}: no {FILE} in this folder")
    return traces / FILE


def chosen(keys: Iterable[str], *, quick: bool) -> tuple[Experiment, ...]:
    """Return experiments; if quick, with few jobs."""
    found = tuple(EXPERIMENTS[key] for key in keys if key in EXPERIMENTS)
    return tuple(map(_small, found)) if quick else found


def _small(experiment: Experiment) -> Experiment:
    """Return an experiment with few jobs and without the cluster of 10,000 servers."""
    panels = [
        Panel(
            panel.title,
            tuple(
                Point(point.label, replace(point.setup, jobs=QUICK_JOBS))
                for point in panel.points
                if point.setup.machines < 100
            ),
        )
        for panel in experiment.panels
    ]
    return replace(experiment, panels=tuple(panels))


def plan(experiments: Sequence[Experiment], seeds: int) -> list[Cell]:
    """Return all replays, each once."""
    return list(
        dict.fromkeys(
            cell(point.setup, scheme, seed)
            for experiment in experiments
            for panel in experiment.panels
            for point in panel.points
            for seed in range(seeds)
            for scheme in experiment.schemes
        )
    )


def run_study(
    experiments: Sequence[Experiment],
    seeds: int,
    file: Path | None,
    processes: int,
    progress: Callable[[int], None] | None = None,
) -> Study:
    """Replay everything, the largest clusters first: what takes long should not come last."""
    cells = sorted(plan(experiments, seeds), key=lambda one: -one.setup.all_gpus)
    kept = run_each(run_cell, [(one, file) for one in cells], processes, progress)
    return Study(tuple(experiments), dict(zip(cells, kept, strict=True)), seeds, file is None)


def run_cell(one: Cell, file: Path | None) -> Kept:
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
    spread = done.filter(done["machines"] > 1)["machines"]
    return Kept(
        result.summary["mean_jct_s"],
        _mean(done["duration_s"] / done["jct_s"]),
        result.summary["mean_wait_s"],
        result.summary["mean_comm_slowdown"],
        _mean(spread),
    )


def _mean(values: Any) -> float:
    """Return the mean of a column, 0 if it is empty."""
    return float(values.mean() or 0.0)
