"""What running attempts find in their channels: it follows from the event log alone.

After a restart of the service the same records give the same controls, and their numbers only grow.
"""

import signal

from cranny.backends.protocol import numbered
from cranny.channel.control import CheckpointRequest, Control, Pace
from cranny.model.cluster import Cluster
from cranny.service.job_record import Attempt, JobRecord
from cranny.service.job_spec import CheckpointFields

FIRST_REQUEST = 1  # an attempt is stopped once


def control_of(record: JobRecord, attempt: Attempt, cluster: Cluster, epoch_s: float) -> Control:
    """Return all settings of an attempt."""
    pace = attempt.pace
    leaves = attempt.leaves
    return Control(
        number=attempt.control_seq,
        pace=None if pace is None else Pace(pace.period_s, pace.shift_s, epoch_s),
        shares=shares(record, attempt, cluster),
        aggregate=attempt.placement.aggregate if record.job.collective == "ina" else None,
        checkpoint=None if leaves is None else CheckpointRequest(FIRST_REQUEST, leaves.by_s, leaves.reason),
    )


def shares(record: JobRecord, attempt: Attempt, cluster: Cluster) -> tuple[float, ...] | None:
    """Return each rank's part of the samples by the speed of its GPU (HAS, Eq. 12); None if all are alike."""
    job = record.job
    if job.speeds is None or job.tp * job.pp > 1:
        return None
    cluster = attempt.cluster or cluster
    machines = numbered(attempt.placement.machines, torchrun=record.spec.by_torchrun)
    speeds = [job.speeds.get(cluster.machines[machine].gpu_type, 1.0) for machine in machines]
    if len(set(speeds)) == 1:
        return None
    return tuple(speed / sum(speeds) for speed in speeds)


def signal_of(record: JobRecord) -> signal.Signals | None:
    """Return the signal by which a job is asked to save; None if it names none."""
    checkpoint = record.spec.checkpoint
    named = checkpoint.signal if isinstance(checkpoint, CheckpointFields) else None
    return None if named is None else signal.Signals[named]
