"""The kinds of events that a log may hold."""

from cranny.service.writer_lock import LogIntegrityError

# Of events; each has a method of `JobRecords` of that name.
KINDS = frozenset(
    {
        *(
            "opened",
            "policy",
            "drained",
            "resumed",
            "submitted",
            "placed",
            "moved",
            "launched",
            "stopping",
            "stopped",
        ),
        *("ended", "retried", "vacated", "cancelled", "shifted", "paced", "aggregated", "promised"),
        *("profiled", "continued", "given"),
        *("recommended", "withdrawn", "observed", "fenced", "snapshot", "archived", "audit"),
        *("cluster", "availability", "foreign", "reservations", "prioritized"),
    }
)


def check_kind(seq: int, kind: str) -> None:
    """Refuse an event of a later version, or of no version."""
    if kind not in KINDS:
        raise LogIntegrityError(f"event {seq} is of kind {kind!r}, which this version does not know")
