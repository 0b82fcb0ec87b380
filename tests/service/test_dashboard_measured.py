"""What a job's page shows of its measurements: of made-up ones, and of a real training that is resized."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.report.test_page_in_browser import CHROMIUM, browser
from tests.service.conftest import Serve, until
from tests.service.fake_measurements import ASKED_S, point
from tests.service.test_dashboard_in_browser import READY, Open, modules, opened, running
from tests.service.test_dashboard_on_service import page
from tests.service.test_elastic_training import CLUSTER, ENV, HAS, elastic, steps

from cranny.service.auth import Caller
from cranny.service.dashboard import dashboard
from cranny.service.explain import PLACED

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Debian's chromium in /usr/bin/chromium")
NOTHING = "\N{EN DASH}"
__all__ = ["browser", "modules", "opened", "page"]  # the fixtures


@pytest.fixture
def course(modules: "Page") -> Any:
    """Return what calls a function of the module that puts reports into words."""
    ask = "async ([base, name, given]) => (await import(`${base}/course.js`))[name](...given)"
    return lambda name, *given: modules.evaluate(ask, [f"/assets/{dashboard.site().version}", name, list(given)])


def restart(**more: Any) -> dict[str, Any]:
    plain = {"attempt": 2, "reason": "resized", "gpus_before": 4, "gpus": 2, "step": 90, "took_s": 3.0}
    cost = {"lost_steps": 0, "cost_s": 3.0, "iteration_before_s": 0.2, "iteration_s": 0.1, "gained_s": 20.0}
    return {**plain, **cost, **more}


def test_reports_are_drawn_when_their_iterations_were_with_gaps_between_attempts(course: Any) -> None:
    shown = course("drawn", [point(10.0, 10, 1), point(13.0, 20, 1), point(30.0, 30, 2)])
    assert [each["at_s"] for each in shown] == pytest.approx([7.0, 10.0, 13.0, 27.0, 30.0])
    assert ["step" in each for each in shown] == [True, True, False, True, False]
    assert course("drawn", []) == []


def test_parts_of_iterations_that_no_report_names_have_no_line(course: Any) -> None:
    quiet = [{**point(10.0, 10), "comm_s": 0.0}]
    assert [line["name"] for line in course("parts", quiet, 1000)] == ["iteration", "computing"]
    assert len(course("parts", [*quiet, point(20.0, 20, waited_s=0.01)], 1000)) == 4


def test_marks_tell_where_placement_pace_and_share_changed(course: Any) -> None:
    paced = {"paced": True, "period_s": 0.3}
    points = [
        point(10.0, 10, 1),
        point(20.0, 20, 2),
        point(30.0, 30, 2, **paced),
        point(40.0, 40, 2, **{**paced, "period_s": 0.3001}),
        point(50.0, 50, 2, **{**paced, "period_s": 0.4}),
        point(60.0, 60, 2, **{**paced, "period_s": 0.4}, samples=48.0),
        point(70.0, 70, 2, samples=48.0),
        point(80.0, 80, 3, samples=48.0),
    ]
    marks = course("marks", points, [restart()])
    assert [mark["label"] for mark in marks] == list("ABCDEF")
    assert [mark["text"] for mark in marks] == [
        "attempt 2: resized from 4 to 2 GPUs, went on from step 90",
        "paced, an iteration every 300 ms",
        "paced, an iteration every 400 ms",
        "rank 0 has 48 samples an iteration, 32 before",
        "no longer paced",
        "a new attempt",
    ]
    assert marks[0]["at_s"] == pytest.approx(17.0)
    many = [point(10.0 * at, 10 * at, 2, paced=at % 2 == 0, period_s=0.1) for at in range(1, 40)]
    assert len(course("marks", many, [])) == 8


@pytest.mark.parametrize(
    ("now", "state", "text"),
    [
        (None, "unknown", "has not reported yet"),
        ({"paced": False}, "suspended", "does not wait for its slots now"),
        ({"paced": True, "period_s": 1.02 * ASKED_S}, "longer", "260.1 ms instead of 255 ms, 2 % longer"),
        ({"paced": True, "period_s": ASKED_S}, "kept", "every 255 ms, as asked"),
    ],
)
def test_it_is_said_whether_a_pace_is_kept(course: Any, now: dict[str, Any] | None, state: str, text: str) -> None:
    found = course("pace", {"period_s": ASKED_S}, None if now is None else point(10.0, 10, **now))
    assert found["state"] == state
    assert text in found["text"]


def test_a_job_that_is_asked_for_no_pace_has_none_and_drift_is_that_of_its_iterations(course: Any) -> None:
    assert course("pace", None, point(10.0, 10)) is None
    assert course("drift", point(10.0, 10)) is None
    assert course("drift", point(10.0, 10, paced=True, period_s=0.25)) == pytest.approx(0.2)


def test_restarts_are_told_with_what_they_cost_and_gained(course: Any) -> None:
    assert course("cost", restart()) == "3 s, no step lost"
    assert course("cost", restart(cost_s=4.5, lost_steps=15)) == "4.5 s, 15 steps done again"
    assert course("cost", restart(lost_steps=None)) == "3 s, lost steps unknown"
    assert course("gain", restart()) == "200 ms → 100 ms; 17 s gained so far"
    assert course("gain", restart(iteration_s=0.4, gained_s=-20.0)) == "200 ms → 400 ms; 23 s lost so far"
    assert course("gain", restart(iteration_s=0.2, gained_s=0.0)) == "200 ms → 200 ms, about the same"
    assert course("gain", restart(iteration_before_s=None, gained_s=None)) == "100 ms"
    for name in ("cost", "gain"):
        assert course(name, restart(cost_s=None, iteration_s=None)) == NOTHING


def test_the_page_shows_iterations_pace_types_and_what_was_not_believed(opened: Open) -> None:
    visit = opened(8)
    job = running(visit.fake, 2)
    page = visit.go(f"#/jobs/{job['id']}", ".marks li")
    assert page.locator(".marks li").count() == 2
    assert page.locator("svg.chart .mark").count() == 2
    label = page.locator("svg.chart").get_attribute("aria-label") or ""
    assert "iteration: now 255 ms" in label
    assert "waiting for its slot: now 20 ms" in label
    visit.sees(".pace.kept", "Kept: an iteration starts every 255 ms")
    visit.sees(".doubted", "2 reports of this job were not believed; the last one: more iterations than steps")
    rows = page.locator("section").filter(has_text="Types of GPU").locator("tbody tr")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        ["T4", "4", "33.3 %", "8.3 %", "110", "50 %"],
        ["V100", "4", "66.7 %", "16.7 %", "220", "100 %"],
    ]
    visit.sees(".circle li", "paced, measured 255 ms")
    page.locator("svg.chart").hover()
    visit.sees("#tip", "communicating")


def test_a_job_that_reports_nothing_has_none_of_it(opened: Open) -> None:
    visit = opened(8)
    job = next(job for job in visit.fake.jobs.values() if job["status"] == "running" and len(job["machines"]) == 1)
    page = visit.go(f"#/jobs/{job['id']}", ".finding")
    page.get_by_text("All traffic stays inside one machine").wait_for()
    for selector in ("svg.chart", ".pace", ".doubted"):
        assert page.locator(selector).count() == 0


def test_circles_follow_when_a_neighbour_comes_or_goes(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = opened(8)
    job = running(visit.fake, 2)
    page = visit.go(f"#/jobs/{job['id']}", ".circle")
    plain = visit.fake.traffic

    def alone(asked: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in plain(asked).items() if name != "circles"}

    monkeypatch.setattr(visit.fake, "traffic", alone)
    visit.fake.happens("ended", job="job-1", status="done")
    visit.until(lambda: page.locator(".circle").count() == 0)
    assert page.locator("svg.matrix").count() == 1
    monkeypatch.setattr(visit.fake, "traffic", plain)
    visit.fake.happens("paced", job="job-1", period_s=0.3, shift_s=0.1)
    visit.until(lambda: page.locator(".circle").count() == 1)


def test_the_explanation_follows_what_happens_to_neighbours(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = opened(8)
    job = running(visit.fake, 2)
    page = visit.go(f"#/jobs/{job['id']}", ".evidence")
    plain, lines = visit.fake.explain, list[str]()
    monkeypatch.setattr(visit.fake, "explain", lambda of: {**plain(of), "evidence": lines[-1:]})
    for kind in ("placed", "ended", "moved", "shifted", "paced", "profiled", "vacated", "policy"):
        lines.append(f"now shares the uplink of a rack with job-1, which was {kind}")
        visit.fake.happens(kind, job="job-1", status="done")
        page.locator(".evidence li").filter(has_text=lines[-1]).wait_for()


def test_reasons_of_a_placement_are_said_to_be_of_that_moment(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = opened(8)
    plain = visit.fake.explain
    lines = ["now shares no link", f"{PLACED}machines used: 2", f"{PLACED}+45 GPU-s: slows job-1 by 3 %"]
    monkeypatch.setattr(visit.fake, "explain", lambda of: {**plain(of), "evidence": lines})
    page = visit.go(f"#/jobs/{running(visit.fake, 2)['id']}", ".price")
    # In this order: what is now, the heading, what was then, and the price, which the last line is a part of.
    card = page.locator("section").filter(has=page.locator(".price"))
    shown = card.inner_text()
    parts = ("now shares no link", "When it was placed", "machines used: 2", "Price of this placement")
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert "slows job-1" not in shown


def enter(page: "Page", site: Any, job: str) -> None:
    page.goto(f"{site.url}/#/login?code={site.authenticator.one_time_code(Caller('root', 'admin'))}")
    page.wait_for_selector(READY)
    page.goto(f"{site.url}/#/jobs/{job}")


def test_a_real_training_that_is_resized_is_shown_with_what_that_cost(
    serve: Serve, page: "Page", tmp_path: Path
) -> None:
    site = serve(CLUSTER, real=True, policy=HAS)
    page.set_default_timeout(120_000)
    job = site.running.submit(**elastic(tmp_path, checkpoint={"grace_s": 600}))
    until(lambda: len(steps(tmp_path, job, 1)) > 50)
    enter(page, site, job)
    page.locator("svg.chart path.line.c1").wait_for()
    site.running.submit(command=["sleep", "600"], gpus=2, duration_s=600.0)
    page.locator(".marks li").filter(has_text="resized from 4 to 2 GPUs, went on from step").wait_for()
    row = page.locator("section").filter(has_text="Resumed at").locator("tbody tr").nth(1)
    row.filter(has_text="→").wait_for()
    cells = row.locator("td").all_inner_texts()
    resumed = steps(tmp_path, job, 2)[0]
    assert cells[4] == "2"
    assert cells[6] == f"step {resumed:,}"
    assert "step" in cells[7]
    page.locator("section").filter(has_text="Types of GPU").locator("tbody tr").wait_for()


LIAR = """
import os, time
from pathlib import Path
from cranny.channel.report import Record, Report
folder, token = Path(os.environ["CRANNY_CHANNEL"]), os.environ["CRANNY_CHANNEL_TOKEN"]
now = time.time()
Report(0, (Record(1, now, 1, 100, 1.0),)).write(folder, token)
time.sleep(600)
"""


def test_a_job_that_lies_is_told_on_its_page(serve: Serve, page: "Page") -> None:
    site = serve(CLUSTER, real=True, policy=HAS)
    page.set_default_timeout(120_000)
    job = site.running.submit(command=[sys.executable, "-c", LIAR], env=ENV)
    enter(page, site, job)
    page.locator(".doubted").filter(has_text="1 report of this job was not believed").wait_for()
    page.get_by_text("more iterations than steps").wait_for()
    assert page.locator("svg.chart").count() == 0
