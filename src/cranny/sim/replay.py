"""Replay jobs on a cluster under a policy: the event loop.

At equal times, jobs end before machines change, and both before jobs arrive, so that an arriving job finds all
that has come free. A policy that is asked periodically is asked last.
"""

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush

from cranny.core.engine import Engine
from cranny.core.feasibility import Feasibility, never_fits
from cranny.core.protocol import Network, PlacerPolicy, Policy, RecordingNetwork, Slowdowns
from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Cancelled, Event
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Shift, Start, Stop
from cranny.model.validate import not_negative, seconds
from cranny.network.isolated import Alone, Shared
from cranny.sim.job_log import Log, Work
from cranny.sim.metrics import Metrics
from cranny.sim.progress import Pace
from cranny.sim.record import Record

PROGRESS_EVERY = 2048


class Replay:
    """One simulation in progress."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        network: Network | None = None,
        machine_events: Iterable[tuple[float, Event]] = (),
        checkpoint_s: float = 1800.0,
        period_s: float = 0.0,
    ) -> None:
        self.state = ClusterState(cluster)
        self.engine = Engine(self.state, policy, period_s)
        self.metrics = Metrics(self.state)
        self.log = Log()
        self._network = Alone(isolated) if network is None else network
        self._recording = network if isinstance(network, RecordingNetwork) else None
        self._checkpoint_s = not_negative(checkpoint_s, "checkpoint_s")
        events = [(seconds(at_s, "time of a machine event"), event) for at_s, event in machine_events]
        self._machine_events = sorted(events, key=lambda timed: timed[0], reverse=True)
        self._work: dict[str, Work] = {}
        self._ends: list[tuple[float, int, Work, int]] = []  # a heap
        self._pace = Pace()  # of jobs that share the network; their ends are there
        self._serial = 0
        self._tick_s = math.inf  # when the policy is asked next, if it has a period
        self._possible = Feasibility(cluster)

    def run(
        self, jobs: Iterable[Job], progress: Callable[[int], None] | None = None, until_s: float = math.inf
    ) -> Record:
        """Replay jobs in the order of their submission until all are done, or until a time."""
        last_s = 0.0
        for count, job in enumerate(jobs):
            now_s = job.submit_s
            if now_s < last_s:
                raise InputError(f"job {job.id!r} was submitted before the job that precedes it")
            if now_s > until_s:
                break
            last_s = now_s
            self._until(now_s)
            self._arrive(job, now_s)
            if progress is not None and not count % PROGRESS_EVERY:
                progress(count)
        self._until(until_s)
        self._pace.leave_all()
        self.log.unfinished += self._work.values()
        record = self.log.record(self.metrics.noted)
        return record if self._recording is None else record._replace(**self._recording.recorded())

    def _until(self, limit_s: float) -> None:
        """Let everything happen that happens up to `limit_s`."""
        ends, faults = self._ends, self._machine_events
        while True:
            fault_s = faults[-1][0] if faults else math.inf
            tick_s = self._tick_s
            now_s = self._next_end_s()
            if now_s <= limit_s and now_s <= fault_s and now_s <= tick_s and now_s < math.inf:
                shared = not ends or now_s < ends[0][0]
                self._finish(self._pace.first if shared else heappop(ends)[2], now_s)
            elif faults and fault_s <= limit_s and fault_s <= tick_s:
                now_s, event = faults.pop()
                self._carry_out(self.engine.handle(event, now_s), now_s)
            elif tick_s < limit_s:
                now_s, self._tick_s = tick_s, math.inf
                if not self.engine.queue and not self.state.running_jobs:  # all ended since it was foreseen
                    continue
                self._carry_out(self.engine.tick(now_s), now_s)
            else:
                return
            queue = self.engine.queue
            if queue and not self.state.running_jobs and (not self.engine.period_s or now_s == tick_s):
                self._drop_impossible(now_s)
            self._foresee_tick(now_s)
            self.metrics.note(now_s, 0, len(queue))

    def _next_end_s(self) -> float:
        """Return when the next job ends, as foreseen now."""
        ends = self._ends
        while ends and ends[0][2].due != ends[0][3]:  # it was stopped or moved, or goes at another speed
            heappop(ends)
        return min(ends[0][0], self._pace.next_s) if ends else self._pace.next_s

    def _foresee_tick(self, now_s: float) -> None:
        """Note when the policy is to be asked next, unless that is known."""
        if self._tick_s == math.inf:
            self._tick_s = self.engine.next_tick_s(now_s)

    def _arrive(self, job: Job, now_s: float) -> None:
        duration_s = job.duration_s
        if duration_s is None:
            raise InputError(f"job {job.id!r} has no duration to replay")
        too_large = self._possible.why_too_large(job)
        if too_large is not None:
            self.log.skipped.append((job, too_large))
            return
        if job.id in self._work:
            raise InputError(f"job id {job.id!r} occurs twice")
        self._work[job.id] = Work(job, duration_s)
        actions = self.engine.submit(job, now_s)
        if actions:
            self._carry_out(actions, now_s)
        queue = self.engine.queue
        if queue:
            if queue.has(job.id):
                self._refuse_impossible(job, now_s)
            if not self.state.running_jobs and not self.engine.period_s:
                self._drop_impossible(now_s)
        self._foresee_tick(now_s)
        self.metrics.note(now_s, 1, len(queue))

    def _finish(self, work: Work, now_s: float) -> None:
        job_id = work.job.id
        self._pace.leave(work)
        work.left_s = 0.0
        self._end_stretch(work, now_s)
        del self._work[job_id]
        work.finish_s = now_s
        self.log.done.append(work)
        actions = self.engine.finish(job_id, now_s)
        if actions:
            self._carry_out(actions, now_s)

    def _carry_out(self, actions: Sequence[Action], now_s: float) -> None:
        """Do in virtual time what the engine decided."""
        for action in actions:
            if isinstance(action, Start):
                self._start(self._work[action.job.id], now_s)
            elif isinstance(action, Stop):
                self._stop(self._work[action.job_id], now_s, lost=action.sudden)
            elif isinstance(action, Move):
                work = self._work[action.job_id]
                self._stop(work, now_s, lost=False)
                self._start(work, now_s)
            elif isinstance(action, Shift) and action.job_id in self.state:  # a later plan may have stopped it
                self._set_speeds(self._network.shift(self.state.find(action.job_id)), now_s)

    def _start(self, work: Work, now_s: float) -> None:
        running = self.state.find(work.job.id)
        work.start_s = work.since_s = now_s
        work.todo_s = work.left_s
        if work.first_start_s is None:
            work.first_start_s = now_s
        work.held = running.held
        work.cross_bytes = running.communication.cross_bytes
        work.first_note = self.metrics.notes
        work.stretch = running.stretch
        self._set_speeds(self._network.start(running), now_s)
        if work.stopped_s == now_s:  # nobody made it wait: it was moved
            work.stops -= 1
            work.moves += work.first_start_s < now_s
        if running.submitted.restart_s and work.first_start_s < now_s:
            self._hold_up(work, running.submitted.restart_s)

    def _hold_up(self, work: Work, lost_s: float) -> None:
        """Let a job that goes on elsewhere begin a little later, while it holds its GPUs."""
        if self._pace.hold_up(work, lost_s):
            return
        work.left_s += lost_s / work.slowdown
        work.due += 1
        self._serial += 1
        heappush(self._ends, (work.since_s + work.left_s * work.slowdown, self._serial, work, work.due))

    def _set_speeds(self, slowdowns: Slowdowns, now_s: float) -> None:
        """Let jobs go on at another speed from now on, and foresee when they end."""
        if self._recording is not None:
            self._recording.note(now_s)
        if isinstance(slowdowns, Shared):
            self._pace.set(slowdowns, self._work, now_s)
            return
        for job_id, slowdown in slowdowns:
            work = self._work[job_id]
            _work_on(work, now_s)
            work.slowdown = slowdown * work.stretch
            work.due += 1
            self._serial += 1
            heappush(self._ends, (now_s + work.left_s * work.slowdown, self._serial, work, work.due))

    def _stop(self, work: Work, now_s: float, *, lost: bool) -> None:
        """End a run early. A failure loses what was done since the last checkpoint; a stop saves it first."""
        self._pace.leave(work)
        _work_on(work, now_s)
        self._end_stretch(work, now_s)
        work.left_s = min(work.left_s, work.todo_s)  # more while it restarts, which it must do again
        if lost and self._checkpoint_s:
            done_s = work.todo_s - work.left_s
            work.left_s += done_s % self._checkpoint_s
        work.due += 1  # the end that was foreseen no longer counts
        work.stops += 1
        work.stopped_s = math.nan if lost else now_s

    def _end_stretch(self, work: Work, now_s: float) -> None:
        """Write down a stretch of running; others may go faster now."""
        self._set_speeds(self._network.end(work.job.id), now_s)
        done_s = work.todo_s - work.left_s
        if work.since_s > work.start_s and done_s > 0:  # its speed has changed: what it was on average
            work.slowdown = (now_s - work.start_s) / done_s
        stretch = (
            work,
            work.start_s,
            now_s,
            work.held or {},
            work.todo_s,
            work.slowdown,
            work.first_note,
            self.metrics.notes,
        )
        self.log.runs.append(stretch)

    def _refuse_impossible(self, job: Job, now_s: float) -> None:
        """Skip a job that would not be placed on the empty cluster: it would block the others for good."""
        policy = self.engine.policy
        reason = self._possible.why_not(job, policy.placer) if isinstance(policy, PlacerPolicy) else None
        if reason is not None:
            self._skip(job, reason, now_s)

    def _drop_impossible(self, now_s: float) -> None:
        """Skip jobs at the head of the queue that do not start although nothing runs or will change."""
        queue = self.engine.queue
        while queue and not self.state.running_jobs and not self._machine_events:
            job = queue[0].job
            work, reason = self._work[job.id], self.engine.why_wait(job.id, now_s)
            if work.first_start_s is None and self.state.all_up:
                self._skip(job, never_fits(reason), now_s)
            else:  # with the machines that are gone for good it could go on
                work.reason = f"waits for machines that do not come back: {reason}"
                self.log.unfinished.append(self._work.pop(job.id))
                self._carry_out(self.engine.handle(Cancelled(job.id), now_s), now_s)

    def _skip(self, job: Job, reason: str, now_s: float) -> None:
        self.log.skipped.append((job, reason))
        del self._work[job.id]
        self._carry_out(self.engine.handle(Cancelled(job.id), now_s), now_s)


def _work_on(work: Work, now_s: float) -> None:
    """Let a job do what it does until now."""
    if now_s > work.since_s:
        work.left_s -= min((now_s - work.since_s) / work.slowdown, work.left_s)
        work.since_s = now_s


@contextmanager
def no_collector() -> Iterator[None]:
    """Hold off Python's search for cycles: a replay makes millions of values and no cycles among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
