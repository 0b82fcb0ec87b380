from itertools import pairwise
from xml.etree import ElementTree as ET

from cranny.report.charts import BarColumn, ChartLine, Frame, bar_chart, line_chart
from cranny.report.scales import Axis, count_axis, log_time_axis, share_axis, time_axis

SVG = "{http://www.w3.org/2000/svg}"


def parse(svg: str) -> ET.Element:
    return ET.fromstring(svg)  # noqa: S314 - our own text


def test_a_line_goes_from_corner_to_corner() -> None:
    line = ChartLine(3, "#123456", (0.0, 10.0), (0.0, 5.0))
    frame = Frame(width=100.0, height=60.0, left=10.0, right=10.0, top=5.0, bottom=5.0)
    chart = parse(line_chart([line], Axis(0.0, 10.0), Axis(0.0, 5.0), label="x", frame=frame))
    (path,) = chart.findall(f"{SVG}path[@data-run='3']")
    assert path.get("d") == "M10.0 55.0L90.0 5.0"
    assert path.get("style") == "stroke:#123456"


def paths(svg: str, kind: str) -> list[str]:
    return [path.get("d") or "" for path in parse(svg).iter(f"{SVG}path") if path.get("class") == kind]


def test_what_is_not_known_is_no_line_but_a_faint_bridge() -> None:
    frame = Frame(width=100.0, height=60.0, left=10.0, right=10.0, top=5.0, bottom=5.0)
    line = ChartLine(
        0, "red", (0.0, 1.0, 2.0, 3.0, 4.0), (0.0, 1.0, None, None, 1.0), low=(0.0,) * 5, high=(1.0,) * 5
    )
    chart = line_chart([line], Axis(0.0, 4.0), Axis(0.0, 1.0), label="x", frame=frame)
    assert paths(chart, "line") == ["M10.0 55.0L30.0 5.0"]
    assert paths(chart, "dots") == ["M90.0 5.0h0"]
    assert paths(chart, "bridge") == ["M30.0 5.0L90.0 5.0"]


def test_a_line_goes_on_over_short_gaps() -> None:
    y = (0.0, None, None, 1.0, None, None, None, 1.0)
    line = ChartLine(0, "red", tuple(map(float, range(8))), y, low=y, high=y, gap=2)
    chart = line_chart([line], Axis(0.0, 7.0), Axis(0.0, 1.0), label="x")
    (drawn,) = paths(chart, "line")
    (bridge,) = paths(chart, "bridge")
    assert drawn.count("L") == bridge.count("L") == 1
    assert len(paths(chart, "dots")) == len(paths(chart, "band")) == 1


def test_a_line_without_gaps_has_neither_dots_nor_bridges() -> None:
    chart = line_chart([ChartLine(0, "red", (0.0, 1.0), (0.0, 1.0))], Axis(0.0, 1.0), Axis(0.0, 1.0), label="x")
    assert len(paths(chart, "line")) == 1
    assert paths(chart, "dots") == paths(chart, "bridge") == []


def test_a_band_ends_where_nothing_is_known() -> None:
    low, high = (0.0, 0.0, None, 0.0, 0.0), (1.0, 1.0, None, 1.0, 1.0)
    line = ChartLine(0, "red", (0.0, 1.0, 2.0, 3.0, 4.0), (0.5, 0.5, None, 0.5, 0.5), low=low, high=high)
    (band,) = paths(line_chart([line], Axis(0.0, 4.0), Axis(0.0, 1.0), label="x"), "band")
    assert band.count("M") == 2


def test_the_strong_line_lies_on_top_but_under_in_distributions() -> None:
    lines = [
        ChartLine(0, "red", (1.0, 2.0), (0.0, 1.0), strong=True),
        ChartLine(1, "blue", (1.0, 2.0), (0.0, 1.0)),
    ]
    over = line_chart(lines, Axis(1.0, 2.0), Axis(0.0, 1.0), label="x")
    under = line_chart(lines, log_time_axis([1.0, 2.0]), share_axis(0.0), label="x", strong_below=True)
    assert over.index('data-run="1"') < over.index('data-run="0"')
    assert under.index('data-run="0"') < under.index('data-run="1"')


def test_a_band_needs_two_points() -> None:
    x, low, high = (0.0, 1.0), (0.0, 0.2), (0.5, 0.6)
    wide = line_chart([ChartLine(0, "red", x, low, low=low, high=high)], Axis(0, 1), Axis(0, 1), label="x")
    assert 'class="band"' in wide
    thin = line_chart(
        [ChartLine(0, "red", x[:1], low[:1], low=low[:1], high=high[:1])], Axis(0, 1), Axis(0, 1), label=""
    )
    assert 'class="band"' not in thin


def test_labels_are_escaped() -> None:
    chart = line_chart([], time_axis(0, 10), count_axis([1.0]), label='<b> & "c"')
    assert parse(chart).get("aria-label") == '<b> & "c"'
    bars = bar_chart(["<a>"], ["red"], [BarColumn(["<t>"], [0.5], ["<1"])], label="x", frame=Frame())
    texts = [text.text for text in parse(bars).iter(f"{SVG}text")]
    assert texts == ["<t>", "<1", "<a>"]


def test_bars_are_as_long_as_their_share() -> None:
    frame = Frame(width=218.0, height=100.0, left=18.0, right=0.0, top=0.0, bottom=0.0)
    bars = bar_chart(
        ["a", "b"], ["red", "blue"], [BarColumn(["t"], [1.0, 0.25], ["4", "1"])], label="x", frame=frame
    )
    widths = [rect.get("width") for rect in parse(bars).iter(f"{SVG}rect") if rect.get("class") == "bar"]
    assert widths == ["200.0", "50.0"]


def test_tick_labels_that_would_collide_are_hidden() -> None:
    ticks = tuple((float(place), "a long label") for place in range(40))
    chart = parse(line_chart([], Axis(0.0, 39.0, ticks), Axis(0.0, 1.0), label="x"))
    shown = [text for text in chart.iter(f"{SVG}text") if text.get("class") == "tick middle"]
    assert 1 < len(shown) < 10


def test_labels_that_would_collide_once_letters_are_larger_are_told_apart() -> None:
    chart = parse(line_chart([], time_axis(0.0, 4 * 3600.0), Axis(0.0, 1.0), label="x"))
    shown = [text for text in chart.iter(f"{SVG}text") if "tick middle" in (text.get("class") or "")]
    kept = [text for text in shown if text.get("class") == "tick middle"]
    assert len(shown) == 8
    assert 3 <= len(kept) < len(shown)
    ends = [(float(text.get("x") or 0), 6.5 * len(text.text or "")) for text in kept]
    assert all(x + half < after - other for (x, half), (after, other) in pairwise(ends))
