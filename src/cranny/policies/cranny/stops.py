"""Running jobs that are stopped for waiting ones, and what is known of them until they have ended.

A job that was stopped goes on when as many GPUs are free again, and is promised when that is at the latest: it has
then lost as much as it may (`preemption`), or its GPUs would come too late for a start promised to others.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.accounting import Running
from cranny.core.backfill import DEPTH
from cranny.core.constraints import Constraints
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.cranny import preemption
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.making_way import MadeWay, MakingWay, Queue
from cranny.policies.cranny.placing import Placing
from cranny.policies.cranny.preemption import Expected, Stopping, Waiter
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.policies.cranny.restarts import restart_s
from cranny.policies.cranny.tail import Tail
from cranny.policies.cranny.type_costs import TypeCosts

if TYPE_CHECKING:
    from cranny.policies.cranny import Cranny


class Stops:
    """Chooses jobs to stop among those that run; `required` returns the constraints of a job that it must keep."""

    def __init__(
        self,
        policy: "Cranny",
        running: Mapping[str, Expected],
        gpus: FreeGpus,
        types: TypeCosts,
        placing: Placing,
        promises: PromisedStarts,
        tail: Tail,
        required: Callable[[str], Constraints | None],
    ) -> None:
        self._policy = policy
        self._running = running
        self._gpus = gpus
        self._types = types
        self._placing = placing
        self._promises = promises
        self._tail = tail
        self._required = required
        # By the ids of jobs. What a job has lost is kept as long as it runs or waits to go on.
        self.left_s: dict[str, float] = {}  # of the length of those that ran before and wait
        self._lost_s: dict[str, float] = {}  # by being stopped for others
        self._since_s: dict[str, float] = {}  # when those that wait were stopped for others
        self._longest: tuple[Snapshot, float] | None = None  # the longest completion time expected in a view

    # -- which jobs ----------------------------------------------------------------------------------------

    def in_place_of(self, waiter: Waiter, view: Snapshot) -> list[Expected]:
        """Return running jobs that should be stopped for a while so that a waiting one can run in their place."""
        job = waiter.job
        rules = self._rules({job.id}, view)
        running, gpus = self._running.values(), self._gpus
        constraints = self._required(job.id)
        if constraints is not None:
            return preemption.in_place_within(constraints, waiter, running, gpus, view, rules)
        if job.gpus > int(gpus.size.max()):
            return preemption.in_place_of_many(waiter, job.gpus - view.available(job).gpus, running, rules)
        found = preemption.in_place_of(waiter, running, gpus.free, view.eligible(job) & view.up_machines, rules)
        return [] if found is None else [found]

    def pay(self, waiter: Waiter, stopped: Collection[Expected], placement: Placement, view: Snapshot) -> bool:
        """Say whether it pays to stop some jobs for a waiting one that is placed now.

        Of GPUs that are free anyway it may take those that are not promised to others, nor kept for them.
        """
        job, now_s = waiter.job, view.now_s
        freed = [each.running.placement for each in stopped]
        if not self._promises.allow_in_place(job.id, [placement], freed, now_s, now_s + waiter.runs_s):
            return False
        if self._take_kept(waiter, freed, placement, view):
            return False
        rules = self._rules({job.id}, view)
        losses_s = [rules.loss_s(each, waiter) for each in stopped]
        slowdowns = [each.slowdowns(loss_s) for each, loss_s in zip(stopped, losses_s, strict=True)]
        return rules.pays((waiter,), math.fsum(losses_s), math.fsum(slowdowns))

    def _take_kept(self, waiter: Waiter, freed: Iterable[Placement], placement: Placement, view: Snapshot) -> bool:
        """Say whether a job would take more of a kept machine than the jobs had that are stopped and than is left.

        It is kept for a job that can start on no others; those that jobs only chose to wait for may be taken.
        """
        left = self._promises.kept_for_constrained(waiter.job.id, view.now_s + waiter.runs_s)
        had: Counter[int] = Counter()
        for each in freed:
            had.update(each.counts)
        return any(placement.counts[machine] > had[machine] + gpus for machine, gpus in left.items())

    def make_way(self, queue: Queue, head: str | None, view: Snapshot) -> MadeWay | None:
        """Return a job on several machines that makes way for waiting ones of one machine each, if that pays.

        The `head` is the first job that does not fit.
        """
        first = queue[0][0].job
        eligible = view.eligible(first)
        usable = eligible & view.up_machines
        large = [
            each
            for each in self._running.values()
            if each.machine is None and all(usable >> machine & 1 for machine in each.running.held)
        ]
        if not large:
            return None
        release_s = np.sort(self._gpus.releases_for(first, view), axis=None)
        release_s = release_s[: np.searchsorted(release_s, math.inf)]
        head = next((each.job.id for each, _ in queue if each.job.id == head), "")
        rules = self._rules({head}, view)
        search = MakingWay(queue, head, release_s, self._promises, rules, eligible)
        return search.find(large, self._placing, view)

    def _rules(self, starting: Collection[str], view: Snapshot) -> Stopping:
        """Return what decides which jobs may be stopped so that some others start."""
        promised_s = [each.start_s for each in self._promises.in_order() if each.job_id not in starting]
        policy, tail = self._policy, self._tail
        longest_s = math.inf if tail.learned else self._longest_s(view)
        return Stopping(
            view.now_s,
            promised_s,
            self._lost_s,
            policy.margin,
            policy.rules.may_stop,
            tail,
            self._slowest,
            longest_s,
        )

    def most_runs_s(self, waiting: Waiting) -> float:
        """Return how long a waiting job runs at most, once it starts."""
        return restart_s(waiting) + self._policy.left_s(waiting) * self._slowest(waiting.job)

    def _slowest(self, job: Job) -> float:
        """Return how much longer than on one machine a job may take: on many machines, on slow GPUs."""
        if job.gpus == 1 and job.speeds is None:
            return 1.0
        slowdown = max(self._placing.slowdown_alone(job), self._placing.slowdown_apart(job))
        return slowdown * self._types.most_s(job, 1.0)

    def _longest_s(self, view: Snapshot) -> float:
        """Return the longest completion time of jobs that run, and of the first that wait if they started now."""
        if self._longest is None or self._longest[0] is not view:  # asked for several times in a plan
            running_s = [each.jct_s for each in self._running.values()]
            first = view.waiting[:DEPTH]
            waiting_s = [view.now_s - each.job.submit_s + self._policy.left_s(each) for each in first]
            self._longest = view, max(running_s + waiting_s)
        return self._longest[1]

    # -- what becomes of them ------------------------------------------------------------------------------

    def stop(self, jobs: Iterable[Expected], starting: Collection[str], view: Snapshot) -> None:
        """Note that jobs are stopped so that others start, and promise them when they go on at the latest.

        Those with constraints are promised the machines that they had: other GPUs may be of no use to them.
        """
        now_s = view.now_s
        rules = self._rules(starting, view)
        for each, most_s in [(each, rules.most_s(each)) for each in jobs]:
            job = each.running.submitted
            self._since_s[job.id] = now_s
            constrained = self._required(job.id) is not None
            held = each.running.placement.counts if constrained else {}
            on = tuple(held), tuple(held.values()) if sum(held.values()) == job.gpus else ()
            start_s, eligible = now_s + most_s - job.restart_s, view.eligible(job)
            self._promises.make(PromisedStart(job.id, job.gpus, start_s, *on, constrained, eligible=eligible))

    def started(self, running: Running) -> None:
        """Note a job that starts, or goes on."""
        if not self.left_s:
            return
        job = running.submitted
        self.left_s.pop(job.id, None)
        since_s = self._since_s.pop(job.id, None)
        if since_s is not None:
            self._lost_s[job.id] = self._lost_s.get(job.id, 0.0) + running.started_s - since_s + job.restart_s

    def ended(self, job_id: str) -> float:
        """Forget a job that no longer runs, unless it waits to go on; return what it had lost then."""
        if job_id in self.left_s:
            return 0.0
        self._since_s.pop(job_id, None)
        return self._lost_s.pop(job_id, 0.0)

    def moved(self, job_id: str, lost_s: float) -> None:
        """Note that a job runs on elsewhere that had ended with such a loss."""
        if lost_s:
            self._lost_s[job_id] = lost_s

    def keep(self, job_ids: AbstractSet[str]) -> None:
        """Forget those that wait no longer, but for some."""
        for job_id in self.left_s.keys() - job_ids:
            for known in (self.left_s, self._lost_s, self._since_s):
                known.pop(job_id, None)
