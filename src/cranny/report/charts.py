"""Charts as SVG text: lines over time, cumulative distributions, and bars.

The functions are pure. Colours come with the data; fonts, grid and text colours come from the style sheet of
the page or the picture that holds the chart (`page.css`, `picture.css`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from cranny.report.scales import Axis
from cranny.report.shell import svg, svg_text

LETTER = 7.0  # width of a letter of a label, about
LARGE_LETTER = 13.0  # on a narrow screen, where the style sheet makes letters larger and hides `roomy` labels


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One run in a chart; `low` and `high` are the edges of a pale band round the line.

    Where `y` is None nothing is known: only a faint bridge leads over it, and what stands alone is a dot. A line
    goes on over up to `gap` such values in a row.
    """

    run: int
    colour: str
    x: Sequence[float]
    y: Sequence[float | None]
    dash: str = ""
    strong: bool = False
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    gap: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """The size of a chart and the margins round its plot."""

    width: float = 640.0
    height: float = 250.0
    left: float = 46.0
    right: float = 14.0
    top: float = 12.0
    bottom: float = 28.0

    def x(self, axis: Axis, value: float) -> float:
        """Return the horizontal position of a value."""
        return self.left + axis.share(value) * (self.width - self.left - self.right)

    def y(self, axis: Axis, value: float) -> float:
        """Return the vertical position of a value; SVG counts downwards."""
        return self.height - self.bottom - axis.share(value) * (self.height - self.top - self.bottom)


@dataclass(frozen=True, slots=True)
class BarColumn:
    """One column of bars: the lines of its title, and for each row a length (0 to 1) and the text over it."""

    title: Sequence[str]
    lengths: Sequence[float]
    texts: Sequence[str]
    best: frozenset[int] = frozenset()


def line_chart(
    lines: Sequence[ChartLine],
    x_axis: Axis,
    y_axis: Axis,
    *,
    label: str,
    frame: Frame | None = None,
    strong_below: bool = False,
    under: str = "",
) -> str:
    """Draw lines over a shared axis; strong ones last, so that they lie on top, unless `strong_below`.

    `under` is drawn over the grid and below all lines.
    """
    frame = frame if frame is not None else Frame()
    ordered = sorted(lines, key=lambda line: line.strong is not strong_below)
    bands = [_band(line, x_axis, y_axis, frame) for line in ordered]
    strokes = [_stroke(line, x_axis, y_axis, frame) for line in ordered]
    body = "".join([*_grid(x_axis, y_axis, frame), under, *bands, *strokes])
    # The page's script reads the axes from these attributes.
    axes = (
        f' data-left="{frame.left:g}" data-right="{frame.width - frame.right:g}" '
        f'data-top="{frame.top:g}" data-bottom="{frame.height - frame.bottom:g}" '
        f'data-x-low="{x_axis.low!r}" data-x-high="{x_axis.high!r}" '
        f'data-y-low="{y_axis.low!r}" data-y-high="{y_axis.high!r}" data-x-log="{int(x_axis.log)}"'
    )
    return svg(frame.width, frame.height, label, body, "chart", axes)


def bar_chart(
    names: Sequence[str],
    colours: Sequence[str],
    columns: Sequence[BarColumn],
    *,
    label: str,
    frame: Frame,
    strong: frozenset[int] = frozenset(),
) -> str:
    """Draw a table of bars: one row a run, one column a metric, each value written over its bar."""
    head, gap = 40.0, 18.0
    row_height = min((frame.height - frame.top - frame.bottom - head) / len(names), 66.0)
    pitch = (frame.width - frame.left - frame.right + gap) / max(len(columns), 1)
    baselines = [frame.top + head + (row + 0.4) * row_height for row in range(len(names))]
    parts: list[str] = []
    for place, column in enumerate(columns):
        x = frame.left + place * pitch
        parts.extend(
            svg_text(x, frame.top + 10 + 15 * line, words, "head") for line, words in enumerate(column.title)
        )
        for row, (length, value) in enumerate(zip(column.lengths, column.texts, strict=True)):
            parts.append(svg_text(x, baselines[row], value, "value best" if row in column.best else "value"))
            box = f'x="{x:.1f}" y="{baselines[row] + 6:.1f}" height="{min(9.0, row_height * 0.3):.1f}" rx="2"'
            full = pitch - gap
            width = max(full * min(max(length, 0.0), 1.0), 1.5)
            parts.append(f'<rect class="track" {box} width="{full:.1f}"/>')
            parts.append(f'<rect class="bar" {box} width="{width:.1f}" style="fill:{colours[row]}"/>')
    for row, name in enumerate(names):
        parts.append(f'<circle cx="5" cy="{baselines[row] - 4.5:.1f}" r="5" style="fill:{colours[row]}"/>')
        parts.append(svg_text(17.0, baselines[row], name, "name strong" if row in strong else "name"))
    return svg(frame.width, frame.height, label, "".join(parts), "chart")


