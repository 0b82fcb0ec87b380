"""`kill -9` of the service at random moments: nothing is lost, nothing runs twice, what runs is adopted."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.reference.invariants import check
from tests.service.crash_driver import CLUSTER
from tests.service.reports import left_over, lines
from tests.service.standing import standing

from cranny.service.event_chain import EventRow
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

ROOT = Path(__file__).parents[2]


def crash(database: str, folder: Path, jobs: int, kills: int) -> None:
    argv = [sys.executable, "-m", "tests.service.crash_driver", database, str(folder), str(jobs), str(kills)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout)["kills"] == kills

    store = EventStore(database)
    rows = list(store.read())
    scheduler = Scheduler(CLUSTER, "run", Limits())
    scheduler.restore(store)
    check(scheduler.engine.state)
    again = Scheduler(CLUSTER, "run", Limits())
    again.restore(store)
    assert standing(scheduler) == standing(again)
    store.close()

    jobs_of = dict(line.split() for line in lines(folder / "accepted"))
    records = scheduler.records.jobs
    assert len(records) == jobs
    assert {key: found[0] for (_, key), found in scheduler.records.keys.items()}.items() >= jobs_of.items()
    assert {record.status for record in records.values()} == {"done"}
    finished = Counter(lines(folder / "reports" / "finished"))
    assert finished == Counter(dict.fromkeys(records, 1))
    assert lines(folder / "reports" / "conflicts") == []
    assert left_over(folder / "reports") == []
    assert Counter(row.kind for row in rows)["opened"] > kills / 2
    assert adopted(rows) > 0


def adopted(rows: list[EventRow]) -> int:
    """Count the attempts that one service launched and another saw end well."""
    launched: dict[tuple[str | None, int], int] = {}
    lives = found = 0
    for row in rows:
        lives += row.kind == "opened"
        if row.kind == "launched":
            launched[row.job, row.body["attempt"]] = lives
        elif row.kind == "ended" and row.body["outcome"] == "finished":
            found += launched.get((row.job, row.body["attempt"]), lives) < lives
    return found


def test_300_jobs_survive_30_kills(tmp_path: Path) -> None:
    crash(str(tmp_path / "log.db"), tmp_path, jobs=300, kills=30)


def test_100_jobs_survive_10_kills_on_postgresql_too(tmp_path: Path, postgres: str) -> None:
    crash(postgres, tmp_path, jobs=100, kills=10)


@pytest.mark.parametrize("outcome", ["finished", "running"])
def test_what_ran_when_the_service_ended_is_adopted(outcome: str, tmp_path: Path) -> None:
    from tests.service.conftest import until
    from tests.service.reports import reporting

    from cranny.backends.local import LocalBackend
    from cranny.service.service import Service

    first = Service(EventStore(str(tmp_path / "log.db")), LocalBackend(CLUSTER, ()), tmp_path)
    first.start()
    spec = reporting(tmp_path / "reports", 2, 0.0 if outcome == "finished" else 1.0)
    job_id = first.submit("ann", spec).result(60)[0].id
    until(lambda: lines(tmp_path / "reports" / "started"))
    first.close()
    if outcome == "finished":
        until(lambda: not left_over(tmp_path / "reports"))
    second = Service(EventStore(str(tmp_path / "log.db")), LocalBackend(CLUSTER, ()), tmp_path)
    second.start()
    until(lambda: second.scheduler.find(job_id).over)
    record = second.scheduler.find(job_id)
    assert (record.status, len(record.attempts)) == ("done", 1)
    assert lines(tmp_path / "reports" / "finished") == [job_id]
    second.close()
