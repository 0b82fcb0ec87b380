"""What the paper says: the numbers that its text and tables state, by figure, measure, setting and scheme.

K. Liu et al., "Sampling-Based Multi-Job Placement for Heterogeneous Deep Learning Clusters", TPDS 2024, Sec. VI.
Its figures have more values, but only as marks without numbers.
"""

from typing import NamedTuple

HAS, EXACT, LB, OPTIMUS = "has", "has-exact", "optimus-lb", "optimus-shares"
GAVEL, LAS, BEST = "gavel", "las", "exhaustive"
RANDOM = "random-20"  # a sample of all categories
BLIND = "has-exact-blind"  # to what moves cost
JPS = {20: "jps-20", 40: "jps-40", 60: "jps-60"}
# Schemes of ours, and the paper's names for them.
PAPER_NAMES = {
    HAS: "HAS",
    JPS[20]: "JPS, N = 20",
    JPS[40]: "JPS, N = 40",
    JPS[60]: "JPS, N = 60",
    OPTIMUS: "Optimus",
    LB: "Optimus-LB",
    BEST: "exhaustive search",
    GAVEL: "Gavel",
    LAS: "LAS",
}


class At(NamedTuple):
    """What a value is about."""

    figure: str
    measure: str
    setting: str
    scheme: str


JCT, LOSS, FAIR, ART = "mean JCT, s", "over the optimum, %", "fairness", "running time, s"
MORE, LESS, SPAN = "more than without, %", "less than static, %", "less makespan than static, %"


def _at(figure: str, measure: str, setting: str, **schemes: float) -> dict[At, float]:
    """Return values of several schemes, whose names have underscores for hyphens."""
    return {At(figure, measure, setting, name.replace("_", "-")): value for name, value in schemes.items()}


