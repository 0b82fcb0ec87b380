"""The report: one HTML file that holds a whole comparison of runs and loads nothing from anywhere."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from string import Template

from cranny.report import provenance
from cranny.report.charts import ChartLine, line_chart
from cranny.report.circles import ring_colours
from cranny.report.circles import section as circles_section
from cranny.report.headline import caution, finding
from cranny.report.network_page import section
from cranny.report.occupancy import occupancy
from cranny.report.sampling import (
    GAP,
    arrival_span_s,
    cdf,
    finished,
    settled,
    share_up_to,
    slice_times_s,
    slices,
)
from cranny.report.scales import calendar_axis, count_axis, log_time_axis, share_axis, significant, time_axis
from cranny.report.shell import escape, file_text, html_page, json_for_script, write_file
from cranny.report.styles import RunStyle, css_colours, run_styles
from cranny.report.table import (
    Metric,
    best,
    format_value,
    in_rounds,
    number,
    scale_for,
    shown_columns,
    skipping,
)
from cranny.sim.result import Result
from cranny.traces.zones import ClockOffset, clock_offsets

# Each with name, title and meaning; those over time also with factor, suffix and decimals of their values.
# Where these are null, the value decides.
CHARTS = json.loads(file_text("charts.json"))
SCRIPTS = """<div id="tip" role="status" hidden></div>
<script type="application/json" id="page-data">{data}</script>
<script type="text/plain" id="map-data">{map_data}</script>
<script>{script}</script>
"""


@dataclass(frozen=True, slots=True)
class Lead:
    """A section before all others, with a headline that stands for the sentence about machines."""

    headline: str
    section: str  # HTML
    span: str  # which time the section covers, unlike the summary


def write_report(
    results: Sequence[Result],
    path: str | Path,
    *,
    title: str | None = None,
    map_at_s: float | None = None,
    lead: Lead | None = None,
) -> Path:
    """Write the comparison of some runs to one HTML file; the map first shows the time `map_at_s`."""
    return write_file(render(results, title=title, map_at_s=map_at_s, lead=lead), path)


def render(
    results: Sequence[Result],
    *,
    title: str | None = None,
    map_at_s: float | None = None,
    lead: Lead | None = None,
) -> str:
    """Return the page as text."""
    drawn = run_styles(results)
    script = f"\n{file_text('page.js')}{_map_script()}"
    times, time_data = _time_charts(results, drawn)
    cdfs, cdf_data = _cdf_charts(results, drawn)
    packed = occupancy(results, at_s=map_at_s)
    span_s = arrival_span_s(results)
    zero_epoch_s = _first_arrival_epoch_s(results)
    data = {
        "runs": [{"label": look.label, "strong": look.strong} for look in drawn],
        "times_s": [significant(at, 7) for at in slice_times_s(span_s)],
        "time": time_data,
        "cdf": cdf_data,
        "zero_epoch_s": zero_epoch_s,
        # From which second on clocks are how many seconds ahead of UTC.
        "offsets": [[since - (zero_epoch_s or 0.0), ahead_s] for since, ahead_s in _offsets(results)],
    }
    main = Template(file_text("page.html")).substitute(
        lead=lead.section if lead else "",
        table_hint=_table_hint(results, lead.span if lead else ""),
        table=summary_table(results, drawn),
        legend=_legend(drawn),
        time_hint=_time_hint(drawn, in_rounds=bool(in_rounds(results)), when=_clock_hint(results)),
        time_charts=times,
        cdf_charts=cdfs,
        map_hint=_map_hint(packed.times),
        map_choices=_map_choices(results, drawn),
        network=_network(results, drawn, packed.shown_s),
        settings=provenance.settings_html(results),
        commands=_under("Commands", provenance.commands_html(results)),
        notes=_under("Assumptions and notes", provenance.notes_html(results)),
        skipped=provenance.skipped_html(results),
        meanings=provenance.meanings_html(),
    )
    colours = f"{css_colours({f'run-{run}': look.hue for run, look in enumerate(drawn)})}\n{ring_colours()}"
    # The content security policy names the script by its hash, so that no other can run.
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest())
    return html_page(
        title if title is not None else _title(results),
        lead.headline if lead else finding(results),
        main,
        style=file_text("heat.css") + file_text("circles.css") + colours,
        kicker=_kicker(results),
        caution=caution(results),
        allowed=f"script-src 'sha256-{digest.decode('ascii')}'",
        scripts=SCRIPTS.format(data=json_for_script(data), map_data=packed.packed, script=script),
        version=str(results[0].settings.get("version") or ""),
    )


def summary_table(results: Sequence[Result], drawn: Sequence[RunStyle]) -> str:
    """Make the table: one row a run, one column a metric, the best of each column marked."""
    columns = shown_columns(results)
    groups = "".join(
        f'<th scope="colgroup" colspan="{len(list(members))}"><span>{escape(group)}</span></th>'
        for group, members in groupby(columns, key=lambda column: column.group)
    )
    made = [_column(place, column, results) for place, column in enumerate(columns, start=1)]
    rows = []
    for run, look in enumerate(drawn):
        kind = ' class="strong"' if look.strong else ""
        label = escape(look.label)
        name = f'<th scope="row" class="name-cell" data-value="{label}">{_swatch(run, look)}{label}</th>'
        rows.append(f'<tr data-run="{run}"{kind}>{name}{"".join(cells[run] for _, cells in made)}</tr>')
    return (
        f'<table class="summary"><thead><tr class="groups"><td class="name-cell"></td>{groups}</tr>'
        f'<tr><th scope="col" class="name-cell" data-column="0"><button type="button">policy'
        f'<span class="unit">&nbsp;</span></button></th>{"".join(head for head, _ in made)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _column(place: int, column: Metric, results: Sequence[Result]) -> tuple[str, list[str]]:
    """Make a column: a button that sorts, explained in its hover text, and cells with raw values for sorting."""
    values = [number(result, column) for result in results]
    scale = scale_for(column, values)
    winners = best(results, column)
    better = {"lower": " Lower is better.", "higher": " Higher is better.", "": ""}[column.better]
    explained = escape(column.explanation + better)
    title = f"{column.label}, {scale.unit}" if scale.unit else column.label
    head = (
        f'<th scope="col" data-column="{place}" data-key="{column.key}" data-better="{column.better}" '
        f'data-title="{escape(title)}" data-explain="{explained}">'
        f'<button type="button" aria-description="{explained}">{escape(column.label)}'
        f'<span class="unit">{escape(scale.unit) or "&nbsp;"}</span></button></th>'
    )
    kind = ' class="best" title="best of its column"'
    return head, [
        f'<td data-value="{"" if value is None else repr(value)}"{kind if run in winners else ""}>'
        f"{escape(format_value(column, value, scale))}</td>"
        for run, value in enumerate(values)
    ]


def _time_charts(results: Sequence[Result], drawn: Sequence[RunStyle]) -> tuple[str, dict[str, object]]:
    """Draw the charts over time, and return the numbers that the crosshair reads."""
    span_s = arrival_span_s(results)
    at_s = slice_times_s(span_s)
    zero_epoch_s = _first_arrival_epoch_s(results)
    length_s = span_s[1] - span_s[0]
    x_axis = time_axis(0.0, length_s)
    if zero_epoch_s is not None:
        x_axis = calendar_axis(0.0, length_s, zero_epoch_s, _offsets(results))
    figures: list[str] = []
    data: dict[str, object] = {}
    timelines = [settled(result.timeline) for result in results]
    for name, title, about, factor, suffix, places in CHARTS["over_time"]:
        cut = [slices(timeline, name, span_s) for timeline in timelines]
        if not any(value is not None for each in cut for value in each.mean):
            continue
        lines = [
            ChartLine(run, f"var(--run-{run})", at_s, each.mean, look.dash, look.strong, each.low, each.high, GAP)
            for run, (look, each) in enumerate(zip(drawn, cut, strict=True))
        ]
        # All lines must fit the frame, and the band of the strong one.
        extent = [each.mean + (each.high if look.strong else ()) for each, look in zip(cut, drawn, strict=True)]
        y_axis = count_axis(chain(*extent), factor=factor, suffix=suffix if suffix == " %" else "")
        chart = line_chart(lines, x_axis, y_axis, label=f"{title} over time, one line for each policy")
        figures.append(_figure(name, title, about, chart))
        shown = [[*map(significant, each.mean)] for each in cut]
        data[name] = {"lines": shown, "format": {"factor": factor, "suffix": suffix, "places": places}}
    return "".join(figures), data


def _first_arrival_epoch_s(results: Sequence[Result]) -> float | None:
    """Return when the first job arrived, in seconds since 1970; None if the trace has no dates."""
    zero_epoch_s = results[0].settings.get("zero_epoch_s")
    return None if zero_epoch_s is None else float(zero_epoch_s) + arrival_span_s(results)[0]


def _offsets(results: Sequence[Result]) -> list[ClockOffset]:
    """Return how far the clocks of the trace's zone are ahead of UTC while jobs arrive; nothing without dates."""
    zero_epoch_s, zone = _first_arrival_epoch_s(results), results[0].settings.get("zone")
    if zero_epoch_s is None:
        return []
    first_s, last_s = arrival_span_s(results)
    return clock_offsets(zone, zero_epoch_s, zero_epoch_s + last_s - first_s)


