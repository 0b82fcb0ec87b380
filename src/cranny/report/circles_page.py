"""Circles on a page: a card for each link, as a page of its own and in the report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from cranny.model.validate import counted
from cranny.network.interleave.affinity import SharedLink
from cranny.network.interleave.shifts import Interleaving, curve_scores
from cranny.network.interleave.unified_circle import unify
from cranny.network.phases.contention import MOST, Contention
from cranny.report import circles_svg
from cranny.report.charts import Frame
from cranny.report.circles_svg import (
    ALARM,
    CIRCLE_EXTENT,
    COLOURS,
    KEY,
    Palette,
    ShiftedLink,
    axes,
    demand,
    ms,
    ring_hue,
    rings,
    searched,
    sides,
)
from cranny.report.scales import duration_text
from cranny.report.shell import escape, file_text, html_page, html_table, write_file
from cranny.report.styles import css_colours

CHART = Frame(width=420.0, height=170.0, left=44.0, right=12.0, top=24.0, bottom=26.0)


def write_circles(found: Interleaving, path: str | Path, *, title: str, command: str) -> Path:
    """Write circles before and after their shifts: an SVG file, or a page if the name ends in .html."""
    path = Path(path)
    wants_page = path.suffix.lower() in {".html", ".htm"}
    return write_file(render(found, title, command) if wants_page else circles_svg.render(found), path)


def render(found: Interleaving, title: str, command: str) -> str:
    """Return the page as text."""
    links, fits = found.graph.links, found.graph.fits
    numbers = {job: number for number, job in enumerate(found.shifts_s)}
    cards = [
        card(link, searched(fit), sides(link, fit, found.shifts_s), numbers)
        for link, fit in zip(links, fits, strict=True)
    ]
    before, after = (
        sum(scores) / len(links)
        for scores in (curve_scores(found.graph, {}), curve_scores(found.graph, found.shifts_s))
    )
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
    return (
        '<section id="circles" aria-labelledby="circles-head"><h2 id="circles-head">Costliest shared links</h2>'
        f'<p class="hint">{escape(hint)}</p><div class="stack">{cards}</div></section>'
    )


def _contention(contention: Contention, run: str) -> str:
    """Draw the jobs that shared a link."""
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
        f'<div class="demand">{demand(side, paint, x_axis, y_axis, CHART)}</div></div>'
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
