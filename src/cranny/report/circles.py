"""CASSINI's circles of the jobs on a link, and their demand over time: a picture, a page, and a section.

Each job is a ring of its link's unified circle, the first one outermost; coloured arcs are up phases, darker the
higher their demand. Time runs counter-clockwise from three o'clock, as in CASSINI's figures. The outer red band
marks where the total demand exceeds the link's capacity.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from cranny.model.circle import DEGREES
from cranny.model.validate import counted, percent
from cranny.network.interleave.affinity import SharedLink
from cranny.network.interleave.compatibility import Compatibility
from cranny.network.interleave.shifts import Interleaving, scores
from cranny.network.interleave.unified_circle import DemandCurve, UnifiedCircle, curve, unify
from cranny.network.phases.contention import MOST, Contention
from cranny.report.charts import ChartLine, Frame, line_chart
from cranny.report.scales import Axis, count_axis, duration_text
from cranny.report.shell import escape, file_text, html_page, html_section, html_table, svg, svg_text, write_file
from cranny.report.styles import HUES, Hue, css_colours

WIDTH, HEAD, FOOT = 1120.0, 64.0, 44.0
RADIUS, HOLE = 104.0, 34.0
CIRCLE_EXTENT = RADIUS + 10.0  # radius of a circle with the band round it
CHART = Frame(width=560.0, height=154.0, left=52.0, right=12.0, top=24.0, bottom=24.0)
PAGE_CHART = Frame(width=420.0, height=170.0, left=44.0, right=12.0, top=24.0, bottom=26.0)
LEGEND_ROW = 20.0
LEGEND_AT = HEAD + 276.0
LEGEND_ENDS = (290.0, 366.0, 458.0, 528.0)  # where its columns end
MOST_SHOWN_TURNS = 4  # of the longest job, in the chart of demand
ALARM = Hue("#c8392f", "#ff7a6e")
SHADES = ((0, 0.0), (0, 0.4), (255, 0.4))  # of a hue that comes again: as it is, darker, lighter
COLOURS = len(SHADES) * len(HUES)  # of jobs; then they come again
KEY = (
    "Each ring is a job, the first outermost: its coloured arcs are up phases, darker the higher their demand, "
    "on the faint rest the job computes; time runs counter-clockwise from three o'clock, and a red band outside "
    "marks where their total demand exceeds the link's capacity, the dashed line of the charts."
)


class Palette(NamedTuple):
    """The colours of a drawing."""

    jobs: tuple[str, ...]
    alarm: str  # of demand above capacity


class ShiftedLink(NamedTuple):
    """The jobs of a link with some time shifts, and their total demand."""

    name: str
    link: SharedLink
    unified: UnifiedCircle
    shifts_s: tuple[float, ...]
    whole: DemandCurve

    @classmethod
    def of(
        cls, name: str, link: SharedLink, unified: UnifiedCircle, shifts_s: Mapping[str, float]
    ) -> "ShiftedLink":
        """Shift jobs; those without a shift stay where they are."""
        turned = tuple(shifts_s.get(job, 0.0) for job in link.circles)
        return cls(name, link, unified, turned, curve(tuple(link.circles.values()), turned, unified))

    @property
    def score(self) -> float:
        """The score of the link."""
        return self.whole.score(self.link.gbps)


def ring_hue(number: int) -> Hue:
    """Return the colour of a job; hues that come again are darker, then lighter."""
    hue = HUES[number % len(HUES)]
    target, share = SHADES[number // len(HUES) % len(SHADES)]

    def mixed(colour: str) -> str:
        parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        return "#" + "".join(f"{round(part + (target - part) * share):02x}" for part in parts)

    return Hue(mixed(hue.light), mixed(hue.dark))


def sides(link: SharedLink, fit: Compatibility, shifts_s: Mapping[str, float]) -> tuple[ShiftedLink, ShiftedLink]:
    """Return a link before and after its jobs are shifted."""
    return ShiftedLink.of("Before", link, fit.unified, {}), ShiftedLink.of("After", link, fit.unified, shifts_s)


def axes(shown: Sequence[ShiftedLink]) -> tuple[Axis, Axis]:
    """Return axes of time and of Gbps that suit the demand of all sides of a link."""
    one = shown[0]
    y_axis = count_axis([*(float(side.whole.gbps.max()) for side in shown), one.link.gbps])
    span_s = min(one.unified.perimeter_s, MOST_SHOWN_TURNS * max(one.unified.iterations_s))
    x_axis = count_axis([span_s], suffix=" s") if span_s >= 1.0 else count_axis([span_s], factor=1e3, suffix=" ms")
    return Axis(0.0, span_s, tuple(tick for tick in x_axis.ticks if tick[0] <= span_s)), y_axis


def rings(side: ShiftedLink, paint: Palette, x: float, y: float) -> str:
    """Draw the circles of all jobs as rings, the first outermost, and the score in the middle."""
    unified, gbps, whole = side.unified, side.link.gbps, side.whole
    pitch = (RADIUS - HOLE) / len(side.link.circles)
    width = max(pitch - 3.0, 0.7 * pitch)
    parts = []
    for job, (name, circle) in enumerate(side.link.circles.items()):
        radius = RADIUS - (job + 0.5) * pitch
        parts.append(f"<g><title>{escape(name)}</title>")
        parts.append(f'<circle class="track" cx="{x:g}" cy="{y:g}" r="{radius:.1f}" stroke-width="{width:.1f}"/>')
        period_s, turns = unified.periods_s[job], unified.turns[job]
        turned_s = side.shifts_s[job] * unified.stretches[job]
        for start, end, rate in circle.stretched(period_s).arcs:
            strength = 0.35 + 0.65 * min(rate / gbps, 1.0)
            style = f"stroke:{paint.jobs[job]};stroke-width:{width:.1f};stroke-opacity:{strength:.2f}"
            for turn in range(turns):
                begun = turn * period_s + turned_s
                share = ((begun + start) / unified.perimeter_s, (begun + end) / unified.perimeter_s)
                parts.append(f'<path class="arc" style="{style}" d="{_arc(x, y, radius, *share)}"/>')
        parts.append("</g>")
    for start, length, demand in zip(whole.at_s, whole.lengths_s, whole.gbps, strict=True):
        if demand > gbps * (1 + 1e-9):
            share = (start / whole.perimeter_s, (start + length) / whole.perimeter_s)
            path = _arc(x, y, RADIUS + 5, *share)
            parts.append(f'<path class="over" style="stroke:{paint.alarm}" d="{path}"/>')
    parts.append(svg_text(x, y + 2, f"{side.score:.2f}", "score"))
    parts.append(svg_text(x, y + 16, "score", "small middle"))
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


def demand(side: ShiftedLink, paint: Palette, x_axis: Axis, y_axis: Axis, frame: Frame) -> str:
    """Draw the demand of all jobs over time, one on top of the other, and the link's capacity."""
    circles, unified, gbps = tuple(side.link.circles.values()), side.unified, side.link.gbps
    areas = []
    for count in range(len(circles), 0, -1):  # the sum of all jobs first; sums of fewer cover it from below
        part = UnifiedCircle(
            unified.perimeter_s, unified.turns[:count], unified.angles, unified.iterations_s[:count]
        )
        total = curve(circles[:count], side.shifts_s[:count], part)
        # The outline of a curve of steps, as far as the axis goes.
        outline = f"M{frame.x(x_axis, 0.0):.1f} {frame.y(y_axis, 0.0):.1f}"
        for start, length, height in zip(total.at_s, total.lengths_s, total.gbps, strict=True):
            if start < x_axis.high:
                outline += f"V{frame.y(y_axis, height):.1f}H{frame.x(x_axis, start + length):.1f}"
        outline += f"V{frame.y(y_axis, 0.0):.1f}Z"
        areas.append(f'<path class="area" style="fill:{paint.jobs[count - 1]}" d="{outline}"/>')
    capacity = ChartLine(0, paint.alarm, (0.0, x_axis.high), (gbps, gbps), dash="5 4")
    label = f"{side.name}: demand over time, {side.whole.excess(gbps):.3g} Gbps above capacity on average"
    note = svg_text(frame.left, frame.top - 10, f"{side.name}, Gbps", "small")
    return line_chart([capacity], x_axis, y_axis, label=label, frame=frame, under="".join([*areas, note]))


