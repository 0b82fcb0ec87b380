"""Reports of jobs: what is possible is believed, everything else is counted, and others never notice."""

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.backends.protocol import JobChannel
from cranny.channel.report import Record, Report, Resumed, Saved, report_file
from cranny.service import reports
from cranny.service.point_history import POINTS
from cranny.service.reports import (
    PAST_JOBS,
    SKEW_S,
    ImplausibleReportError,
    RankState,
    ReportReader,
    WatchedAttempt,
)

NOW_S = 1_000.0
LAUNCHED_S = 900.0


def record(number: int, at_s: float = 950.0, step: int | None = None, **more: Any) -> Record:
    return Record(number, at_s, 10 * number if step is None else step, **{"iterations": 10, "wall_s": 5.0, **more})


def reader_of(folder: Path, *jobs: str, ranks: int = 1) -> ReportReader:
    """Return a reader that watches some jobs; rounds are run by the test."""
    made = ReportReader(lambda: NOW_S)
    for job_id in jobs:
        (folder / job_id).mkdir(exist_ok=True)
        channel = JobChannel(folder / job_id, f"token of {job_id}")
        made.watch(WatchedAttempt(job_id, 1, channel, ("T4",) * ranks, LAUNCHED_S))
    return made


def rounds(reader: ReportReader, count: int = 4) -> None:
    for _ in range(count):
        reader.round()


def report(folder: Path, job_id: str, *records: Record, **more: Any) -> None:
    Report(0, records, **more).write(folder / job_id, f"token of {job_id}")


def test_new_records_become_points_once(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "a")
    rounds(reader)
    assert reader.points("a") == []
    report(tmp_path, "a", record(1), record(2, samples=40.0, compute_s=4.0))
    rounds(reader)
    report(tmp_path, "a", record(1), record(2, samples=40.0, compute_s=4.0), record(3))
    rounds(reader)
    points = reader.points("a")
    assert [(point.step, point.iteration_s) for point in points] == [(10, 0.5), (20, 0.5), (30, 0.5)]
    assert (points[1].samples, points[1].compute_s) == (4.0, 0.4)
    assert (reader.read, reader.bad) == (2, 0)
    reader.forget("a", 1)
    assert len(reader.points("a")) == 3  # of a job that is over, too
    assert reader.points("unknown") == []


LIES: dict[str, tuple[Record, ...]] = {
    "step": (record(3, step=15),),
    "iterations": (record(3, step=25),),
    "earlier": (record(3, at_s=949.0),),
    "future": (record(3, at_s=NOW_S + SKEW_S + 1.0),),
    "long": (record(3, wall_s=200.0),),
    "long together": (record(3, wall_s=60.0), record(4, wall_s=60.0)),
    "back": (record(1),),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_lie_is_counted_and_changes_nothing(tmp_path: Path, lie: tuple[Record, ...]) -> None:
    reader = reader_of(tmp_path, "a", "b")
    for job_id in ("a", "b"):
        report(tmp_path, job_id, record(1), record(2))
    rounds(reader)
    before = reader.points("a"), reader.points("b")
    report(tmp_path, "a", *lie)
    rounds(reader)
    assert (reader.points("a"), reader.points("b")) == before
    assert reader.bad_of("a")[0] == reader.bad == 1
    assert reader.bad_of("b") == (0, "")
    report(tmp_path, "a", record(3))  # the truth is still believed
    rounds(reader)
    assert len(reader.points("a")) == 3


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"saved": Saved(5, NOW_S + 60.0, 1.0)}),
        ({}, {"saved": Saved(5, 950.0, 500.0)}),
        ({"saved": Saved(9, 950.0, 1.0)}, {"saved": Saved(5, 951.0, 1.0)}),
        ({}, {"resumed": Resumed(0, NOW_S + 60.0, 1.0)}),
        ({}, {"resumed": Resumed(0, 950.0, 500.0)}),
        ({"resumed": Resumed(5, 950.0, 1.0)}, {"resumed": Resumed(6, 950.0, 1.0)}),
    ],
)
def test_checkpoints_and_starts_must_be_possible(first: dict[str, Any], second: dict[str, Any]) -> None:
    state = RankState()
    state.take(Report(0, **first), LAUNCHED_S, NOW_S)
    before = state.saved, state.resumed, state.number
    with pytest.raises(ImplausibleReportError):
        state.take(Report(0, (record(1, step=20),), **second), LAUNCHED_S, NOW_S)
    assert (state.saved, state.resumed, state.number) == before


