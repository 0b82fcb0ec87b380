"""What the service refuses, and how much it takes from whom."""

from dataclasses import dataclass

from cranny.model.errors import CrannyError


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the service takes."""

    jobs_per_user: int = 10_000  # that are not over
    body_bytes: int = 256 * 1024


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


class TooManyError(RefusedError):
    """The user has too much already."""

    status = 429
