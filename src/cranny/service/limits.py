"""Limits of the service, and the errors of refused requests."""

import resource
from collections.abc import Callable
from dataclasses import dataclass, field

from cranny.model.errors import CrannyError

MAX_CONNECTIONS = 1_000


def max_connections() -> int:
    """Return the connection limit: three quarters of the open-file limit; the rest is for jobs and the log."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files * 3 // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """Quotas of the service."""

    jobs_per_user: int = 10_000  # unfinished ones
    recent_jobs: int = 2_000  # jobs that are over and stay in memory
    keep_events_s: float | None = None  # how long events stay in the database; None for ever
    keep_logs_s: float | None = None  # how long logs of jobs that are over are kept; None for ever
    body_bytes: int = 256 * 1024
    connections: int = field(default_factory=max_connections)  # concurrent ones
    # Raises a CrannyError if jobs of a user cannot run at all.
    check_user: Callable[[str], object] = lambda _user: None

    def refuse_without_account(self, user: str) -> None:
        """Refuse a user whose jobs could not be started."""
        try:
            self.check_user(user)
        except CrannyError as error:
            raise ForbiddenError(f"jobs of {user} cannot run here: {error}") from None


class RequestError(CrannyError):
    """The request is refused."""

    status = 400

    def __init_subclass__(cls, status: int) -> None:
        cls.status = status


class NotFoundError(RequestError, status=404):
    """The resource does not exist."""


class ForbiddenError(RequestError, status=403):
    """The caller lacks the permission."""


class ConflictError(RequestError, status=409):
    """The request conflicts with the current state."""


class BusyError(RequestError, status=503):
    """The server is busy; the request had no effect and may be retried."""


class QuotaExceededError(RequestError, status=429):
    """The user has reached a quota."""
