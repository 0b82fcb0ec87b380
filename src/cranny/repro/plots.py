"""Plots in the form that papers have them: lines over time with dotted means, and bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cranny.model.errors import CrannyError
from cranny.report.confidence import Estimate
from cranny.report.styles import HUES, VERMILION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAY_S = 86_400.0
PANEL = (4.6, 3.4)  # inches
THIN, THICK = 1.2, 2.0  # widths of lines
PALE, DARK = "#f0a878", "#7a2b00"  # of vermilion
# One style a scheme in all plots: colour, width and stroke of its line. Bars stand in this order.
STYLES: Mapping[str, tuple[str, float, str]] = {
    "titan": (VERMILION.light, THICK, "-"),
    "consolidate-idle": (HUES[0].light, THIN, "-"),
    "fragments-first": (HUES[1].light, THIN, "-"),
    "tiresias": (HUES[2].light, THIN, "-"),
    "netpack": (VERMILION.light, THICK, "-"),
    "netpack-lean": (PALE, THICK, "-"),
    "netpack-printed": (DARK, THICK, "-"),
    "netpack-fifo": (DARK, THICK, "-"),
    "gpu-balance": (HUES[0].light, THIN, "-"),
    "flow-balance": (HUES[4].light, THIN, "-"),
    "least-fragmentation": (HUES[1].light, THIN, "-"),
    "optimus": (HUES[2].light, THIN, "-"),
    "tetris": (HUES[3].light, THIN, "-"),
    "comb": ("#a9afb5", THIN, "-"),
    "best-fit": (HUES[5].light, THIN, "--"),
    "optimus-shares": (HUES[2].light, THIN, "-"),
    "optimus-lb": (HUES[1].light, THIN, "-"),
    "las": (HUES[3].light, THIN, "-"),
    "gavel": ("#a9afb5", THIN, "-"),
    "random-20": ("#d9d4cc", THIN, "-"),
    "jps-20": ("#9cc9e8", THIN, "-"),
    "jps-40": ("#5ea4d6", THIN, "-"),
    "jps-60": (HUES[0].light, THIN, "-"),
    "has": (HUES[4].light, THIN, "-"),
    "has-exact": (VERMILION.light, THICK, "-"),
    "has-exact-blind": (PALE, THICK, "--"),
    "exhaustive": ("#6b7076", THIN, "--"),
    "estimate": (HUES[5].light, THICK, "-"),
    "steady": (HUES[4].light, THIN, "--"),
    "phases": (VERMILION.light, 1.6, "-"),
    "themis": (HUES[0].light, 1.4, "-"),
    "themis+cassini": (VERMILION.light, THICK, "-"),
    "pollux": (HUES[1].light, 1.4, "-"),
    "pollux+cassini": (HUES[3].light, THICK, "-"),
    "ideal": (HUES[5].light, 1.4, "--"),
    "random": (HUES[2].light, THIN, ":"),
}
WIDE = (9.2, 2.9)  # inches, of a panel that has a row to itself
MOST_IN_ROW = 5  # names of a legend


@dataclass(frozen=True, slots=True)
class Line:
    """A scheme's values over time; `mean` is drawn dotted."""

    scheme: str
    times_s: Sequence[float]
    values: Sequence[float | None]
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class BarGroup:
    """The bars at one position of the axis, by scheme; a scheme that is missing has no bar."""

    label: str
    bars: Mapping[str, Estimate]


def draw_lines(
    panels: Mapping[str, Sequence[Line]],
    ylabel: str,
    names: Mapping[str, str],
    path: Path,
    *,
    xlabel: str = "days since the first arrival",
    unit_s: float = DAY_S,
) -> Path:
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
    legend(figure, axes)
    return save(figure, path)


def draw_bars(
    panels: Mapping[str, Sequence[BarGroup]],
    ylabel: str,
    names: Mapping[str, str],
    path: Path,
    *,
    xlabel: str = "workers",
    wide: bool = False,
    log: bool = False,
) -> Path:
    """Draw groups of bars, a panel a model; the stroke on a bar is its confidence interval.

    Wide panels are below each other. With `log` the axis is logarithmic.
    """
    figure, axes = canvas(len(panels), WIDE if wide else PANEL, across=1 if wide else 2)
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        schemes = [scheme for scheme in STYLES if any(scheme in group.bars for group in groups)]
        width = 0.8 / max(len(schemes), 1)
        for place, scheme in enumerate(schemes):
            there = [(at, group.bars[scheme]) for at, group in enumerate(groups) if scheme in group.bars]
            axis.bar(
                [at + (place - (len(schemes) - 1) / 2) * width for at, _ in there],
                [each.mean for _, each in there],
                width,
                yerr=[each.half or 0.0 for _, each in there],
                error_kw={"linewidth": 0.8},
                color=STYLES[scheme][0],
                label=names.get(scheme, scheme),
            )
        axis.set_xticks(range(len(groups)), [group.label for group in groups])
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        if log:
            axis.yaxis.set_major_formatter("{x:g}")
    legend(figure, axes)
    return save(figure, path)


def check_can_draw() -> None:
    """Raise an error if matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise CrannyError("plots need 'matplotlib': install cranny with its extra 'repro'")


def canvas(count: int, panel: tuple[float, float] = PANEL, across: int = 2) -> "tuple[Figure, list[Axes]]":
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


def legend(figure: "Figure", axes: "Sequence[Axes]") -> None:
    """Put one legend for all panels at the top."""
    seen: dict[Any, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            seen.setdefault(label, handle)
    figure.legend(
        list(seen.values()),
        list(seen),
        loc="outside upper center",
        ncols=min(len(seen), MOST_IN_ROW),
        frameon=False,
        fontsize=8.5,
    )


def save(figure: "Figure", path: Path) -> Path:
    """Write a figure as PNG and as SVG and return the latter; the same figure gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "cranny"}):
        figure.savefig(path.with_suffix(".png"), dpi=150)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return path.with_suffix(".svg")
