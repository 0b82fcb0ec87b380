"""What the policy has promised waiting jobs, in the log: a service that starts again keeps to it."""

from collections.abc import Iterator
from typing import Any

from cranny.core.engine import Engine
from cranny.core.protocol import Remembering
from cranny.service.engines import JointByPriority
from cranny.service.job_records import JobRecords


def _remembering(engine: Engine) -> Remembering | None:
    return engine.policy.remembering if isinstance(engine.policy, JointByPriority) else None


def changed_promises(engine: Engine, records: JobRecords) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the waiting jobs that were promised something else than the log says; empty if nothing any more."""
    policy = _remembering(engine)
    made = policy.promises() if policy is not None else {}
    for job_id in [*made, *(each for each in records.promised if each not in made)]:
        promise = dict(made.get(job_id, {}))
        if engine.queue.has(job_id) and promise != records.promised.get(job_id, {}):
            yield job_id, promise


def recall_promises(engine: Engine, records: JobRecords) -> None:
    """Let the policy go on from what the log says it has promised."""
    policy, promised = _remembering(engine), {each: said for each, said in records.promised.items() if said}
    if policy is not None and promised:
        policy.recall(promised, engine.state.cluster)
