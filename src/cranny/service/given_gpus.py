"""The GPUs that the manager of a cluster gives to jobs: only their machines are chosen here."""

from cranny.backends.protocol import GivenGpus
from cranny.service.job_record import Attempt, JobRecord
from cranny.service.scheduler import Scheduler


def log_given(scheduler: Scheduler, report: GivenGpus, now_s: float) -> None:
    """Log the GPU of each rank of an attempt that runs; ranks on a machine have its GPUs in order."""
    record = scheduler.find(report.job_id)
    attempt = record.attempt
    if attempt is None or attempt.number != report.attempt or attempt.cluster is None:
        return
    left = {machine: iter(sorted(gpus)) for machine, gpus in report.gpus.items()}
    names = [attempt.cluster.machines[machine].name for machine in attempt.placement.machines]
    gpus = [next(left.get(name, iter(())), None) for name in names]
    if None not in gpus and tuple(gpus) != attempt.given:
        scheduler.log("given", record.id, {"attempt": attempt.number, "gpus": gpus}, now_s)


def shown_gpus(record: JobRecord, attempt: Attempt) -> tuple[int, ...]:
    """Return the GPU of each rank; none while only the manager knows it."""
    return attempt.given if attempt.given or record.external else attempt.gpus
