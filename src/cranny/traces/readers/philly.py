"""Reader of Microsoft Philly's `cluster_job_log`: a JSON list of jobs, each with its attempts.

A job that failed is tried again under its id. Its duration is the sum of its attempts, without the gaps between
them; its start is that of the first. GPUs and machines are those of the largest attempt.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load, mapping, objects, rows_trace, text
from cranny.traces.readers.timestamps import moment_s
from cranny.traces.trace import Trace

CALLED = {
    "job_id": "jobid",
    "submit_s": "submitted_time",
    "start_s": "start_time",
    "end_s": "end_time",
    "gpus": "detail",
}


def sniff(head: bytes) -> bool:
    """Say whether a file begins like a list of jobs with attempts."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[") and b'"attempts"' in head and b'"jobid"' in head


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool) -> Trace:
    """Read a file."""
    entries = load(path)
    if not isinstance(entries, list):
        raise InputError(f"{path}: must be a list of jobs")
    rows = [_job(mapping(entry)) for entry in entries]
    endless = sum(  # attempts that started, do not end, and are not the last
        moment_s(attempt.get("start_time")) is not None and moment_s(attempt.get("end_time")) is None
        for entry in entries
        for attempt in objects(mapping(entry).get("attempts"))[:-1]
    )
    notes = ["the duration of a job is the sum of its attempts"]
    if endless:
        notes.append(f"attempts without an end that were followed by another count as no time ({endless})")
    zone = "the log's own clock; no zone is given"
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone=zone, notes=notes)


def _job(entry: dict[str, Any]) -> dict[str, object]:
    attempts = objects(entry.get("attempts"))
    times = [(moment_s(attempt.get("start_time")), moment_s(attempt.get("end_time"))) for attempt in attempts]
    lasted_s = [end - start for start, end in times if start is not None and end is not None]
    gpus, machines = max(
        (_size(attempt) for attempt in attempts), default=(None, None), key=lambda size: size[0] or 0
    )
    return {
        "job_id": text(entry.get("jobid")),
        "submit_s": moment_s(entry.get("submitted_time")),
        "start_s": next((start for start, _ in times if start is not None), None),
        "end_s": times[-1][1] if times else None,
        # A negative one must not hide among others.
        "duration_s": min(lasted_s) if any(each < 0 for each in lasted_s) else sum(lasted_s),
        "gpus": gpus,
        "machines": machines,
        "attempts": float(len(attempts)),
        "tenant": text(entry.get("vc")),
        "user": text(entry.get("user")),
        "status": text(entry.get("status")),
    }


def _size(attempt: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return GPUs and machines of an attempt, if it has any."""
    machines = objects(attempt.get("detail"))
    if not machines:
        return None, None
    gpus = [machine.get("gpus") for machine in machines]
    return float(sum(len(names) for names in gpus if isinstance(names, list))), float(len(machines))
