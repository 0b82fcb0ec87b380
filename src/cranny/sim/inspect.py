"""A replay stopped at a given time, to inspect the cluster as it is then."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.protocol import Policy
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.networks import NetworkModel
from cranny.sim.record import SAMPLE_COLUMNS, ReplayRecord, refuse_if_all_skipped
from cranny.sim.replay import Replay, no_garbage_collection


class StoppedReplay(NamedTuple):
    """The cluster at a time of a replay, and the jobs skipped until then, with the reasons."""

    view: Snapshot
    skipped: Sequence[tuple[Job, str]]


def view_at(
    cluster: Cluster,
    policy: Callable[[], Policy],
    jobs: Sequence[Job],
    model: NetworkModel,
    at_s: float | None = None,
    *,
    period_s: float = 0.0,
    name: str = "the trace",
    progress: Callable[[int], None] | None = None,
) -> StoppedReplay:
    """Return the cluster at a time of a replay, after all events of that time.

    Without a time it is the one at which running jobs move most bytes between machines. That is known only at the
    end, so the replay is done twice, each time with a new policy. If no job can ever run there is no such time;
    `name` is that of the trace.
    """
    with no_garbage_collection():
        if at_s is None:
            replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
            record = replay.run(jobs, progress)
            refuse_if_all_skipped(record, name)
            at_s = busiest_s(record)
        replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
        replay.run(jobs, progress, until_s=at_s)
    return StoppedReplay(replay.state.snapshot(at_s, tuple(replay.engine.queue)), replay.log.skipped)


def busiest_s(record: ReplayRecord) -> float:
    """Return when running jobs moved most bytes between machines in each iteration; the first such time."""
    samples = record.samples
    if not len(samples):
        return 0.0
    time_s, cross_bytes = (
        samples[:, SAMPLE_COLUMNS.index("time_s")],
        samples[:, SAMPLE_COLUMNS.index("cross_bytes")],
    )
    last = np.diff(time_s, append=np.inf) > 0  # of several samples at a time, the last counts
    return float(time_s[last][cross_bytes[last].argmax()])
