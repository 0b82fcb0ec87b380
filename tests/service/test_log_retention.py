from pathlib import Path

import pytest
from tests.service.conftest import Start

from cranny.service import log_retention
from cranny.service.limits import Limits, NotFoundError
from cranny.service.log_retention import LogRetention
from cranny.service.logs import read_log


def test_logs_of_jobs_that_have_been_over_for_long_are_deleted_and_no_others(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of jobs in memory and of those that are no longer; never of one that runs, or that is not known."""
    running = start(real=True, limits=Limits(recent_jobs=1, keep_logs_s=0.0))
    service = running.service
    for number in range(1, 4):
        running.submit(command=["echo", "bye"])
        running.until(f"job-{number}", "done")
    running.submit(command=["sleep", "600"])
    running.until("job-4", "running")
    folder = service.log_folder("job-4", 1).parents[1]
    for unknown in ("job-99", "job-01", "notes"):
        (folder / unknown).mkdir()
    assert {"job-1", "job-2", "job-3", "job-4"} < {path.name for path in folder.iterdir()}
    assert (
        len([job for job in service.scheduler.records.jobs.values() if job.over]) == 1
    )  # the others are not kept
    assert read_log(service, "job-1", 0)["text"] == "bye\n"

    assert LogRetention(service, 3600.0).look() == []
    monkeypatch.setattr(log_retention, "WORK_S", 0.0)
    bounded = LogRetention(service, 0.0)
    looks = [bounded.look() for _ in range(12)]  # one folder each
    assert max(map(len, looks)) == 1
    assert sorted(job for look in looks for job in look) == ["job-1", "job-2", "job-3"]
    assert sorted(path.name for path in folder.iterdir()) == ["job-01", "job-4", "job-99", "notes"]
    with pytest.raises(NotFoundError, match="the logs of job-1 are deleted"):
        read_log(service, "job-1", 0)
    assert read_log(service, "job-4", 0)["text"] == ""
    with LogRetention(service, 0.0):
        assert running.status("job-4") == "running"  # and it ends without a look
    service.call(lambda now_s: service.scheduler.cancel("job-4", "ann", now_s)).result(60)
    running.until("job-4", "cancelled")
    assert tmp_path in folder.parents
