"""A disk that is really full: no new jobs, but ends, cancellations and logins are stored, and a restart works."""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.conftest import Start, until
from tests.service.postgres import Postgres
from tests.service.small_disk import fill, small_disk

from cranny.backends.fake import FakeProcesses, FakeRun
from cranny.service import disk_reserve
from cranny.service import service as service_module
from cranny.service.disk_reserve import DiskReserve
from cranny.service.locations import Location
from cranny.service.server_file import ServerAddress, published
from cranny.service.store import SessionRow
from cranny.service.writer_lock import StoreError


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of 12 MB."""
    with small_disk(tmp_path / "disk", 12) as mounted:
        if not mounted:
            pytest.skip("a small disk can be mounted by root only")
        yield tmp_path / "disk"


def test_what_must_be_stored_is_stored_on_a_full_disk(
    start: Start, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_reserve, "SIZE", 2 * 1024 * 1024)
    monkeypatch.setattr(disk_reserve, "PART", 256 * 1024)
    here = Location.here(disk)
    processes, runs = FakeProcesses(), {"job-1": 1e9, "job-2": 1.5}
    running = start(
        processes=processes,
        course=lambda what: FakeRun(run_s=runs[what.job_id]),
        database=str(disk / "log.db"),
        location=here,
    )
    service = running.service
    reserve = disk / "log.db.reserve"
    service.store.reserve.keep()
    assert reserve.stat().st_size == disk_reserve.SIZE
    first, second = running.submit(), running.submit()
    filler = fill(disk)
    until(lambda: "almost full: 0 MB are left" in service.why_not_ready)
    with pytest.raises(StoreError, match="almost full"):
        running.submit()
    running.until(second, "done")  # its end was stored
    service.call(lambda now_s: service.scheduler.cancel(first, "x" * 100_000, now_s)).result(
        60
    )  # and so are large ones
    running.until(first, "cancelled")
    service.store.add_session(SessionRow("0" * 64, "ann", "user", None, 1e12), 0.0, 10)
    assert reserve.stat().st_size < disk_reserve.SIZE
    fill(disk)  # others take what was given back
    service.close()

    again = start(processes=processes, database=str(disk / "log.db"), location=here, ready=False)
    again.service.store.reserve.keep()
    assert [again.status(job) for job in (first, second)] == ["cancelled", "done"]
    with pytest.raises(StoreError, match="almost full"):
        again.submit()
    with published(disk / "deep", ServerAddress("http://127.0.0.1:1", "x" * 100_000)):
        pass
    filler.unlink()
    until(lambda: again.service.ready)
    assert again.submit() == "job-3"
    again.service.store.check_writable()
    assert reserve.stat().st_size == disk_reserve.SIZE


def test_a_reserve_is_taken_only_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = DiskReserve(None)
    none.keep()
    assert (none.release(), none.problem) == (False, "")
    reserve = DiskReserve(str(tmp_path / "log.db"))
    monkeypatch.setattr(disk_reserve, "SIZE", 1 << 60)
    assert reserve.problem == ""
    reserve.keep()
    assert not (tmp_path / "log.db.reserve").exists()
    assert "almost full" in reserve.problem
    monkeypatch.setattr(disk_reserve, "SIZE", 3 * disk_reserve.PART // 2)
    reserve.fill()
    assert [reserve.release(), reserve.release(), reserve.release()] == [True, True, False]


def test_a_full_disk_of_postgresql_is_said_and_that_it_has_space_again(
    start: Start, postgres_process: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of the service has space: only writes that fail show it."""
    monkeypatch.setattr(service_module, "CHECK_S", 0.2)
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "tables"
        Path(parent).chmod(0o755)
        with small_disk(folder, 32) as mounted:
            if not mounted:
                pytest.skip("a small disk can be mounted by root only")
            shutil.chown(folder, "postgres")
            with postgres_process.database_in(folder) as url:
                running = start(database=url)
                service = running.service
                first = running.submit()
                filler = fill(folder)

                def stays_full() -> bool:
                    """Fill the pages that tables have; what fails first may only be their map of free space."""
                    with contextlib.suppress(StoreError):
                        for _ in range(500):
                            running.submit(command=["true", "x" * 1_500])
                    assert "No space left on device" in service.why_not_ready
                    time.sleep(0.6)  # it is tried again meanwhile
                    return "No space left on device" in service.why_not_ready

                until(stays_full)
                assert running.status(first) in {"starting", "running"}
                filler.unlink()
                until(lambda: service.ready)
                running.until(running.submit(), "running")
                service.close()
