"""Reader of Microsoft Philly's `cluster_job_log`: a JSON list of jobs, each with its attempts.

A job that failed is tried again under its id. Read as a job, its duration is the sum of its attempts, without the
gaps between them; its start is that of the first. GPUs and machines are those of the largest attempt.

Read by attempt, each is a row `ID`, `ID@2`, `ID@3` with the machines that it ran on. The log does not say when a
job was queued again: an attempt is submitted when the one before it ended. One without an end ended when the log
next knows something of its job, at the latest; that is where it is taken to end.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.readers.json_log import load, mapping, objects, rows_trace, text
from cranny.traces.readers.log_mapping import OWN_CLOCK, endless, life
from cranny.traces.readers.timestamps import moment_s
from cranny.traces.trace import Trace

FINISHED = ("Pass", "Killed", "Failed")

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


def read(path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None) -> Trace:
    """Read a file; its times are of `zone`, or on a clock of their own."""
    entries = _entries(path)
    rows = [_job(entry, zone) for entry in entries]
    without_end = sum(  # attempts that started, do not end, and are not the last
        moment_s(attempt.get("start_time")) is not None and moment_s(attempt.get("end_time")) is None
        for entry in entries
        for attempt in objects(entry.get("attempts"))[:-1]
    )
    notes = ["the duration of a job is the sum of its attempts"]
    if without_end:
        notes.append(f"attempts without an end that were followed by another count as no time ({without_end})")
    clock = zone or OWN_CLOCK
    return rows_trace(path, rows, CALLED, profiles, strict=strict, zone=clock, notes=notes, read_in=zone)


def read_attempts(
    path: Path, profiles: Mapping[str, ModelProfile], *, strict: bool, zone: str | None = None
) -> Trace:
    """Read a file, with a row for each attempt that says where it ran."""
    jobs = [_attempts(entry, zone) for entry in _entries(path)]
    further = sum(len(rows) - 1 for rows, _ in jobs)
    guessed = sum(count for _, count in jobs)
    notes = [f"jobs have a row for each attempt: {further} more than jobs"] if further else []
    if guessed:
        notes.append(
            f"attempts without an end that another followed end when their job is next heard of ({guessed})"
        )
    rows = [row for own, _ in jobs for row in own]
    rules = (*life(running=True), endless(pl.col("status").is_in(FINISHED)))
    clock = zone or OWN_CLOCK
    return rows_trace(
        path, rows, CALLED, profiles, strict=strict, zone=clock, notes=notes, rules=rules, read_in=zone
    )


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = load(path)
    if not isinstance(entries, list):
        raise InputError(f"{path}: must be a list of jobs")
    return [mapping(entry) for entry in entries]


def _job(entry: dict[str, Any], zone: str | None) -> dict[str, object]:
    attempts = objects(entry.get("attempts"))
    submit_s, times = _times_s(entry, attempts, zone)
    lasted_s = [end - start for start, end in times if start is not None and end is not None]
    gpus, machines = max(
        (_size(attempt) for attempt in attempts), default=(None, None), key=lambda size: size[0] or 0
    )
    return {
        "job_id": text(entry.get("jobid")),
        "submit_s": submit_s,
        "start_s": next((start for start, _ in times if start is not None), None),
        "end_s": times[-1][1] if times else None,
        # A negative one must not hide among others.
        "duration_s": min(lasted_s) if any(each < 0 for each in lasted_s) else sum(lasted_s),
        "gpus": gpus,
        "machines": machines,
        "attempts": float(len(attempts)),
        **_whose(entry),
        "status": text(entry.get("status")),
    }


def _attempts(entry: dict[str, Any], zone: str | None) -> tuple[list[dict[str, object]], int]:
    """Return a row for each attempt of a job, at least one, and how many ends are not in the log."""
    name, attempts = text(entry.get("jobid")), objects(entry.get("attempts")) or [{}]
    queued_s, times_s = _times_s(entry, attempts, zone)
    rows: list[dict[str, object]] = []
    guessed = 0
    for place, attempt in enumerate(attempts):
        start_s, end_s = times_s[place]
        if end_s is None and start_s is not None:
            end_s = next(
                (time_s for later in times_s[place + 1 :] for time_s in later if time_s is not None), None
            )
            guessed += end_s is not None
        gpus, machines = _size(attempt)
        rows.append(
            {
                "job_id": name if name is None or not place else f"{name}@{place + 1}",
                "submit_s": queued_s if start_s is None or queued_s is None else min(queued_s, start_s),
                "start_s": start_s,
                "end_s": end_s,
                "gpus": gpus,
                "machines": machines,
                "ran_on": _ran_on(attempt),
                "attempt": place + 1.0,
                **_whose(entry),
                "status": text(entry.get("status")) if place + 1 == len(attempts) else None,
            }
        )
        queued_s = queued_s if end_s is None else end_s
    return rows, guessed


def _times_s(
    entry: dict[str, Any], attempts: Sequence[dict[str, Any]], zone: str | None
) -> tuple[float | None, list[tuple[float | None, float | None]]]:
    """Return when a job was submitted, and start and end of each attempt.

    These follow each other: in an hour that clocks show twice, the reading is taken that is not too early.
    """
    texts = [attempt.get(name) for attempt in attempts for name in ("start_time", "end_time")]
    found: list[float | None] = []
    last_s = -math.inf
    for written in (entry.get("submitted_time"), *texts):
        time_s = moment_s(written, zone)
        if time_s is not None and time_s < last_s:
            time_s = moment_s(written, zone, later=True)
        found.append(time_s)
        if time_s is not None and not math.isnan(time_s):
            last_s = time_s
    return found[0], list(zip(found[1::2], found[2::2], strict=True))


def _whose(entry: dict[str, Any]) -> dict[str, object]:
    return {"tenant": text(entry.get("vc")), "user": text(entry.get("user"))}


def _ran_on(attempt: dict[str, Any]) -> str | None:
    """Write the machines of an attempt with the GPUs that it held on each; nothing if one has no name."""
    held: dict[str, int] = {}
    for machine in objects(attempt.get("detail")):
        name, gpus = text(machine.get("ip")), machine.get("gpus")
        if name is None or set(name) & set(" :") or not isinstance(gpus, list):
            return None
        held[name] = held.get(name, 0) + len(gpus)
    return " ".join(f"{name}:{gpus}" for name, gpus in held.items()) or None


def _size(attempt: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return GPUs and machines of an attempt, if it has any."""
    machines = objects(attempt.get("detail"))
    if not machines:
        return None, None
    gpus = [machine.get("gpus") for machine in machines]
    return float(sum(len(names) for names in gpus if isinstance(names, list))), float(len(machines))
