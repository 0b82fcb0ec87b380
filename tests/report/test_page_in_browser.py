import dataclasses
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import eventually, shared_tab
from tests.report.synthetic import FakeResult, make_results
from tests.report.test_page import EVIL, poisoned
from tests.report.test_table import renamed

from cranny.core.flows import parameter_server
from cranny.model.cluster import Cluster
from cranny.network.steady.link_load import JobStream, Load
from cranny.report.network_page import write_page as write_network
from cranny.report.page import Lead, write_report
from cranny.report.text_table import TextTable, text_table_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    with playwright.sync_playwright() as engine:
        chromium = engine.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS, headless=True)
        yield chromium
        chromium.close()


class Visit:
    """A page opened from disk, which notes every complaint and every request."""

    def __init__(self, browser: "Browser", path: Path, **options: Any) -> None:
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page = shared_tab(browser, **options)
        self.heard = {
            "console": lambda message: self.troubles.append(message.text),
            "pageerror": lambda error: self.troubles.append(str(error)),
            "request": lambda request: self.requests.append(request.url),
            "dialog": lambda dialog: self.troubles.append(dialog.message),
        }
        for event, note in self.heard.items():
            self.page.on(event, note)  # type: ignore[call-overload]
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#map[data-ready=yes]")

    def leave(self) -> None:
        for event, note in self.heard.items():
            self.page.remove_listener(event, note)
        assert self.troubles == []
        assert all(url.startswith("file:") for url in self.requests)


@pytest.fixture(scope="module")
def report(results: Sequence[FakeResult], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(results, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def visit(browser: "Browser", report: Path) -> Iterator[Visit]:
    made = Visit(browser, report)
    yield made
    made.leave()


def box_of(shown: "Locator") -> "FloatRect":
    box = shown.bounding_box()
    assert box is not None
    return box


def letter_heights(page: Any, which: str) -> list[float]:
    """Return the size of letters on the screen, in pixels, of all labels that are shown."""
    sizes: list[float] = page.evaluate(
        """which => [...document.querySelectorAll(which)].filter((each) => each.getClientRects().length)
        .map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a)""",
        which,
    )
    assert sizes
    return sizes


def overlaps(page: Any, which: str) -> int:
    """Count the labels of a chart that run into the one before."""
    counted: int = page.evaluate(
        """which => [...document.querySelectorAll("figure[data-chart]")].flatMap((figure) => {
          const boxes = [...figure.querySelectorAll(which)].map((each) => each.getBoundingClientRect())
            .filter((box) => box.width);
          return boxes.slice(1).filter((box, at) => box.left < boxes[at].right);
        }).length""",
        which,
    )
    return counted


def policies(visit: Visit) -> list[str]:
    return [name.strip() for name in visit.page.locator("table.summary tbody .name-cell").all_inner_texts()]


def test_a_click_sorts_and_a_second_click_turns_round(visit: Visit, results: Sequence[FakeResult]) -> None:
    button = visit.page.locator("th[data-key=mean_fragmentation] button")
    ordered = sorted(results, key=lambda result: result.summary["mean_fragmentation"])
    names = [str(result.settings["policy"]) for result in ordered]
    button.click()
    assert policies(visit) == names
    button.click()
    assert policies(visit) == names[::-1]
    assert visit.page.locator("th[aria-sort]").count() == 1


def test_a_column_explains_itself(visit: Visit) -> None:
    visit.page.hover("th[data-key=mean_profit_rate] button")
    assert "Higher is better." in visit.page.locator("#tip").inner_text()


def test_a_policy_can_be_hidden_and_shown(visit: Visit) -> None:
    button = visit.page.locator(".legend button[data-run='1']")
    lines = visit.page.locator(".chart .line[data-run='1']")
    assert lines.count() == 6
    assert lines.first.is_visible()
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert not lines.first.is_visible()
    button.click()
    assert lines.first.is_visible()


def test_the_crosshair_is_shared_by_the_charts_over_time(visit: Visit) -> None:
    chart = visit.page.locator("figure[data-chart=used_machines] svg.chart")
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 300, "y": 80})
    assert visit.page.locator("g.hover").count() == 4
    tip = visit.page.locator("#tip").inner_text()
    assert "consolidate-idle" in tip
    chart.press("ArrowRight")
    assert visit.page.locator("g.hover").count() == 4
    visit.page.mouse.move(5, 5)
    assert visit.page.locator("g.hover").count() == 0


def test_a_distribution_reads_the_share_of_jobs(visit: Visit) -> None:
    chart = visit.page.locator("figure[data-chart=jct_s] svg.chart")
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": box_of(chart)["width"] - 4, "y": 80})
    assert visit.page.locator("#tip").inner_text().count("100.0 %") == 4


def test_the_slider_moves_the_map_through_time(visit: Visit) -> None:
    page = visit.page
    before = page.locator("#map-readout").inner_text()
    picture = page.evaluate("document.getElementById('map-canvas').toDataURL()")
    page.locator("#map-time").evaluate("s => { s.value = s.max; s.dispatchEvent(new Event('input')); }")
    assert page.locator("#map-readout").inner_text() != before
    assert page.evaluate("document.getElementById('map-canvas').toDataURL()") != picture
    page.locator("#map-time").press("ArrowLeft")
    assert page.locator("#map-time").input_value() == "58"


