"""A replay stopped at one moment, to look at the cluster as it is then."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cranny.core.protocol import Policy
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.network.networks import Model
from cranny.sim.record import NOTED, Record, some_can_run
from cranny.sim.replay import Replay, no_collector


class Moment(NamedTuple):
    """The cluster at a time, and the jobs that came until then but can never run, with the reasons."""

    view: Snapshot
    skipped: Sequence[tuple[Job, str]]


def view_at(
    cluster: Cluster,
    policy: Callable[[], Policy],
    jobs: Sequence[Job],
    model: Model,
    at_s: float | None = None,
    *,
    period_s: float = 0.0,
    name: str = "the trace",
    progress: Callable[[int], None] | None = None,
) -> Moment:
    """Return the cluster at a time of a replay, once all is done that happens then.

    Without a time it is the one at which running jobs move most bytes between machines. That is known only at the
    end, so the replay is done twice, each time with a new policy. If no job can ever run there is no such time;
    `name` is that of the trace.
    """
    with no_collector():
        if at_s is None:
            replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
            record = replay.run(jobs, progress)
            some_can_run(record, name)
            at_s = busiest_s(record)
        replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
        replay.run(jobs, progress, until_s=at_s)
    return Moment(replay.state.snapshot(at_s, tuple(replay.engine.queue)), replay.log.skipped)


def busiest_s(record: Record) -> float:
    """Return when running jobs moved most bytes between machines in each iteration; the first such time."""
    noted = record.noted
    if not len(noted):
        return 0.0
    time_s, cross_bytes = noted[:, NOTED.index("time_s")], noted[:, NOTED.index("cross_bytes")]
    last = np.diff(time_s, append=np.inf) > 0  # of several notes at a time, the last holds
    return float(time_s[last][cross_bytes[last].argmax()])
