"""The steady state of the jobs that a view shows, kept up from view to view."""

from typing import NamedTuple

from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.network.steady.rates import Rates
from cranny.network.steady.streams import stream


class _Known(NamedTuple):
    """A job that is part of the estimate."""

    placement: Placement
    number: int | None  # among the rates; None if the job uses no links


class RateEstimate:
    """What every running job streams, and what that leaves of links and switches."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rates = Rates.of(cluster)
        self._known: dict[str, _Known] = {}

    def follow(self, view: Snapshot) -> None:
        """Take in the jobs that run now, and forget those that do not."""
        running = view.all_running()
        for job_id in [job_id for job_id in self._known if job_id not in running]:
            self.remove(job_id)
        for job_id, each in running.items():
            known = self._known.get(job_id)
            if known is None or (known.placement is not each.placement and known.placement != each.placement):
                self.add(each.job, each.placement)

    def add(self, job: Job, placement: Placement) -> None:
        """Let a job stream as it is placed, instead of how it did before."""
        if job.id in self._known:
            self.remove(job.id)
        number = None
        if placement.server is not None or len(set(placement.machines)) > 1:
            number = self.rates.add(stream(self.cluster, job, placement).flows)
        self._known[job.id] = _Known(placement, number)

    def remove(self, job_id: str) -> None:
        """Forget a job."""
        number = self._known.pop(job_id).number
        if number is not None:
            self.rates.remove(number)

    def rate_gbps(self, job_id: str) -> float | None:
        """Return the rate of a job; None if it uses no links."""
        number = self._known[job_id].number
        return None if number is None else self.rates.rate_gbps(number)
