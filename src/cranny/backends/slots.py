"""The GPU slots that running attempts hold, and checks of a launch."""

import math

from cranny.backends.protocol import BackendError, Launch
from cranny.model.cluster import Cluster


class Slots:
    """The GPU slots of a cluster, each held by at most one job."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._holder: dict[tuple[int, int], str] = {}

    def take(self, what: Launch) -> None:
        """Reserve all slots of an attempt, or raise `BackendError`."""
        check(what, self._cluster)
        for rank, machine, gpu in what.ranks:
            holder = self._holder.get((machine, gpu))
            if holder is not None:
                where = f"GPU {gpu} of machine {self._cluster.machines[machine].name}"
                raise BackendError(
                    f"job {what.job_id!r}: rank {rank} cannot have {where}: job {holder!r} holds it"
                )
        self.hold(what)

    def hold(self, what: Launch) -> None:
        """Record the slots of a running attempt, even if the cluster has changed since it was launched."""
        self._holder.update(((rank.machine, rank.gpu), what.job_id) for rank in what.ranks)

    def release(self, what: Launch) -> None:
        """Release the slots of an attempt."""
        for rank in what.ranks:
            self._holder.pop((rank.machine, rank.gpu), None)


def check(what: Launch, cluster: Cluster) -> None:
    """Raise `BackendError` if a launch is invalid."""
    job = f"job {what.job_id!r}"
    if not what.argv or not what.argv[0]:
        raise BackendError(f"{job}: the command is empty")
    if [rank.rank for rank in what.ranks] != list(range(len(what.ranks))) or not what.ranks:
        raise BackendError(f"{job}: ranks must be 0, 1, 2, ... in this order")
    if len({(rank.machine, rank.gpu) for rank in what.ranks}) != len(what.ranks):
        raise BackendError(f"{job}: two ranks are on the same GPU")
    for rank, machine, gpu in what.ranks:
        if not 0 <= machine < len(cluster.machines) or not 0 <= gpu < cluster.machines[machine].gpus:
            raise BackendError(f"{job}: rank {rank} is on GPU {gpu} of machine {machine}, which does not exist")
    for name, value in what.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise BackendError(f"{job}: {name!r} cannot be an environment variable, or cannot have its value")
    if any("\0" in text for text in what.argv):
        raise BackendError(f"{job}: the command holds a zero byte")
    limit = what.time_limit_s
    if limit is not None and not (0 < limit < math.inf):
        raise BackendError(f"{job}: the time limit must be a positive number of seconds, not {limit}")
