"""The logs of ranks, with secrets redacted."""

import os
import stat
from typing import Any

from cranny.service.limits import NotFoundError
from cranny.service.redact import redact, secrets_of, unfinished_secret
from cranny.service.service import Service

MAX_BYTES = 1024 * 1024


class LogReader:
    """Reads the log of one rank of one attempt."""

    def __init__(self, service: Service, job_id: str, rank: int, attempt: int | None = None) -> None:
        with service.lock:
            record = service.scheduler.find(job_id)
        numbers = {each.number: each for each in record.attempts}
        number = attempt if attempt is not None else max(numbers, default=0)
        if number not in numbers:
            wanted = "has not started" if attempt is None else f"has no attempt {attempt}"
            raise NotFoundError(f"{job_id} {wanted}")
        self._service, self._job_id, self._number = service, record.id, number
        ranks = len(numbers[number].placement.machines)
        if not 0 <= rank < ranks:
            has = f"ranks 0 to {ranks - 1}" if ranks > 1 else "only rank 0"
            raise NotFoundError(f"{job_id} has {has}, not {rank}")
        self._rank = rank
        # Built from numbers and an id of our own: no request can point it elsewhere.
        self._path = service.log_folder(record.id, number) / f"rank-{rank}.log"
        self._secrets = secrets_of(record.spec.model_dump())

    def read(self, offset: int, limit: int = MAX_BYTES) -> dict[str, Any]:
        """Return a part of the log; a negative offset counts from the end."""
        ended = self._ended()  # before reading, so that later output is read next time
        data, start = self._bytes(offset, limit, whole=ended)
        end = start + len(data)
        if not ended or len(data) == limit:
            # An incomplete character at the end is left for the next read.
            whole = data.decode("utf-8", errors="ignore").encode()
            if data[: len(whole)] == whole and len(data) - len(whole) < 4:
                end = start + len(whole)
                data = whole
        return {
            "rank": self._rank,
            "attempt": self._number,
            "offset": start,
            "next_offset": end,
            "text": data.decode("utf-8", errors="replace"),
            "ended": ended,
        }

    def _ended(self) -> bool:
        """Return whether the log is complete; an attempt that the policy stopped may still write."""
        record = self._service.scheduler.records.jobs.get(self._job_id)  # a new object after a restore
        if record is None or len(record.attempts) < self._number:
            return False
        attempt = record.attempts[self._number - 1]
        return attempt.ended_s is not None and attempt not in record.leaving

    def _bytes(self, offset: int, limit: int, *, whole: bool) -> tuple[bytes, int]:
        """Read bytes and redact secrets, also those that cross the boundaries of the range.

        Unless the log is complete, trailing bytes that could begin a secret are left for the next read.
        """
        reach = max((len(secret) for secret in self._secrets), default=0)
        try:
            # A job may replace its log by a link or a pipe; neither is followed.
            number = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b"", max(0, offset)
        try:
            info = os.fstat(number)
            if not stat.S_ISREG(info.st_mode):
                return b"", max(0, offset)
            start = max(0, info.st_size + offset) if offset < 0 else offset
            first = max(0, start - reach)
            data = redact(os.pread(number, min(limit, MAX_BYTES) + start - first + reach, first), self._secrets)
            if not whole:
                data = data[: len(data) - unfinished_secret(data, self._secrets)]
            return data[start - first : start - first + limit], start
        finally:
            os.close(number)