def _clock_hint(results: Sequence[Result]) -> str:
    """Say of which clock the times of the page are."""
    settings = results[0].settings
    if settings.get("zero_epoch_s") is None:
        return "Time since the first arrival"
    zone = settings.get("zone")
    return f"Dates and times are in {zone}" if zone else "Dates and times are those of the clock of the log"


def _cdf_charts(results: Sequence[Result], drawn: Sequence[RunStyle]) -> tuple[str, dict[str, object]]:
    """Draw the distributions of completion and waiting time, and return the numbers behind them."""
    figures: list[str] = []
    data: dict[str, object] = {}
    for name, title, about in CHARTS["distributions"]:
        points = [cdf(finished(result, name)) for result in results]
        if not any(x for x, _ in points):
            continue
        x_axis = log_time_axis([value for x, _ in points for value in x])
        # After its greatest value a distribution goes on at 100 %.
        lines = [
            ChartLine(run, f"var(--run-{run})", (*x, x_axis.high), (*y, 1.0), look.dash, look.strong)
            for run, (look, (x, y)) in enumerate(zip(drawn, points, strict=True))
            if x
        ]
        label = f"Distribution of the {title.lower()}, one line for each policy"
        # Where most jobs do not wait at all, the frame shows those that do.
        y_axis = share_axis(min(share_up_to(x, y, x_axis.low) for x, y in points if x))
        note = f"{about}; the axis starts at {y_axis.low * 100:.0f} %" if y_axis.low else about
        # Distributions often coincide: thin lines over the heavy one let the reader see all of them.
        chart = line_chart(lines, x_axis, y_axis, label=label, strong_below=True)
        figures.append(_figure(name, title, note, chart))
        data[name] = {"lines": [{"x": [*map(significant, x)], "y": [*map(significant, y)]} for x, y in points]}
    return "".join(figures), data


