"""Plots in the form that papers have them: lines over time with dotted means, and bars."""

from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cranny.model.errors import MissingExtraError
from cranny.model.yaml_file import Document
from cranny.report.confidence import Estimate
from cranny.report.styles import HUES, VERMILION
from cranny.repro.claim import Claim

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# Names for annotations; matplotlib itself is an extra.
Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"
DAY_S = 86_400.0
PANEL = (4.6, 3.4)  # inches
COLOURS = {"vermilion": VERMILION.light, "pale": "#f0a878", "dark": "#7a2b00"} | {
    number: hue.light for number, hue in enumerate(HUES)
}


def _styles() -> dict[str, tuple[str, float, str]]:
    """Read colour, width and stroke of every scheme."""
    with resources.as_file(resources.files(__package__) / "styles.yaml") as path:
        read: Any = Document(path, frozenset()).value
    return {
        scheme: (COLOURS.get(colour, colour), width, stroke) for scheme, (colour, width, stroke) in read.items()
    }


STYLES = _styles()
WIDE = (9.2, 2.9)  # inches, of a panel that has a row to itself
MOST_IN_ROW = 5  # names of a legend
MOST_IN_PANEL = 9  # bars of a claim
LETTERS = 13  # in an inch
TICK_SIZE = 10.0  # points
HANDLE = 0.55  # inches of a legend's patch and the space around a name
FOR_LABELS = 0.8  # of a figure's width or height
# The paper's bars, and those of readings in their order.
PAPERS, READINGS = "#b9b6b0", (VERMILION.light, *(HUES[at].light for at in (0, 1, 3, 2, 4, 5)))
FAR_APART = 30.0  # largest over smallest value from which on an axis is logarithmic


class Line(NamedTuple):
    """A scheme's values over time; `mean` is drawn dotted."""

    scheme: str
    times_s: Sequence[float]
    values: Sequence[float | None]
    mean: float | None = None


Bars = Mapping[str, Mapping[str, Estimate]]  # by the label of their group, and by scheme: one may be missing


def draw_lines(
    panels: Mapping[str, Sequence[Line]],
    ylabel: str,
    names: Mapping[str, str],
    *,
    xlabel: str = "days since the first arrival",
    unit_s: float = DAY_S,
) -> Figure:
    """Draw a panel a trace, side by side."""
    figure, axes = canvas(len(panels))
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for line in lines:
            colour, width, stroke = STYLES[line.scheme]
            # Where nothing arrives, nothing is measured: the line goes on to the next arrival.
            points = zip(line.times_s, line.values, strict=True)
            there = [(at / unit_s, value) for at, value in points if value is not None]
            x, y = zip(*there, strict=True)
            axis.plot(x, y, stroke, color=colour, linewidth=width, label=names.get(line.scheme, line.scheme))
            if line.mean is not None:
                axis.axhline(line.mean, color=colour, linewidth=1.1, linestyle=":")
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    return legend(figure, axes)


def draw_bars(
    panels: Mapping[str, Bars],
    ylabel: str,
    names: Mapping[str, str],
    *,
    xlabel: str = "workers",
    wide: bool = False,
    log: bool = False,
    **ticks: Any,
) -> Figure:
    """Draw groups of bars, a panel a model; the stroke on a bar is its confidence interval.

    Wide panels are below each other. With `log` the axis is logarithmic. `ticks` say how labels of groups look.
    """
    figure, axes = canvas(len(panels), WIDE if wide else PANEL, across=1 if wide else 2)
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        schemes = [scheme for scheme in STYLES if any(scheme in bars for bars in groups.values())]
        width = 0.8 / max(len(schemes), 1)
        for place, scheme in enumerate(schemes):
            there = [(at, bars[scheme]) for at, bars in enumerate(groups.values()) if scheme in bars]
            left = [at + (place - (len(schemes) - 1) / 2) * width for at, _ in there]
            draw_estimates(
                axis, left, [each for _, each in there], width, STYLES[scheme][0], names.get(scheme, scheme)
            )
        axis.set_xticks(range(len(groups)), list(groups), **ticks)
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        if log:
            axis.yaxis.set_major_formatter("{x:g}")
    return legend(figure, axes)


