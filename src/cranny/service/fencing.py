"""Attempts at other locations: held until their host answers, or an admin says that it is dead (fencing)."""

import logging
from typing import Any

from cranny.model.validate import counted
from cranny.service.job_record import HELD, Attempt, JobRecord
from cranny.service.job_records import JobRecords
from cranny.service.limits import ConflictError, NotFoundError
from cranny.service.locations import Location
from cranny.service.scheduler import Instruction, Scheduler

_log = logging.getLogger("cranny.service")


def unfinished(records: JobRecords) -> list[tuple[JobRecord, Attempt]]:
    """Return the attempts that may have processes."""
    return [(record, attempt) for record in records.jobs.values() for attempt in may_run(record)]


def may_run(record: JobRecord) -> list[Attempt]:
    """Return the attempts of a job that may have processes: those that are leaving, and then the current one."""
    return [*record.leaving, *record.attempts[-1:]] if record.status in HELD else [*record.leaving]


def is_away(location: Location, records: JobRecords, record: JobRecord, attempt: Attempt) -> bool:
    """Say whether the processes of an attempt cannot be seen from a location."""
    return location.reaches(attempt.location, records.log_id, record.id, attempt.number) is None


def away_from(location: Location, records: JobRecords) -> dict[Location, list[tuple[JobRecord, Attempt]]]:
    """Return the attempts that may have processes which cannot be seen from a location, by theirs."""
    found: dict[Location, list[tuple[JobRecord, Attempt]]] = {}
    for record, attempt in unfinished(records):
        if attempt.location is not None and is_away(location, records, record, attempt):
            found.setdefault(attempt.location, []).append((record, attempt))
    return found


def warn_of_held(location: Location, records: JobRecords) -> None:
    """Log which jobs are held, and what an admin can do about it."""
    for where, held in away_from(location, records).items():
        _log.warning(
            "%s may run on %s, which cannot be seen from here; held until cranny serve is started there, "
            "or an admin says that it is dead: cranny fence %s",
            counted(len({record.id for record, _ in held}), "job"),
            where.describe(),
            where.id,
        )


def hosts(location: Location, records: JobRecords) -> list[dict[str, Any]]:
    """Return the location of the service, and others whose attempts are held."""
    away = away_from(location, records)
    own = [(record.id, attempt) for record, attempt in unfinished(records) if attempt.location not in away]
    lines = [(location, "serving", own)]
    lines += [(each, "away", [(record.id, attempt) for record, attempt in held]) for each, held in away.items()]
    return [
        {
            "id": each.id,
            "name": each.name,
            "folder": each.folder,
            "state": state,
            "jobs": sorted({job_id for job_id, _ in held}),
        }
        for each, state, held in lines
    ]


def fence(scheduler: Scheduler, location: Location, name: str, by: str, now_s: float) -> list[str]:
    """Give up the attempts of a host that is dead, so that their jobs start again; return these jobs.

    If it was not dead and serves this log again, what still runs there is stopped before anything else.
    """
    away = away_from(location, scheduler.records)
    found = [each for each in away if name in {each.id, each.name}]
    if len(found) > 1:
        known = ", ".join(f"{each.id} ({each.folder})" for each in found)
        raise ConflictError(f"several folders of host {name} hold jobs; name one by its id: {known}")
    if not found and name in {location.id, location.name}:
        raise ConflictError(f"host {name} serves this log itself; it cannot be dead")
    if not found:
        raise NotFoundError(f"no jobs are held for a host {name!r}; see `cranny hosts`")
    held = away[found[0]]
    attempts = [[record.id, attempt.number] for record, attempt in held]
    body = {"host": found[0]._asdict(), "by": by, "attempts": attempts}
    scheduler.log("fenced", None, body, now_s)
    scheduler.instructions.extend(Instruction("give up", record, attempt) for record, attempt in held)
    return sorted({record.id for record, _ in held})
