"""What the policy knows of a cluster and its queue, kept up to date from view to view."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from cranny.core.accounting import Running, attained_gpu_s
from cranny.core.backfill import DEPTH
from cranny.core.change_log import Change, ChangePoint
from cranny.core.constraints import Constraints
from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.core.traffic import SILENT, isolated
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.resize import without_jobs
from cranny.policies.cranny.better_machines import BetterMachines
from cranny.policies.cranny.durations import DurationEstimates, worked_s
from cranny.policies.cranny.expected_starts import ExpectedStarts
from cranny.policies.cranny.free_gpus import FreeGpus
from cranny.policies.cranny.link_effects import LinkEffects
from cranny.policies.cranny.lookahead import Lookahead
from cranny.policies.cranny.placing import Placing
from cranny.policies.cranny.preemption import Expected
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import restart_s
from cranny.policies.cranny.sizes import SizesSeen
from cranny.policies.cranny.stops import Stops
from cranny.policies.cranny.tail import Tail, late_first
from cranny.policies.cranny.type_costs import TypeCosts
from cranny.policies.cranny.wait_explanation import WaitMemory

if TYPE_CHECKING:
    from cranny.policies.cranny import Cranny
    from cranny.policies.cranny.placing import Priced
    from cranny.policies.cranny.shifting import PhasedLinks


class Followed:
    """A cluster with its running jobs, their expected ends, and what waiting jobs were promised."""

    def __init__(self, cluster: Cluster, policy: "Cranny") -> None:
        self.cluster = cluster
        self.gpus = FreeGpus(cluster)
        self.largest = int(self.gpus.size.max())  # GPUs of a machine
        self.sizes = SizesSeen(self.largest)
        self.promises = PromisedStarts(self.gpus.up_releases)
        self.head: str | None = None  # the first job of the queue that did not fit, which has a promise
        self.constrained_head: str | None = None  # the first that its constraints let wait, which has one too
        self._never: set[str] = set()  # jobs whose constraints cannot be met by the machines that are up
        self.refused: set[str] = set()  # jobs that need not be tried again before something ends
        self._policy = policy
        self.tail = Tail(policy.completion_times, self.gpus.total if policy.tail else 0)
        self.phased: "PhasedLinks | None" = None  # noqa: UP037 - what is imported below
        if policy.shift and policy.in_phases:
            from cranny.policies.cranny.shifting import PhasedLinks  # compiles, so it is imported where it is used

            self.phased = PhasedLinks(cluster, self.tail, drifting=policy.drifting)
        shared = (self.phased or LinkEffects(cluster, self.tail)) if policy.contention else None
        self._links = self.phased or shared  # which are followed
        options = {"rank_map": policy.rank_map, "racks": policy.racks}
        self.types = TypeCosts(cluster, policy.gpu_prices, choosing=policy.types)
        self.placing = Placing(self.gpus, self.types, shared, self.tail, phased=self.phased, **options)
        if not policy.machines:
            self.gpus.price[:] = 0.0
        self.better = BetterMachines(policy, self.gpus, self.types, self.placing, self.promises)
        known = (self.gpus, self.types, self.placing, self.promises)
        self.expected = ExpectedStarts(*known, policy.left_s, self._required)
        self._point: ChangePoint | None = None
        self._running: dict[str, Expected] = {}
        stops = (policy, self._running, self.gpus, self.types, self.placing, self.promises, self.tail)
        self.stops = Stops(*stops, self._required)
        lookahead = (policy, self._running, self.gpus, self.expected, self.tail)
        self._lookahead = Lookahead(*lookahead) if policy.lookahead else None
        self._moved: Expected | None = None  # the job that ended last
        self._moved_lost_s = 0.0  # what it had lost by stops
        self._tried: list[str] = []  # jobs on the links that do not run there
        self._came_before = False  # whether jobs wait that came before it followed the cluster
        self.now_s = 0.0

    def follow(self, view: Snapshot, durations: DurationEstimates | None = None) -> None:
        """Take over what has started and ended since the last view; let estimates learn from it."""
        self.now_s = view.now_s
        changes = view.changes_since(self._point)
        if changes is None:
            changes, self._point = self._differences(view), view.point
            self._came_before = True
            self.types.see_first(each.job for each in view.waiting)
        elif changes:
            self._point = view.point
            if durations is not None:
                durations.learn_ended(changes, view.now_s, self.stops.left_s)
        for running, sign in changes:
            if sign > 0:
                self._started(running)
            else:
                self._ended(running)
        if self.gpus.follow_machines(view):
            self.promises.changed()
            self.refused.clear()
            self._never.clear()

    def _differences(self, view: Snapshot) -> list[Change]:
        """Compare all running jobs with those known."""
        now, known = view.all_running(), self._running
        same = {job_id for job_id, old in known.items() if now.get(job_id) is old.running}
        gone = [Change(old.running, -1) for job_id, old in known.items() if job_id not in same]
        return gone + [Change(running, 1) for job_id, running in now.items() if job_id not in same]

    def _started(self, running: Running) -> None:
        job = running.job
        # As if it were alone: what is expected of a job follows from its placement, and not from what came since.
        # Real jobs are believed to overlap computing and communication only when they have shown it.
        phased = None if self._policy.drifting else self.phased
        longer = 1.0
        if phased is not None:
            longer = phased.alone(job, running.placement)
        elif running.communication is not SILENT:  # most jobs are
            longer = isolated(job, running.communication)
        submitted, slowdown = running.submitted, longer * running.stretch
        left_s = length_s = self._policy.length_s(submitted)
        if self._moved is not None and self._moved.running.job.id == job.id:
            left_s = self._moved.left_after(running.attained_gpu_s)
            self.stops.moved(job.id, self._moved_lost_s)
        elif running.attained_gpu_s:
            left_s = self._policy.left_s(Waiting(submitted, running.attained_gpu_s))
        else:
            self.tail.started(submitted, running.started_s - submitted.submit_s, left_s * slowdown)
        end_s = running.started_s + left_s * slowdown + (submitted.restart_s if running.attained_gpu_s else 0.0)
        self.gpus.set(running, end_s)
        if self._links is not None and running.communication is not SILENT:
            self._links.start(running, end_s)
        self._running[job.id] = Expected(running, length_s, end_s, left_s, slowdown)
        self.tail.dequeue(job.id)
        self.stops.started(running)
        self._policy.own_moves.started(submitted)
        self.better.started(job.id)
        self.refused.discard(job.id)
        if self.promises.by_job:
            self.promises.changed()
            self.withdraw(job.id)

    def _ended(self, running: Running) -> None:
        self.gpus.set(running, -math.inf)
        if self._links is not None and running.communication is not SILENT:
            self._links.end(running.job.id)
        # If it starts again at once, it was moved, or only its shift or aggregation was changed.
        self._moved = self._running.pop(running.job.id)
        self._moved_lost_s = self.stops.ended(running.job.id)
        if self.promises.by_job:
            self.promises.changed()
        self.refused.clear()

    def requeued(self, waiting: Waiting) -> None:
        """Note what is left of a job that ran until now."""
        each = self._running.get(waiting.job.id)
        if each is not None:
            self.stops.left_s[waiting.job.id] = each.left_after(waiting.attained_gpu_s)

    def left_s(self, job_id: str) -> float | None:
        """Return what is left of a job that was stopped; None if that is not known."""
        return self.stops.left_s.get(job_id)

    # -- jobs that are resized -----------------------------------------------------------------------------

    def waiting_s(self, waiting: Waiting) -> float:
        """Return how long a waiting job still runs on one machine."""
        return self._policy.left_s(waiting)

    def remaining_s(self, running: Running) -> float:
        """Return how long a running job still runs on one machine, with as many workers as it asks for."""
        return self._running[running.job.id].left_after(attained_gpu_s(running, self.now_s))

    @contextmanager
    def trying_without(self, job_ids: Iterable[str]) -> Iterator[Placing]:
        """Place jobs as if some that run did not; what is tried out meanwhile is undone."""
        moved = [self._running[job_id] for job_id in job_ids]
        if self._links is not None:
            for each in moved:
                self._links.end(each.running.job.id)
        try:
            yield self.placing
        finally:
            if self._links is not None:
                for job_id in self._tried:
                    self._links.end(job_id)
                for each in moved:
                    self._links.start(each.running, each.end_s)
            self._tried.clear()

    def placed(self, waiting: Waiting, view: Snapshot, seconds: float) -> "Priced | None":
        """Return where a job would start now that then takes so long, beside what was promised to others."""
        job, wanted = waiting.job, self._policy.rules.constraints_of(waiting.job.id)
        end_s = view.now_s + restart_s(waiting) + self.types.most_s(job, seconds)
        kept = self.promises.kept_from(job.id, view.now_s, end_s)
        while (found := self.placing.best(job, view, seconds, kept, wanted)) is not None:
            found = found._replace(restart_s=restart_s(waiting))
            end_s = view.now_s + found.takes_s
            left = self.promises.kept_for_constrained(job.id, end_s)
            taken = {at: gpus for at, gpus in found.placement.counts.items() if gpus > left.get(at, gpus)}
            if not taken:
                break
            # It would be there for longer, at the cost of jobs that can start on no others.
            kept |= {machine: left[machine] for machine in taken}
        return found

    def placed_without(
        self, stopped: Iterable[Expected], job: Job, seconds: float, view: Snapshot, wanted: Constraints | None
    ) -> "Priced | None":
        """Return where a job would go if some that run were stopped."""
        ids = [each.running.job.id for each in stopped]
        with self.trying_without(ids) as placing:
            return placing.best(job, without_jobs(view, ids), seconds, constraints=wanted)

    def try_out(self, running: Running, end_s: float) -> None:
        """Let links carry a job that would run."""
        if self._links is not None:
            self._links.start(running, end_s)
        self._tried.append(running.job.id)

    def running_left_s(self, running: Running, now_s: float) -> float:
        """Return how long a running job still runs on one machine, with what is left of its restart."""
        each = self._running[running.job.id]
        if each.is_estimate(now_s):
            ran_s = now_s - running.started_s
            return self._policy.left_after(running.submitted, worked_s(running, now_s), ran_s)
        return (each.end_s - now_s) / each.slowdown

    def may_move(self, job_id: str, placement: Placement, end_s: float) -> bool:
        """Say whether a running job delays no promised start if it goes elsewhere, and ends at some time."""
        each = self._running[job_id]
        return self.promises.allow_move(each.running.placement, each.end_s, placement, end_s)

    # -- the queue ---------------------------------------------------------------------------------------

    def see(self, job: Job) -> None:
        """Learn from a job that was submitted."""
        self.tail.came(job)
        self.types.see(job)
        if self.sizes.see(job.gpus) and self._policy.holes:
            self.gpus.waste[:] = self.sizes.waste()

    def enqueue(self, waiting: Waiting) -> float:
        """Note a job that comes to the queue, and return what that is sorted by."""
        left_s = self._policy.left_s(waiting)
        key = queue_key(waiting.job, left_s, self._policy.patience)
        self.tail.enqueue(waiting.job, left_s, key)
        return key

    def _key(self, waiting: Waiting) -> float:
        return queue_key(waiting.job, self._policy.left_s(waiting), self._policy.patience)

    def forget_gone(self, queue: Sequence[Waiting]) -> None:
        """Forget jobs that were cancelled while they waited."""
        if max(len(self.better.since_s), len(self.tail), len(self.stops.left_s)) > 2 * len(queue) + DEPTH:
            there = {each.job.id for each in queue}
            self.stops.keep(there)
            self.better.keep(there)
            self.tail.keep(there)

    def to_try(self, view: Snapshot) -> Iterator[Waiting]:
        """Yield the jobs that might start: those that were promised to first, then others in order."""
        if len(self.promises):
            waiting_by_id = {each.job.id: each for each in view.waiting}
            for promise in self.promises.in_order():
                waiting = waiting_by_id.get(promise.job_id)
                if waiting is None:
                    self.withdraw(promise.job_id)
                    continue
                self.promises.set_eligible(promise, view.eligible(waiting.job))
                if promise.is_due(view.now_s) or self._has_room(promise, waiting.job, view):
                    yield waiting
        queue = self.in_reach(view.waiting, DEPTH)
        if self._lookahead is not None:
            queue = self._lookahead.in_best_order(queue, view, self._is_to_try)
        for waiting in late_first(queue, self._late(view), self._key):
            if self._is_to_try(waiting.job):
                yield waiting

    def _late(self, view: Snapshot) -> list[tuple[float, Waiting]]:
        """Return jobs that end in the tail if they wait longer, with the times by which they should start."""
        if self._came_before:
            for waiting in view.waiting:
                self.enqueue(waiting)
            self._came_before = False
        late = self.tail.overdue(view.now_s, self.placing.slowdown_alone)
        there = {each.job.id: each for each in view.waiting} if late else {}
        found = [(by_s, there[job_id]) for by_s, job_id in late if job_id in there]
        return [each for each in found if self._is_to_try(each[1].job)][:DEPTH]

    def _is_to_try(self, job: Job) -> bool:
        """Say whether a job might start now that was promised nothing."""
        if self.head is not None and (job.least_gpus or job.gpus) > self.gpus.total:
            return False  # it does not fit, and is not the first
        return not (job.id in self.promises or job.id in self._never or job.id in self.refused)

    def in_reach(self, queue: Sequence[Waiting], count: int) -> Sequence[Waiting]:
        """Return the first jobs of the queue, without those that could not start if nothing ran."""
        if not self._never:
            return queue[:count]
        return list(islice((each for each in queue if each.job.id not in self._never), count))

    def _required(self, job_id: str) -> Constraints | None:
        """Return the constraints of a job if they forbid it some placements."""
        constraints = self._policy.rules.constraints_of(job_id)
        return constraints if constraints is not None and constraints.required else None

    def _has_room(self, promise: PromisedStart, job: Job, view: Snapshot) -> bool:
        """Say whether a job might start before it was promised.

        One that waits for machines might where these have room; or if one of them no longer takes jobs. One that
        was stopped, and has not chosen any, goes on anywhere.
        """
        if job.id in self.stops.left_s and not promise.chosen:
            return job.gpus <= view.available(job).gpus
        if not promise.machines:
            there = self.gpus.total if promise.eligible == ALL else view.available(job).gpus
            return promise.gpus <= there
        room = promise.gpus <= int(self.gpus.free[list(promise.machines)].sum())
        return room or (view.up_machines != ALL and not all(map(view.is_up, promise.machines)))

    def latest_s(self) -> list[float]:
        """Return when jobs go on at the latest that were stopped, and until when others wait for better machines.

        Other promises are due when something ends.
        """
        stopped = [each.start_s for job_id in self.stops.left_s if (each := self.promises.by_job.get(job_id))]
        return [*stopped, *self.better.due_s.values()]

    def withdraw(self, job_id: str) -> None:
        """Forget what a job was promised, if anything."""
        if self.promises.withdraw(job_id):
            self.refused.clear()
            self.better.due_s.pop(job_id, None)
            self._no_longer_first(job_id)

    def _no_longer_first(self, job_id: str) -> None:
        self.head = None if self.head == job_id else self.head
        self.constrained_head = None if self.constrained_head == job_id else self.constrained_head

    def refuse(self, job: Job) -> None:
        """Note that a job need not be tried again before something ends."""
        self.refused.add(job.id)

    def promise_start(self, waiting: Waiting, view: Snapshot) -> None:
        """Promise the first job that does not fit a start; one whose start has passed, a later one.

        A job that lacks other resources than GPUs is promised nothing, since it is not known when they are free.
        """
        job = waiting.job
        if job.resources is not None and job.gpus <= view.available(job).gpus:
            self.withdraw(job.id)
            return
        constraints = self._required(job.id)
        if constraints is not None:
            self._promise_machines(waiting, view, constraints)
        elif self.head is None or job.id in self.promises:
            start_s = self.expected.earliest_s(job, view)
            if start_s == math.inf:
                usable = np.count_nonzero(self.gpus.releases_for(job, view) < math.inf)
                # Too few machines are up; or others were promised so much that it starts when it was promised.
                if usable < job.gpus or not self.promises.must_keep(job.id):
                    self.withdraw(job.id)
                return
            if self.head is None:
                self.head = job.id
            if not self.promises.must_keep_until(job.id, view.now_s, start_s):
                self.promises.make(PromisedStart(job.id, job.gpus, start_s, eligible=view.eligible(job)))

    def _promise_machines(self, waiting: Waiting, view: Snapshot, constraints: Constraints) -> None:
        """Promise machines to the first job that its constraints let wait."""
        job = waiting.job
        if self.constrained_head is not None and job.id not in self.promises:
            return
        alone = self.expected.first(job, view, constraints)
        if alone.start_s == math.inf:
            self.withdraw(job.id)
            self._never.add(job.id)
            return
        kept = self.promises.kept_from(job.id, view.now_s, math.inf)
        found, eligible = self.expected.first(job, view, constraints, list(kept)), view.eligible(job)
        own = self.promises.by_job.get(job.id)
        if own is None:
            end_s = found.start_s + self.stops.most_runs_s(waiting)
            if found.start_s == math.inf or not self.promises.allow(
                job.id, job.gpus, found.start_s, end_s, eligible
            ):
                return  # it might delay what others were promised, and is promised a start after those
        elif self.promises.must_keep_until(job.id, view.now_s, found.start_s) and all(
            map(view.is_up, own.machines)
        ):
            return
        elif found.start_s == math.inf:  # others were promised all of its machines
            if own.chosen:
                self.withdraw(job.id)
                return
            found = alone
        if self.constrained_head is None:
            self.constrained_head = job.id
        self.promises.make(PromisedStart(job.id, job.gpus, *found, constrained=True, eligible=eligible))

    def waits(self, job: Job, view: Snapshot, seconds: float, found: "Priced") -> bool:
        """Let a job wait for better machines, if that pays, which could start now."""
        if not self.better.wait(job, view, seconds, found):
            return False
        self._no_longer_first(job.id)  # one that was the first of the queue chose to wait longer
        self.refuse(job)
        return True

    def memory(self) -> WaitMemory:
        """Return what is known of waiting jobs, for explanations."""
        estimated_s = [each.end_s for each in self._running.values() if each.is_estimate(self.now_s)]
        return WaitMemory(
            self.cluster,
            tuple(self.promises.in_order()),
            self.better.since_s.copy(),
            self.better.due_s.copy(),
            frozenset(self.stops.left_s),
            self.head,
            self.constrained_head,
            min(estimated_s, default=math.inf),
        )

    def recall(self, memory: WaitMemory) -> None:
        """Go on from what was known of the waiting jobs of the same cluster."""
        for promise in sorted(memory.promises, key=lambda each: each.chosen):  # what was not chosen comes first
            self.promises.make(promise)
        self.better.since_s.update(memory.since_s)
        self.better.due_s.update(memory.due_s)
        self.head, self.constrained_head = memory.head, memory.constrained_head
