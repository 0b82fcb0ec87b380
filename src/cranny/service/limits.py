"""Limits of the service, and the errors of refused requests."""

import resource
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
    body_bytes: int = 256 * 1024
    connections: int = field(default_factory=max_connections)  # concurrent ones


class RequestError(CrannyError):
    """The request is refused."""

    status = 400


class NotFoundError(RequestError):
    """The resource does not exist."""

    status = 404


class ForbiddenError(RequestError):
    """The caller lacks the permission."""

    status = 403


class ConflictError(RequestError):
    """The request conflicts with the current state."""

    status = 409


class BusyError(RequestError):
    """The server is busy; the request had no effect and may be retried."""

    status = 503


class QuotaExceededError(RequestError):
    """The user has reached a quota."""

    status = 429
