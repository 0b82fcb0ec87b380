"""What tests of the service share: how things stand, as plain values that can be compared."""

from dataclasses import asdict
from typing import Any

from cranny.service.scheduler import Desk


def standing(desk: Desk) -> dict[str, Any]:
    """Return all that must be the same after the log was read again."""
    engine, ledger = desk.engine, desk.ledger
    records = {}
    for job_id, record in ledger.jobs.items():
        values = {name: getattr(record, name) for name in record.__slots__ if name not in {"job", "spec"}}
        values["attempts"] = [asdict(attempt) | {"placement": attempt.placement} for attempt in record.attempts]
        values["leaving"] = [attempt.number for attempt in record.leaving]
        records[job_id] = values | {"spec": record.spec.model_dump()}
    return {
        "queue": [(waiting.job.id, waiting.attained_gpu_s) for waiting in engine.queue],
        "running": {
            job_id: (running.held, running.started_s, running.attained_gpu_s, running.shift_s)
            for job_id, running in engine.state.running.items()
        },
        "free": engine.state.free.tolist(),
        "period_s": engine.period_s,
        "policy": ledger.policy,
        "records": records,
        "counts": {status: count for status, count in ledger.counts.items() if count},
        "open_jobs": {user: count for user, count in ledger.open_jobs.items() if count},
        "keys": ledger.keys,
        "drained": ledger.drained,
        "recommended": ledger.recommended,
        "saved": ledger.saved,
        "seq": ledger.seq,
    }
