"""What tests of the service share: how things stand, as plain values that can be compared."""

from copy import deepcopy
from typing import Any

from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_values
from cranny.service.scheduler import Scheduler


def standing(scheduler: Scheduler) -> dict[str, Any]:
    """Return all that must be the same after the log was read again."""
    engine, records = scheduler.engine, scheduler.records
    jobs = {}
    for job_id, record in records.jobs.items():
        values = {name: getattr(record, name) for name in record.__slots__ if name not in {"job", "spec"}}
        values["attempts"] = [
            {name: getattr(attempt, name) for name in attempt.__slots__} | {"cluster": _names(attempt.cluster)}
            for attempt in record.attempts
        ]
        values["observed_on"] = _names(record.observed_on)
        values["leaving"] = [attempt.number for attempt in record.leaving]
        jobs[job_id] = values | {"spec": record.spec.model_dump()}
    return {
        "queue": [(waiting.job.id, waiting.attained_gpu_s) for waiting in engine.queue],
        "running": {
            job_id: (running.held, running.started_s, running.attained_gpu_s, running.shift_s)
            for job_id, running in engine.state.running.items()
        },
        "free": engine.state.free.tolist(),
        "period_s": engine.period_s,
        "policy": records.policy,
        "promised": {job_id: said for job_id, said in records.promised.items() if said},
        "records": jobs,
        "counts": {status: count for status, count in records.counts.items() if count},
        "open_jobs": deepcopy(vars(records.open_jobs)),
        "keys": records.keys,
        "drained": records.drained,
        "cluster": cluster_values(records.cluster),
        "up": [engine.state.is_up(machine) for machine in range(len(records.cluster.machines))],
        "managed": records.managed.values(),
        "externals": records.externals,
        "recommended": records.recommended,
        "saved": records.saved,
        "profiles": {key: known.values() for key, known in records.profiles.items()},
        "seq": records.seq,
    }


def _names(cluster: Cluster | None) -> tuple[str, ...] | None:
    return None if cluster is None else cluster.node_names