def draw_readings(claim: Claim) -> Figure:
    """Draw the paper's values of a claim beside ours under each reading; a range of the paper is a block."""
    place = {label: at for at, label in enumerate(claim.labels)}
    series = [*(["paper"] if claim.paper else []), *(each.name for each in claim.readings)]
    figure, (axis,) = canvas(1, WIDE if len(place) > 4 or len(place) * len(series) > MOST_IN_PANEL else PANEL)
    width = 0.8 / len(series)

    def left(label: str, name: str) -> float:
        return place[label] + (series.index(name) - (len(series) - 1) / 2) * width

    for at, (label, value) in enumerate(claim.paper.items()):
        low, high = value if isinstance(value, tuple) else (0.0, value)
        name = "" if at else "paper"
        axis.bar(left(label, "paper"), high - low, width, low, color=PAPERS, label=name)
    for colour, each in zip(READINGS, claim.readings, strict=False):
        spots = [left(label, each.name) for label in each.ours]
        draw_estimates(axis, spots, list(each.ours.values()), width, colour, each.name)
    numbers = [each.mean for reading in claim.readings for each in reading.ours.values()]
    numbers += [
        number for value in claim.paper.values() for number in (value if isinstance(value, tuple) else [value])
    ]
    if min(numbers) > 0 and max(numbers) > FAR_APART * min(numbers):
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
    letters = int(figure.get_figwidth() * FOR_LABELS / len(place) * LETTERS)
    axis.set_xticks(range(len(place)), [fill(label, letters, break_long_words=False) for label in place])
    longest = max(len(word) for label in place for word in label.split())
    if longest > letters:  # smaller, or neighbours would touch
        axis.tick_params("x", labelsize=TICK_SIZE * letters / longest)
    axis.set_ylabel(fill(claim.unit, int(figure.get_figheight() * FOR_LABELS * LETTERS)))
    axis.axhline(0.0, color="black", linewidth=0.6)
    return legend(figure, [axis])


def draw_estimates(
    axis: Axes, at: Sequence[float], values: Sequence[Estimate], width: float, colour: str, label: str
) -> None:
    """Draw a bar for each value, with its confidence interval if any has one."""
    halves = [each.half or 0.0 for each in values] if any(each.half is not None for each in values) else None
    means = [each.mean for each in values]
    axis.bar(at, means, width, yerr=halves, error_kw={"linewidth": 0.8}, color=colour, label=label)


def check_can_draw() -> None:
    """Raise an error if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError("drawing plots", "matplotlib")


def canvas(count: int, panel: tuple[float, float] = PANEL, across: int = 2) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels, so many in a row."""
    from matplotlib.figure import Figure

    across = min(count, across)
    down = -(-count // across)
    figure = Figure(figsize=(panel[0] * across, panel[1] * down + 0.3), layout="constrained")
    axes: list[Any] = list(figure.subplots(down, across, squeeze=False).ravel())
    for spare in axes[count:]:
        spare.remove()
    for axis in axes[:count]:
        axis.spines[["top", "right"]].set_visible(False)
        axis.title.set_fontsize(10)
    return figure, axes[:count]


def legend(figure: Figure, axes: Sequence[Axes]) -> Figure:
    """Put one legend for all panels at the top; return the figure."""
    seen: dict[Any, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            seen.setdefault(label, handle)
    inches = max(map(len, seen), default=0) / LETTERS + HANDLE
    figure.legend(
        list(seen.values()),
        list(seen),
        loc="outside upper center",
        ncols=max(1, min(len(seen), MOST_IN_ROW, int(figure.get_figwidth() / inches))),
        frameon=False,
        fontsize=8.5,
    )
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG and as SVG and return the latter; the same figure gives the same bytes."""
    import matplotlib as mpl

    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
        figure.set_layout_engine(None)  # panels have their places now; each file would compute them again
    with mpl.rc_context({"svg.hashsalt": "cranny"}):
        figure.savefig(path.with_suffix(".png"), dpi=150)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path.with_suffix(".svg")