def _figure(name: str, title: str, about: str, chart: str) -> str:
    caption = f"<figcaption><strong>{escape(title)}</strong><span>{escape(about)}</span></figcaption>"
    return f'<figure class="card" data-chart="{name}">{caption}{chart}</figure>'


def _swatch(run: int, look: RunStyle) -> str:
    """Draw a short piece of a run's line."""
    dash = f";stroke-dasharray:{look.dash}" if look.dash else ""
    width = ";stroke-width:4.5" if look.strong else ""
    return (
        f'<svg class="swatch" viewBox="0 0 20 10" aria-hidden="true">'
        f'<line x1="2" y1="5" x2="18" y2="5" style="stroke:var(--run-{run}){dash}{width}"/></svg>'
    )


def _legend(drawn: Sequence[RunStyle]) -> str:
    """Make the buttons that show and hide the runs."""
    return "".join(
        f'<button type="button" data-run="{run}" aria-pressed="true"{" class=strong" if look.strong else ""}>'
        f"{_swatch(run, look)}{escape(look.label)}</button>"
        for run, look in enumerate(drawn)
    )


def _map_choices(results: Sequence[Result], drawn: Sequence[RunStyle]) -> str:
    """Make the choice of the run that the map shows, among those with known placements; the strong one first."""
    known = [run for run, result in enumerate(results) if result.runs.height] or range(len(results))
    chosen = next((run for run in known if drawn[run].strong), known[0])
    return "".join(
        f"<label{' class=strong' if drawn[run].strong else ''}>"
        f'<input type="radio" name="map-run" value="{run}"{" checked" if run == chosen else ""}>'
        f"{_swatch(run, drawn[run])}{escape(drawn[run].label)}</label>"
        for run in known
    )


