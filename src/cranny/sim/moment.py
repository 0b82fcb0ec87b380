"""A replay stopped at one moment, to look at the cluster as it is then."""

from collections.abc import Callable, Sequence

import numpy as np

from cranny.core.protocol import Policy
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.sim.models import Model
from cranny.sim.record import NOTED, Record
from cranny.sim.replay import Replay, no_collector


def view_at(
    cluster: Cluster,
    policy: Callable[[], Policy],
    jobs: Sequence[Job],
    model: Model,
    at_s: float | None = None,
    *,
    period_s: float = 0.0,
    progress: Callable[[int], None] | None = None,
) -> Snapshot:
    """Return the cluster at a time of a replay, once all is done that happens then.

    Without a time it is the one at which running jobs move most bytes between machines. That is known only at the
    end, so the replay is done twice, each time with a new policy.
    """
    with no_collector():
        if at_s is None:
            replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
            at_s = busiest_s(replay.run(jobs, progress))
        replay = Replay(cluster, policy(), network=model.on(cluster), period_s=period_s)
        replay.run(jobs, progress, until_s=at_s)
    return replay.state.snapshot(at_s, tuple(replay.engine.queue))


def busiest_s(record: Record) -> float:
    """Return when running jobs moved most bytes between machines in each iteration; the first such time."""
    noted = record.noted
    if not len(noted):
        return 0.0
    time_s, cross_bytes = noted[:, NOTED.index("time_s")], noted[:, NOTED.index("cross_bytes")]
    last = np.diff(time_s, append=np.inf) > 0  # of several notes at a time, the last holds
    return float(time_s[last][cross_bytes[last].argmax()])
