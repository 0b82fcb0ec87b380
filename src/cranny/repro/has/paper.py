"""The paper of HAS and JPS as data: what its text and tables state, by figure, measure, setting and scheme.

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


class ValueKey(NamedTuple):
    """Which value: of a figure, a measure, a setting and a scheme."""

    figure: str
    measure: str
    setting: str
    scheme: str


JCT, LOSS, FAIR, ART = "mean JCT, s", "over the optimum, %", "fairness", "running time, s"
MORE, LESS, SPAN = "more than without, %", "less than static, %", "less makespan than static, %"


def _row(figure: str, measure: str, setting: str, **schemes: float) -> dict[ValueKey, float]:
    """Return values of several schemes, whose names have underscores for hyphens."""
    return {ValueKey(figure, measure, setting, name.replace("_", "-")): value for name, value in schemes.items()}


HOUR_S = 3600.0
PAPER: dict[ValueKey, float] = {
    **_row("Table II", JCT, "LAS", las=12_776.8),
    **_row("Table II", JCT, "{3, 1}", has=11_225.8),
    **_row("Table II", JCT, "{2, 2}", has=19_607.1),
    **_row("Table II", JCT, "{1, 3}", has=37_502.1),
    **_row("Table II", JCT, "optimum", has_exact=10_592.0, exhaustive=10_592.0),
    **_row("Fig. 4", JCT, "K=15, lowest", has=3_948.9),
    **_row("Fig. 4", JCT, "K=15, {6, 6, 2, 1}", has=4_047.59),
    **_row("Fig. 4", JCT, "K=15, {5, 5, 2, 3}", has=4_046.35),
    **_row("Fig. 5", FAIR, "K=15, lowest JCT", has=0.824),
    **_row("Fig. 5", FAIR, "K=15, least", has=0.527),
    **_row("Fig. 5", FAIR, "K=15, most", has=0.994),
    **_row("Fig. 5", FAIR, "K=30, least", has=0.384),
    **_row("Fig. 5", FAIR, "K=30, most", has=0.999),
    **_row("Fig. 6", "place of the lowest JCT, of 364", "K=15", has=276),
    **_row("Fig. 9", LOSS, "K=15", optimus_lb=15.1, has=0.0, jps_20=2.95, jps_60=0.54),
    **_row("Fig. 9", LOSS, "K=30", optimus_lb=15.1, has=0.0, jps_20=5.10, jps_60=2.04),
    ValueKey("Fig. 9", LOSS, "K=15", RANDOM): 7.65,
    ValueKey("Fig. 9", LOSS, "K=30", RANDOM): 10.43,
    **_row("Table IV", ART, "K=15, S=4", optimus_shares=0.96e-3, optimus_lb=0.99e-3, jps_20=0.07, jps_40=0.14),
    **_row("Table IV", ART, "K=15, S=4", jps_60=0.22, has=1.07, exhaustive=47.89),
    **_row("Table IV", ART, "K=30, S=4", optimus_shares=1.99e-3, optimus_lb=1.99e-3, jps_20=0.38, jps_40=0.74),
    **_row("Table IV", ART, "K=30, S=4", jps_60=1.13, has=55.54, exhaustive=2.21 * HOUR_S),
    **_row("Table IV", ART, "K=15, S=3", optimus_shares=0.91e-3, optimus_lb=0.92e-3, jps_20=0.04, jps_40=0.06),
    **_row("Table IV", ART, "K=15, S=3", jps_60=0.06, has=0.17, exhaustive=1.55),
    **_row("Table IV", ART, "K=15, S=5", optimus_shares=1.01e-3, optimus_lb=1.07e-3, jps_20=0.06, jps_40=0.12),
    **_row("Table IV", ART, "K=15, S=5", jps_60=0.19, has=24.34, exhaustive=127.36),
    **_row("Fig. 13", JCT, "0", jps_60=4_301.35),
    **_row("Fig. 13", JCT, "1", jps_60=3_944.17),
    **_row("Fig. 13", FAIR, "0", jps_60=0.947),
    **_row("Fig. 13", FAIR, "1", jps_60=0.821),
    **_row("Fig. 14", LOSS, "1.1", optimus_shares=42.09, has=0.0),
    **_row("Fig. 14", LOSS, "1.15", has=0.0),
    **_row("Fig. 14", LOSS, "1.21", has=0.0),
    **_row("Fig. 14", LOSS, "1.26", optimus_shares=18.07, has=1.28),
    **_row("Fig. 15", MORE, "30", has=3.75, jps_60=4.3),
    **_row("Fig. 16", "communication, s", "300", jps_40=68.86, optimus_lb=69.13),
    **_row("Fig. 16", "computation, s", "300", jps_40=201.30, optimus_lb=217.96),
    **_row("Table V", ART, "50", optimus_shares=4.0e-3, optimus_lb=5.05e-3, jps_40=2.11, has=857.81),
    **_row("Table V", ART, "100", optimus_shares=8.31e-3, optimus_lb=10.03e-3, jps_40=8.35, has=12.98 * HOUR_S),
    **_row("Table V", ART, "200", optimus_shares=22.56e-3, optimus_lb=24.99e-3, jps_40=35.92),
    **_row("Table V", ART, "300", optimus_shares=44.16e-3, optimus_lb=48.68e-3, jps_40=114.61),
    **_row("Fig. 17", "mean JCT less than Gavel's, %", "with resets", has=21.2),
    **_row("Fig. 17", "makespan less than Gavel's, %", "with resets", has=71.3),
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
# What is drawn of each figure; tables have everything.
PLOTTED = {
    "Fig. 9": (LOSS,),
    "Fig. 10": (FAIR,),
    "Fig. 11": (LOSS,),
    "Fig. 12": (LOSS,),
    "Fig. 14": (LOSS, JCT),
    "Fig. 15": (MORE,),
    "Fig. 16": (JCT, "communication, s"),
    "Fig. 17": (JCT, "makespan, s"),
    "Fig. 18": (JCT,),
    "moving": (JCT, "moves"),
}
# How this was done, in sentences for the page.
CLUSTER = (
    "Clusters: machines of 5 GPUs, one type a machine, T4, P100 and V100 in turn; 300 Gbps inside, 10 Gbps "
    "between machines. Jobs: the first 3 to 5 of Table III. Gradients are exchanged once an epoch, as in Eq. 6."
)
RESETS = (
    "Figs. 17 and the costs of moving: the policies of the same names in the simulator, all jobs at time zero, "
    "from 1 to 15 workers each. An epoch is an iteration of the simulator's ring. A move costs nothing unless "
    "stated. Gavel: its rounds without the simulator, so that its first round begins at once. Optimus with "
    "equal parts is skipped there: the simulator's workers always share in proportion."
)
PROOF = "has-exact replaces exhaustive search where that would take hours; it proves that its answer is optimal."
UNTESTED = (
    "The paper's throughputs, which it shows in a figure only (Fig. 2): those here are chosen so that its "
    "default set-up comes out, and several fit. The Transformer's, which no such number depends on, are drawn "
    "from a range of ours. Training itself, its testbed and validation accuracy (Table III). Marks in figures "
    "without a number in the text."
)