def test_a_request_stays_answered_when_the_job_saves_again(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "a")
    assert not reader.answered("a", 1, 1)
    report(tmp_path, "a", saved=Saved(5, 950.0, 1.0, request=1))
    rounds(reader)
    assert reader.answered("a", 1, 1)
    report(tmp_path, "a", saved=Saved(9, 960.0, 1.0))
    rounds(reader)
    assert reader.answered("a", 1, 1)
    assert not reader.answered("a", 2, 1)
    assert not reader.answered("a", 1, 2)


@given(
    st.lists(st.tuples(st.integers(-5, 60), st.floats(0, 1e4), st.integers(1, 60), st.floats(0, 1e3)), max_size=8)
)
def test_whatever_a_rank_says_what_is_believed_is_possible(course: list[tuple[int, float, int, float]]) -> None:
    state, believed = RankState(), list[Record]()
    for number, at_s, iterations, wall_s in course:
        step = max(1, number) * 7
        told = Report(0, (Record(max(1, number), at_s, step, iterations, wall_s),))
        try:
            believed += state.take(told, LAUNCHED_S, NOW_S)
        except ImplausibleReportError:
            continue
    for before, after in pairwise(believed):
        assert after.number > before.number
        assert after.step >= before.step + after.iterations
        assert after.at_s >= before.at_s
    assert all(LAUNCHED_S - SKEW_S <= each.at_s <= NOW_S + SKEW_S for each in believed)
    assert sum(each.wall_s for each in believed) <= NOW_S - LAUNCHED_S + SKEW_S


def garbage(folder: Path) -> None:
    report_file(folder, 0).write_bytes(b"\xff\0{[" * 100)


def link(folder: Path) -> None:
    secret = folder.parent / "secret.json"
    Report(0, (record(1),)).write(folder.parent, f"token of {folder.name}")
    report_file(folder.parent, 0).rename(secret)
    report_file(folder, 0).symlink_to(secret)


def pipe(folder: Path) -> None:
    os.mkfifo(report_file(folder, 0))


def directory(folder: Path) -> None:
    report_file(folder, 0).mkdir()


def large(folder: Path) -> None:
    with report_file(folder, 0).open("wb") as file:
        file.truncate(10**12)


def of_another(folder: Path) -> None:
    Report(0, (record(1),)).write(folder, "token of b")


def deep(folder: Path) -> None:
    report_file(folder, 0).write_text("[" * 60_000)


def gone(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("/proc/self")


HOSTILE: list[Callable[[Path], None]] = [garbage, link, pipe, directory, large, of_another, deep]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda each: each.__name__)
def test_anything_in_the_place_of_a_report_is_counted_once(
    tmp_path: Path, hostile: Callable[[Path], None]
) -> None:
    reader = reader_of(tmp_path, "a", "b")
    hostile(tmp_path / "a")
    report(tmp_path, "b", record(1))
    rounds(reader, 8)
    assert reader.points("a") == []
    assert len(reader.points("b")) == 1
    assert (reader.bad_of("a")[0], reader.bad_of("b")[0]) == (1, 0)
    assert len(reader.bad_of("a")[1]) <= 200


def test_a_folder_that_is_gone_or_a_link_is_no_reason_to_stop_reading(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "a", "b")
    gone(tmp_path / "a")
    report(tmp_path, "b", record(1))
    rounds(reader)
    assert (reader.points("a"), len(reader.points("b"))) == ([], 1)


def test_a_flood_costs_a_bounded_number_of_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_READS", 3)
    monkeypatch.setattr(reports, "MOST_LOOKS", 20)
    jobs = [f"job-{number}" for number in range(10)]
    reader = reader_of(tmp_path, *jobs, ranks=4)
    for number in range(1, 6):
        for job_id in jobs:
            report(tmp_path, job_id, record(number, wall_s=1.0))
        before = reader.read
        reader.round()
        assert reader.read - before <= 3
    rounds(reader, 20)
    assert all(reader.points(job_id) for job_id in jobs)  # all have their turn


def test_memory_is_bounded(tmp_path: Path) -> None:
    reader = reader_of(tmp_path, "a")
    for first in range(1, 2 * POINTS, 20):
        made = (record(number, step=number, iterations=1, wall_s=0.01) for number in range(first, first + 20))
        report(tmp_path, "a", *made)
        rounds(reader, 2)
    kept = reader.points("a")
    assert len(kept) <= POINTS
    assert sum(point.iterations for point in kept) == kept[-1].step  # earlier ones are together, none is lost
    for number in range(PAST_JOBS + 10):
        reader.watch(WatchedAttempt(f"job-{number}", 1, JobChannel(tmp_path, ""), ("",), 0.0))
        reader.forget(f"job-{number}", 1)
    assert reader.points("job-0") == []
    assert len(reader._jobs) <= PAST_JOBS + 1
