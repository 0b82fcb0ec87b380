"""A picture of circles before and after they are turned, and of what their link carries; one SVG file.

Each job is a ring of its link's unified circle, the first one outermost; coloured arcs are up phases, darker the
more they ask for. Time runs counter-clockwise from three o'clock, as in CASSINI's figures. The outer red band
marks where the jobs together ask for more than the link has.
"""

import html
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from cranny.core.circles.affinity import SharedLink
from cranny.core.circles.compatibility import Compatibility
from cranny.core.circles.curve import Curve, curve
from cranny.core.circles.interleave import Interleaving
from cranny.core.circles.unified import Unified
from cranny.model.circle import DEGREES, Circle
from cranny.model.number import counted
from cranny.report.charts import Frame, Line, line_chart
from cranny.report.looks import HUES
from cranny.report.markup import text
from cranny.report.scales import Axis, count_axis
from cranny.version import VERSION

WIDTH, HEAD = 1120.0, 64.0
RADIUS, HOLE = 104.0, 34.0
CHART = Frame(width=560.0, height=154.0, left=52.0, right=12.0, top=24.0, bottom=24.0)
LEGEND_ROW = 20.0
MOST_SHOWN_TURNS = 4  # of the longest job, in the chart of demand
ALARM = "#c8392f"
STYLE = """
.panel.line { fill: none; }
.track { fill: none; stroke: #f1efeb; }
.arc { fill: none; }
.area { stroke: none; }
.over { fill: none; stroke: #c8392f; stroke-width: 5; }
.small { font-size: 11.5px; }
.score { fill: #1e2429; font-size: 17px; font-weight: 650; text-anchor: middle; }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}
figure {{ margin: 24px 0 0; overflow-x: auto; }}</style></head>
<body><header><h1>{title}</h1><p class="finding">{lead}</p></header>
<main><figure>{picture}</figure></main><footer>Made by cranny {version}</footer></body></html>
"""


def write_circles(found: Interleaving, path: str | Path, title: str = "Interleaved jobs") -> Path:
    """Write the picture to an SVG file, or a page that holds it if the name ends in .html."""
    path = Path(path)
    picture = render(found)
    if path.suffix.lower() in {".html", ".htm"}:
        style = resources.files("cranny.report").joinpath("page.css").read_text(encoding="utf-8")
        lead = f"Mean score of {counted(len(found.graph.links), 'shared link')}: {_mean_score(found):.2f}."
        picture = PAGE.format(
            title=text(title), style=style, lead=text(lead), picture=picture, version=text(VERSION)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture, encoding="utf-8", newline="\n")
    return path


def render(found: Interleaving) -> str:
    """Return the picture as text: one row a link."""
    colours = {job: HUES[number % len(HUES)].light for number, job in enumerate(found.shifts_s)}
    rows, y = [], 12.0
    for link, fit in zip(found.graph.links, found.graph.fits, strict=True):
        height = max(400.0, HEAD + 2 * CHART.height + 30.0, HEAD + 250.0 + LEGEND_ROW * (len(link.circles) + 1))
        rows.append(f'<g transform="translate(0 {y:g})">{_row(link, fit, found, colours, height)}</g>')
        y += height + 12.0
    style = resources.files("cranny.report").joinpath("picture.css").read_text(encoding="utf-8") + STYLE
    label = html.escape("Circles of jobs before and after they are turned, and the demand of each link")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {y:g}" width="{WIDTH:g}" height="{y:g}" '
        f'role="img" aria-label="{label}"><style>{style}</style>{"".join(rows)}</svg>\n'
    )


