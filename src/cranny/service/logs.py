"""The logs of ranks, with secrets redacted."""

from pathlib import Path
from typing import Any

from cranny.backends.rank_logs import log_of, read_log_bytes
from cranny.service.auth import DAY_S
from cranny.service.job_lookup import find_job
from cranny.service.limits import NotFoundError
from cranny.service.redact import redact, secrets_of, unfinished_secret
from cranny.service.service import Service

MAX_BYTES = 1024 * 1024
MOST_OF_A_LINE = 4096  # that is skipped to begin with a whole line


def read_log(
    service: Service, job_id: str, rank: int, attempt: int | None = None, offset: int = 0, limit: int = MAX_BYTES
) -> dict[str, Any]:
    """Read a part of the log of a rank, of the latest attempt by default; negative offsets count from its end."""
    record = find_job(service, job_id)
    with service.lock:
        attempts = {each.number: each for each in record.attempts}
        number = attempt if attempt is not None else max(attempts, default=0)
        if number not in attempts:
            wanted = "has not started" if attempt is None else f"has no attempt {attempt}"
            raise NotFoundError(f"{job_id} {wanted}")
        # Before reading, so that later output is read next time. An attempt that was stopped may still write.
        ended = attempts[number].ended_s is not None and attempts[number] not in record.leaving
    ranks = len(attempts[number].placement.machines)
    if not 0 <= rank < ranks:
        has = f"ranks 0 to {ranks - 1}" if ranks > 1 else "only rank 0"
        raise NotFoundError(f"{job_id} has {has}, not {rank}")
    # Built from numbers and an id of our own: no request can point it elsewhere.
    path = log_of(service.log_folder(record.id, number), rank)
    data, start = _read_redacted(path, secrets_of(record.spec.model_dump()), offset, limit, whole=ended)
    keep_s = service.limits.keep_logs_s
    if ended and not data and keep_s is not None and not any(path.parent.glob("rank-*.log")):
        raise NotFoundError(
            f"the logs of {job_id} are deleted: this service keeps them for {keep_s / DAY_S:g} days"
        )
    end = start + len(data)
    if not ended or len(data) == limit:
        # An incomplete character at the end is left for the next read.
        whole = data.decode("utf-8", errors="ignore").encode()
        if data[: len(whole)] == whole and len(data) - len(whole) < 4:
            end = start + len(whole)
            data = whole
    return {
        "rank": rank,
        "attempt": number,
        "offset": start,
        "next_offset": end,
        "text": data.decode("utf-8", errors="replace"),
        "ended": ended,
    }


def _read_redacted(path: Path, secrets: list[bytes], offset: int, limit: int, *, whole: bool) -> tuple[bytes, int]:
    """Read bytes and redact secrets, also those that cross the boundaries of the range; return where they begin.

    Unless the log is complete, trailing bytes that could begin a secret are left for the next read. Where older
    output was deleted, the first bytes could end a secret: reading begins after them, with a whole line if it can.
    """
    reach = max((len(secret) for secret in secrets), default=0)
    found = read_log_bytes(path, offset, min(limit, MAX_BYTES) + 2 * reach, before=reach)
    data = redact(found.data, secrets)
    if not whole:
        data = data[: len(data) - unfinished_secret(data, secrets)]
    start = max(found.asked, found.kept_from + reach if found.kept_from else 0)
    if start > found.asked:
        at = start - found.start
        start += data[at : at + MOST_OF_A_LINE].find(b"\n") + 1
    return data[start - found.start : start - found.start + limit], start
