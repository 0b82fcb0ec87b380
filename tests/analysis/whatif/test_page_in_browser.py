"""A real page of a what-if in a browser: on a telephone, and printed."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.browser import eventually
from tests.traces.trap_logs import log, row

from cranny.analysis.whatif.tables import write_page
from cranny.analysis.whatif.what_if import what_if
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.traces.read import read_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
A4 = 718  # CSS pixels between the margins of a printed page
JOBS = 160
# Tables whose right edge lies beyond what is shown, as printed, where nothing scrolls.
BEYOND = """width => [...document.querySelectorAll('table')]
  .filter(table => table.getBoundingClientRect().right > width + 1)
  .map(table => table.closest('section').querySelector('h2').textContent)"""
# Heads that break inside a word: their text is higher than their words are many.
BROKEN = """() => [...document.querySelectorAll('th .word')]
  .filter(word => word.getClientRects().length > 1).map(word => word.textContent)"""
# Cards with a table that may be divided between two pages, though they would fit on one.
DIVIDED = """() => [...document.querySelectorAll('.card:has(> .scroll)')]
  .filter(card => getComputedStyle(card).breakInside !== 'avoid').length"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the page of a what-if with every table: types, users, partitions, a replay of the log's scheduler."""
    folder = tmp_path_factory.mktemp("page")
    first = datetime(2026, 3, 2)  # noqa: DTZ001 - in the zone in which the log is read
    rows = []
    for number in range(JOBS):
        submit = first + timedelta(minutes=97 * number)
        start = submit + timedelta(minutes=number % 3)
        end = start + timedelta(minutes=60 + 37 * (number % 7))
        times = submit.isoformat(), start.isoformat(), end.isoformat()
        kind = ("a100", "h100")[number % 2]
        user = ("anna.schmidt", "bob", "christopher.wagner")[number % 3]
        gpus = (1, 2, 4, 8)[number % 4]
        rows.append(
            row(str(number), *times, f"{kind}-{number % 3}", f"gpu:{kind}={gpus}", User=user, Partition=kind)
        )
    (folder / "sacct.txt").write_text(log(*rows), encoding="utf-8")
    own = tuple(Machine(f"{kind}-{number}", 8, kind) for kind in ("a100", "h100") for number in range(3))
    cluster = Cluster.of(Switch("rack", own, (100.0,) * len(own)))
    trace = read_trace(folder / "sacct.txt", zone="Europe/Berlin")
    policies = ["best-fit", "consolidate-idle"]
    answer = what_if(trace, cluster, policies, processes=1, price_per_gpu_hour=2.5, collectives=["ring"])
    return write_page(answer, folder / "out.html")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"], headless=True
        )
        yield chromium
        chromium.close()


def opened(browser: "Browser", path: Path, width: int, **options: str) -> "Page":
    page = browser.new_page(viewport={"width": width, "height": 844}, **options)  # type: ignore[arg-type]
    page.goto(path.as_uri())
    eventually(page, lambda: page.locator("table").count() > 10)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_scrolls_sideways_on_a_telephone_but_tables(browser: "Browser", path: Path, scheme: str) -> None:
    page = opened(browser, path, 390, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(BROKEN) == []
    cell = page.locator("#how-long-jobs-waited-and-took tbody td").first
    before = cell.bounding_box()
    page.locator("#how-long-jobs-waited-and-took .scroll").evaluate("scrolled => { scrolled.scrollLeft = 80; }")
    assert before is not None
    assert cell.bounding_box() == before  # the name of a row stays
    page.close()


def test_all_of_it_is_on_paper(browser: "Browser", path: Path) -> None:
    page = opened(browser, path, A4)
    page.emulate_media(media="print")
    assert page.evaluate(BEYOND, A4) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= A4
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(DIVIDED) == 0
    assert not page.get_by_text("Point at a square").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()