def _row(link: SharedLink, fit: Compatibility, found: Interleaving, colours: dict[str, str], height: float) -> str:
    """Draw one link: its circles before and after, who is who, and its demand over time."""
    circles = tuple(link.circles.values())
    paint = [colours[job] for job in link.circles]
    shifts_s = [found.shifts_s[job] for job in link.circles]
    unified = fit.unified
    curves = [curve(circles, each, unified) for each in ((0.0,) * len(circles), shifts_s)]
    parts = [
        f'<rect class="panel" x="8.5" y="0.5" width="{WIDTH - 17:g}" height="{height - 1:g}" rx="12"/>',
        _text(28, 32, f"{link.name}, {link.gbps:g} Gbps", "title"),
        _text(28, 52, f"Unified circle of {_ms(unified.perimeter_s)}; {_search(fit)}", "small"),
    ]
    y_axis = count_axis([float(curves[0].gbps.max()), float(curves[1].gbps.max()), link.gbps])
    span_s = min(unified.perimeter_s, MOST_SHOWN_TURNS * max(circle.iteration_s for circle in circles))
    x_axis = count_axis([span_s], suffix=" s") if span_s >= 1.0 else count_axis([span_s], factor=1e3, suffix=" ms")
    x_axis = Axis(0.0, span_s, tuple(tick for tick in x_axis.ticks if tick[0] <= span_s))
    for place, (name, shifts, whole) in enumerate(
        (("Before", [0.0] * len(circles), curves[0]), ("After", shifts_s, curves[1]))
    ):
        x = 148.0 + 262.0 * place
        parts.append(_text(x, HEAD + 16, name, "middle name"))
        parts.append(_rings(x, HEAD + 138, circles, shifts, unified, paint, whole, link.gbps))
        chart = _demand(circles, shifts, unified, paint, whole, link.gbps, x_axis, y_axis, name)
        at = HEAD - 12.0 + place * (CHART.height + 6.0)
        parts.append(f'<g transform="translate({WIDTH - CHART.width - 20:g} {at:g})">{chart}</g>')
    parts.extend(_legend(link, shifts_s, paint, HEAD + 268.0))
    return "".join(parts)


def _rings(
    x: float,
    y: float,
    circles: Sequence[Circle],
    shifts_s: Sequence[float],
    unified: Unified,
    paint: Sequence[str],
    whole: Curve,
    gbps: float,
) -> str:
    """Draw the circles of all jobs as rings, the first outermost, and the score in the middle."""
    pitch = (RADIUS - HOLE) / len(circles)
    parts = []
    for job, (circle, shift_s, turns) in enumerate(zip(circles, shifts_s, unified.turns, strict=True)):
        radius, width = RADIUS - (job + 0.5) * pitch, max(pitch - 3.0, 1.0)
        parts.append(f'<circle class="track" cx="{x:g}" cy="{y:g}" r="{radius:.1f}" stroke-width="{width:.1f}"/>')
        period_s = unified.perimeter_s / turns
        for start, end, rate in circle.stretched(period_s).arcs:
            strength = 0.35 + 0.65 * min(rate / gbps, 1.0)
            style = f"stroke:{paint[job]};stroke-width:{width:.1f};stroke-opacity:{strength:.2f}"
            for turn in range(turns):
                begun = turn * period_s + shift_s
                share = ((begun + start) / unified.perimeter_s, (begun + end) / unified.perimeter_s)
                parts.append(f'<path class="arc" style="{style}" d="{_arc(x, y, radius, *share)}"/>')
    for start, length, demand in zip(whole.at_s, whole.lengths_s, whole.gbps, strict=True):
        if demand > gbps * (1 + 1e-9):
            share = (start / whole.perimeter_s, (start + length) / whole.perimeter_s)
            parts.append(f'<path class="over" d="{_arc(x, y, RADIUS + 5, *share)}"/>')
    parts.append(_text(x, y + 2, f"{whole.score(gbps):.2f}", "score"))
    parts.append(_text(x, y + 16, "score", "small middle"))
    return "".join(parts)


def _arc(x: float, y: float, radius: float, start: float, end: float) -> str:
    """Return the path of an arc between two shares of the circle, counter-clockwise from three o'clock."""
    if end - start > 1 - 1e-9:  # a whole circle has no ends to draw between: two halves
        half = f"a{radius:.2f} {radius:.2f} 0 1 0"
        return f"M{x + radius:.2f} {y:.2f}{half} {-2 * radius:.2f} 0{half} {2 * radius:.2f} 0"
    ends = []
    for share in (start, end):
        angle = math.radians(share * DEGREES)
        ends.append(f"{x + radius * math.cos(angle):.2f} {y - radius * math.sin(angle):.2f}")
    return f"M{ends[0]}A{radius:.2f} {radius:.2f} 0 {int(end - start > 0.5)} 0 {ends[1]}"


