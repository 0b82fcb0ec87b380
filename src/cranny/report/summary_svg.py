"""A picture of a comparison for a README: one SVG file on a panel of its own, for light and dark pages."""

from collections.abc import Sequence
from pathlib import Path

from cranny.report.charts import BarColumn, ChartLine, Frame, bar_chart, line_chart
from cranny.report.sampling import GAP, arrival_span_s, settled, slice_times_s, slices
from cranny.report.scales import count_axis, time_axis
from cranny.report.shell import escape, file_text, svg, write_file
from cranny.report.styles import RunStyle, run_styles
from cranny.report.table import best, column, format_value, number, scale_for
from cranny.sim.result import Result

WIDTH, HEIGHT = 1000.0, 420.0
RIGHT = 506.0  # where the bars begin
POINTS = 150
HEADLINES = (
    ("mean_used_machines", ("used", "machines")),
    ("mean_fragmentation", ("fragmen-", "tation")),
    ("mean_jct_s", ("completion", "time")),
    ("mean_cross_traffic_gb", ("cross", "traffic")),
)


def write_picture(results: Sequence[Result], path: str | Path) -> Path:
    """Write the picture: used machines over time on the left, headline metrics as bars on the right."""
    return write_file(render(results), path)


def render(results: Sequence[Result]) -> str:
    """Return the picture as text."""
    drawn = run_styles(results)
    names = ", ".join(look.label for look in drawn)
    settings = results[0].settings
    about = escape(
        " · ".join(str(settings[key]) for key in ("trace", "cluster", "collective") if settings.get(key))
    )
    content = (
        f"<style>{file_text('picture.css')}</style>"
        f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1:g}" height="{HEIGHT - 1:g}" rx="12"/>'
        f'<text class="title" x="26" y="40">Used machines over time</text>'
        f'<text class="title" x="{RIGHT:g}" y="40">Averages</text>'
        f'<g transform="translate(16 58)">{_lines(results, drawn)}</g>'
        f'<g transform="translate({RIGHT:g} 58)">{_bars(results, drawn)}</g>'
        f'<text x="26" y="{HEIGHT - 18:g}">{about}</text>'
        f'<text class="end" x="{WIDTH - 28:g}" y="{HEIGHT - 18:g}">'
        "Shorter bars are better; the best is bold.</text>"
    )
    return svg(WIDTH, HEIGHT, f"Machines used over time and headline metrics of {names}", content) + "\n"


def _lines(results: Sequence[Result], drawn: Sequence[RunStyle]) -> str:
    """Draw the used machines of all runs."""
    span_s = arrival_span_s(results)
    at_s = slice_times_s(span_s, POINTS)
    means = [slices(settled(result.timeline), "used_machines", span_s, POINTS).mean for result in results]
    lines = [
        ChartLine(run, look.hue.light, at_s, mean, look.dash, look.strong, gap=GAP)
        for run, (look, mean) in enumerate(zip(drawn, means, strict=True))
    ]
    y_axis = count_axis([value for mean in means for value in mean])
    x_axis = time_axis(0.0, span_s[1] - span_s[0])
    frame = Frame(width=462.0, height=322.0, left=40.0, right=10.0, top=8.0, bottom=28.0)
    return line_chart(lines, x_axis, y_axis, label="used machines over time", frame=frame)


def _bars(results: Sequence[Result], drawn: Sequence[RunStyle]) -> str:
    """Draw the headline metrics as bars, with the names of the runs beside them."""
    columns = []
    for key, title in HEADLINES:
        metric = column(key)
        values = [number(result, metric) for result in results]
        if not any(values):
            continue
        scale = scale_for(metric, values)
        greatest = max(value for value in values if value is not None)
        columns.append(
            BarColumn(
                title,
                [(value or 0.0) / greatest for value in values],
                [f"{format_value(metric, value, scale)} {scale.unit}".rstrip() for value in values],
                best(results, metric),
            )
        )
    widest = max(len(look.label) for look in drawn)
    frame = Frame(width=466.0, height=322.0, left=min(34.0 + 6.6 * widest, 170.0), right=0.0, top=0.0, bottom=0.0)
    return bar_chart(
        [look.label for look in drawn],
        [look.hue.light for look in drawn],
        columns,
        label="headline metrics",
        frame=frame,
        strong=frozenset(run for run, look in enumerate(drawn) if look.strong),
    )
