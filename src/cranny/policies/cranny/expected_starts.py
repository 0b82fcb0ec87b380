"""When waiting jobs are expected to start, and how long they run then."""

from collections.abc import Callable, Sequence

from cranny.core.constraints import Constraints
from cranny.core.machine_set import members
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.policies._shared.candidates import as_trained
from cranny.policies.cranny.constrained_starts import FirstStart, first_start
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.placing import Placing
from cranny.policies.cranny.preemption import Waiter, start_in_turn_s
from cranny.policies.cranny.promised_starts import PromisedStarts
from cranny.policies.cranny.restarts import restart_s
from cranny.policies.cranny.type_costs import TypeCosts


class ExpectedStarts:
    """Finds when enough GPUs are free, beside what others were promised.

    `left_s` says how long a waiting job still runs on one machine, and `required` returns the constraints of a job
    that it must keep.
    """

    def __init__(
        self,
        gpus: FreeGpus,
        types: TypeCosts,
        placing: Placing,
        promises: PromisedStarts,
        left_s: Callable[[Waiting], float],
        required: Callable[[str], Constraints | None],
    ) -> None:
        self._gpus = gpus
        self._types = types
        self._placing = placing
        self._promises = promises
        self._left_s = left_s
        self._required = required

    def earliest_s(self, job: Job, view: Snapshot, ahead: int = 0) -> float:
        """Return when enough GPUs are expected to be free for a job, and for `ahead` more that go before it."""
        constraints = self._required(job.id)
        if constraints is not None:
            return self.first(job, view, constraints).start_s
        usable = self._gpus.releases_for(job, view)
        return self._promises.earliest_s(job.id, job.gpus + ahead, view.now_s, usable, view.eligible(job))

    def first(self, job: Job, view: Snapshot, constraints: Constraints, kept: Sequence[int] = ()) -> FirstStart:
        """Return when and where a job can start within its constraints, without the machines kept for others."""
        usable = self._gpus.releases_for(job, view, [*kept, *members(constraints.excluded)])
        found = first_start(job.gpus, constraints, usable, self._gpus.racks)
        return found._replace(start_s=max(view.now_s, found.start_s))

    def runs_s(self, waiting: Waiting) -> float:
        """Return how long a job runs once it starts, alone in one rack if one is so large."""
        return restart_s(waiting) + self._left_s(waiting) * self._placing.slowdown_alone(waiting.job)

    def waiter(self, waiting: Waiting, view: Snapshot, ahead: Sequence[Waiting]) -> Waiter:
        """Return what is expected of a waiting job if none is stopped for it; those `ahead` of it go first."""
        job, seconds = waiting.job, self._left_s(waiting)
        start_s = self._behind_s(job, view, ahead)
        if job.least_gpus is not None and job.speeds is None:  # or it starts with fewer workers, but ends later
            fewer_s = self._behind_s(as_trained(job, job.least_gpus), view, ahead)
            start_s = min(start_s, fewer_s + (job.gpus / job.least_gpus - 1.0) * seconds)
        runs_s = restart_s(waiting) + self._types.least_s(job, seconds) * self._placing.slowdown_alone(job)
        return Waiter(job, seconds, start_s, runs_s)

    def _behind_s(self, job: Job, view: Snapshot, ahead: Sequence[Waiting]) -> float:
        """Return when a job is expected to start behind others: beside all of them, or after some have ended."""
        beside_s = self.earliest_s(job, view, sum(each.job.gpus for each in ahead))
        if not ahead or beside_s <= view.now_s or self._required(job.id) is not None:
            return beside_s
        before = [(each.job.gpus, self.runs_s(each)) for each in ahead]
        return min(beside_s, start_in_turn_s(job.gpus, before, self._gpus.releases_for(job, view), view.now_s))