def _demand(
    circles: Sequence[Circle],
    shifts_s: Sequence[float],
    unified: Unified,
    paint: Sequence[str],
    whole: Curve,
    gbps: float,
    x_axis: Axis,
    y_axis: Axis,
    name: str,
) -> str:
    """Draw the demand of all jobs over time, one on top of the other, and the link's capacity."""
    areas = []
    for count in range(len(circles), 0, -1):  # the sum of all jobs first; sums of fewer cover it from below
        part = Unified(unified.perimeter_s, unified.turns[:count], unified.angles, unified.error)
        total = curve(circles[:count], shifts_s[:count], part)
        areas.append(f'<path class="area" style="fill:{paint[count - 1]}" d="{_steps(total, x_axis, y_axis)}"/>')
    capacity = Line(0, ALARM, (0.0, x_axis.high), (gbps, gbps), dash="5 4")
    label = f"{name}: demand over time, {whole.excess(gbps):.3g} Gbps too much in the mean"
    lines = line_chart([capacity], x_axis, y_axis, label=label, frame=CHART)
    note = _text(CHART.left, CHART.top - 10, f"{name}, Gbps", "small")
    return f"{''.join(areas)}{lines}{note}"


def _steps(total: Curve, x_axis: Axis, y_axis: Axis) -> str:
    """Return the outline of a curve of steps, as far as the axis goes."""
    path = [f"M{CHART.x(x_axis, 0.0):.1f} {CHART.y(y_axis, 0.0):.1f}"]
    for start, length, gbps in zip(total.at_s, total.lengths_s, total.gbps, strict=True):
        if start < x_axis.high:
            path.append(f"V{CHART.y(y_axis, gbps):.1f}H{CHART.x(x_axis, start + length):.1f}")
    path.append(f"V{CHART.y(y_axis, 0.0):.1f}Z")
    return "".join(path)


def _legend(link: SharedLink, shifts_s: Sequence[float], paint: Sequence[str], y: float) -> list[str]:
    """Name the jobs, their iteration times and their shifts."""
    parts = [
        _text(224, y, "iteration", "small end"),
        _text(310, y, "up phases", "small end"),
        _text(406, y, "mean", "small end"),
        _text(482, y, "shift", "small end"),
    ]
    for row, (job, circle) in enumerate(link.circles.items()):
        at = y + LEGEND_ROW * (row + 1)
        parts.append(f'<rect x="28" y="{at - 9:g}" width="12" height="10" rx="2" style="fill:{paint[row]}"/>')
        name = job if len(job) <= 18 else f"{job[:17]}…"
        parts += [
            _text(46, at, name, "name"),
            _text(224, at, _ms(circle.iteration_s), "value end"),
            _text(310, at, _ms(circle.up_s), "value end"),
            _text(406, at, f"{circle.mean_gbps:.3g} Gbps", "value end"),
            _text(482, at, _ms(shifts_s[row]), "value end best"),
        ]
    return parts


def _mean_score(found: Interleaving) -> float:
    """Return the mean score of the links at the shifts, on their curves."""
    scores = [
        curve(tuple(link.circles.values()), [found.shifts_s[job] for job in link.circles], fit.unified).score(
            link.gbps
        )
        for link, fit in zip(found.graph.links, found.graph.fits, strict=True)
    ]
    return sum(scores) / len(scores) if scores else 1.0


def _search(fit: Compatibility) -> str:
    """Say how the rotations were found."""
    how = "best of all rotations" if fit.method == "exact" else f"no rotation scores above {fit.bound:.2f}"
    stretched = f"; iteration times changed by up to {fit.unified.error:.1%}" if fit.unified.error > 0.0005 else ""
    return f"{fit.unified.angles} angles; {how}{stretched}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{html.escape(words)}</text>'
