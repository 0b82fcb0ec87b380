"""Numbers and pages of a reproduction: values and errors have the same decimals, and pictures fit any screen."""

import re
from pathlib import Path

import pytest

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import Claim
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


def test_a_picture_scrolls_within_its_card_and_turns_dark(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
    plots = {"fig": lambda: canvas(1)[0]}
    section = Section("Fig. 1", [TextTable("a table", "", ("", "ours"), [["a", "1"]])], plots)
    claims = [Claim("a claim", "holds", "words")]
    paper = Paper(name="page", paper="X, Y 2024", title="title", names={}, facts={}, claims={}, untested="")
    found = Reproduction(paper, ["a fact"], claims, [section], {})
    page = found.write(tmp_path)
    text = page.read_text(encoding="utf-8")
    assert re.search(r'<figure class="card"><div class="scroll"><img alt="fig" src="data:image/svg', text)
    dark = text.split("figure img")[-1]
    assert "invert(1)" in dark[:100]
