"""`cranny what-if`: a job log under other policies, for the people who run the cluster."""

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
