"""Circles as a picture and as a page."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from cranny.model.circle import Circle
from cranny.network.interleave.affinity import SharedLink
from cranny.network.interleave.shifts import Interleaving, interleave
from cranny.report.circles import LEGEND_ENDS, picture, ring_hue, write_circles

SVG = "{http://www.w3.org/2000/svg}"


def interleaved(*names: str) -> Interleaving:
    """Interleave jobs that send for a tenth of their iteration, at more than half of a link's rate."""
    circle = Circle(0.1, ((0.0, 0.01, 60.0),))
    found = interleave([SharedLink("rack0", 100.0, dict.fromkeys(names, circle))])
    assert found is not None
    return found


def test_eighteen_jobs_have_eighteen_colours_on_light_and_on_dark_pages() -> None:
    hues = [ring_hue(number) for number in range(18)]
    assert len({hue.light for hue in hues}) == 18
    assert len({hue.dark for hue in hues}) == 18


def test_the_legend_of_many_jobs_lies_within_its_panel() -> None:
    root = ET.fromstring(picture(interleaved(*(f"job-{number}" for number in range(12)))))  # noqa: S314 - our own
    (panel,) = (each for each in root.iter(f"{SVG}rect") if each.get("rx") == "12")
    below = [float(each.get("y", "")) for each in root.iter(f"{SVG}text") if each.get("class") == "value end"]
    assert len(below) == 48
    assert max(below) < float(panel.get("height", "")) - 8


def test_a_long_name_is_cut_off_before_the_next_column() -> None:
    root = ET.fromstring(picture(interleaved("W" * 60, "other")))  # noqa: S314 - our own
    boxes = [each for each in root.iter(f"{SVG}svg") if each.get("x") == "46"]
    assert len(boxes) == 2
    widest = 46 + max(float(each.get("width", "")) for each in boxes)
    assert widest < LEGEND_ENDS[0] - 60  # room for "137.7 ms"


@pytest.fixture
def page(tmp_path: Path) -> str:
    path = write_circles(
        interleaved("one", "<b>other</b>"),
        tmp_path / "new" / "page.html",
        title="Two",
        command="cranny interleave x",
    )
    return path.read_text(encoding="utf-8")


def test_the_page_gives_the_score_before_and_after_and_how_to_repeat_it(page: str) -> None:
    assert "Score of 1 shared link: 0.98 before, 1.00 after." in page
    assert re.search(r"How to reproduce.*<pre>cranny interleave x</pre>", page, re.DOTALL)


def test_the_page_explains_rings_the_red_band_and_the_dashed_line(page: str) -> None:
    for words in ("Each ring is a job", "faint rest", "red band", "dashed line"):
        assert words in page


def test_the_page_takes_colours_from_its_style_so_that_they_suit_light_and_dark(page: str) -> None:
    main = page.partition("<main>")[2]
    assert "var(--ring-1)" in main
    assert not re.search(r"#[0-9a-f]{6}", main)
    assert "<style>" not in main
    assert "&lt;b&gt;other&lt;/b&gt;" in main
    assert "<b>" not in main
