"""Verifies an event log from its first event to its last, without a service and beside one that runs."""

from pathlib import Path
from typing import NamedTuple

from cranny.model.validate import counted
from cranny.service.event_chain import BEGIN, ChainHead, verified
from cranny.service.event_kinds import check_kind
from cranny.service.head_file import HeadFile
from cranny.service.log_snapshot import check_snapshots, first_head
from cranny.service.store import EventStore
from cranny.service.writer_lock import LogIntegrityError


class VerifiedLog(NamedTuple):
    """How far an event log is whole."""

    events: int  # that were verified
    head: ChainHead  # the last of them
    problem: str  # why the next one was refused; empty if all are as they were stored

    def describe(self) -> str:
        """Return the result in one line."""
        if self.problem:
            before = (
                f"up to event {self.head.seq} it is whole"
                if self.head.seq
                else "not even the first event is valid"
            )
            return f"{self.problem}; {before}"
        return f"{counted(self.events, 'event')} verified; the last is {self.head.seq}, with hash {self.head.hash}"


def verify_log(store: EventStore, folder: Path | None = None) -> VerifiedLog:
    """Verify every event, and that those are there which the service with this folder has stored."""
    head, events, log_id = BEGIN, 0, ""
    try:
        begin = first_head(store)
        for event in verified(store.stored(begin.seq), begin):
            check_kind(event.seq, event.kind)
            row = event.parsed()
            if row.kind == "opened":
                log_id = str(row.body.get("log", log_id))
            head, events = ChainHead(event.seq, event.hash or ""), events + 1
        check_snapshots(store)
        if folder is not None:
            HeadFile.of(folder, log_id).check(store)
    except LogIntegrityError as error:
        return VerifiedLog(events, head, str(error))
    return VerifiedLog(events, head, "")
