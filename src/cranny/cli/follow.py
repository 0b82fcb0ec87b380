"""Waiting for the end of a job and following its logs, across restarts of the server."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from cranny.cli.client import ServiceClient
from cranny.cli.console import warn
from cranny.model.errors import CrannyError

OVER = frozenset({"done", "failed", "cancelled"})
POLL_S = 0.5  # between two requests for more of a log
CHUNK = 1024 * 1024  # bytes of a log


def path_of(job_id: str) -> str:
    """Return the URL path of a job."""
    return f"/api/v1/jobs/{quote(job_id, safe='')}"


def state(job: dict[str, Any]) -> str:
    """Describe the state of a job in a few words."""
    status, reason = job["status"], job["reason"]
    if reason.startswith(f"{status} "):  # "failed with exit code 1" contains both
        return str(reason)
    where = f" on {', '.join(job['machines'])}" if job["machines"] and status not in OVER else ""
    return f"{status}{where}" + (f": {reason}" if reason else "")


def changes(remote: ServiceClient, job_id: str | None, *, known: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield events from now on; those of one job until it is over, and how it ended if it already is.

    If the server is `known` to exist, it may be unreachable at first.
    """
    get = remote.get_in_time if known else remote.get
    since = get("/api/v1/cluster")["seq"]  # first, so that no event is missed
    if job_id is None:
        yield from remote.changes(since)
        return
    job = get(path_of(job_id))
    if job["status"] in OVER:
        end = {name: job[name] for name in ("status", "reason", "exit_code")}
        yield "over", {"seq": since, "at_s": job["ended_s"], "kind": "over", "job": job["id"], **end}
        return
    for kind, event in remote.changes(since):
        if event["job"] == job_id:
            yield kind, event
            if event.get("status", kind) in OVER or event.get("ended"):
                return


def until_over(remote: ServiceClient, job_id: str) -> Any:
    """Wait for the end of a job, and return its final state."""
    for _ in changes(remote, job_id, known=True):
        pass
    return remote.get_in_time(path_of(job_id))


def written(remote: ServiceClient, job_id: str, rank: int, attempt: int | None) -> Iterator[Any]:
    """Yield the log of a rank part by part; the last part is empty."""
    offset, path = 0, f"{path_of(job_id)}/logs"
    while True:
        part = remote.get(path, rank=rank, attempt=attempt, offset=offset, limit=CHUNK)
        yield part
        if part["next_offset"] == offset:
            return
        attempt, offset = part["attempt"], part["next_offset"]


def writes(remote: ServiceClient, job_id: str, rank: int, attempt: int | None) -> Iterator[Any]:
    """Yield the log of a rank as it grows: of one attempt, or of one after the other until the job is over."""
    job = remote.get(path_of(job_id))
    at, offset = attempt or job["attempt"], 0
    if not at and job["status"] not in OVER:
        warn(f"{job_id} has not started: {state(job)}")
    while True:
        over = job["status"] in OVER  # before the log is read, so that nothing is missed
        if at:
            given = {"rank": rank, "attempt": at, "offset": offset, "limit": CHUNK}
            part = remote.get_in_time(f"{path_of(job_id)}/logs", **given)
            if part["text"]:
                yield part
                offset = part["next_offset"]
                continue
            if part["ended"] and attempt is not None:
                return
            if part["ended"] and at < job["attempt"]:
                at, offset = at + 1, 0
                warn(f"{job_id} continues: attempt {at}")
                continue
        elif over:
            raise CrannyError(f"{job_id} never started: {state(job)}")
        if over:
            return
        time.sleep(POLL_S)
        job = remote.get_in_time(path_of(job_id))
        at = at or min(1, job["attempt"])
