"""Pictures in the form that papers have them: lines over time with dotted means, and bars."""

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
# One look a scheme in all pictures: colour, width and stroke of its line.
LOOKS: Mapping[str, tuple[str, float, str]] = {
    "titan": (VERMILION.light, 2.0, "-"),
    "consolidate-idle": (HUES[0].light, 1.2, "-"),
    "fragments-first": (HUES[1].light, 1.2, "-"),
    "tiresias": (HUES[2].light, 1.2, "-"),
    "netpack": (VERMILION.light, 2.0, "-"),
    "netpack-lean": ("#f0a878", 2.0, "-"),
    "netpack-printed": ("#7a2b00", 2.0, "-"),
    "netpack-fifo": ("#7a2b00", 2.0, "-"),
    "gpu-balance": (HUES[0].light, 1.2, "-"),
    "flow-balance": (HUES[4].light, 1.2, "-"),
    "least-fragmentation": (HUES[1].light, 1.2, "-"),
    "optimus": (HUES[2].light, 1.2, "-"),
    "tetris": (HUES[3].light, 1.2, "-"),
    "comb": ("#a9afb5", 1.2, "-"),
    "best-fit": (HUES[5].light, 1.2, "--"),
    "optimus-shares": (HUES[2].light, 1.2, "-"),
    "optimus-lb": (HUES[1].light, 1.2, "-"),
    "las": (HUES[3].light, 1.2, "-"),
    "gavel": ("#a9afb5", 1.2, "-"),
    "random-20": ("#d9d4cc", 1.2, "-"),
    "jps-20": ("#9cc9e8", 1.2, "-"),
    "jps-40": ("#5ea4d6", 1.2, "-"),
    "jps-60": (HUES[0].light, 1.2, "-"),
    "has": (HUES[4].light, 1.2, "-"),
    "has-exact": (VERMILION.light, 2.0, "-"),
    "has-exact-blind": ("#f0a878", 2.0, "--"),
    "exhaustive": ("#6b7076", 1.2, "--"),
    "estimate": (HUES[5].light, 2.0, "-"),
    "steady": (HUES[4].light, 1.2, "--"),
    "phases": (VERMILION.light, 1.6, "-"),
}
WIDE = (9.2, 2.9)  # inches, of a panel that has a row to itself
MOST_IN_ROW = 5  # names of a legend
BACKGROUND, FREE = "#b9b6b0", "#ffffff"


@dataclass(frozen=True, slots=True)
class Line:
    """A scheme's values over time; `mean` is drawn dotted."""

    scheme: str
    times_s: Sequence[float]
    values: Sequence[float | None]
    mean: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The bars of one place on the axis, by scheme; a scheme that is missing has no bar."""

    label: str
    bars: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True)
class Seats:
    """Machines with background jobs and the workers of one job."""

    scheme: str
    title: str
    free: Sequence[int]
    gpus: int
    machines: Sequence[int] | None  # of each rank; None if the job must wait


def draw_lines(
    panels: Mapping[str, Sequence[Line]],
    ylabel: str,
    names: Mapping[str, str],
    path: Path,
    *,
    xlabel: str = "days since the first arrival",
    unit_s: float = DAY_S,
) -> list[Path]:
    """Draw a panel a trace, side by side."""
    figure, axes = canvas(len(panels))
    for axis, (title, lines) in zip(axes, panels.items(), strict=True):
        for line in lines:
            colour, width, stroke = LOOKS[line.scheme]
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
    panels: Mapping[str, Sequence[Group]],
    ylabel: str,
    names: Mapping[str, str],
    path: Path,
    *,
    xlabel: str = "workers",
    wide: bool = False,
    log: bool = False,
) -> list[Path]:
    """Draw groups of bars, a panel a model; the stroke on a bar is its confidence interval.

    Wide panels stand below each other. With `log` the axis is logarithmic.
    """
    figure, axes = canvas(len(panels), WIDE if wide else PANEL, across=1 if wide else 2)
    for axis, (title, groups) in zip(axes, panels.items(), strict=True):
        schemes = [scheme for scheme in LOOKS if any(scheme in group.bars for group in groups)]
        width = 0.8 / max(len(schemes), 1)
        for place, scheme in enumerate(schemes):
            there = [(at, group.bars[scheme]) for at, group in enumerate(groups) if scheme in group.bars]
            axis.bar(
                [at + (place - (len(schemes) - 1) / 2) * width for at, _ in there],
                [each.mean for _, each in there],
                width,
                yerr=[each.half or 0.0 for _, each in there],
                error_kw={"linewidth": 0.8},
                color=LOOKS[scheme][0],
                label=names.get(scheme, scheme),
            )
        axis.set_xticks(range(len(groups)), [group.label for group in groups])
        axis.set(title=title, xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        if log:
            axis.yaxis.set_major_formatter("{x:g}")
    legend(figure, axes)
    return save(figure, path)


def draw_seats(rows: Sequence[Sequence[Seats]], path: Path) -> list[Path]:
    """Draw who sits where, a column a machine: grey for background jobs, the number of the rank for workers."""
    first = rows[0][0]
    wide, high = len(first.free) + 1.5, first.gpus + 2.0  # of a layout, with room around it
    figure, (axis,) = canvas(1, panel=(0.25 * wide * len(rows[0]), 0.25 * high * len(rows)))
    for down, row in enumerate(rows):
        for across, seats in enumerate(row):
            _draw_seats(axis, seats, across * wide, -down * high)
    axis.set(
        xlim=(-0.2, wide * len(rows[0])), ylim=(-high * (len(rows) - 1) - 0.2, first.gpus + 1), aspect="equal"
    )
    axis.axis("off")
    return save(figure, path)


def _draw_seats(axis: "Axes", seats: Seats, left: float, bottom: float) -> None:
    """Draw one layout with its lower left corner there."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    taken = [seats.gpus - free for free in seats.free]
    colours = {
        (machine, gpu): BACKGROUND if gpu < taken[machine] else FREE
        for machine in range(len(seats.free))
        for gpu in range(seats.gpus)
    }
    for rank, machine in enumerate(seats.machines or ()):
        colours[machine, taken[machine]] = LOOKS[seats.scheme][0]
        at = left + machine + 0.45, bottom + taken[machine] + 0.42
        axis.text(*at, str(rank), size=6, color="white", ha="center", va="center")
        taken[machine] += 1
    squares = [Rectangle((left + machine, bottom + gpu), 0.9, 0.9) for machine, gpu in colours]
    axis.add_collection(
        PatchCollection(squares, facecolor=list(colours.values()), edgecolor="#6b7076", linewidth=0.5)
    )
    title = seats.title if seats.machines else f"{seats.title}: must wait"
    axis.text(left + len(seats.free) / 2, bottom + seats.gpus + 0.2, title, size=7, ha="center")


def check_can_draw() -> None:
    """Refuse to begin if there is nothing to draw with."""
    if find_spec("matplotlib") is None:
        raise CrannyError("pictures need 'matplotlib': install cranny with its extra 'repro'")


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


def save(figure: "Figure", path: Path) -> list[Path]:
    """Write a picture as PNG and as SVG; the same picture gives the same bytes."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "cranny"}):
        written = [path.with_suffix(".png"), path.with_suffix(".svg")]
        figure.savefig(written[0], dpi=150)
        figure.savefig(written[1], metadata={"Date": None})
    return written