HOUR_S = 3600.0
PAPER: dict[At, float] = {
    **_at("Table II", JCT, "LAS", las=12_776.8),
    **_at("Table II", JCT, "{3, 1}", has=11_225.8),
    **_at("Table II", JCT, "{2, 2}", has=19_607.1),
    **_at("Table II", JCT, "{1, 3}", has=37_502.1),
    **_at("Table II", JCT, "optimum", has_exact=10_592.0, exhaustive=10_592.0),
    **_at("Fig. 4", JCT, "K=15, lowest", has=3_948.9),
    **_at("Fig. 4", JCT, "K=15, {6, 6, 2, 1}", has=4_047.59),
    **_at("Fig. 4", JCT, "K=15, {5, 5, 2, 3}", has=4_046.35),
    **_at("Fig. 5", FAIR, "K=15, lowest JCT", has=0.824),
    **_at("Fig. 5", FAIR, "K=15, least", has=0.527),
    **_at("Fig. 5", FAIR, "K=15, most", has=0.994),
    **_at("Fig. 5", FAIR, "K=30, least", has=0.384),
    **_at("Fig. 5", FAIR, "K=30, most", has=0.999),
    **_at("Fig. 6", "place of the lowest JCT, of 364", "K=15", has=276),
    **_at("Fig. 9", LOSS, "K=15", optimus_lb=15.1, has=0.0, jps_20=2.95, jps_60=0.54),
    **_at("Fig. 9", LOSS, "K=30", optimus_lb=15.1, has=0.0, jps_20=5.10, jps_60=2.04),
    At("Fig. 9", LOSS, "K=15", RANDOM): 7.65,
    At("Fig. 9", LOSS, "K=30", RANDOM): 10.43,
    **_at("Table IV", ART, "K=15, S=4", optimus_shares=0.96e-3, optimus_lb=0.99e-3, jps_20=0.07, jps_40=0.14),
    **_at("Table IV", ART, "K=15, S=4", jps_60=0.22, has=1.07, exhaustive=47.89),
    **_at("Table IV", ART, "K=30, S=4", optimus_shares=1.99e-3, optimus_lb=1.99e-3, jps_20=0.38, jps_40=0.74),
    **_at("Table IV", ART, "K=30, S=4", jps_60=1.13, has=55.54, exhaustive=2.21 * HOUR_S),
    **_at("Table IV", ART, "K=15, S=3", optimus_shares=0.91e-3, optimus_lb=0.92e-3, jps_20=0.04, jps_40=0.06),
    **_at("Table IV", ART, "K=15, S=3", jps_60=0.06, has=0.17, exhaustive=1.55),
    **_at("Table IV", ART, "K=15, S=5", optimus_shares=1.01e-3, optimus_lb=1.07e-3, jps_20=0.06, jps_40=0.12),
    **_at("Table IV", ART, "K=15, S=5", jps_60=0.19, has=24.34, exhaustive=127.36),
    **_at("Fig. 13", JCT, "0", jps_60=4_301.35),
    **_at("Fig. 13", JCT, "1", jps_60=3_944.17),
    **_at("Fig. 13", FAIR, "0", jps_60=0.947),
    **_at("Fig. 13", FAIR, "1", jps_60=0.821),
    **_at("Fig. 14", LOSS, "1.1", optimus_shares=42.09, has=0.0),
    **_at("Fig. 14", LOSS, "1.15", has=0.0),
    **_at("Fig. 14", LOSS, "1.21", has=0.0),
    **_at("Fig. 14", LOSS, "1.26", optimus_shares=18.07, has=1.28),
    **_at("Fig. 15", MORE, "30", has=3.75, jps_60=4.3),
    **_at("Fig. 16", "communication, s", "300", jps_40=68.86, optimus_lb=69.13),
    **_at("Fig. 16", "computation, s", "300", jps_40=201.30, optimus_lb=217.96),
    **_at("Table V", ART, "50", optimus_shares=4.0e-3, optimus_lb=5.05e-3, jps_40=2.11, has=857.81),
    **_at("Table V", ART, "100", optimus_shares=8.31e-3, optimus_lb=10.03e-3, jps_40=8.35, has=12.98 * HOUR_S),
    **_at("Table V", ART, "200", optimus_shares=22.56e-3, optimus_lb=24.99e-3, jps_40=35.92),
    **_at("Table V", ART, "300", optimus_shares=44.16e-3, optimus_lb=48.68e-3, jps_40=114.61),
    **_at("Fig. 17", "mean JCT less than Gavel's, %", "with resets", has=21.2),
    **_at("Fig. 17", "makespan less than Gavel's, %", "with resets", has=71.3),
}
# What the text says of the default set-up, by which throughputs are chosen.
CATEGORY, LOWEST_S, FAIRNESS, HETEROGENEITY = (6, 5, 2, 2), 3_948.9, 0.824, 1.15
ALSO_S = {(6, 6, 2, 1): 4_047.59, (5, 5, 2, 3): 4_046.35}
# Ranges that the text gives over settings or schemes.
LB_LOSS_OVER_JPS = (9.38, 14.5)  # Fig. 11
JPS_LOSS = (0.53, 5.68)  # Fig. 11
RESET_JCT, RESET_MAKESPAN = (17.01, 41.67), (27.34, 44.35)  # Fig. 17
H_OPTIMUS, H_JPS = (18.07, 42.09), (0.49, 1.9)  # Fig. 14
FAIRNESS_RANGE = (0.779, 0.829)  # Fig. 10, HAS and JPS

TITLES = {
    "Table II": "two jobs on two T4 and two V100",
    "Fig. 4": "mean JCT of categories",
    "Fig. 5": "fairness of categories",
    "Fig. 6": "mean JCT of categories with jobs in order of heaviness",
    "Fig. 9": "mean JCT over the optimum",
    "Fig. 10": "fairness of the schemes",
    "Table IV": "running times of the schemes, small clusters",
    "Fig. 11": "mean JCT by the number of jobs",
    "Fig. 12": "JPS by alpha",
    "Fig. 13": "mean JCT against fairness by beta",
    "Fig. 14": "mean JCT by heterogeneity",
    "Fig. 15": "mean JCT with wrong throughputs",
    "Fig. 16": "mean JCT by the number of workers",
    "Table V": "running times of the schemes, large clusters",
    "Fig. 17": "with and without resets, and Gavel",
    "Fig. 18": "Gavel by the GPUs of one job",
    "moving": "what moving costs (ours)",
}
AXES = {
    "Fig. 12": "alpha",
    "Fig. 13": "beta",
    "Fig. 14": "heterogeneity H",
    "Fig. 15": "error of throughputs up to, %",
    "Fig. 16": "workers",
    "Table V": "workers",
    "Fig. 18": "GPUs of one job",
    "moving": "seconds that a move costs",
}