def _grid(x_axis: Axis, y_axis: Axis, frame: Frame) -> list[str]:
    """Draw the ticks: level lines for y, small strokes for x."""
    right, floor = frame.width - frame.right, frame.height - frame.bottom
    parts = []
    for value, text in y_axis.ticks:
        y = frame.y(y_axis, value)
        parts.append(f'<path class="grid" d="M{frame.left:g} {y:.1f}H{right:g}"/>')
        parts.append(svg_text(frame.left - 8, y + 4, text, "tick end"))
    parts.append(f'<path class="base" d="M{frame.left:g} {floor:g}H{right:g}"/>')
    edge = large_edge = 0.0
    for value, text in x_axis.ticks:
        x = frame.x(x_axis, value)
        parts.append(f'<path class="base" d="M{x:.1f} {floor:g}v4"/>')
        # A label that would run into the one before it is hidden; its tick stays.
        half, large = LETTER / 2 * len(text), LARGE_LETTER / 2 * len(text)
        if x - half < edge or x + half > frame.width:
            continue
        edge = x + half + 6
        fits = x - large >= large_edge and x + large <= frame.width + LARGE_LETTER
        large_edge = x + large + LARGE_LETTER if fits else large_edge
        parts.append(svg_text(x, floor + 18, text, "tick middle" if fits else "tick middle roomy"))
    return parts


def _stroke(line: ChartLine, x_axis: Axis, y_axis: Axis, frame: Frame) -> str:
    """Draw one line through neighbours that have a value, dots for those without neighbours, bridges over gaps."""
    pieces = [
        [f"{frame.x(x_axis, x):.1f} {frame.y(y_axis, y):.1f}" for x, y in piece]
        for piece in _pieces(list(zip(line.x, line.y, strict=True)), line.gap)
    ]
    strong = " strong" if line.strong else ""
    dash = f";stroke-dasharray:{line.dash}" if line.dash else ""

    def path(kind: str, d: str, more: str = "") -> str:
        style = f"stroke:{line.colour}{more}"
        return f'<path class="{kind}{strong}" data-run="{line.run}" style="{style}" d="{d}"/>' if d else ""

    gaps = "".join(f"M{one[-1]}L{other[0]}" for one, other in pairwise(pieces))
    # A stroke of no length becomes a dot by its round ends.
    dots = "".join(f"M{piece[0]}h0" for piece in pieces if len(piece) == 1)
    drawn = "".join("M" + "L".join(piece) for piece in pieces if len(piece) > 1)
    return path("bridge", gaps) + path("line", drawn, dash) + path("dots", dots)


def _pieces(points: Sequence[tuple[float, float | None]], gap: int) -> list[list[tuple[float, float]]]:
    """Part known points where more than `gap` in a row are not known."""
    pieces: list[list[tuple[float, float]]] = []
    last = -gap - 2
    for place, (x, y) in enumerate(points):
        if y is None:
            continue
        if place - last > gap + 1:
            pieces.append([])
        pieces[-1].append((x, y))
        last = place
    return pieces


def _band(line: ChartLine, x_axis: Axis, y_axis: Axis, frame: Frame) -> str:
    """Draw the pale band between the lowest and the highest values, as far as neighbours have some."""
    edges = [list(zip(line.x, edge, strict=False)) for edge in (line.high, line.low)]
    d = ""
    for upper, lower in zip(*(_pieces(edge, line.gap) for edge in edges), strict=True):
        if len(upper) > 1:
            corners = [(frame.x(x_axis, x), frame.y(y_axis, y)) for x, y in [*upper, *reversed(lower)]]
            d += f"M{'L'.join(f'{x:.0f} {y:.0f}' for x, y in corners)}Z"
    kind = "band strong" if line.strong else "band"
    return f'<path class="{kind}" data-run="{line.run}" style="fill:{line.colour}" d="{d}"/>' if d else ""
