"""Reports of running jobs: a thread of its own reads the files that ranks replace, and believes what is possible.

A job may write anything, at any rate. So a round looks at a bounded number of files, reads those that changed, and
keeps a bounded number of points for each job. What cannot be true is counted, and changes nothing. A report is
only ever taken for the job whose folder it is in.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cranny.backends.protocol import JobChannel
from cranny.channel import files
from cranny.channel.report import Record, Report, Resumed, Saved, report_file
from cranny.model.errors import InputError
from cranny.service.clock import wall_clock
from cranny.service.point_history import Point, PointHistory

EVERY_S = 0.2  # between two rounds
MOST_LOOKS = 1_000  # at files, in a round
MOST_READS = 64  # of files, in a round
PAST_JOBS = 200  # that are over, whose points are kept
SKEW_S = 5.0  # by which clocks of machines may differ

_log = logging.getLogger("cranny.service")


class ImplausibleReportError(InputError):
    """A report says what cannot be."""


class WatchedAttempt(NamedTuple):
    """An attempt whose reports are read."""

    job_id: str
    attempt: int
    channel: JobChannel
    gpu_types: tuple[str, ...]  # of the GPU of every rank
    launched_s: float
    bytes_per_s: float = math.inf  # that leave a rank at most


@dataclass(slots=True)
class RankState:
    """What is known of a rank from its reports so far."""

    seen: tuple[int, int] = (0, 0)  # what identifies the file that was read last
    number: int = 0
    step: int = 0
    at_s: float = 0.0
    wall_s: float = 0.0  # of all records
    saved: Saved | None = None
    answered: int = 0  # the last request to save that it has answered
    resumed: Resumed | None = None

    def take(self, report: Report, launched_s: float, now_s: float) -> list[Record]:
        """Return the records that are new, or raise if anything cannot be true; then nothing is taken over."""
        latest_s = now_s + SKEW_S
        passed_s = latest_s - launched_s
        if report.records and report.records[-1].number < self.number:
            raise ImplausibleReportError("records go back")
        new = [record for record in report.records if record.number > self.number]
        step, at_s, wall_s = self.step, max(self.at_s, launched_s - SKEW_S), self.wall_s
        if not self.number and report.resumed is not None:
            step = report.resumed.step
        for record in new:
            wall_s += record.wall_s
            if record.step - step < record.iterations:
                raise ImplausibleReportError("more iterations than steps, or steps that go back")
            if not at_s <= record.at_s <= latest_s:
                raise ImplausibleReportError("a time that is not between the last report and now")
            if wall_s > passed_s:
                raise ImplausibleReportError("longer than the attempt has run")
            step, at_s = record.step, record.at_s
        self._check(report, latest_s, passed_s)
        if new:
            self.number, self.step, self.at_s, self.wall_s = new[-1].number, step, at_s, wall_s
        self.saved, self.resumed = report.saved or self.saved, report.resumed or self.resumed
        if report.saved is not None:
            self.answered = max(self.answered, report.saved.request)
        return new

    def _check(self, report: Report, latest_s: float, passed_s: float) -> None:
        """Raise if what is said of checkpoints cannot be true."""
        saved, resumed = report.saved, report.resumed
        if saved is not None:
            if saved.at_s > latest_s or saved.took_s > passed_s:
                raise ImplausibleReportError("a checkpoint that is not in the past")
            if self.saved is not None and saved.step < self.saved.step:
                raise ImplausibleReportError("checkpoints that go back")
        if resumed is not None:
            if resumed.at_s > latest_s or resumed.took_s > passed_s:
                raise ImplausibleReportError("a start that is not in the past")
            if self.resumed is not None and resumed != self.resumed:
                raise ImplausibleReportError("an attempt that went on from two steps")


@dataclass(slots=True)
class JobMeasurements:
    """What a job has reported; the points of all its attempts are in one list."""

    bad: int = 0  # reports that were not believed
    why: str = ""  # what was wrong with the last of them
    points: PointHistory = field(default_factory=PointHistory)
    ranks: dict[int, RankState] = field(default_factory=dict)  # of its present attempt
    watched: WatchedAttempt | None = None
    first: int | None = None  # the lowest rank that reports, whose records become points


Taken = Callable[[WatchedAttempt, int, Sequence[Record], RankState], None]


def ignore(_watched: WatchedAttempt, _rank: int, _records: Sequence[Record], _state: RankState) -> None:
    """Make nothing of new records."""


class ReportReader:
    """Reads reports of all live attempts, in turn."""

    def __init__(self, now_s: Callable[[], float] = wall_clock, taken: Taken = ignore) -> None:
        self._now_s, self._taken = now_s, taken
        # Processes of jobs that should have ended, by job; replaced as a whole.
        self.left: Mapping[str, Sequence[str]] = {}
        self._lock = threading.Lock()
        self._jobs: dict[str, JobMeasurements] = {}  # live ones, and the last of those that are over
        self._turn: Iterator[tuple[WatchedAttempt, int]] = iter(())
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cranny-reports", daemon=True)
        self.bad = 0  # of all jobs ever
        self.read = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def watch(self, watched: WatchedAttempt) -> None:
        """Read the reports of an attempt from now on."""
        with self._lock:
            job = self._jobs.pop(watched.job_id, None) or JobMeasurements()
            job.watched, job.ranks, job.first = watched, {}, None
            self._jobs[watched.job_id] = job

    def forget(self, job_id: str, attempt: int) -> None:
        """Read the last reports of an attempt that has ended, and no more after that."""
        with self._lock:
            job = self._jobs.get(job_id)
            watched = None if job is None else job.watched
        if job is None or watched is None or watched.attempt != attempt:
            return
        for rank in range(min(len(watched.gpu_types), MOST_LOOKS)):
            self._look(watched, rank)
        with self._lock:
            job.watched = None
            over = [job_id for job_id, each in self._jobs.items() if each.watched is None]
            for old in over[:-PAST_JOBS]:
                del self._jobs[old]

    def complain(self, job_id: str, why: str) -> None:
        """Count something that a job did to its channel."""
        with self._lock:
            self._count(job_id, why)

    def answered(self, job_id: str, attempt: int, request: int) -> bool:
        """Say whether all ranks that report have saved since a request."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.watched is None or job.watched.attempt != attempt or not job.ranks:
                return False
            return all(state.answered >= request for state in job.ranks.values())

    def points(self, job_id: str) -> list[Point]:
        """Return the latest measurements of a job, in order."""
        with self._lock:
            job = self._jobs.get(job_id)
            return [] if job is None else list(job.points)

    def bad_of(self, job_id: str) -> tuple[int, str]:
        """Return how many reports of a job were not believed, and what was wrong with the last."""
        with self._lock:
            job = self._jobs.get(job_id)
            return (0, "") if job is None else (job.bad, job.why)

    def states(self, job_id: str, attempt: int) -> dict[int, RankState]:
        """Return what is known of the ranks of an attempt."""
        with self._lock:
            job = self._jobs.get(job_id)
            if job is None or job.watched is None or job.watched.attempt != attempt:
                return {}
            return dict(job.ranks)

    def _run(self) -> None:
        while not self._closed.wait(EVERY_S):
            try:
                self.round()
            except Exception:  # noqa: BLE001 - what a job wrote must not end the reading of others' reports
                _log.exception("reports of jobs cannot be read; retrying")

    def round(self) -> None:
        """Look at the next files in turn, and read some of those that have changed."""
        reads = 0
        for looked, (watched, rank) in enumerate(self._turn):
            reads += self._look(watched, rank)
            if reads >= MOST_READS or looked >= MOST_LOOKS:
                return
        with self._lock:  # all had their turn
            live = [job.watched for job in self._jobs.values() if job.watched is not None]
        self._turn = ((watched, rank) for watched in live for rank in range(len(watched.gpu_types)))

    def _look(self, watched: WatchedAttempt, rank: int) -> bool:
        """Read the report of a rank if it has changed; return whether it was read."""
        with self._lock:
            job = self._jobs.get(watched.job_id)
            if job is None or job.watched is not watched:
                return False
            state = job.ranks.get(rank)
        before = state.seen if state is not None else (0, 0)
        seen = files.changed(report_file(watched.channel.folder, rank), before)
        if seen == before:
            return False
        try:
            report = Report.read(watched.channel.folder, rank, watched.channel.token)
        except (InputError, OSError) as error:
            self._bad(watched, rank, seen, str(error) if isinstance(error, InputError) else "cannot be read")
            return True
        if report is not None:
            self._take(watched, rank, seen, report)
        return True

    def _bad(self, watched: WatchedAttempt, rank: int, seen: tuple[int, int], why: str) -> None:
        with self._lock:
            job = self._jobs.get(watched.job_id)
            if job is None or job.watched is not watched:
                return
            job.ranks.setdefault(rank, RankState()).seen = seen
            self._count(watched.job_id, why)

    def _count(self, job_id: str, why: str) -> None:
        self.bad += 1
        if (job := self._jobs.get(job_id)) is not None:
            job.bad, job.why = job.bad + 1, why[:200]

    def _take(self, watched: WatchedAttempt, rank: int, seen: tuple[int, int], report: Report) -> None:
        with self._lock:
            job = self._jobs.get(watched.job_id)
            if job is None or job.watched is not watched:
                return
            state = job.ranks.setdefault(rank, RankState())
            state.seen = seen
            try:
                new = state.take(report, watched.launched_s, self._now_s())
            except ImplausibleReportError as error:
                self._count(watched.job_id, str(error))
                return
            self.read += 1
            if job.first is None or rank <= job.first:
                job.first = rank
                job.points.extend(_point(watched.attempt, rank, record) for record in new)
        if new:
            self._taken(watched, rank, new, state)


def _point(attempt: int, rank: int, record: Record) -> Point:
    count = record.iterations
    return Point(
        at_s=record.at_s,
        attempt=attempt,
        rank=rank,
        step=record.step,
        iterations=count,
        iteration_s=record.wall_s / count,
        waited_s=record.waited_s / count,
        compute_s=record.compute_s / count,
        comm_s=record.comm_s / count,
        samples=record.samples / count,
        paced=record.paced,
        period_s=record.period_s,
    )
