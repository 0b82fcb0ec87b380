"""Deletes the logs of jobs that have been over for long, a little at a time, beside the service loop."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from cranny.service.background_thread import BackgroundThread
from cranny.service.service import Service

LOOK_S = 60.0  # between two looks
WORK_S = 0.5  # that a look takes at most, but for the folder that it is at: the next one goes on from there


class LogRetention(BackgroundThread):
    """Goes through the folders of jobs again and again; only those of this log and this location are looked at."""

    def __init__(self, service: Service, keep_s: float) -> None:
        super().__init__("cranny-log-retention")
        self._service, self._keep_s = service, keep_s
        self._round: Iterator[os.DirEntry[str]] = iter(())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.look()

    def look(self) -> list[str]:
        """Delete the logs of some jobs that have been over for long; return the jobs."""
        found, end = [], time.monotonic() + WORK_S
        before_s = self._service.now_s() - self._keep_s  # by the clock that does not follow one that jumps ahead
        for entry in self._folders():
            if self._over_before(entry, before_s):
                # A job may have made folders in its channel that only its account can empty; they stay.
                shutil.rmtree(entry.path, ignore_errors=True)
                found.append(entry.name)
            if time.monotonic() >= end or self._ended.is_set():
                break
        return found

    def _folders(self) -> Iterator[os.DirEntry[str]]:
        """Yield folders of jobs from where the last look ended; once all were seen, the next look begins anew."""
        service = self._service
        jobs = service.location.attempt_folder(service.scheduler.records.log_id, "job-1", 1).parents[1]
        entry = next(self._round, None)
        if entry is None:
            self._round = _entries(jobs)
            entry = next(self._round, None)
        while entry is not None:
            yield entry
            entry = next(self._round, None)

    def _over_before(self, entry: os.DirEntry[str], before_s: float) -> bool:
        """Return whether a folder is that of a job that was over before a time, without any process left."""
        with self._service.lock:
            records = self._service.scheduler.records
            record, ours = records.jobs.get(entry.name), records.had(entry.name)
        if record is not None:
            left = record.leaving or any(attempt.ended_s is None for attempt in record.attempts)
            return record.over and not left and record.ended_s is not None and record.ended_s < before_s
        # All jobs that are not over are in memory. When one ends, its supervisor writes a file into the folder.
        return ours and _changed_s(entry) < before_s


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # there are no jobs yet
        return


def _changed_s(entry: os.DirEntry[str]) -> float:
    """Return when files of a job, or of one of its attempts, were made or removed last."""
    try:
        with os.scandir(entry.path) as attempts:
            times = [each.stat(follow_symlinks=False).st_mtime for each in attempts]
        return max([entry.stat(follow_symlinks=False).st_mtime, *times])
    except OSError:
        return float("inf")
