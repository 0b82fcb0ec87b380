"""Events in, commands out: what a simulator and a live service both drive.

The engine keeps the queue and the state and asks the policy. It reads no clock and carries nothing out: its caller
passes the time, and carries out the actions that it returns.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any

from cranny.core.accounting import Running, attained_gpu_s
from cranny.core.protocol import Policy, Resting, Timed
from cranny.core.queue import QueuePolicy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.errors import InputError
from cranny.model.event import (
    Cancelled,
    Event,
    Finished,
    MachineDrained,
    MachineFailed,
    MachineLeft,
    Submitted,
)
from cranny.model.job import Job
from cranny.model.plan import Action, Start, Stop
from cranny.model.validate import not_negative

LEAST_PERIOD_S = 1e-3


class Queue(list[Waiting]):
    """Waiting jobs, sorted by the policy's key and then by arrival; policies only read it."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._key = policy.key
        self._keys: list[tuple[Any, int]] = []  # of the entries, in step with them
        self._key_of: dict[str, tuple[Any, int]] = {}
        self._arrivals = 0

    def has(self, job_id: str) -> bool:
        """Say whether a job waits here."""
        return job_id in self._key_of

    def find(self, job_id: str) -> Waiting:
        """Return a waiting job."""
        if job_id not in self._key_of:
            raise InputError(f"job {job_id!r} is not waiting")
        return self[bisect_left(self._keys, self._key_of[job_id])]

    def replace(self, job: Job) -> None:
        """Give a waiting job another profile; it keeps its position."""
        at = bisect_left(self._keys, self._key_of[job.id])
        self[at] = self[at]._replace(job=job)

    def add(self, waiting: Waiting) -> None:
        """Insert a job at its position."""
        key = self._new_key(waiting)
        at = bisect_left(self._keys, key)
        self._keys.insert(at, key)
        self.insert(at, waiting)

    def fill(self, many: Iterable[Waiting]) -> None:
        """Insert many jobs at once, as if they came one after the other."""
        entries = list(zip(self._keys, self, strict=True))
        entries += [(self._new_key(waiting), waiting) for waiting in many]
        entries.sort(key=itemgetter(0))
        self._keys, self[:] = [key for key, _ in entries], [waiting for _, waiting in entries]

    def _new_key(self, waiting: Waiting) -> tuple[Any, int]:
        self._arrivals += 1
        key = self._key_of[waiting.job.id] = (self._key(waiting), self._arrivals)
        return key

    def take(self, job_id: str) -> Waiting:
        """Remove a job and return it."""
        at = bisect_left(self._keys, self._key_of.pop(job_id))
        del self._keys[at]
        return self.pop(at)


def period(value: object) -> float:
    """Return how often a policy is asked, or 0 if at every event."""
    period_s = not_negative(value, "period_s")
    if 0 < period_s < LEAST_PERIOD_S:
        raise InputError(f"period_s must be 0, or at least {LEAST_PERIOD_S:g}, not {value!r}")
    return period_s


