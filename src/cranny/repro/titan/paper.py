"""Titan's paper as data: the figures and values that its text states, the traces, and how they are run here.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters", ICNP
2024, Sec. V. Only numbers of the text are here; curves of its figures cannot be read to the digit. Schemes are
named by the policies that do what the paper describes: its "Elasticflow" is `consolidate-idle` and its "HiveD" is
`fragments-first` (docs/understand/rivals.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cranny.repro.claim import Pair

PAPER_NAMES = {
    "titan": "Titan",
    "consolidate-idle": "Elasticflow",
    "fragments-first": "HiveD",
    "tiresias": "Tiresias",
}
PAPER_JOBS = {"itp": 69_742, "acme": 470_497}
ACME_ALL_JOBS = 880_740  # CPU jobs included

_RIVALS = ("consolidate-idle", "tiresias", "fragments-first")
_TITAN_BELOW = tuple(("titan", rival) for rival in _RIVALS)
_TITAN_ABOVE = tuple((rival, "titan") for rival in _RIVALS)


@dataclass(frozen=True, slots=True)
class TraceFigure:
    """One figure of experiments 1 to 4: a measure over time on two traces."""

    number: int
    experiment: int
    title: str
    claim: str
    metric: str  # of a summary
    column: str  # of a timeline
    unit: str
    factor: float  # from our values to the unit
    better: Literal["lower", "higher"]
    network: str  # that we compare with first; see docs/understand/repro-titan.md
    stated: tuple[Pair, ...]  # what the text claims for every trace, lower value first
    place: str
    on: str = ""  # the trace that the values are for
    values: Mapping[str, float] = field(default_factory=dict)
    ratios_only: bool = False  # the values are relative to Titan's


FIGURES = (
    TraceFigure(
        2, 1, "used machines",
        "Titan uses far fewer machines than Elasticflow, fewer than Tiresias, about as many as HiveD",
        "mean_used_machines", "used_machines", "", 1.0, "lower", "instant",
        stated=(("titan", "consolidate-idle"), ("titan", "tiresias")),
        place="Exp#1, Fig. 2(a)",
        on="itp",
        values={"titan": 174, "fragments-first": 168, "consolidate-idle": 334, "tiresias": 207},
    ),
    TraceFigure(
        3, 1, "machine-hours",
        "Titan costs the fewest machine-hours",
        "machine_hours", "machine_hours", "hours", 1.0, "lower", "instant",
        stated=_TITAN_BELOW,
        place="Exp#1, Fig. 3",
    ),
    TraceFigure(
        4, 2, "fragmentation",
        "Elasticflow fragments machines most, HiveD least, Titan nearly as little as HiveD",
        "mean_fragmentation", "fragmentation", "%", 100.0, "lower", "instant",
        stated=(
            ("titan", "consolidate-idle"),
            ("tiresias", "consolidate-idle"),
            ("fragments-first", "consolidate-idle"),
        ),
        place="Exp#2, Fig. 4(b)",
        on="acme",
        values={"titan": 11.7, "fragments-first": 10.0, "consolidate-idle": 38.1, "tiresias": 19.4},
    ),
    TraceFigure(
        5, 3, "communication overhead",
        "Elasticflow moves least between machines, Titan second least, HiveD most",
        "mean_cross_traffic_gb", "cross_traffic_gb", "GB", 1.0, "lower", "instant",
        stated=(("consolidate-idle", "titan"), ("titan", "tiresias"), ("titan", "fragments-first")),
        place="Exp#3, Fig. 5(a), without a number for Elasticflow",
        on="itp",
        values={"titan": 1.65, "tiresias": 2.78, "fragments-first": 7.03},
    ),
    TraceFigure(
        6, 4, "profit rate",
        "Titan has the highest profit rate",
        "mean_profit_rate", "profit_rate", "per hour", 1.0, "higher", "isolated",
        stated=_TITAN_ABOVE,
        place="Exp#4, Fig. 6(b)",
        on="acme",
        values={"titan": 314, "consolidate-idle": 256, "tiresias": 71, "fragments-first": 24},
    ),
    TraceFigure(
        7, 4, "total profit",
        "Titan has the highest total profit",
        "total_profit", "total_profit", "", 1.0, "higher", "isolated",
        stated=_TITAN_ABOVE,
        place="Exp#4, Trace 1, where we read +41.21 %, +316 % and 65x as over Elasticflow, Tiresias, HiveD",
        on="itp",
        values={"titan": 1.0, "consolidate-idle": 1 / 1.4121, "tiresias": 1 / 4.16, "fragments-first": 1 / 65},
        ratios_only=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlacementFigure:
    """One figure of experiments 5 to 7: a measure on the testbed for 4 to 12 workers and two models."""

    number: int
    experiment: int
    title: str
    claim: str
    measure: str
    unit: str
    model: str
    workers: int
    values: Mapping[str, float]
    place: str

    @property
    def setting(self) -> tuple[str, int]:
        """Return the model and the workers that the values are for."""
        return self.model, self.workers


TESTBED = (
    PlacementFigure(
        9, 5, "testbed machine-hours",
        "on the testbed, Titan costs the fewest machine-hours",
        "machine_hours", "hours", "vgg16", 8,
        {"titan": 8.67, "consolidate-idle": 11.11, "tiresias": 11.12, "fragments-first": 12.33},
        "Exp#5, Fig. 9(b), 8 workers",
    ),
    PlacementFigure(
        10, 6, "throughput",
        "Elasticflow trains fastest, Titan nearly as fast",
        "throughput", "images/s", "resnet50", 12,
        {"consolidate-idle": 4422, "titan": 4389, "tiresias": 4208, "fragments-first": 2610},
        "Exp#6, Fig. 10(a), 12 workers",
    ),
    PlacementFigure(
        11, 7, "communication time",
        "Elasticflow communicates for the least time, Titan nearly so",
        "comm_s", "s an epoch", "vgg16", 8,
        {"consolidate-idle": 8.4, "titan": 8.7, "tiresias": 8.3, "fragments-first": 12.0},
        "Exp#7, Fig. 11(b), 8 workers",
    ),
)  # fmt: skip
EXPERIMENTS = tuple(sorted({figure.experiment for figure in FIGURES} | {figure.experiment for figure in TESTBED}))

# As the paper has them, and as their own papers or textbooks do.
PAPER_POLICIES = ("titan", "consolidate-idle", "fragments-first", "tiresias")
REAL_POLICIES = ("best-fit", "elasticflow", "hived", "best-fit-mapped")
POLICIES = (*PAPER_POLICIES, *REAL_POLICIES)
NETWORKS = ("instant", "isolated")
QUICK_JOBS = 500


@dataclass(frozen=True, slots=True)
class TitanTrace:
    """A trace that is replayed, and what the paper calls it."""

    key: str
    label: str
    preset: str
    jobs: int
    file: str = ""  # in the folder of traces; none: always generated
    paper: str = ""  # which trace of the paper it stands for
    networks: tuple[str, ...] = NETWORKS
    once: tuple[str, ...] = ()  # policies that run with one seed only: they take long


# Where communication takes time, jobs of 512 and 1,024 GPUs run for many times as long and the queue of a whole
# Acme trace never empties: every policy would be measured on a full cluster. So a part of it represents that.
TRACES = (
    TitanTrace("itp", "Microsoft ITP", "itp", 69_351, "elasticflow_itp.parquet", paper="itp"),
    TitanTrace(
        "acme",
        "Shanghai Acme, whole",
        "acme",
        PAPER_JOBS["acme"],
        paper="acme",
        networks=("instant",),
        once=("elasticflow", "hived", "best-fit-mapped"),
    ),
    TitanTrace("acme-part", "Shanghai Acme, a part", "acme", 20_000, paper="acme"),
    TitanTrace("philly", "Microsoft Philly", "philly", 111_430, "philly.parquet"),
)

# How this was done, in sentences for the page.
GENERATED = "No folder of traces was given: all jobs are generated from published statistics of these clusters."
REAL = "The logs of Microsoft are real. Acme's is not available: its jobs are generated from its statistics."
CLUSTER_FACT = (
    "Cluster: 64 racks x 8 machines x 8 GPUs, links of 100 Gbps. Collective: halving-doubling. Queue: first come, "
    "first served for every policy, since the paper places jobs as they arrive; Tiresias's own order is not used."
)
NETWORK_FACT = (
    "Networks: with `instant` communication takes no time, which is what the paper's numbers of machines fit; "
    "with `isolated` each iteration takes its communication time on top, as the paper's text describes. Figs. 2 "
    "to 5 are compared with `instant` first, Figs. 6 and 7 with `isolated`: without it, profit mirrors machines."
)
PART_FACT = (
    "With `isolated`, jobs of 512 and more GPUs run for so long that the queue of the whole Acme trace never "
    "empties. There its first jobs stand for it, drawn anew for each seed."
)
