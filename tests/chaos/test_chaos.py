"""The short form of `make chaos`; and its checks find what they are there for."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from cranny.service.event_chain import EventRow
from tests.chaos.checks import check_log, check_reports
from tests.chaos.faults import Target
from tests.chaos.served import RoundFiles, Services

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost_or_run_twice_in_a_few_seconds_of_faults() -> None:
    argv = [sys.executable, "-m", "tests.chaos", "--seconds", "8", "--seed", "1"]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=1800, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:]
    assert ran.stdout.count(" holds ") == 10
    kills = next(line for line in ran.stdout.splitlines() if "kills in all" in line)
    assert int(kills.split()[-1]) > 0


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Return what is left of two jobs of which all is well; the first was started again when it was lost."""
    files = RoundFiles(tmp_path, tmp_path)
    files.accepted.write_text("key-0 job-1\nkey-1 job-2\n")
    (tmp_path / "started").write_text("job-1 1 0\njob-1 2 0\njob-2 1 0\njob-2 1 1\n")
    (tmp_path / "finished").write_text("job-1\njob-2\njob-1\n")
    target = Target(Services("", files, 1), files, random.Random(1))  # noqa: S311 - not a secret
    target.supervisors_killed["job-1"] = 1
    return target


def log() -> list[EventRow]:
    kinds = ["submitted job-1 0", "ended job-1 1 lost", "submitted job-2 0", "ended job-2 1 finished"]
    rows = [line.split() for line in [*kinds, "ended job-1 2 finished"]]
    return [
        EventRow(seq, float(seq), kind, job, {"attempt": int(rest[0]), "outcome": rest[-1]})
        for seq, (kind, job, *rest) in enumerate(rows, 1)
    ]


def violated(target: Target, rows: list[EventRow]) -> list[str]:
    found = [*check_reports(target), *check_log(target, rows)]
    assert len({check.name for check in found}) == 6
    return [check.name for check in found if check.violations]


def test_no_violation_is_found_where_there_is_none(target: Target) -> None:
    assert violated(target, log()) == []


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("conflicts", "job-2 0", ["no GPU given to two jobs (locks)"]),
        ("started", "job-2 1 1", ["no attempt started twice (lines)"]),
        ("started", "job-2 2 0", ["no job run again without a lost supervisor (lines)"]),
        ("finished", "job-2", ["no job run again without a lost supervisor (lines)"]),
        ("accepted", "key-2 job-3", ["no accepted job lost"]),
        ("finished", "job-3", ["no accepted job lost"]),
    ],
)
def test_what_files_of_jobs_show_is_found(file: str, line: str, found: list[str], target: Target) -> None:
    with (target.files.reports / file).open("a") as written:
        written.write(f"{line}\n")
    assert violated(target, log()) == found


def test_what_the_log_shows_is_found(target: Target) -> None:
    rows = log()
    once, ends = "every job finished exactly once (log)", "every attempt ended at most once (log)"
    assert violated(target, rows[:-1]) == [once]
    assert violated(target, [*rows, rows[-1]]) == [once, ends]
    assert violated(target, [*rows, rows[1]]) == [ends]
    assert violated(target, rows[2:4]) == ["no accepted job lost"]
