"""The event loop: replays jobs on a cluster under a policy.

`view_at` stops a replay at a given time, to inspect the cluster as it is then.

Logs have whole seconds, so that much happens at once. At equal times jobs end before machines change, and both
before jobs arrive; the policy is asked once all of that is in.
"""

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from cranny.core.engine import Engine
from cranny.core.feasibility import Feasibility, never_fits
from cranny.core.protocol import (
    Network,
    PhasedNetwork,
    PlacerPolicy,
    Policy,
    RecordingNetwork,
    SharedSlowdowns,
    Shifting,
    Slowdowns,
)
from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.core.traffic import isolated
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Cancelled, Event, Finished, MachineJoined, Submitted
from cranny.model.job import Job
from cranny.model.plan import Action, Aggregate, Move, Shift, Start, Stop
from cranny.model.validate import not_negative, seconds
from cranny.network.networks import Isolated, NetworkModel
from cranny.sim.admission import Admission, Gate
from cranny.sim.held_before import HeldBefore, placed_before
from cranny.sim.metrics import Metrics
from cranny.sim.progress import SharedProgress
from cranny.sim.record import ReplayLog, ReplayRecord, SimulatedJob, refuse_if_all_skipped

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
        held_before: HeldBefore | None = None,
        admission: Admission | None = None,
    ) -> None:
        if isinstance(network, PhasedNetwork) and isinstance(policy, Shifting):
            policy.expect_phases()
        self.state = ClusterState(cluster)
        self.engine = Engine(self.state, policy, period_s)
        self.metrics = Metrics(self.state)
        self.log = ReplayLog()
        self._network = Isolated(isolated) if network is None else network
        self._recording = network if isinstance(network, RecordingNetwork) else None
        self._checkpoint_s = not_negative(checkpoint_s, "checkpoint_s")
        events = [(seconds(at_s, "time of a machine event"), event) for at_s, event in machine_events]
        self._machine_events = sorted(events, key=lambda timed: timed[0], reverse=True)
        for machine in _not_there(self._machine_events):
            self.state.drain(machine)
        self._held_before = held_before or {}  # empty once the first jobs have arrived
        self._jobs: dict[str, SimulatedJob] = {}
        self._ends: list[tuple[float, int, SimulatedJob, int]] = []  # a heap
        self._shared = SharedProgress()  # of jobs that share the network, with their ends
        self._serial = 0
        self._tick_s = math.inf  # when the policy is asked next, if it has a period
        self._feasibility = Feasibility(cluster)
        self._placer = policy.placer if isinstance(policy, PlacerPolicy) else None
        self._gate = Gate(admission) if admission else None

    def run(
        self, jobs: Iterable[Job], progress: Callable[[int], None] | None = None, until_s: float = math.inf
    ) -> ReplayRecord:
        """Replay jobs in the order of their submission until all are done, or until a time."""
        last_s = 0.0
        for now_s, group in groupby(_reported(jobs, progress), key=attrgetter("submit_s")):
            arriving = list(group)
            if now_s < last_s:
                raise InputError(f"job {arriving[0].id!r} was submitted before the job that precedes it")
            if now_s > until_s:
                break
            last_s = now_s
            self._advance_to(now_s)
            self._take_instant(now_s, [job for job in arriving if self._admit(job)])
        self._advance_to(math.nextafter(until_s, math.inf))
        self._shared.remove_all()
        self.log.unfinished += self._jobs.values()
        record = self.log.record(self.metrics.samples)
        return record if self._recording is None else record._replace(**self._recording.recorded())

    def _advance_to(self, limit_s: float) -> None:
        """Process all that happens before `limit_s`."""
        while True:
            now_s = min(self._next_end_s(), self._tick_s)
            if self._machine_events:
                now_s = min(now_s, self._machine_events[-1][0])
            if self._gate is not None:
                now_s = min(now_s, self._gate.next_s)
            if now_s >= limit_s:
                return
            self._take_instant(now_s)

    def _take_instant(self, now_s: float, arrived: Sequence[Job] = ()) -> None:
        """Take all events of an instant in; then ask the policy, if it has a period only when that is due."""
        events: list[Event] = []
        while self._next_end_s() <= now_s:  # in the order in which that was predicted
            shared = not self._ends or now_s < self._ends[0][0]
            events.append(self._finish(self._shared.first if shared else heappop(self._ends)[2], now_s))
        while self._machine_events and self._machine_events[-1][0] <= now_s:
            events.append(self._machine_events.pop()[1])
        came = len(arrived)
        went_on = self._go_on(arrived, now_s) if self._held_before and arrived else ()
        waiting = [job for job in arrived if job.id not in went_on] if went_on else arrived
        if self._gate is not None:
            waiting = self._admitted(self._gate, waiting, now_s)
        happened = bool(events or waiting)
        if not events and len(waiting) == 1:  # as most instants are: no event need be made of it
            actions = self.engine.submit(_as_known(waiting[0]), now_s)
        else:
            events += [Submitted(_as_known(job)) for job in waiting]
            actions = self.engine.handle_all(events, now_s) if events else ()
        if actions:
            self._apply(actions, now_s)
        queue, asked = self.engine.queue, not self.engine.period_s
        if queue and waiting:
            self._skip_infeasible(waiting, now_s)
        if now_s >= self._tick_s:
            due, self._tick_s, asked = not happened or not asked, math.inf, True
            if due and (queue or self.state.running_jobs):
                self._ask(now_s)
            elif not happened and not came:  # all have ended since it was predicted
                return
        elif not happened and not came:  # only jobs arrived that are larger than the cluster
            return
        if queue and asked:
            self._skip_stuck(now_s)
        if self._tick_s == math.inf or not self.engine.period_s:  # a policy without a period may name other times
            self._tick_s = self.engine.next_tick_s(now_s)
        self.metrics.sample(now_s, came, len(queue))

    def _admitted(self, gate: Gate, arrived: Sequence[Job], now_s: float) -> list[Job]:
        """Return the jobs that join the queue: those that waited outside for that, then those that arrive."""
        joining = gate.due(now_s)
        for job in joining:
            # An attempt is submitted when the one before has ended.
            if job.submit_s != self._jobs[job.id].job.submit_s:
                self._jobs[job.id].job = job
        return [*joining, *(job for job in arrived if gate.arrive(job, now_s) is not None)]

    def _go_on(self, arrived: Sequence[Job], now_s: float) -> set[str]:
        """Let those of the first jobs that ran before go on where they were; return their ids."""
        held, self._held_before = self._held_before, {}
        placed = placed_before(self.state.cluster, held, arrived)
        for job in arrived:
            if job.id in placed:
                self.state.place(_as_known(job), placed[job.id], now_s)
                self._start(self._jobs[job.id], now_s)
                self._jobs[job.id].ran_before = True
                if self._gate is not None:
                    self._gate.go_on(job)
        return set(placed)

    def _ask(self, now_s: float) -> None:
        self._apply(self.engine.tick(now_s), now_s)

    def _next_end_s(self) -> float:
        """Return when the next job ends, as predicted now."""
        ends, shared_s = self._ends, self._shared.next_s
        while ends:
            end_s, _, simulated, serial = ends[0]
            if simulated.end_serial == serial:
                return end_s if end_s < shared_s else shared_s
            heappop(ends)  # it was stopped or moved, or its speed changed
        return shared_s

    def _admit(self, job: Job) -> bool:
        """Admit a job that arrives, unless it is larger than the cluster."""
        duration_s = job.duration_s
        if duration_s is None:
            raise InputError(f"job {job.id!r} has no duration to replay")
        too_large = self._feasibility.why_too_large(job)
        if too_large is not None:
            self.log.skipped.append((job, too_large))
            return False
        if job.id in self._jobs:
            raise InputError(f"job id {job.id!r} occurs twice")
        self._jobs[job.id] = SimulatedJob(job, duration_s)
        return True

    def _finish(self, simulated: SimulatedJob, now_s: float) -> Finished:
        job_id = simulated.job.id
        self._shared.remove(simulated)
        simulated.remaining_s = 0.0
        self._end_run(simulated, now_s)
        del self._jobs[job_id]
        simulated.finish_s = now_s
        self.log.done.append(simulated)
        self._leave(job_id, now_s)
        return Finished(job_id)

    def _apply(self, actions: Sequence[Action], now_s: float) -> None:
        """Apply in virtual time what the engine decided."""
        if len(actions) == 1 and isinstance(actions[0], Start):  # as most plans are
            self._start(self._jobs[actions[0].job.id], now_s)
            return
        for action in actions:
            if isinstance(action, Start):
                self._start(self._jobs[action.job.id], now_s)
            elif isinstance(action, Stop):
                self._stop(self._jobs[action.job_id], now_s, lost=action.sudden)
            elif isinstance(action, Move):
                simulated = self._jobs[action.job_id]
                self._stop(simulated, now_s, lost=False)
                self._start(simulated, now_s)
            elif isinstance(action, Aggregate) and action.job_id in self.state:  # it runs on, but sends otherwise
                self._shared.remove(self._jobs[action.job_id])
                self._set_speeds(self._network.end(action.job_id), now_s)
                self._set_speeds(self._network.start(self.state.find(action.job_id)), now_s)
        shifted = [action.job_id for action in actions if isinstance(action, Shift)]
        there = [
            self.state.find(job_id) for job_id in shifted if job_id in self.state
        ]  # a later plan may have stopped some
        if there:
            self._set_speeds(self._network.shift(there), now_s)

    def _start(self, simulated: SimulatedJob, now_s: float) -> None:
        running = self.state.find(simulated.job.id)
        simulated.start_s = simulated.since_s = now_s
        simulated.run_work_s = simulated.remaining_s
        if simulated.first_start_s is None:
            simulated.first_start_s = now_s
        simulated.held = running.held
        simulated.cross_bytes = running.communication.cross_bytes
        simulated.first_sample = self.metrics.samples_taken
        simulated.stretch = running.stretch
        self._set_speeds(self._network.start(running), now_s)
        again = simulated.ran_before or simulated.first_start_s < now_s
        if simulated.stopped_s == now_s:  # it did not wait: it was moved
            simulated.stops -= 1
            simulated.moves += again
        if running.submitted.restart_s and again:
            lost_s = running.submitted.restart_s  # while it holds its GPUs
            if not self._shared.delay(simulated, lost_s):
                simulated.remaining_s += lost_s / simulated.slowdown
                self._predict_end(simulated, simulated.since_s)

    def _set_speeds(self, slowdowns: Slowdowns, now_s: float) -> None:
        """Set the speeds of jobs from now on, and predict when they end."""
        if self._recording is not None:
            self._recording.note(now_s)
        if isinstance(slowdowns, SharedSlowdowns):
            self._shared.set(slowdowns, self._jobs, now_s)
            return
        for job_id, slowdown in slowdowns:
            simulated = self._jobs[job_id]
            _advance(simulated, now_s)
            simulated.slowdown = slowdown * simulated.stretch
            self._predict_end(simulated, now_s)

    def _predict_end(self, simulated: SimulatedJob, since_s: float) -> None:
        """Predict when a job ends that goes on from some time at its present speed."""
        simulated.end_serial += 1
        self._serial += 1
        end_s = since_s + simulated.remaining_s * simulated.slowdown
        heappush(self._ends, (end_s, self._serial, simulated, simulated.end_serial))

    def _stop(self, simulated: SimulatedJob, now_s: float, *, lost: bool) -> None:
        """End a run early. A failure loses what was done since the last checkpoint; a stop saves it first."""
        self._shared.remove(simulated)
        _advance(simulated, now_s)
        self._end_run(simulated, now_s)
        # More remains while it restarts, which must be repeated.
        simulated.remaining_s = min(simulated.remaining_s, simulated.run_work_s)
        if lost and self._checkpoint_s:
            done_s = simulated.run_work_s - simulated.remaining_s
            simulated.remaining_s += done_s % self._checkpoint_s
        simulated.end_serial += 1  # the end that was predicted no longer counts
        simulated.stops += 1
        simulated.stopped_s = math.nan if lost else now_s

    def _end_run(self, simulated: SimulatedJob, now_s: float) -> None:
        """Record the run of a job that ends or stops; others may speed up."""
        self._set_speeds(self._network.end(simulated.job.id), now_s)
        done_s = simulated.run_work_s - simulated.remaining_s
        if simulated.since_s > simulated.start_s and done_s > 0:  # its speed has changed: what it was on average
            simulated.slowdown = (now_s - simulated.start_s) / done_s
        work = simulated.run_work_s, simulated.slowdown
        samples = simulated.first_sample, self.metrics.samples_taken
        self.log.runs.append((simulated, simulated.start_s, now_s, simulated.held or {}, *work, *samples))

    def _skip_infeasible(self, arrived: Sequence[Job], now_s: float) -> None:
        """Skip waiting jobs that would not be placed on the empty cluster: they would block others for good."""
        placer = self._placer
        if placer is None:
            return
        queue = self.engine.queue
        waiting = [(job, self._feasibility.why_not(job, placer)) for job in arrived if queue.has(job.id)]
        infeasible = [(job, reason) for job, reason in waiting if reason is not None]
        for job, reason in infeasible:
            self._skip(job, reason, now_s)
        if infeasible and not self.engine.period_s:
            self._ask(now_s)

    def _skip_stuck(self, now_s: float) -> None:
        """Skip jobs at the head of the queue that do not start although nothing runs or will change."""
        queue = self.engine.queue
        while queue and not self.state.running_jobs and not self._machine_events:
            job = queue[0].job
            simulated, reason = self._jobs[job.id], self.engine.why_wait(job.id, now_s)
            if simulated.first_start_s is None and self.state.all_up:
                self._skip(job, never_fits(reason), now_s)
            else:  # it could continue only on machines that are gone for good
                simulated.reason = f"waits for machines that do not come back: {reason}"
                self.log.unfinished.append(self._jobs.pop(job.id))
                queue.take(job.id)
                self._leave(job.id, now_s)
            self._ask(now_s)

    def _skip(self, job: Job, reason: str, now_s: float) -> None:
        self.log.skipped.append((job, reason))
        del self._jobs[job.id]
        self.engine.queue.take(job.id)
        self._leave(job.id, now_s)

    def _leave(self, job_id: str, now_s: float) -> None:
        """Let jobs that a job holds back go on."""
        if self._gate is not None:
            self._gate.leave(job_id, now_s)