def test_the_map_counts_one_gpu_and_one_job_as_people_do(visit: Visit) -> None:
    readout, slider = visit.page.locator("#map-readout"), visit.page.locator("#map-time")
    texts = []
    for at in range(int(slider.get_attribute("max") or 0) + 1):
        slider.evaluate("(s, at) => { s.value = at; s.dispatchEvent(new Event('input')); }", at)
        texts.append(readout.inner_text())
    assert not [text for text in texts if re.search(r"(?<![\d.,])1 (GPUs|jobs)\b|[^\d]1 job that hold ", text)]
    assert any(re.search(r"(?<![\d.,])1 (GPU|job)\b", text) for text in texts)


def test_the_map_shows_another_policy(visit: Visit) -> None:
    visit.page.locator(".choices label", has_text="best-fit").click()
    assert visit.page.locator("#map-readout").inner_text().startswith("best-fit: ")


def hover_a_held_gpu(visit: Visit) -> str:
    """Move over the map until a job answers."""
    canvas = visit.page.locator("#map-canvas")
    canvas.scroll_into_view_if_needed()
    box = box_of(canvas)
    tip = visit.page.locator("#tip")
    for y in range(18, int(box["height"]), 8):
        for x in range(4, 400, 12):
            visit.page.mouse.move(box["x"] + x, box["y"] + y)
            if tip.is_visible() and "on" in tip.inner_text() and "GPUs held" in tip.inner_text():
                text = str(tip.inner_text())
                if "idle" not in text:
                    return text
    return ""


def test_pointing_at_a_gpu_names_its_job(visit: Visit) -> None:
    text = hover_a_held_gpu(visit)
    assert "job-" in text
    assert "node-" in text
    assert "machine" in text


def test_hostile_names_stay_text_in_the_browser(
    browser: "Browser", results: Sequence[FakeResult], tmp_path: Path
) -> None:
    path = write_report([poisoned(result) for result in results], tmp_path / "evil.html", title=EVIL)
    visit = Visit(browser, path)
    assert visit.page.locator("h1").inner_text() == EVIL
    assert EVIL in hover_a_held_gpu(visit)
    assert visit.page.locator("img").count() == 0
    visit.leave()


@pytest.mark.parametrize("width", [1400, 800, 420])
def test_the_dark_page_fits_its_window(browser: "Browser", report: Path, width: int) -> None:
    visit = Visit(browser, report, viewport={"width": width, "height": 900}, color_scheme="dark")
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.leave()


@pytest.mark.parametrize("width", [1400, 1060, 800, 600, 500, 400, 340])
def test_the_labels_of_charts_are_large_enough_to_read_in_every_window(
    browser: "Browser", report: Path, width: int
) -> None:
    visit = Visit(browser, report, viewport={"width": width, "height": 900})
    sizes = letter_heights(visit.page, ".chart .tick")
    assert 9.9 <= min(sizes) <= max(sizes) < 17
    assert overlaps(visit.page, ".tick.middle") == 0
    lefts = visit.page.evaluate(
        "[...document.querySelectorAll('.tick')].map((each) => each.getBoundingClientRect().left)"
    )
    assert min(lefts) >= 0
    if width >= 400:  # a page that is narrower scrolls sideways
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.leave()


def test_the_crosshair_goes_from_arrival_to_arrival(browser: "Browser", tmp_path: Path) -> None:
    # Few arrivals: between them nothing is known, so the crosshair must not stop there.
    visit = Visit(browser, write_report(make_results(("cranny", "best-fit"), jobs=5), tmp_path / "report.html"))
    data = visit.page.evaluate("JSON.parse(document.getElementById('page-data').textContent)")
    known = [at for at, value in enumerate(data["time"]["used_machines"]["lines"][0]) if value is not None]
    chart = visit.page.locator("figure[data-chart=used_machines] svg.chart")
    chart.scroll_into_view_if_needed()
    chart.press("ArrowLeft")
    seen = [visit.page.locator("#tip .top").inner_text()]
    for _ in range(len(known)):
        chart.press("ArrowLeft")
        seen.append(visit.page.locator("#tip .top").inner_text())
    for _ in range(len(known)):
        chart.press("ArrowRight")
        seen.append(visit.page.locator("#tip .top").inner_text())
    assert len(set(seen)) == len(known)
    assert visit.page.locator("figure[data-chart=used_machines] .dots").count() == 2
    visit.leave()


