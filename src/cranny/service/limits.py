"""What the service refuses, and how much it takes from whom."""

import resource
from dataclasses import dataclass, field

from cranny.model.errors import CrannyError

MOST_CONNECTIONS = 1_000


def most_connections() -> int:
    """Return how many may be connected: three in four of the files that may be open; jobs need some too."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files * 3 // 4)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the service takes."""

    jobs_per_user: int = 10_000  # that are not over
    body_bytes: int = 256 * 1024
    connections: int = field(default_factory=most_connections)  # of clients, at a time


class RefusedError(CrannyError):
    """A request that the service does not serve."""

    status = 400


class NotThereError(RefusedError):
    """There is no such thing."""

    status = 404


class NotAllowedError(RefusedError):
    """The one who asks may not do this."""

    status = 403


class ConflictError(RefusedError):
    """It does not go together with what is there."""

    status = 409


class BusyError(RefusedError):
    """It cannot be done at this moment; nothing was, and it may be asked for again."""

    status = 503


class TooManyError(RefusedError):
    """The user has too much already."""

    status = 429
