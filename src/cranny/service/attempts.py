"""What the executor gets to know of an attempt: how it is launched, and how it is stopped."""

from pathlib import Path

from cranny.backends.protocol import Launch, Rank
from cranny.channel.control import Control
from cranny.service.controls import signal_of
from cranny.service.executor import AttemptStop
from cranny.service.job_record import Attempt, JobRecord


def launch_of(record: JobRecord, attempt: Attempt, log_dir: Path) -> Launch:
    """Return the launch of an attempt."""
    spec, machines = record.spec, attempt.placement.machines
    slots = zip(machines, attempt.gpus, strict=True)
    names = [] if attempt.cluster is None else [attempt.cluster.machines[machine].name for machine in machines]
    return Launch(
        job_id=record.id,
        attempt=attempt.number,
        argv=spec.argv,
        ranks=tuple(Rank(rank, machine, gpu) for rank, (machine, gpu) in enumerate(slots)),
        env=spec.variables,
        cwd=Path(spec.cwd) if spec.cwd is not None else None,
        log_dir=log_dir,
        time_limit_s=spec.time_limit_s,
        torchrun=spec.by_torchrun,
        server=attempt.placement.server,
        aggregate=attempt.placement.aggregate,
        launched_s=attempt.started_s,
        user=record.user,
        limits=spec.limits,
        external=record.external,
        machines=tuple(names),
        note=attempt.why.partition("\n")[0],
    )


def stop_of(record: JobRecord, attempt: Attempt, control: Control) -> AttemptStop:
    """Return how an attempt leaves its GPUs: at once, unless it is to save before."""
    if attempt.leaves is None:
        return AttemptStop(record.id, attempt.number)
    return AttemptStop(record.id, attempt.number, control, signal_of(record))