class Engine:
    """The queue and the state of a cluster under one policy.

    The policy is asked at every event, and at times that it names itself (`Timed`); with a `period_s`, only at its
    multiples, whatever came in between.
    """

    def __init__(self, state: ClusterState, policy: Policy, period_s: float = 0.0) -> None:
        self.state = state
        self.policy = policy
        self.period_s = period(period_s)
        self.queue = Queue(policy)
        self._queued = policy if isinstance(policy, QueuePolicy) else None
        self._timed = policy if isinstance(policy, Timed) and not self.period_s else None
        self._resting = policy if isinstance(policy, Resting) and not self.period_s else None

    def handle(self, event: Event, now_s: float) -> Sequence[Action]:
        """Handle an event; return the actions to carry out, in order."""
        if isinstance(event, Submitted):
            return self.submit(event.job, now_s)
        if isinstance(event, Finished):
            return self.finish(event.job_id, now_s)
        return [*self._take_in(event, now_s), *self._after_event(now_s)]

    def handle_all(self, events: Sequence[Event], now_s: float) -> Sequence[Action]:
        """Handle the events of one instant: the policy is asked once, when all of them are in."""
        if len(events) == 1:
            return self.handle(events[0], now_s)
        actions = [action for event in events for action in self._take_in(event, now_s)]
        return [*actions, *self._after_event(now_s)]

    def _take_in(self, event: Event, now_s: float) -> Sequence[Action]:
        """Take an event in without asking the policy; return the stops that it brings with it."""
        if isinstance(event, Submitted):
            self._check_new(event.job)
            self.queue.add(Waiting(event.job))
        elif isinstance(event, Finished):
            self.state.release(event.job_id)
        elif isinstance(event, Cancelled):
            if not self.queue.has(event.job_id):
                self.state.release(event.job_id)
                return (Stop(event.job_id, "cancelled"),)
            self.queue.take(event.job_id)
        elif isinstance(event, MachineFailed | MachineLeft):
            if self._resting is not None and self._at_rest:
                self._resting.follow(
                    self.state.snapshot(now_s)
                )  # it must know of the jobs that return to the queue
            lost = self.state.fail(event.machine)
            for running in lost:
                self._requeue(running, now_s)
            what = "failed" if isinstance(event, MachineFailed) else "left the cluster"
            return [Stop(each.job.id, f"machine {event.machine} {what}", sudden=True) for each in lost]
        elif isinstance(event, MachineDrained):
            self.state.drain(event.machine)
        else:
            self.state.repair(event.machine)
        return ()

    def submit(self, job: Job, now_s: float) -> Sequence[Action]:
        """Handle the submission of a job."""
        self._check_new(job)
        at_once = self._queued or self._resting
        if at_once is not None and not self.queue and not self.period_s:
            # Whatever the order, a job that comes to an empty queue is the first: it is placed at once.
            placement = at_once.place_first(job, self.state.snapshot(now_s))
            if placement is not None:
                self.state.place(job, placement, now_s)
                return (Start(job, placement),)
        self.queue.add(Waiting(job))
        return self._after_event(now_s)

    def finish(self, job_id: str, now_s: float) -> Sequence[Action]:
        """Handle the end of a running job."""
        self.state.release(job_id)
        return () if not self.queue and self._at_rest else self._after_event(now_s)

    def next_tick_s(self, now_s: float) -> float:
        """Return when the policy is to be asked next, if nothing happens before: `tick` is to be called then."""
        resting = self._resting
        if resting is not None and not self.queue and resting.at_rest:
            return math.inf
        if self._timed is not None and self.state.running_jobs:
            return self._timed.next_s(self.state.snapshot(now_s, self.queue))
        if not self.period_s or not (self.queue or (self._queued is None and self.state.running_jobs)):
            return math.inf
        count = math.floor(now_s / self.period_s) + 1
        next_s = count * self.period_s
        return next_s if next_s > now_s else (count + 1) * self.period_s  # rounded, a multiple may be its own next

    @property
    def _at_rest(self) -> bool:
        """Whether the policy need not be asked before another job comes."""
        return self._resting is not None and self._resting.at_rest

    def why_wait(self, job_id: str, now_s: float) -> str:
        """Say why a job of the queue waits."""
        job = self.queue.find(job_id).job
        return self.policy.why_wait(job, self.state.snapshot(now_s, self.queue))

    def _check_new(self, job: Job) -> None:
        if job.id in self.state or (self.queue and self.queue.has(job.id)):
            raise InputError(f"job id {job.id!r} is already taken")

    def _after_event(self, now_s: float) -> Sequence[Action]:
        """Ask the policy now, unless it is asked periodically."""
        return () if self.period_s else self.tick(now_s)

    def tick(self, now_s: float) -> Sequence[Action]:
        """Ask the policy, as is due once in a period: commit plan after plan until it has nothing more to do."""
        actions: list[Action] = []
        # A placer has nothing to do when no job waits; a policy may move or shift running jobs all the same.
        while self.queue or self._queued is None:
            # The snapshot is not kept beyond the decision, or committing would have to copy the accounting.
            plan = self.policy.plan(self.state.snapshot(now_s, self.queue))
            if not plan.actions:
                break
            stopped = [self.state.find(a.job_id) for a in plan.actions if isinstance(a, Stop)]
            self.state.commit(plan, now_s)
            for running in stopped:
                self._requeue(running, now_s)
            for action in plan.actions:
                if isinstance(action, Start):
                    self.queue.take(action.job.id)
            actions = _joined(actions, plan.actions)
        return actions

    def _requeue(self, running: Running, now_s: float) -> None:
        """Return a stopped job to the queue, with the service that it attained."""
        self.queue.add(Waiting(running.submitted, attained_gpu_s(running, now_s)))


def _joined(earlier: list[Action], later: Sequence[Action]) -> list[Action]:
    """Join the actions of plans made at one time; a job that one starts and the next stops again never ran."""
    if not earlier:
        return [*later]
    stopped = {action.job_id for action in later if isinstance(action, Stop)}
    undone = {action.job.id for action in earlier if isinstance(action, Start)} & stopped
    if not undone:
        return [*earlier, *later]
    return [
        *(action for action in earlier if not (isinstance(action, Start) and action.job.id in undone)),
        *(action for action in later if not (isinstance(action, Stop) and action.job_id in undone)),
    ]