def searched(fit: Compatibility) -> str:
    """Say which unified circle the jobs share, and how their rotations were found."""
    unified = fit.unified
    how = "best of all rotations" if fit.method == "exact" else f"no rotation scores above {fit.bound:.2f}"
    stretched = f"; iteration times changed by up to {percent(unified.error, 1)}" if unified.error > 0.0005 else ""
    return f"Unified circle of {ms(unified.perimeter_s)}; {unified.angles} angles; {how}{stretched}"


def ms(seconds: float) -> str:
    """Write a time in milliseconds."""
    return f"{seconds * 1e3:.4g} ms"


def picture(found: Interleaving) -> str:
    """Return the picture as text: one panel a link, light on any page."""
    colours = {job: ring_hue(number).light for number, job in enumerate(found.shifts_s)}
    panels, y = [], 12.0
    for link, fit in zip(found.graph.links, found.graph.fits, strict=True):
        height = max(HEAD + 2 * CHART.height + 42.0, LEGEND_AT + LEGEND_ROW * len(link.circles) + 18.0)
        paint = Palette(tuple(colours[job] for job in link.circles), ALARM.light)
        panels.append(f'<g transform="translate(0 {y:g})">{_panel(link, fit, found, paint, height)}</g>')
        y += height + 12.0
    half = KEY.index(" ", len(KEY) // 2)
    key = "".join(
        svg_text(28, y + 12 + 16 * row, words, "small") for row, words in enumerate((KEY[:half], KEY[half:]))
    )
    y += FOOT
    style = file_text("picture.css") + file_text("circles_picture.css")
    page = f'<rect class="panel" x="0" y="0" width="{WIDTH:g}" height="{y:g}" style="stroke:none"/>'
    label = "Circles of jobs before and after their time shifts, and the demand of each link"
    return svg(WIDTH, y, label, f"<style>{style}</style>{page}{''.join(panels)}{key}") + "\n"


def _panel(link: SharedLink, fit: Compatibility, found: Interleaving, paint: Palette, height: float) -> str:
    """Draw one link: its circles before and after, a legend of its jobs, and its demand over time."""
    shown = sides(link, fit, found.shifts_s)
    x_axis, y_axis = axes(shown)
    parts = [
        f'<rect class="panel" x="8.5" y="0.5" width="{WIDTH - 17:g}" height="{height - 1:g}" rx="12"/>',
        svg_text(28, 32, f"{link.name}, {link.gbps:g} Gbps", "title"),
        svg_text(28, 52, searched(fit), "small"),
    ]
    for place, side in enumerate(shown):
        x = 148.0 + 262.0 * place
        parts.append(svg_text(x, HEAD + 18, side.name, "middle name"))
        parts.append(rings(side, paint, x, HEAD + 142))
        at = HEAD + 4.0 + place * (CHART.height + 6.0)
        chart = demand(side, paint, x_axis, y_axis, CHART)
        parts.append(f'<g transform="translate({WIDTH - CHART.width - 20:g} {at:g})">{chart}</g>')
    parts.extend(_legend(shown[1], paint))
    return "".join(parts)


def _legend(side: ShiftedLink, paint: Palette) -> list[str]:
    """Name the jobs, their iteration times and their shifts."""
    heads = ("iteration", "up phases", "mean", "shift")
    parts = [svg_text(x, LEGEND_AT, head, "small end") for x, head in zip(LEGEND_ENDS, heads, strict=True)]
    for row, (job, circle) in enumerate(side.link.circles.items()):
        at = LEGEND_AT + LEGEND_ROW * (row + 1)
        parts.append(f'<rect x="28" y="{at - 9:g}" width="12" height="10" rx="2" style="fill:{paint.jobs[row]}"/>')
        # A picture in the picture cuts off what is too wide.
        name = svg_text(0, 15, job if len(job) <= 22 else f"{job[:21]}…", "name")
        parts.append(f'<svg x="46" y="{at - 15:g}" width="172" height="20">{name}</svg>')
        values = (ms(circle.iteration_s), ms(circle.up_s), f"{circle.mean_gbps:.3g} Gbps", ms(side.shifts_s[row]))
        parts += [svg_text(x, at, value, "value end") for x, value in zip(LEGEND_ENDS, values, strict=True)]
    return parts


def write_circles(found: Interleaving, path: str | Path, *, title: str, command: str) -> Path:
    """Write circles before and after their shifts: an SVG file, or a page if the name ends in .html."""
    path = Path(path)
    wants_page = path.suffix.lower() in {".html", ".htm"}
    return write_file(render(found, title, command) if wants_page else picture(found), path)


def render(found: Interleaving, title: str, command: str) -> str:
    """Return the page as text."""
    links, fits = found.graph.links, found.graph.fits
    numbers = {job: number for number, job in enumerate(found.shifts_s)}
    cards = [
        card(link, searched(fit), sides(link, fit, found.shifts_s), numbers)
        for link, fit in zip(links, fits, strict=True)
    ]
    before, after = sum(scores(found.graph, {})) / len(links), found.score
    many = "Mean score of" if len(links) > 1 else "Score of"
    shared = counted(len(links), "shared link")
    return html_page(
        title,
        f"{many} {shared}: {before:.2f} before, {after:.2f} after. "
        "The score is 1 where the demand never exceeds the link's capacity.",
        Template(file_text("circles.html")).substitute(
            key=escape(KEY), cards="".join(cards), command=escape(command)
        ),
        style=file_text("circles.css") + ring_colours(),
        kicker=f"{counted(len(numbers), 'job')} · {shared}",
    )


def section(contentions: Mapping[str, Sequence[Contention]]) -> str:
    """Make the report's section about the costliest links of runs in phases, by their names; nothing without any.

    One run shows several links, several runs show one each.
    """
    met = {name: found[: MOST if len(contentions) == 1 else 1] for name, found in contentions.items() if found}
    if not met:
        return ""
    cards = "".join(
        _contention(each, name if len(contentions) > 1 else "") for name, found in met.items() for each in found
    )
    hint = f"Links on which demand exceeded capacity the most, with the jobs as their iterations started. {KEY}"
    return html_section("circles", "Costliest shared links", f'<div class="stack">{cards}</div>', hint)


def _contention(contention: Contention, run: str) -> str:
    link = SharedLink(
        f"{run}: {contention.link}" if run else contention.link,
        contention.gbps,
        {job.job_id: job.circle for job in contention.jobs},
    )
    unified = unify(tuple(circle.iteration_s for circle in link.circles.values()))
    about = (
        f"{counted(len(link.circles), 'job')} for {duration_text(contention.seconds)}; "
        f"{contention.above_gbit / contention.seconds:,.3g} Gbps demanded above capacity on average"
    )
    side = ShiftedLink.of("As they started", link, unified, contention.shifts_s)
    return card(link, about, [side], {job: number for number, job in enumerate(link.circles)})


def ring_colours() -> str:
    """Return the CSS that names the colours of rings, for light and for dark pages."""
    return css_colours({"alarm": ALARM, **{f"ring-{number}": ring_hue(number) for number in range(COLOURS)}})


def card(link: SharedLink, about: str, shown: Sequence[ShiftedLink], numbers: Mapping[str, int]) -> str:
    """Draw one link: each side's circles and demand, and a legend of its jobs, coloured by their numbers."""
    paint = Palette(tuple(f"var(--ring-{numbers[job] % COLOURS})" for job in link.circles), "var(--alarm)")
    x_axis, y_axis = axes(shown)
    kind = "side" if len(shown) > 1 else "side alone"
    drawn = "".join(
        f'<div class="{kind}">{_rings(side, paint)}'
        f'<div class="demand">{demand(side, paint, x_axis, y_axis, PAGE_CHART)}</div></div>'
        for side in shown
    )
    return (
        f'<figure class="card circles"><figcaption><strong>{escape(link.name)}, {link.gbps:g} Gbps</strong>'
        f'<span>{escape(about)}</span></figcaption><div class="sides">{drawn}</div>'
        f"{_job_rows(shown[-1], paint)}</figure>"
    )


def _rings(side: ShiftedLink, paint: Palette) -> str:
    """Draw the circles of one side as a picture of its own."""
    size = 2 * CIRCLE_EXTENT
    label = escape(f"{side.name}: circles of {counted(len(side.link.circles), 'job')}, score {side.score:.2f}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart rings" viewBox="0 0 {size:g} {size:g}" role="img" '
        f'aria-label="{label}">{rings(side, paint, CIRCLE_EXTENT, CIRCLE_EXTENT)}</svg>'
    )


def _job_rows(side: ShiftedLink, paint: Palette) -> str:
    """Name the jobs, with their times and shifts."""
    rows = [
        [
            f'<span class="job-name"><span class="spot" style="background:{colour}"></span>{escape(job)}</span>',
            *(ms(shift_s), ms(circle.iteration_s), ms(circle.up_s), f"{circle.mean_gbps:.3g} Gbps"),
        ]
        for (job, circle), shift_s, colour in zip(
            side.link.circles.items(), side.shifts_s, paint.jobs, strict=True
        )
    ]
    head = ["job", "shift", "iteration", "up phases", "mean"]
    return f'<div class="prose">{html_table(head, rows, kind="plain figures")}</div>'
