"""What Titan's paper says: the values that its text states, and where.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters", ICNP
2024, Sec. V. Only numbers of the text are here; curves of its figures cannot be read to the digit. Schemes are
named by the policies that do what the paper describes: its "Elasticflow" is `consolidate-idle` and its "HiveD" is
`fragments-first` (docs/understand/rivals.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from cranny.repro.verdict import Pair

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
class Figure:
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
    network: str  # the model that we compare with first; see docs/understand/repro-titan.md
    said: tuple[Pair, ...]  # what the text claims for every trace, lower value first
    place: str
    on: str = ""  # the trace that the values are for
    values: Mapping[str, float] = field(default_factory=dict)
    ratios_only: bool = False  # the values are relative to Titan's


FIGURES = (
    Figure(
        2, 1, "used machines",
        "Titan uses far fewer machines than Elasticflow, fewer than Tiresias, about as many as HiveD",
        "mean_used_machines", "used_machines", "", 1.0, "lower", "instant",
        said=(("titan", "consolidate-idle"), ("titan", "tiresias")),
        place="Exp#1, Fig. 2(a)",
        on="itp",
        values={"titan": 174, "fragments-first": 168, "consolidate-idle": 334, "tiresias": 207},
    ),
    Figure(
        3, 1, "machine-hours",
        "Titan costs the fewest machine-hours",
        "machine_hours", "machine_hours", "hours", 1.0, "lower", "instant",
        said=_TITAN_BELOW,
        place="Exp#1, Fig. 3",
    ),
    Figure(
        4, 2, "fragmentation",
        "Elasticflow fragments machines most, HiveD least, Titan nearly as little as HiveD",
        "mean_fragmentation", "fragmentation", "%", 100.0, "lower", "instant",
        said=(
            ("titan", "consolidate-idle"),
            ("tiresias", "consolidate-idle"),
            ("fragments-first", "consolidate-idle"),
        ),
        place="Exp#2, Fig. 4(b)",
        on="acme",
        values={"titan": 11.7, "fragments-first": 10.0, "consolidate-idle": 38.1, "tiresias": 19.4},
    ),
    Figure(
        5, 3, "communication overhead",
        "Elasticflow moves least between machines, Titan second least, HiveD most",
        "mean_cross_traffic_gb", "cross_traffic_gb", "GB", 1.0, "lower", "instant",
        said=(("consolidate-idle", "titan"), ("titan", "tiresias"), ("titan", "fragments-first")),
        place="Exp#3, Fig. 5(a), without a number for Elasticflow",
        on="itp",
        values={"titan": 1.65, "tiresias": 2.78, "fragments-first": 7.03},
    ),
    Figure(
        6, 4, "profit rate",
        "Titan has the highest profit rate",
        "mean_profit_rate", "profit_rate", "per hour", 1.0, "higher", "isolated",
        said=_TITAN_ABOVE,
        place="Exp#4, Fig. 6(b)",
        on="acme",
        values={"titan": 314, "consolidate-idle": 256, "tiresias": 71, "fragments-first": 24},
    ),
    Figure(
        7, 4, "total profit",
        "Titan has the highest total profit",
        "total_profit", "total_profit", "", 1.0, "higher", "isolated",
        said=_TITAN_ABOVE,
        place="Exp#4, Trace 1, where we read +41.21 %, +316 % and 65x as over Elasticflow, Tiresias, HiveD",
        on="itp",
        values={"titan": 1.0, "consolidate-idle": 1 / 1.4121, "tiresias": 1 / 4.16, "fragments-first": 1 / 65},
        ratios_only=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bars:
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


TESTBED = (
    Bars(
        9, 5, "testbed machine-hours",
        "on the testbed, Titan costs the fewest machine-hours",
        "machine_hours", "hours", "vgg16", 8,
        {"titan": 8.67, "consolidate-idle": 11.11, "tiresias": 11.12, "fragments-first": 12.33},
        "Exp#5, Fig. 9(b), 8 workers",
    ),
    Bars(
        10, 6, "throughput",
        "Elasticflow trains fastest, Titan nearly as fast",
        "throughput", "images/s", "resnet50", 12,
        {"consolidate-idle": 4422, "titan": 4389, "tiresias": 4208, "fragments-first": 2610},
        "Exp#6, Fig. 10(a), 12 workers",
    ),
    Bars(
        11, 7, "communication time",
        "Elasticflow communicates for the least time, Titan nearly so",
        "comm_s", "s an epoch", "vgg16", 8,
        {"consolidate-idle": 8.4, "titan": 8.7, "tiresias": 8.3, "fragments-first": 12.0},
        "Exp#7, Fig. 11(b), 8 workers",
    ),
)  # fmt: skip
EXPERIMENTS = tuple(sorted({figure.experiment for figure in FIGURES} | {bars.experiment for bars in TESTBED}))
