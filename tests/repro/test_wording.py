"""Numbers and pages of a reproduction: values and errors have the same decimals, and pictures fit any screen."""

import re
from pathlib import Path

import pytest

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim, OpenChoice, Reading, Stated, agreed
from cranny.repro.number_format import spread, times
from cranny.repro.page import Reproduction, Section
from cranny.repro.paper_file import Paper
from cranny.repro.plots import canvas


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [
        (1.36, 1.1, "1.36x ± 1.10"),
        (1.00002, 3.9e-5, "1.00x"),
        (1.234, 0.0341, "1.23x ± 0.03"),
        (12.34, 0.3, "12.3x ± 0.3"),
        (123.4, 2.0, "123x ± 2"),
        (2.0, None, "2.00x"),
    ],
)
def test_a_ratio_has_the_decimals_of_its_error(mean: float, half: float | None, text: str) -> None:
    assert times(Estimate(mean, half)) == text


@pytest.mark.parametrize(
    ("mean", "half", "text"),
    [(2.55, 0.186, "2.55 ± 0.19"), (1234.5, 0.4, "1,234"), (123.4, 0.26, "123.4 ± 0.3"), (0.5, None, "0.500")],
)
def test_a_mean_has_the_decimals_of_its_error(mean: float, half: float | None, text: str) -> None:
    assert spread(Estimate(mean, half)) == text


def test_a_number_of_a_paper_keeps_its_own_digits() -> None:
    assert [times(ratio) for ratio in (1.6, 2.0, 0.9961, None)] == ["1.6x", "2x", "0.996x", MISSING]


def page_text(folder: Path) -> str:
    """Return a page with one claim that has two readings, one open choice and one figure."""
    pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
    plots = {"fig": lambda: canvas(1)[0]}
    section = Section("Fig. 1", [TextTable("a table", "", ("", "ours"), [["a", "1"]])], plots)
    readings = [Reading("as printed", {"GB": Estimate(1.5, 0.2)}, "holds"), Reading("ours", {}, "does not hold")]
    stated: dict[str, Stated] = {"GB": (1.2, 1.9), "FB": 2.0}
    claim = Claim("a claim", agreed(readings), "words", "a range", stated, readings, "times", "25 % is near")
    choice = OpenChoice("ties", [Reading("lowest rack", {"mean JCT, h": Estimate(3.0, 0.5)}, "holds")])
    paper = Paper(name="page", paper="X, Y 2024", title="title", names={}, facts={}, claims={}, untested="")
    found = Reproduction(paper, ["a fact of `steady` < `phases`"], [claim], [section], {}, left_open=[choice])
    return found.write(folder).read_text(encoding="utf-8")


def test_a_picture_scrolls_within_its_card_and_turns_dark(tmp_path: Path) -> None:
    text = page_text(tmp_path)
    assert re.search(r'<figure class="card"><div class="scroll"><img alt="fig" src="data:image/svg', text)
    dark = text.split("figure img")[-1]
    assert "invert(1)" in dark[:100]


def test_what_is_between_backticks_is_code_on_the_page(tmp_path: Path) -> None:
    assert "<li>a fact of <code>steady</code> &lt; <code>phases</code></li>" in page_text(tmp_path)


def test_a_claim_is_a_picture_with_a_verdict_and_its_numbers_below(tmp_path: Path) -> None:
    text = page_text(tmp_path)
    assert '<img alt="claim-01"' in text
    for words in ("depends on the reading", "The paper: a range.", "after results were seen: 25 % is near"):
        assert words in text
    assert "<td>GB</td><td>1.20 to 1.90</td><td>1.50 ± 0.20</td>" in text
    assert "<h3>Left open: ties</h3>" in text
    assert re.search("<th[^>]*><span[^>]*>lowest</span> <span[^>]*>rack</span></th>", text)
    for row in ("<td>mean JCT, h</td><td>3.00 ± 0.50</td>", "<td>verdict</td><td>holds</td>"):
        assert row in text
