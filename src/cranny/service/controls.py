"""What running attempts find in their channels: it follows from the event log alone.

After a restart of the service the same records give the same controls, and their numbers only grow.
"""

import signal
from collections.abc import Iterable, Mapping

from cranny.backends.protocol import numbered
from cranny.channel.control import CheckpointRequest, Control, Pace
from cranny.core.accounting import Running
from cranny.model.circle import Circle
from cranny.model.cluster import Cluster
from cranny.network.interleave.affinity import lead, shared_links
from cranny.network.interleave.demand import circles
from cranny.network.interleave.unified_circle import QUICK, unify
from cranny.service.job_records import Attempt, JobRecord, KeptPace
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


def kept_paces(cluster: Cluster, running: Iterable[Running], known: "CircleMemo") -> dict[str, KeptPace]:
    """Return the period and shift that shifted jobs must keep to stay as they were shifted, by their ids.

    Jobs that are connected by shared links get periods of one unified circle, none shorter than its own iteration:
    with periods that do not fit together, jobs would drift apart whatever their shifts. A job that shares no link
    with another one that is shifted has nothing to keep.
    """
    shifts_s = {each.job.id: each.shift_s for each in running}
    found = {each.job.id: known.of(cluster, each) for each in running}
    links = shared_links(found, cluster.uplink_gbps, cluster.node_names)
    leader: dict[str, str] = {}
    for link in links:
        first, *others = link.circles
        for other in others:
            leader[lead(leader, other)] = lead(leader, first)
    groups: dict[str, list[str]] = {}
    for job_id in found:
        if job_id in leader:
            groups.setdefault(lead(leader, job_id), []).append(job_id)
    kept: dict[str, KeptPace] = {}
    for group in groups.values():
        own_s = tuple(next(iter(found[job_id].values())).iteration_s for job_id in group)
        unified = unify(own_s, QUICK)
        longer = max(1.0, *(1.0 / stretch for stretch in unified.stretches))
        for job_id, iteration_s, period_s in zip(group, own_s, unified.periods_s, strict=True):
            kept[job_id] = KeptPace(period_s * longer, shifts_s[job_id] * period_s * longer / iteration_s)
    return kept


class CircleMemo:
    """Circles of running jobs, computed once for each job and placement."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Running, Mapping[int, Circle]]] = {}

    def of(self, cluster: Cluster, running: Running) -> Mapping[int, Circle]:
        """Return the circle of a job on each link that it crosses."""
        had = self._known.get(running.job.id)
        if had is not None and had[0].job is running.job and had[0].placement is running.placement:
            return had[1]
        where = running.placement
        found = circles(cluster, running.job, where.machines, where.server, aggregate=where.aggregate)
        self._known[running.job.id] = running, found
        return found

    def keep(self, job_ids: Iterable[str]) -> None:
        """Forget all jobs but these."""
        self._known = {job_id: self._known[job_id] for job_id in job_ids if job_id in self._known}
