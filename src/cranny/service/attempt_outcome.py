"""What becomes of a job whose attempt has ended: it is over, or it is tried again."""

from itertools import takewhile

from cranny.backends.protocol import NOT_STARTED, Ended
from cranny.service.job_record import Attempt, JobRecord, Status

MAX_LOST = 3  # restarts in a row of a job whose processes were lost, which does not count as its failure


def outcome(record: JobRecord, attempt: Attempt, report: Ended) -> tuple[Status, int, str]:
    """Return what becomes of a job whose attempt ended: its status, how many failures that counts as, and why."""
    if report.reason == "finished":
        return "done", 0, ""
    if not record.wanted:
        return "cancelled", 0, record.reason
    if report.reason == "cancelled" and record.external_spec is not None:
        return "cancelled", 0, report.detail or "cancelled in the cluster's manager"
    if report.reason == NOT_STARTED and report.detail and record.external_spec is not None:
        # It would be placed again at once: it comes back with a reading, when its manager wants it placed.
        return "cancelled", 0, f"given back to the cluster's manager: {report.detail}"
    if report.reason == NOT_STARTED or (report.reason == "lost" and attempt.started_s is None):
        return "waiting", 0, "not started before the service ended"
    if report.reason == "lost" and (again := losses(record) + 1) <= MAX_LOST:
        why = report.detail or "its processes were lost, exit code unknown"
        return "waiting", 0, f"restarted, {again} of at most {MAX_LOST} times in a row: {why}"
    code = f" with exit code {report.exit_code}" if report.exit_code is not None else ""
    reason = report.detail or f"{report.reason}{code}"
    if report.reason != "timed out" and record.failures < record.spec.max_retries:
        return "waiting", 1, f"retried: {reason}"
    return "failed", 1, reason


def losses(record: JobRecord) -> int:
    """Count the attempts before this one that were lost in a row; attempts that did not start are ignored."""
    began = [each.outcome for each in record.attempts[:-1] if each.started_s is not None]
    return len(list(takewhile(lambda outcome: outcome == "lost", reversed(began))))
