"""The page of circles as a browser shows it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.report import test_page_in_browser as shared
from tests.report.test_circles import interleaved

from cranny.report.circles import write_circles

if TYPE_CHECKING:
    from playwright.sync_api import Browser

letter_heights = shared.letter_heights
browser, pytestmark = shared.browser, shared.pytestmark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_page_shows_before_after_and_demand_below_each_other(
    browser: "Browser", tmp_path: Path, scheme: str
) -> None:
    jobs = [f"a job with quite a long name {number}" for number in range(9)]
    path = write_circles(interleaved(*jobs), tmp_path / "circles.html", title="Nine", command="cranny")
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    boxes = [each.bounding_box() for each in page.locator(".side svg").all()]
    assert len(boxes) == 4
    lefts, rights = zip(*[(box["x"], box["x"] + box["width"]) for box in boxes if box], strict=True)
    assert min(lefts) >= 0
    assert max(rights) <= 390
    assert min(letter_heights(page, ".demand .tick")) >= 10
    card = page.locator("figure.card").evaluate("each => getComputedStyle(each).backgroundColor")
    assert card == {"light": "rgb(255, 255, 255)", "dark": "rgb(26, 31, 35)"}[scheme]
    page.close()