def _not_there(events: Sequence[tuple[float, Event]]) -> list[int]:
    """Return the machines that are not there at the beginning: what happens to them first is that they join.

    Events are the last first.
    """
    first: dict[int, Event] = {}
    for _, event in events:
        if not isinstance(event, Submitted | Finished | Cancelled):
            first[event.machine] = event
    return sorted(machine for machine, event in first.items() if isinstance(event, MachineJoined))


def _as_known(job: Job) -> Job:
    """Return a job as policies know it: what a scheduler would know."""
    return job if job.limit_s is None else job.as_known


def _advance(simulated: SimulatedJob, now_s: float) -> None:
    """Advance a job's progress until now."""
    if now_s > simulated.since_s:
        simulated.remaining_s -= min((now_s - simulated.since_s) / simulated.slowdown, simulated.remaining_s)
        simulated.since_s = now_s


def _reported(jobs: Iterable[Job], progress: Callable[[int], None] | None) -> Iterator[Job]:
    """Yield jobs, and report now and then how many came."""
    for count, job in enumerate(jobs):
        if progress is not None and not count % PROGRESS_EVERY:
            progress(count)
        yield job


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Pause Python's cyclic garbage collector: a replay makes millions of values and no cycles among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
    if not len(record.samples):
        return 0.0
    time_s, _, _, _, _, cross_bytes, _, _ = record.samples.T
    last = np.diff(time_s, append=np.inf) > 0  # of several samples at a time, the last counts
    return float(time_s[last][cross_bytes[last].argmax()])
