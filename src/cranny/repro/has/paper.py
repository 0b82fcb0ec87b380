"""The paper of HAS and JPS: the types of its file (paper.yaml), and measures that our experiments name."""

from collections.abc import Mapping
from typing import NamedTuple

from cranny.repro.paper_file import Number, Paper, PaperModel, read_paper

# Schemes beside policies: `random-20` samples all categories; `has-exact-blind` is blind to what moves cost.
JPS = {20: "jps-20", 40: "jps-40", 60: "jps-60"}
JCT, LOSS, FAIR, ART = "mean JCT, s", "over the optimum, %", "fairness", "running time, s"
MORE, LESS, SPAN = "more than without, %", "less than static, %", "less makespan than static, %"
BELOW, WORST, PROVED = "JPS below Optimus, %", "most over an equal share", "proved, %"
# The order in which Optimus gives out workers, which the paper leaves open; but for ours, schemes have it behind.
ORDERS = {"listed": "workers as listed", "fastest": "fastest type first", "slowest": "slowest type first"}
# What the text says of the default set-up, by which throughputs are chosen.
CATEGORY, LOWEST_S, FAIRNESS, HETEROGENEITY = (6, 5, 2, 2), 3_948.9, 0.824, 1.15
ALSO_S = {(6, 6, 2, 1): 4_047.59, (5, 5, 2, 3): 4_046.35}


class ValueKey(NamedTuple):
    """Which value: of a figure, a measure, a setting and a scheme."""

    figure: str
    measure: str
    setting: str
    scheme: str


class HasFigure(PaperModel):
    """A figure or table: what is varied, what is drawn, and values by measure, setting and scheme."""

    title: str
    axis: str = ""
    plotted: tuple[str, ...] = ()
    values: Mapping[str, Mapping[str, Mapping[str, Number]]] = {}


class HasPaper(Paper):
    """The file of the paper."""

    figures: Mapping[str, HasFigure]
    models: Mapping[str, tuple[int, int]]  # samples and epochs
    ranges: Mapping[str, tuple[float, float, float, float]]  # to draw throughputs from


TEXT = read_paper(HasPaper, __package__)
PAPER = {
    ValueKey(name, measure, setting, scheme): value
    for name, figure in TEXT.figures.items()
    for measure, settings in figure.values.items()
    for setting, schemes in settings.items()
    for scheme, value in schemes.items()
}


def in_order(scheme: str, order: str) -> str:
    """Return the name of a scheme that is Optimus in one of the orders."""
    return scheme if order == "listed" else f"{scheme}-{order}"


TITLES = {name: figure.title for name, figure in TEXT.figures.items()}
PLOTTED = {name: figure.plotted for name, figure in TEXT.figures.items()}
