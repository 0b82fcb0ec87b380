"""What must hold however often services are killed: by what jobs wrote and locked, and by the stored log."""

import time
from collections import Counter, defaultdict
from typing import NamedTuple

from cranny.service.event_chain import EventRow
from cranny.service.store import EventStore
from cranny.service.writer_lock import StoreError
from tests.chaos.faults import Target
from tests.service.reports import left_over, lines

LEFT_S = 60.0  # in which processes of jobs that are over must have ended


class Check(NamedTuple):
    """How often something was checked, and where it did not hold."""

    name: str
    checked: int
    violations: list[str]


def check_all(target: Target) -> list[Check]:
    """Check what jobs and services have left behind, after all jobs are over."""
    log, chain = _log(target)
    return [
        *check_reports(target),
        *check_log(target, log),
        chain,
        _processes_left(target),
        _services_failed(target),
    ]


def check_reports(target: Target) -> list[Check]:
    """Check the files of jobs: each rank locks its GPU slot, and adds lines when it starts and finishes."""
    reports, killed = target.files.reports, target.supervisors_killed
    started = Counter(lines(reports / "started"))
    attempts = defaultdict(set)
    for line in started:
        job, attempt, _ = line.split()
        attempts[job].add(attempt)
    # A job whose supervisor was killed is run again, even if it had just finished: only the supervisor knew that.
    finished = Counter(lines(reports / "finished"))
    again = {job for job in attempts if len(attempts[job]) > 1 + killed[job]}
    again |= {job for job, times in finished.items() if times > 1 + killed[job]}
    return [
        Check("no GPU given to two jobs (locks)", started.total(), lines(reports / "conflicts")),
        Check("no attempt started twice (lines)", len(started), [each for each, n in started.items() if n > 1]),
        Check("no job run again without a lost supervisor (lines)", len(attempts), sorted(again)),
    ]


def check_log(target: Target, log: list[EventRow]) -> list[Check]:
    """Check that the log has every accepted job, and one end of each."""
    accepted = dict(line.split() for line in lines(target.files.accepted))
    finished = set(lines(target.files.reports / "finished"))
    jobs = {row.job for row in log if row.kind == "submitted" and row.job is not None}
    ends = [row for row in log if row.kind == "ended"]
    twice = [each for each, n in Counter((row.job, row.body["attempt"]) for row in ends).items() if n > 1]
    done = Counter(row.job for row in ends if row.body["outcome"] == "finished")
    last = {row.job: f"{row.job}: {row.body}" for row in ends}
    once = [f"{job}: {done[job]} ends; {last.get(job)}" for job in sorted(jobs) if done[job] != 1]
    lost = [f"{key} {job}" for key, job in accepted.items() if job not in jobs or job not in finished]
    return [
        Check("no accepted job lost", len(accepted), lost + sorted(finished - jobs)),
        Check("every job finished exactly once (log)", len(jobs), once),
        Check("every attempt ended at most once (log)", len(ends), [str(each) for each in twice]),
    ]


def _log(target: Target) -> tuple[list[EventRow], Check]:
    """Read the log, and check the chain of its hashes."""
    name, rows = "log whole and unaltered (events)", list[EventRow]()
    try:
        store = EventStore(target.services.database, only_read=True)
        try:
            rows.extend(store.verified())
        finally:
            store.close()
    except StoreError as error:
        return rows, Check(name, len(rows), [str(error)])
    return rows, Check(name, len(rows), [])


def _processes_left(target: Target) -> Check:
    """Check that nothing of a job still runs."""
    end = time.monotonic() + LEFT_S
    while (left := left_over(target.files.reports)) and time.monotonic() < end:
        time.sleep(0.05)
    return Check("no process of a job left", len(set(lines(target.files.reports / "started"))), left)


def _services_failed(target: Target) -> Check:
    """Check that services ended only when they were killed, or with one line that says why."""
    text = target.files.errors.read_text() if target.files.errors.exists() else ""
    found = [f"exit code {code}" for code in target.services.failed]
    if "Traceback" in text:
        found.append(text[text.index("Traceback") :][:2000])
    return Check("no service failed with a traceback", len(lines(target.files.serving)), found)