@pytest.mark.parametrize("width", [1400, 420])
def test_a_log_stands_beside_the_policies(
    browser: "Browser", results: Sequence[FakeResult], tmp_path: Path, width: int
) -> None:
    cranny = dataclasses.replace(
        results[0], timeline=results[0].timeline.with_columns(free_gpus=5.0, idle_gpus=3.0)
    )
    was = dataclasses.replace(
        renamed(results[1], policy="as it was"),
        summary={"mean_wait_s": 60.0},
        timeline=results[1].timeline.select("time_s", free_gpus=7.0),
        runs=results[1].runs.clear(),
    )
    sheet = TextTable("Waits", "A note.", ("", *("a long head",) * 12), [("cranny", *("1.5 h",) * 12)])
    grid = f'<div class="grid">{text_table_html(sheet)}</div>'
    lead = f'<section id="lead"><div class="card prose">{grid}</div></section>'
    path = write_report([cranny, was], tmp_path / "report.html", lead=Lead("Jobs wait less.", lead, ""))
    visit = Visit(browser, path, viewport={"width": width, "height": 900})
    assert visit.page.locator("#lead table").is_visible()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    # Where its jobs ran is not known, so it is not on the map.
    assert visit.page.locator(".choices label").all_inner_texts() == ["cranny"]
    chart = visit.page.locator("figure[data-chart=free_gpus] svg.chart")
    chart.scroll_into_view_if_needed()
    chart.hover(position={"x": 200, "y": 80})
    tip = visit.page.locator("#tip").inner_text().split("\n")
    assert "as it was" in tip
    assert "7" in tip
    assert visit.page.locator("figure[data-chart=idle_gpus] .line").count() == 1
    visit.leave()


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (420, "dark")])
@pytest.mark.parametrize(("racks", "machines"), [(2, 4), (625, 16)])
def test_the_network_is_a_heat_map_that_answers(
    browser: "Browser",
    results: Sequence[FakeResult],
    tmp_path: Path,
    width: int,
    scheme: str,
    racks: int,
    machines: int,
) -> None:
    cluster = Cluster.fat_tree(racks, machines, 4, pat_gbps=100.0)
    load = Load.of(cluster, [JobStream("job-1", parameter_server(cluster, [0, 1, machines], server=1), 100.0)])
    path = write_report([dataclasses.replace(results[0], load_always=load), results[1]], tmp_path / "report.html")
    visit = Visit(browser, path, viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert visit.page.locator("svg.heat").count() == 1  # the other run noted nothing
    assert visit.page.locator("#network figcaption").inner_text() == "cranny"
    label = visit.page.locator("svg.heat").get_attribute("aria-label")
    assert label is not None
    assert label.startswith("Heat map of the network. 1 running job uses links")
    first = visit.page.locator("svg.heat title").first
    assert "rack0" in (first.text_content() or "")
    colours = visit.page.evaluate(
        "[...document.querySelectorAll('svg.heat path')].map((path) => getComputedStyle(path).fill)"
    )
    assert len(set(colours)) == len(colours) > 1
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    visit.leave()


def test_narrow_racks_have_room_for_their_names(browser: "Browser", tmp_path: Path) -> None:
    path = write_report(make_results(("cranny",), jobs=60, racks=12, per_rack=8, gpus=1), tmp_path / "report.html")
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.add_init_script(
        "window.written = []; const write = CanvasRenderingContext2D.prototype.fillText;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...at)"
        " { window.written.push(text); write.call(this, text, ...at); };"
    )
    page.goto(path.as_uri())
    page.wait_for_selector("#map[data-ready=yes]")
    assert set(page.evaluate("window.written")) == {f"rack {rack:02d}" for rack in range(12)}
    page.close()


def test_a_phone_shows_uplink_and_memory_of_racks_without_scrolling(browser: "Browser", tmp_path: Path) -> None:
    cluster = Cluster.fat_tree(4, 16, 4, oversubscription=4, pat_gbps=100.0)
    load = Load.of(cluster, [JobStream("job-1", parameter_server(cluster, [0, 1, 16], server=1), 50.0)])
    path = write_network(load, tmp_path / "network.html", title="title", kicker="kicker", command="command")
    page = browser.new_page(viewport={"width": 400, "height": 900})
    page.goto(path.as_uri())
    for name in ("uplink", "memory"):
        box = box_of(page.locator("svg.heat text.name", has_text=re.compile(f"^{name}$")))
        assert 0 <= box["x"] < box["x"] + box["width"] <= 380
    mask = "getComputedStyle(document.querySelector('.network .scroll')).maskImage"
    eventually(page, lambda: "gradient" in page.evaluate(mask))  # there is more beyond the edge
    page.set_viewport_size({"width": 1400, "height": 900})
    eventually(page, lambda: page.evaluate(mask) == "none")
    page.close()


def test_bottlenecks_stand_below_each_other_on_a_phone(browser: "Browser", tmp_path: Path) -> None:
    cluster = Cluster.fat_tree(2, 4, 4, oversubscription=4)
    flows = parameter_server(cluster, [0, 1, 4], server=1)
    load = Load.of(cluster, [JobStream("job-1", flows, 50.0), JobStream("job-2", flows, 50.0)])
    path = write_network(load, tmp_path / "network.html", title="title", kicker="kicker", command="command")
    for width, stacked in ((390, True), (1400, False)):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(path.as_uri())
        assert page.locator(".links thead").is_visible() is not stacked
        name, held = (box_of(page.locator(f".links td:{place}-child").first) for place in ("first", "last"))
        assert (held["y"] >= name["y"] + name["height"]) is stacked
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()
