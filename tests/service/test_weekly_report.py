"""The jobs of an event log as a log for what-if, and the weekly report of a service that only recommends."""

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cranny.model.cluster import Cluster
from cranny.service import weekly_report
from cranny.service.event_chain import EventRow
from cranny.service.job_log import COLUMNS, logged_jobs
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore
from cranny.service.weekly_report import Week, WeeklyReports
from cranny.traces.read import read_trace

TWO = Cluster.single_rack(2, 4)
MONDAY_S = 1_794_787_200.0  # 2026-11-16, 00:00 UTC
DAY_S = 86_400.0


def recommended(jobs: int, begin_s: float) -> list[EventRow]:
    """Return the events of a service that watched jobs of 2 GPUs, half a day each, all on the first machine."""
    scheduler = Scheduler(TWO, "recommend", Limits())
    scheduler.open(begin_s)
    scheduler.switch({"name": "best-fit"}, "test", begin_s)
    for number in range(jobs):
        at_s = begin_s + number * DAY_S / 2
        record, _ = scheduler.submit("ann", {"command": ["x"], "gpus": 2, "time_limit_s": 90_000}, None, at_s)
        scheduler.observe(record.id, {"machines": ["0", "0"]}, at_s + 600)
        scheduler.observe(record.id, {"ended": True}, at_s + 600 + DAY_S / 3)
    scheduler.submit("bob", {"command": ["x"], "gpus": 4}, None, begin_s + jobs * DAY_S / 2)
    return scheduler.rows


def test_jobs_are_rows_with_times_and_machines() -> None:
    found = logged_jobs(recommended(1, MONDAY_S), 0.0)
    head, done, waiting = (dict(zip(COLUMNS, row.split("|"), strict=True)) for row in found.text.splitlines())
    assert list(head.values()) == list(COLUMNS)
    assert done["JobID"] == "job-1"
    assert done["NodeList"] == "rack0-machine0"
    assert [float(done[name]) - MONDAY_S for name in ("Submit", "Start", "End")] == [0.0, 600.0, 29_400.0]
    assert (done["State"], done["AllocTRES"], done["Timelimit"]) == ("COMPLETED", "gres/gpu=2", "1-01:00:00")
    assert (waiting["State"], waiting["Start"], waiting["ReqTRES"]) == ("PENDING", "Unknown", "gres/gpu=4")
    assert (found.rows, found.cluster.machines) == (2, TWO.machines)


def test_jobs_that_were_over_before_are_left_out() -> None:
    events = recommended(4, MONDAY_S)
    assert logged_jobs(events, MONDAY_S + DAY_S).rows == 3


def test_what_if_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "jobs.txt"
    file.write_text(logged_jobs(recommended(3, MONDAY_S), 0.0).text)
    trace = read_trace(file)
    assert trace.frame["gpus"].to_list() == [2, 2, 2]  # the one that waits has not run
    assert trace.frame["limit_s"].to_list()[0] == 90_000.0


def test_an_attempt_that_was_moved_has_a_row_of_its_own() -> None:
    scheduler = Scheduler(TWO, "run", Limits())
    scheduler.open(0.0)
    scheduler.switch({"name": "best-fit"}, "test", 0.0)
    scheduler.submit("ann", {"command": ["x"], "gpus": 2}, None, 10.0)
    scheduler.log("launched", "job-1", {"attempt": 1}, 11.0)
    placement = {"machines": [1, 1], "spare": [], "gpus": [0, 1]}
    body = {"attempt": 2, "placement": placement, "gpus": [0, 1], "why": "", "facts": {}}
    scheduler.log("moved", "job-1", body, 20.0)
    scheduler.log("launched", "job-1", {"attempt": 2}, 21.0)
    rows = [row.split("|") for row in logged_jobs(scheduler.rows, 0.0).text.splitlines()[1:]]
    assert [(row[3], row[4], row[5], row[6], row[8]) for row in rows] == [
        ("REQUEUED", "10", "11", "20", "rack0-machine0"),
        ("RUNNING", "20", "21", "Unknown", "rack0-machine1"),
    ]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventStore]:
    monkeypatch.setattr(weekly_report, "NICENESS", 0)  # or all other tests would go first
    with closing(EventStore(str(tmp_path / "log.db"))) as made:
        made.acquire()
        yield made


def test_a_week_that_is_over_has_a_report(
    store: EventStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(recommended(10, MONDAY_S - 7 * DAY_S))
    reports = WeeklyReports(store, tmp_path, lambda: "best-fit", lambda: MONDAY_S + 60.0)
    with caplog.at_level(logging.WARNING):
        page = reports.look()
    assert page == tmp_path / "reports" / "2026-W46.html"
    assert page.read_text().lower().startswith("<!doctype html>")
    facts = json.loads(page.with_suffix(".json").read_text())
    assert [case["waits"]["wait"]["mean_s"] for case in facts["cases"]] == [600.0, 0.0]
    assert "week 2026-W46: best-fit would have had mean waits of 0 s instead of 600 s" in caplog.text
    assert reports.look() is None  # it is there


def test_a_week_without_jobs_is_said_once(
    store: EventStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(recommended(0, MONDAY_S + DAY_S))
    reports = WeeklyReports(store, tmp_path, lambda: "best-fit", lambda: MONDAY_S + 60.0)
    with caplog.at_level(logging.WARNING):
        assert reports.look() is None
        assert reports.look() is None
    assert caplog.text.count("week 2026-W46: no report") == 1


@pytest.mark.parametrize(
    ("at_s", "name"), [(MONDAY_S - 1, "2026-W45"), (MONDAY_S, "2026-W46"), (MONDAY_S + 6.9 * DAY_S, "2026-W46")]
)
def test_weeks_begin_on_mondays(at_s: float, name: str) -> None:
    assert Week.before(at_s).name == name