def _network(results: Sequence[Result], drawn: Sequence[RunStyle], at_s: float) -> str:
    """Show how full links are when the map opens, of runs that recorded it, and the costliest shared links."""
    runs = [(look.label, result) for result, look in zip(results, drawn, strict=True)]
    loads = {name: load for name, result in runs if (load := result.load_at(at_s))}
    contentions = {
        name: tuple(result.contentions) for name, result in runs if result.settings.get("network") == "phases"
    }
    return section(loads, at_s - arrival_span_s(results)[0]) + circles_section(contentions)


def _table_hint(results: Sequence[Result], lead_span: str) -> str:
    """Say how to read the table, and over which time its means are."""
    apart = " among runs that skip no more jobs than others" if skipping(results) else ""
    mark = f'<span class="mark"></span>marks the best value of a column{apart}. ' if len(results) > 1 else ""
    arrivals = (
        "" if in_rounds(results) else "Used machines, fragmentation, traffic and profit are means over arrivals; "
    )
    over_time = "machine-hours, GPUs held and means over time extend to the end of the last job"
    spans = f"{arrivals}{over_time}{f', {lead_span}' if lead_span else ''}."
    how = "Click a column to sort by it; point at its name for what it means."
    return f"{mark}{escape(spans[0].upper() + spans[1:])} {how}"


def _time_hint(drawn: Sequence[RunStyle], *, in_rounds: bool, when: str) -> str:
    """Say what lines and bands mean."""
    not_yet = "; policies that decide in rounds have not placed the arriving job by then" if in_rounds else ""
    strong = next((f"{look.label} and for " for look in drawn if look.strong), "")
    return escape(
        f"{when}. Values are taken when jobs arrive{not_yet}. Lines are means over short "
        "slices of time with arrivals, and a dot is a single such slice. Faint lines bridge longer "
        "intervals without arrivals, for which the chart has no values. The pale band, shown for "
        f"{strong}the policy whose name you point at, reaches from the lowest to the highest value in a "
        "slice. Press a name to hide or show its policy."
    )


def _map_hint(times: int) -> str:
    when = f"{times} moments, evenly spread over the trace" if times > 1 else "one moment"
    return escape(
        f"Which job holds which GPU, at {when}. Point at a square to see its job and where else it runs."
    )


def _under(head: str, content: str) -> str:
    """Put content under a small heading, or nothing where there is none."""
    return f"<h3>{escape(head)}</h3>{content}" if content else ""


def _title(results: Sequence[Result]) -> str:
    """Return a title for the page when none was given."""
    trace = results[0].settings.get("trace") or "a trace"
    if len(results) == 1:
        return f"{results[0].settings.get('policy')} on {trace}"
    return f"{len(results)} placement policies on {trace}"


def _kicker(results: Sequence[Result]) -> str:
    """Return the line over the title: the cluster, the jobs, the network model and the collective."""
    settings = results[0].settings
    parts = [str(settings["cluster"])] if settings.get("cluster") else []
    parts.append(f"{results[0].jobs.height:,} jobs")
    networks = sorted({str(result.settings["network"]) for result in results if result.settings.get("network")})
    if networks:
        parts.append(f"{' and '.join(networks)} network")
    if settings.get("collective"):
        parts.append(f"{settings['collective']} unless a job names another collective")
    return " · ".join(parts)


def _map_script() -> str:
    """Return the modules of the cluster map and the script of its section as one script, without imports."""
    names = ("colours", "arrange", "paint", "cluster_map")
    modules = "".join(file_text(f"cluster_map/{name}.js") for name in names)
    inlined = re.sub(r"^(import .*\n|export )", "", modules, flags=re.MULTILINE)
    return f'(() => {{\n"use strict";\n{inlined}{file_text("map_section.js")}}})();\n'
