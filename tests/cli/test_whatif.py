"""`cranny what-if`: a job log under other policies, for the people who run the cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

SMALL = ("--cluster", "1x2x4", "--processes", 1)
SACCT = """\
JobID|Submit|Start|End|State|AllocTRES|NNodes|Partition|User
1|2025-03-01T00:00:00|2025-03-01T00:00:00|2025-03-01T01:00:00|COMPLETED|cpu=8,gres/gpu=4,node=1|1|gpu|kim
2|2025-03-01T00:00:00|2025-03-01T00:01:00|2025-03-01T00:31:00|COMPLETED|cpu=8,gres/gpu=2,node=1|1|gpu|ada
3|2025-03-01T00:30:00|2025-03-01T01:30:00|2025-03-01T02:30:00|CANCELLED by 7|cpu=8,gres/gpu=8,node=2|2|gpu|kim
4|2025-03-01T01:00:00|2025-03-01T01:00:00|2025-03-01T01:30:00|COMPLETED|cpu=8,node=1|1|cpu|ada
5|2025-03-01T02:00:00|2025-03-01T02:30:00|2025-03-01T02:40:00|COMPLETED|cpu=8,gres/gpu=1,node=1|1|gpu|ada
6|2025-03-01T02:00:00|Unknown|2025-03-01T02:10:00|CANCELLED by 7|gres/gpu=1|1|gpu|ada
"""


@pytest.fixture
def sacct(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT, encoding="utf-8")
    return path


def case(told: Any, name: str) -> Any:
    return next(case for case in told["cases"] if case["name"] == name)


def test_a_slurm_log_is_put_beside_the_policies(run: Run, sacct: Path) -> None:
    words = ("what-if", sacct, *SMALL, "--policies", "best-fit,titan", "--price-per-gpu-hour", 2.5)
    told = run(*words, "--json").json
    assert [each["name"] for each in told["cases"]] == ["as it was", "best-fit", "titan"]
    assert case(told, "as it was")["waits"]["wait"]["mean_s"] == pytest.approx((0 + 60 + 3600 + 1800) / 4)
    assert case(told, "as it was")["machines"] is None
    assert case(told, "best-fit")["waits"]["wait"]["mean_s"] == pytest.approx(1800 / 4)
    assert case(told, "best-fit")["machines"]["idle_hours"] == pytest.approx(0.5)
    assert case(told, "best-fit")["money"]["off"] == pytest.approx(2.5 * 4 * 0.5)
    assert {each["policy"] for each in told["search"]} == {"best-fit"}
    assert told["price_per_gpu_hour"] == 2.5


def test_people_read_tables_findings_and_assumptions(run: Run, sacct: Path) -> None:
    shown = run("what-if", sacct, *SMALL, "--policies", "best-fit", "--price-per-gpu-hour", 2.5)
    assert shown.code == 0, shown.err
    for title in (
        "How long jobs waited",
        "Mean wait by size",
        "Machines, and what",
        "Largest job",
        "How many machines",
    ):
        assert title in shown.out
    assert (
        "In the log jobs waited 23 min on average (p99 59 min); with best-fit they would have waited" in shown.out
    )
    assert "That is no saving: how many of them were idle anyway is not in the log." in " ".join(shown.out.split())
    assert "With best-fit no machine could be removed" in shown.out
    assert "CPU-only" in shown.out
    assert "Cancelled, failed or out of time: 1 job." in shown.out
    assert "Every job runs as long as the log says" in shown.out


def test_the_search_can_be_skipped(run: Run, sacct: Path) -> None:
    assert run("what-if", sacct, *SMALL, "--no-search", "--json").json["search"] == []


def test_a_log_without_starts_says_so(run: Run, trace_file: Path) -> None:
    shown = run("what-if", trace_file, *SMALL, "--policies", "titan", "--no-search")
    assert shown.code == 0
    assert "how long they really waited is not in the log" in shown.out
    assert "Skipped because they are larger than the cluster: 1 job." in shown.out


def test_the_page_holds_findings_and_the_log_itself(run: Run, sacct: Path, tmp_path: Path) -> None:
    page = tmp_path / "new" / "out.html"
    shown = run("what-if", sacct, *SMALL, "--policies", "titan", "--report", page)
    assert f"report: {page}" in shown.out
    text = page.read_text(encoding="utf-8")
    assert 'id="what-if"' in text
    assert "Assumptions" in text
    assert 'data-chart="idle_gpus"' in text
    assert "as it was" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policies", "titn"), "unknown policy 'titn'"),
        (("--price-per-gpu-hour", -1), "--price-per-gpu-hour: must be a number, zero or more"),
        (("--search-with", "hived"), "unknown policy to search with 'hived'"),
        (("--add", 0), "--add: must be a whole number from 1"),
        (("--add", "many"), "--add: must be a whole number, or types with numbers such as h100=4, not 'many'"),
        (("--add", "=4"), "--add: must be a whole number, or types with numbers such as h100=4, not '=4'"),
        (("--add", "1,2"), "--add: only one number can be without a type, not '1,2'"),
        (("--remove", "h100=-1"), "--remove: must be a whole number, or types with numbers such as h100=4"),
        (("--remove", "h100=1"), "type of GPU 'h100'"),
        (("--remove", "99"), "cannot remove 99 of"),
        (("--large-jobs", "8,x"), "--large-jobs: must be numbers with commas between"),
        (("--large-jobs", "999"), "a job of 999 GPUs: there are"),
        (("--format", "sact"), "did you mean 'sacct'?"),
        (("--order", "lifo"), "unknown queue order 'lifo'"),
        (("--strict",), "sacct.txt"),
    ],
)
def test_bad_input_is_one_line(run: Run, sacct: Path, words: tuple[object, ...], message: str) -> None:
    shown = run("what-if", sacct, *SMALL, *words)
    assert shown.code == 2
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not shown.out


def test_a_preset_is_no_log(run: Run) -> None:
    shown = run("what-if", "philly", *SMALL)
    assert shown.code == 2
    assert shown.err.startswith("cranny: LOG: 'philly' is a preset, and what-if needs a job log")
    assert len(shown.err.splitlines()) == 1


def test_a_log_that_is_not_there_is_said_to_be_missing(run: Run) -> None:
    shown = run("what-if", "phily", *SMALL)
    assert (shown.code, shown.err) == (2, "cranny: phily: there is no such file\n")


def test_the_cluster_must_be_given(run: Run, sacct: Path) -> None:
    shown = run("what-if", sacct)
    assert shown.code == 2
    assert "--cluster" in shown.err


WINDOWED = """\
JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList|Partition
1|2025-03-01T00:00:00|2025-03-01T00:00:00|2025-03-01T12:00:00|COMPLETED|gres/gpu=4,node=1|1|n1|gpu
2|2025-03-01T00:00:00|2025-03-01T00:00:00|2025-03-01T12:00:00|COMPLETED|gres/gpu=4,node=1|1|n2|gpu
3|2025-03-01T05:00:00|2025-03-01T05:00:00|2025-03-01T06:00:00|COMPLETED|gres/gpu=4,node=1|1|n1|gpu
4|2025-03-01T07:00:00|2025-03-01T07:30:00|2025-03-01T08:00:00|COMPLETED|gres/gpu=4,node=1|1|n1|gpu
5|2025-03-01T13:00:00|2025-03-01T13:00:00|2025-03-01T14:00:00|COMPLETED|gres/gpu=8,node=1|1|n3|gpu
"""


@pytest.fixture
def windowed(tmp_path: Path) -> Path:
    path = tmp_path / "windowed.txt"
    path.write_text(WINDOWED, encoding="utf-8")
    return path


def test_a_window_sets_the_time_that_is_measured(run: Run, windowed: Path) -> None:
    words = ("what-if", windowed, "--processes", 1, "--policies", "best-fit", "--no-search", "--json")
    edges = ("--from", "2025-03-01T04:00", "--to", "2025-03-01T10:00")
    told = run(*words, *edges).json
    assert told["window_s"] == [0.0, 6 * 3600.0]
    # Two machines are busy for six hours; the third, which is used later, is idle.
    assert case(told, "as it was")["machines"]["used_hours"] == pytest.approx(12.0)
    assert case(told, "as it was")["machines"]["idle_hours"] == pytest.approx(6.0)
    assert case(told, "best-fit")["machines"]["used_hours"] == pytest.approx(12.0)  # and not packed to six
    assert case(told, "as it was")["waits"]["jobs"] == 2
    assert any("2 jobs that ran when the window began run on" in line for line in told["assumptions"])
    late = run(*words, *edges, "--warm-up", "2h").json
    assert late["window_s"] == [2 * 3600.0, 6 * 3600.0]
    assert case(late, "as it was")["machines"]["used_hours"] == pytest.approx(8.0)
    assert case(late, "as it was")["waits"]["wait"]["mean_s"] == pytest.approx(1800.0)  # of the last alone
    # The same time by the clocks of New York, which are five hours behind; the log is read in that zone too.
    assert run(*words, *edges, "--zone", "America/New_York").json["window_s"] == [0.0, 6 * 3600.0]
    shifted = run(
        *words, "--from", "2025-03-01T09:00Z", "--to", "2025-03-01T15:00Z", "--zone", "America/New_York"
    ).json
    assert shifted["cases"] == told["cases"]


def test_the_page_has_the_dates_of_the_zone(run: Run, windowed: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    words = ("what-if", windowed, "--processes", 1, "--policies", "best-fit", "--no-search", "--report", page)
    assert run(*words, "--from", "2025-03-01T04:00", "--zone", "America/New_York").code == 0
    text = page.read_text(encoding="utf-8")
    assert "Dates and times are in America/New_York" in text
    data = json.loads(text.split('id="page-data">')[1].split("</script>")[0])
    assert data["offsets"] == [[0.0, -5 * 3600.0]]
    assert ">04:00</text>" in text
    assert run(*words).code == 0
    assert "Dates and times are those of the clock of the log" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "noon"), "--from: must be a date such as 2024-03-01"),
        (("--to", "2025-02-01"), "to 2025-02-01 00:00:00; jobs are submitted from"),
        (("--from", "2026-01-01"), "no jobs in that window"),
        (("--warm-up", "long"), "--warm-up: must be a time such as 3600"),
        (("--warm-up", "2d"), "no job is submitted after the begin of the window and its warm-up of 2 d"),
        (("--zone", "Berlin"), "unknown time zone 'Berlin'"),
    ],
)
def test_a_bad_window_is_one_line(run: Run, windowed: Path, words: tuple[object, ...], message: str) -> None:
    shown = run("what-if", windowed, "--processes", 1, "--policies", "best-fit", *words)
    assert shown.code == 2
    assert message in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_zone_is_refused_for_a_log_without_dates(run: Run, trace_file: Path) -> None:
    shown = run("what-if", trace_file, *SMALL, "--zone", "Europe/Berlin")
    assert shown.code == 2
    assert "zone: the times of this file have no date: leave the time zone out" in shown.err
