"""The routes of what jobs measure of themselves, and of what was learned from it."""

from typing import Any

from fastapi import APIRouter

from cranny.channel.control import asdict_plain
from cranny.service import measured
from cranny.service.api.dependencies import AnyCaller, ServiceDep, visible_job
from cranny.service.job_record import HELD

router = APIRouter(prefix="/api/v1", tags=["jobs"])


@router.get("/jobs/{job_id}/measurements")
def measurements(job_id: str, service: ServiceDep, caller: AnyCaller) -> Any:
    """Return the latest iterations and checkpoints that a job has reported, its control and its profile."""
    record = visible_job(service, caller, job_id)
    with service.lock:
        attempt = record.attempt if record.status in HELD else None
        control = None if attempt is None else service.control_of(record, attempt)
        profile = service.scheduler.records.profiles.get(record.key)
        resumed = [
            {"attempt": each.number, **each.resumed._asdict()}
            for each in record.attempts
            if each.resumed is not None
        ]
        points = service.reports.points(record.id)
        restarts = measured.restarts(record.attempts, points)
        types = measured.types(record, attempt, control, profile, service.scheduler.cluster)
    reports = service.reports
    bad, why = reports.bad_of(record.id)
    ranks = {} if attempt is None else reports.states(record.id, attempt.number)
    return {
        "job": record.id,
        "points": [point._asdict() for point in points],
        "ranks": [
            {"rank": rank, "step": state.step, "saved": None if state.saved is None else state.saved._asdict()}
            for rank, state in sorted(ranks.items())
        ],
        "resumed": resumed,
        "restarts": [each._asdict() for each in restarts],
        "types": types,
        "control": None if control is None else asdict_plain(control),
        "profile": None if profile is None else profile.values(),
        "bad_reports": bad,
        "bad_reason": why,
    }


@router.get("/profiles")
def profiles(service: ServiceDep, caller: AnyCaller) -> Any:
    """List what jobs have shown of themselves, by user and name; users see their own."""
    with service.lock:
        known = list(service.scheduler.records.profiles.items())
    return {
        "profiles": [
            {"user": user, "name": name, **profile.values()}
            for (user, name), profile in known
            if caller.role != "user" or caller.user == user
        ]
    }
