import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.browser import PATIENCE_S, WIDE, eventually, leave, shared_tab
from tests.report.test_page_in_browser import CHROMIUM, browser
from tests.service.fake_api import EVIL, Fake, serving

from cranny.service.dashboard import dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
__all__ = ["browser"]  # the fixture
READY = "canvas.map[data-ready=yes]"
# The contrast of every visible text with what is behind it; those under what WCAG's level AA asks for.
PALE = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.9) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (!text || box.width < 2 || node.closest("[hidden], .unseen, :disabled, dialog")) continue;
    const shown = parse(node.closest("svg") ? style.fill : style.color);
    const both = [light(shown), light(behind(node.closest("svg") ?? node))];
    const [low, high] = both.sort((one, other) => one - other);
    const contrast = (high + 0.05) / (low + 0.05), large = parseFloat(style.fontSize) >= 24;
    if (contrast < (large ? 3 : 4.5)) found.push(`${text.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""
# What has no name for a screen reader, and tables without caption or heads.
NAMELESS = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const named = (node) => node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim();
  const controls = all("button, a[href], input, select, canvas[tabindex], [role=region], svg[role=img]");
  return [
    ...controls.filter((node) => !named(node)).map((node) => node.outerHTML.slice(0, 80)),
    ...all("table").filter((node) => !node.caption?.textContent || !node.querySelector("th[scope]")).map(String),
    ...all("main").filter((node) => node.querySelectorAll("h1").length !== 1).map(String),
  ];
}"""

# Counts the machines that are painted from now on.
COUNTING = """() => {
  const pen = CanvasRenderingContext2D.prototype, plain = pen.clearRect;
  window.cleared = 0;
  pen.clearRect = function (...box) {
    window.cleared += 1;
    return plain.apply(this, box);
  };
}"""


class Visit:
    """A browser on the dashboard of a made-up cluster, which notes every complaint."""

    def __init__(self, page: "Page", fake: Fake, url: str) -> None:
        self.page, self.fake, self.url = page, fake, url
        self.troubles: list[str] = []
        self.expected = "nothing"  # the complaint that a visit is about, whenever it comes
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.on("console", self._console)
        self.page.on("pageerror", self._error)

    def _console(self, message: "ConsoleMessage") -> None:
        self.troubles.append(message.text)

    def _error(self, error: "Error") -> None:
        self.troubles.append(str(error))

    def end(self) -> None:
        self.page.remove_listener("console", self._console)
        self.page.remove_listener("pageerror", self._error)
        leave(self.page)

    def go(self, place: str = "#/", ready: str = READY) -> "Page":
        self.page.goto(f"{self.url}/{place}")
        self.page.wait_for_selector(ready)
        return self.page

    def sees(self, selector: str, text: str) -> None:
        self.page.locator(selector).filter(has_text=text).first.wait_for()

    def until(self, holds: Callable[[], bool]) -> None:
        eventually(self.page, holds)


Open = Callable[..., Visit]


@pytest.fixture
def opened(browser: "Browser") -> Iterator[Open]:
    """Return what serves a made-up cluster and opens it in the tab that tests share; complaints fail the test."""
    visits: list[Visit] = []
    with ExitStack() as stack:

        def visit(machines: int | Fake = 8, *, tab: "Page | None" = None, **options: Any) -> Visit:
            fake = machines if isinstance(machines, Fake) else Fake(machines)
            page = shared_tab(browser, **options) if tab is None else tab
            visits.append(Visit(page, fake, stack.enter_context(serving(fake))))
            return visits[-1]

        yield visit
        for each in visits:
            each.end()
    for each in visits:
        assert [said for said in each.troubles if each.expected not in said] == []


@pytest.fixture(scope="module")
def modules(browser: "Browser") -> "Iterator[Page]":
    """Return a page for tests that only call functions of its modules."""
    fake = Fake(0)
    with serving(fake) as url:
        visit = Visit(browser.new_page(), fake, url)
        yield visit.go("#/", "main h1")
        visit.page.close()
    assert visit.troubles == []


def running(fake: Fake, machines: int = 1) -> dict[str, Any]:
    return next(
        job for job in fake.jobs.values() if job["status"] == "running" and len(job["machines"]) >= machines
    )


def waiting(fake: Fake) -> dict[str, Any]:
    return next(job for job in fake.jobs.values() if job["status"] == "waiting")


def all_places(fake: Fake) -> Iterator[tuple[str, str]]:
    """Give every page with what shows that it is there."""
    yield "#/", READY
    yield "#/jobs?show=running", "table.jobs tbody tr"
    yield f"#/jobs/{running(fake, 2)['id']}", "svg.matrix"
    yield f"#/jobs/{waiting(fake)['id']}", ".next"
    yield f"#/machines/{fake.names[0]}", "canvas.gantt[data-ready=yes]"
    yield "#/timeline", "canvas.gantt[data-ready=yes]"
    yield "#/what-if", READY


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_by_everyone(opened: Open, scheme: str) -> None:
    visit = opened(8, color_scheme=scheme)
    dark = scheme == "dark"
    for place, ready in all_places(visit.fake):
        page = visit.go(place, ready)
        for details in page.locator("details").all():
            details.locator("summary").first.click()
        assert page.evaluate(PALE) == [], place
        assert page.evaluate(NAMELESS) == [], place
        shade = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(int(part) for part in shade[4:-1].split(",")) < 200) == dark
    page.evaluate("document.documentElement.style.setProperty('--soft', 'light-dark(#999, #666)')")
    assert page.evaluate(PALE)  # the check can fail


def test_every_page_fits_a_phone(opened: Open) -> None:
    visit = opened(8, viewport={"width": 360, "height": 700})
    for place, ready in all_places(visit.fake):
        page = visit.go(place, ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, place


def test_a_submitted_job_shows_up_without_a_reload(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    visit.sees("#live", "live")
    before = page.locator(".tile dd.value").nth(3).inner_text()
    job = visit.fake.submit({"gpus": 2, "name": "fresh"})
    visit.sees(".changes", f"{job['id']} was placed")
    visit.until(lambda: page.locator(".tile dd.value").nth(3).inner_text() == str(int(before) + 1))
    page.get_by_role("button", name="Running").click()
    visit.sees("table.jobs", job["id"])
    visit.sees("#said", "ann submitted")


def test_only_machines_that_changed_are_painted_again(opened: Open) -> None:
    visit = opened(64)
    page = visit.go()
    page.evaluate(COUNTING)
    before = calm(page)
    job = visit.fake.submit({"gpus": 1})
    visit.sees(".changes", f"{job['id']} was placed")
    visit.until(lambda: page.evaluate("window.cleared") > before)
    assert calm(page) - before <= 2


def calm(page: "Page") -> int:
    """Wait until nothing has been painted for a while; return how often something was."""
    seen = -1
    while seen != (now := page.evaluate("window.cleared")):
        seen = now
        page.wait_for_timeout(500)
    return int(seen)


def test_the_map_can_be_walked_by_keyboard_and_pointer(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    page.keyboard.press("m")
    page.keyboard.press("ArrowRight")
    visit.sees("#map-said", visit.fake.names[0])
    page.keyboard.press("ArrowDown")
    visit.sees("#map-said", visit.fake.names[1])
    page.keyboard.press("Enter")
    visit.sees("h1", visit.fake.names[1])
    assert page.evaluate("document.activeElement.tagName") == "H1"
    visit.go("#/")
    page.locator("canvas.map").hover(position={"x": 30, "y": 50})
    visit.sees("#tip", f"{visit.fake.names[0]}, rack0")
    held = visit.fake.slots[0][0]
    page.locator("canvas.map").click(position={"x": 30, "y": 50})
    visit.sees(".kicker", str(held))


def test_shortcuts_go_to_pages_are_listed_and_can_be_turned_off(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    for key, heading in (("j", "Jobs"), ("t", "Timeline"), ("w", "What if")):
        page.keyboard.press(key)
        visit.sees("h1", heading)
        assert page.title() == f"{heading} · cranny"
    page.locator("h1").focus()
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.get_by_label("Use single-key shortcuts").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.locator("h1").inner_text() == "What if"


def test_tab_reaches_the_content_first_by_the_skip_link_and_focus_can_be_seen(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    seen = []
    for _ in range(4):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.tagName"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    assert "CANVAS" in seen


def test_what_if_shows_where_a_job_would_go_and_submits_it_when_told(opened: Open) -> None:
    visit = opened(8)
    page = visit.go("#/what-if")
    page.get_by_label("GPUs", exact=True).fill("2")
    page.keyboard.press("Enter")
    visit.sees(".answer h2", "It would start at once, on 1 machine.")
    assert [(path, spec["command"]) for _, path, spec in visit.fake.asked] == [("plan", ["true"])]
    page.get_by_role("button", name="Submit this job").click()
    visit.sees(".notice", "needs a command")
    page.get_by_label("Command").fill("python 'my train.py' --lr 1")
    page.get_by_role("button", name="Submit this job").click()
    page.get_by_text("Submitted as").get_by_role("link").click()
    visit.sees(".status", "running")
    assert visit.fake.asked[-1][2] == {"command": ["python", "my train.py", "--lr", "1"], "gpus": 2}


def test_what_if_says_why_a_job_would_wait_and_what_is_wrong_with_a_spec(opened: Open) -> None:
    visit = opened(8)
    visit.expected = "422"
    page = visit.go("#/what-if")
    page.get_by_label("GPUs", exact=True).fill("64")
    page.get_by_role("button", name="See what would happen").click()
    visit.sees(".answer", "It would have to wait.")
    visit.sees(".answer", "GPUs are free.")
    page.get_by_label("GPUs", exact=True).fill("0")
    page.get_by_role("button", name="See what would happen").click()
    visit.sees(".notice.bad", "gpus: must be a whole number")


def test_a_waiting_job_says_why_and_can_be_cancelled(opened: Open) -> None:
    visit = opened(8)
    job = waiting(visit.fake)
    page = visit.go(f"#/jobs/{job['id']}", ".next")
    visit.sees(".finding", "GPUs are asked for")
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel the job").click()
    visit.sees(".status", "cancelled")
    page.get_by_role("button", name="Cancel the job").wait_for(state="detached")


def test_a_placed_job_shows_its_price_beside_that_of_the_next_best_machines(opened: Open) -> None:
    visit = opened(8)
    page = visit.go(f"#/jobs/{running(visit.fake, 2)['id']}", ".price table")
    shown = [row.split("\t") for row in page.locator(".price tbody tr").all_inner_texts()]
    numbers = {cells[0].split("\n")[0]: cells[1:] for cells in shown}
    assert numbers["Its own communication"] == ["310", "310"]
    assert numbers["GPUs of other types"] == ["60", "60"]
    assert "Machines in use longer" not in numbers  # which costs nothing anywhere
    assert numbers["Total"] == ["530", "650"]  # the sums of what is printed
    visit.sees(".price", "crosses 2 racks")


def test_a_viewer_is_offered_nothing_that_a_viewer_may_not_do(opened: Open) -> None:
    fake = Fake(8)
    fake.role = "viewer"
    visit = opened(fake)
    job = next(job for job in fake.jobs.values() if job["status"] == "waiting" and job["user"] != "ann")
    page = visit.go(f"#/jobs/{job['id']}", ".next")
    assert page.locator(".title button").count() == 0
    visit.go("#/what-if")
    assert not page.get_by_role("button", name="Submit this job").is_visible()


def test_moves_that_pay_are_listed_with_gain_cost_and_money_and_made_by_an_admin(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    card = page.get_by_role("region", name="Moves", exact=True)
    card.get_by_text("4 moves: gain 12 GPU-hours").wait_for()
    told = card.inner_text()
    first = running(visit.fake)
    assert "2 machines would be idle, $16.00 an hour. Machines in use for less time save $1,234.50" in told
    rows = card.locator("tbody tr")
    assert rows.count() == 4
    line = rows.first.inner_text()
    assert first["id"] in line
    assert all(part in line for part in (visit.fake.names[-1], "an idle machine", "2"))
    assert "together with the one above" in rows.nth(2).inner_text()
    assert "room for job-12" in rows.nth(3).inner_text()
    card.get_by_label("Dollars per GPU-hour").fill("2.5")
    card.get_by_label("Dollars per GPU-hour").press("Enter")
    visit.sees("section[aria-label=Moves]", "$40.00 an hour")
    page.once("dialog", lambda dialog: dialog.dismiss())
    card.get_by_role("button", name="Make these moves").click()
    assert not visit.fake.asked  # it was not confirmed
    page.once("dialog", lambda dialog: dialog.accept())
    card.get_by_role("button", name="Make these moves").click()
    visit.sees("section[aria-label=Moves]", "4 jobs moved.")
    assert visit.fake.asked == [("POST", "moves", {"price_per_gpu_hour": 2.5})]
    visit.sees("section[aria-label=Moves]", "No moves pay now. Only jobs move whose job file says that they may")
    assert card.get_by_role("button").count() == 0


def test_moves_are_made_by_admins_of_a_service_that_runs_jobs_only(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    page.get_by_role("button", name="Make these moves").wait_for()
    for role, mode in (("user", "run"), ("viewer", "run"), ("admin", "recommend")):
        visit.fake.role, visit.fake.mode = role, mode
        page.reload()
        visit.sees("section[aria-label=Moves]", "4 moves: gain 12 GPU-hours")
        visit.sees("#who, .who", f"ann, {role}")
        assert page.get_by_role("button", name="Make these moves").count() == 0


def test_a_machine_can_be_drained_and_taken_back(opened: Open) -> None:
    visit = opened(8)
    page = visit.go(f"#/machines/{visit.fake.names[0]}", ".buttons button")
    page.get_by_role("button", name="Drain this machine").click()
    visit.sees(".facts", "drained: no new jobs are placed")
    page.get_by_role("button", name="Resume this machine").click()
    page.get_by_role("button", name="Drain this machine").wait_for()


def test_a_machine_that_joins_the_cluster_is_on_the_open_map_and_among_the_changes(opened: Open) -> None:
    visit = opened(8)
    visit.go("", ".map")
    visit.sees("main", "8 machines")
    fake = visit.fake
    fake.slots.append([None] * 8)
    fake.states.append("up")
    fake.use.append(0.0)
    fake.racks.append("rack1")
    fake.names.append("new")
    fake.happens("cluster", change="new joined")
    visit.sees("main", "9 machines")
    visit.sees("main", "the cluster has changed: new joined")


def test_names_are_text_wherever_they_are_shown(opened: Open) -> None:
    fake = Fake(8)
    for job in (running(fake, 2), waiting(fake)):
        job |= {"name": EVIL, "user": EVIL, "reason": EVIL, "model": EVIL, "queue": EVIL}
    fake.names[0], fake.racks[0] = EVIL, EVIL
    visit = opened(fake)
    for place, ready in (*all_places(fake), ("#/machines/%3Cimg%20src%3Dx%3E", "h1")):
        page = visit.go(place.replace(EVIL, "%3Cimg"), "main h1" if EVIL in place else ready)
        page.wait_for_timeout(100)
        assert page.locator("main img").count() == 0
        assert page.evaluate("window.hacked") is None
    fake.submit({"gpus": 1, "name": EVIL}, EVIL)
    visit.go("#/jobs", "table.jobs tbody tr")
    visit.sees("table.jobs", EVIL)


def test_the_stream_comes_back_where_it_stopped(opened: Open) -> None:
    visit = opened(8)
    page = visit.go()
    visit.sees("#live", "live")
    first = visit.fake.submit({"gpus": 1})
    visit.sees(".changes", first["id"])
    visit.fake.drop += 1
    visit.sees("#live", "reconnecting")
    missed = visit.fake.submit({"gpus": 1})
    visit.sees("#live", "live")
    visit.sees(".changes", f"{missed['id']} was placed")
    assert visit.fake.last_event_ids == ["0", "2"]
    assert page.locator(".changes li").count() == 4


def test_trouble_is_shown_as_the_service_words_it_and_goes_away(opened: Open) -> None:
    visit = opened(8)
    visit.expected = "503"
    page = visit.go()
    visit.sees("#live", "live")
    visit.fake.broken = "The log cannot be written: the disk is full."
    visit.fake.happens("policy", name="titan")
    visit.sees("#trouble", "the disk is full")
    visit.fake.broken = ""
    page.wait_for_selector("#trouble .notice", state="detached")


def test_a_page_opened_in_trouble_comes_live_when_it_is_over(opened: Open) -> None:
    visit = opened(8)
    visit.expected = "503"
    missed = visit.fake.submit({"gpus": 1})
    visit.fake.broken = "The log cannot be written: the disk is full."
    page = visit.go(ready="#trouble .notice")
    visit.fake.broken = ""
    page.wait_for_selector("#trouble .notice", state="detached")
    visit.sees("#live", "live")
    visit.sees(".changes", f"{missed['id']} was placed")


def test_without_access_a_page_says_how_to_get_it_and_takes_a_token(opened: Open) -> None:
    visit = opened(Fake(8, token="right"))  # noqa: S106
    visit.expected = "401"
    page = visit.go("#/", "#token")
    visit.sees("main", "/#/login?code=")
    visit.sees("main", "cranny token create me --role admin")
    assert "Bearer" not in page.locator("main").inner_text()
    visit.sees("#live", "no access")
    page.get_by_label("Token").fill("wrong")
    page.keyboard.press("Enter")
    visit.sees(".notice.bad", "There is no such token.")
    page.get_by_label("Token").fill("right")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY)


@pytest.mark.parametrize("notices", ["the line of changes", "a question"])
def test_a_service_that_forgot_the_session_is_told_from_a_broken_line(opened: Open, notices: str) -> None:
    fake = Fake(8)
    visit = opened(fake)
    visit.expected = "401"
    visit.go()
    visit.sees("#live", "live")
    fake.token = "new"  # noqa: S105
    if notices == "a question":
        fake.happens("policy", name="titan")
    else:
        fake.drop += 1
    visit.sees("main", "Your session has ended")


def test_a_service_without_jobs_shows_how_to_submit_one(opened: Open) -> None:
    visit = opened(Fake(8, jobs=False))
    page = visit.go()
    visit.sees(".empty pre", "cranny submit job.yaml")
    page.get_by_role("button", name="Running").click()
    visit.sees(".empty", "No job runs.")
    visit.go("#/timeline", "canvas.gantt[data-ready=yes]")


def test_logs_are_shown_without_the_codes_of_terminals(opened: Open) -> None:
    visit = opened(8)
    page = visit.go(f"#/jobs/{running(visit.fake)['id']}", ".log")
    visit.sees(".log", "[rank 0] step 59")
    assert page.locator(".log").inner_text().startswith(f"started {EVIL}")


def tried_twice(fake: Fake) -> dict[str, Any]:
    """Return a running job of several machines that failed once before."""
    job = running(fake, 2)
    began = job["started_s"] - 900
    times = {"placed_s": began, "started_s": began, "ended_s": began + 300}
    before = {"attempt": 1, "outcome": "failed", "exit_code": 3, "machines": [fake.names[4]], **times}
    job |= {"attempt": 2, "earlier": [before], "started_s": fake.now_s - 600}
    before |= {"started_s": fake.now_s - 1200, "ended_s": fake.now_s - 900}
    return job


def test_logs_of_earlier_attempts_can_be_read(opened: Open) -> None:
    visit = opened(8)
    job = tried_twice(visit.fake)
    page = visit.go(f"#/jobs/{job['id']}", ".log")
    visit.sees(".log", "attempt 2")
    visit.sees("main", "failed (exit code 3)")
    page.locator("#log-attempt").select_option("1")
    visit.sees(".log", "attempt 1")
    visit.fake.happens("launched", job=job["id"])
    page.wait_for_timeout(300)
    assert page.locator("#log-attempt").input_value() == "1"  # a reader of an attempt goes on reading it
    other = visit.go(f"#/jobs/{waiting(visit.fake)['id']}", ".next")
    assert not other.locator("#log-attempt").is_visible()


def test_the_timeline_shows_every_attempt_and_says_what_lies_beyond(opened: Open) -> None:
    fake = Fake(8)
    job = tried_twice(fake)
    for each in fake.jobs.values():
        if each["status"] == "waiting" and each["predicted_start_s"]:
            each["predicted_start_s"] += 600  # in 14, 18, 22, 26 and 34 minutes
    last = max(each["predicted_start_s"] or 0 for each in fake.jobs.values())
    next(each for each in fake.jobs.values() if each["predicted_start_s"] == last)["predicted_start_s"] += 9000
    visit = opened(fake)
    page = visit.go("#/timeline", "canvas.gantt[data-ready=yes]")
    visit.sees(".readout", "6 jobs waiting: 4 predicted starts shown, 1 beyond the right edge, the first in 3.1 h")
    visit.sees(".readout", "1 not predicted")
    page.get_by_text("The timeline as a table").click()
    visit.sees("tbody", "failed (attempt 1)")
    assert page.locator("tbody tr").filter(has=page.get_by_role("link", name=job["id"], exact=True)).count() == 2


def test_an_address_that_was_cut_off_leads_to_no_page_and_no_error(opened: Open) -> None:
    visit = opened(8)
    visit.go("#/jobs/%E0%A4%A", "h1")
    visit.sees("h1", "No such page")
    visit.sees("#who", "ann, admin")


def test_the_latest_changes_are_there_when_a_page_is_opened(opened: Open) -> None:
    fake = Fake(8)
    for _ in range(30):
        fake.submit({"gpus": 1})
    fake.happens("drained", machine=6, name=fake.names[6])
    visit = opened(fake)
    page = visit.go()
    visit.sees(".changes li:first-child", f"machine {fake.names[6]} was drained")
    assert page.locator(".changes li").count() == 8
    assert page.locator("#said").inner_text() == ""  # what is old is not said aloud


def test_a_job_that_others_run_is_not_offered_to_be_cancelled(opened: Open) -> None:
    fake = Fake(8)
    fake.mode = "recommend"
    job = running(fake)
    job["placement"]["gpus"] = []
    visit = opened(fake)
    page = visit.go(f"#/jobs/{job['id']}", "main th[scope=row]")
    page.wait_for_timeout(300)
    assert page.get_by_role("button", name="Cancel the job").count() == 0
    assert page.get_by_role("columnheader").all_inner_texts()[:2] == ["Machine", "Ranks"]
    visit.go(f"#/jobs/{waiting(fake)['id']}", ".next")
    page.get_by_role("button", name="Cancel the job").wait_for()


def test_the_map_of_a_small_cluster_is_as_wide_as_its_card(opened: Open) -> None:
    page = opened(1).go("#/", READY)
    asked = """async ([base, racks, width]) => {
      const { places } = (await import(`${base}/arrange.js`)).arrange(racks, 8, width, 660);
      return Math.max(...places.map((place) => place.x + place.wide)) / width;
    }"""
    for racks in ([1], [2], [1, 1], [3], [1, 1, 1], [5], [4, 1], [8], [4, 4]):
        rows, number = [], 0
        for count in racks:
            rows.append({"machines": list(range(number, number + count))})
            number += count
        for width in (330, 620, 880, 1300):
            assert page.evaluate(asked, [f"/assets/{dashboard.site().version}", rows, width]) > 0.85, (
                racks,
                width,
            )


def test_jobs_that_stand_side_by_side_differ_in_colour(modules: "Page") -> None:
    asked = """async (base) => {
      const { jobColour } = await import(`${base}/colours.js`);
      const numbers = (id) => jobColour(id).fill.match(/[0-9.]+/g).map(Number);
      return Array.from({ length: 60 }, (_, at) => numbers(`job-${at + 1}`));
    }"""
    shades = modules.evaluate(asked, f"/assets/{dashboard.site().version}")
    for at, (hue, _, light) in enumerate(shades):
        for other_hue, _, other_light in shades[at + 1 : at + 40]:
            apart = abs((hue - other_hue + 180) % 360 - 180)
            assert apart > 25 or abs(light - other_light) >= 6


def test_on_a_phone_the_reason_and_the_predicted_start_of_jobs_are_in_sight(opened: Open) -> None:
    visit = opened(8, viewport={"width": 390, "height": 844})
    page = visit.go("#/jobs", "table.jobs tbody tr")
    for cell in page.locator("table.jobs tbody td").all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
    assert page.get_by_role("columnheader", name="Predicted start").count() == 1  # also said to screen readers


def test_the_theme_can_be_chosen_and_is_kept(opened: Open) -> None:
    visit = opened(8, color_scheme="light")
    page = visit.go()
    page.get_by_role("button", name="Theme: Auto").click()
    page.get_by_role("button", name="Theme: Light").click()
    page.reload()
    page.wait_for_selector(READY)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 23, 26)"


def test_a_recommending_service_says_that_it_starts_nothing(opened: Open) -> None:
    fake = Fake(8)
    fake.mode = "recommend"
    visit = opened(fake)
    visit.go()
    visit.sees(".kicker", "recommend only: nothing is started")
    visit.sees("main", "Put job-1 on rack0-machine0.")


def test_events_are_read_the_same_however_the_stream_is_cut(modules: "Page") -> None:
    cut = """async ([base, text]) => {
      const { parser } = await import(`${base}/events.js`), seen = new Set();
      for (let at = 0; at <= text.length; at += 1) {
        const found = [], take = parser((event) => found.push([event.id, event.event, event.data]));
        take(text.slice(0, at));
        take(text.slice(at));
        seen.add(JSON.stringify(found));
      }
      return [...seen];
    }"""
    base = f"/assets/{dashboard.site().version}"
    text = (
        ': hello\n\nid: 7\r\nevent: placed\r\ndata: {"a":\r\ndata: 1}\r\n\r\n: here\n\nid: 8\ndata: x\n\nid: 9\n'
    )
    assert modules.evaluate(cut, [base, text]) == ['[["7","placed","{\\"a\\":\\n1}"],["8",null,"x"]]']


def test_a_command_line_is_split_as_a_shell_would(modules: "Page") -> None:
    asked = "async ([base, line]) => (await import(`${base}/spec.js`)).split(line)"
    lines = ("python train.py --lr 1", "  sh -c 'echo \"$RANK\"; sleep 1' ", 'a "b \\"c\\"" d\\ e \'\'', "")
    for line in lines:
        assert modules.evaluate(asked, [f"/assets/{dashboard.site().version}", line]) == shlex.split(line)


def test_a_thousand_machines_take_less_than_a_second_of_scripting(browser: "Browser", opened: Open) -> None:
    visit = opened(1000, tab=browser.new_page(viewport=WIDE))  # its own, in which nothing else has taken time
    session = visit.page.context.new_cdp_session(visit.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time, whatever else runs

    def scripting_s() -> float:
        return next(
            float(each["value"])
            for each in session.send("Performance.getMetrics")["metrics"]
            if each["name"] == "ScriptDuration"
        )

    visit.go()
    visit.page.wait_for_timeout(300)
    assert scripting_s() < 1.0
    before = scripting_s()
    for _ in range(10):
        visit.fake.submit({"gpus": 1})
        time.sleep(0.02)
    visit.sees(".changes", "was placed")
    visit.page.wait_for_timeout(500)
    assert scripting_s() - before < 0.5
    visit.page.locator("canvas.map").hover(position={"x": 200, "y": 200})
    visit.go("#/timeline", "canvas.gantt[data-ready=yes]")
    visit.page.mouse.move(700, 500)
    visit.page.mouse.wheel(0, 4000)
    visit.page.wait_for_timeout(200)
    assert scripting_s() < 2.0


def test_a_page_whose_service_is_gone_says_where_another_has_taken_over(browser: "Browser") -> None:
    """The session stays behind: a job could listen on the port of a standby that has not taken over."""
    known = "s3cret"
    first, second = Fake(8, token=known), Fake(8, token=known)
    with serving(second) as other, ExitStack() as running:
        first.also_at = (other,)
        visit = Visit(browser.new_page(), first, running.enter_context(serving(first)))
        visit.page.add_init_script(
            f"if (location.origin === '{visit.url}') localStorage.setItem('cranny-session', '{known}')"
        )
        job = next(iter(first.jobs))
        page = visit.go(f"#/jobs/{job}", "h1")
        visit.sees("#live", "live")
        running.close()
        visit.sees("#elsewhere", "another one has taken over")
        assert known not in page.content()
        page.click("#elsewhere a")
        page.wait_for_url(f"{other}/#/jobs/{job}")
        page.wait_for_selector("#token")
        assert page.evaluate("localStorage.getItem('cranny-session')") is None
        assert all(known not in str(each) for each in second.asked)
        page.close()
