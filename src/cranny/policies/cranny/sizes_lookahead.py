"""Looking ahead on GPUs of several types: what becomes of all jobs if one starts or grows in other ways.

The workers that are worth most to one job (`worker_sets`) may leave another alone in the end, with most GPUs idle.
So for each set of workers that the first of the queue could have, or once none waits each running job, it is
played out what becomes of all jobs: they start in order of the queue, and grow once none waits, as
`shortest_first` has it. The set is chosen with which

    3 x machine-hours + 2 x longest completion time + (mean time until jobs end + mean slowdown) / 2

is least, each over that of what `shortest_first` would do: what is used up counts as often as what comes of it,
and the tail more than the mean. Another way to grow is tried, too: each free GPU goes to the job that would end
last.

What is played out knows of no later jobs, and of no restarts that are under way. So nothing is, if more than one
job is expected to come meanwhile.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import nsmallest
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.arrays import Ints
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Start
from cranny.policies._shared.heterogeneous.instance import max_gpus, placed
from cranny.policies._shared.resize import all_jobs
from cranny.policies.cranny.restarts import ROUNDING, least_gain_s
from cranny.policies.cranny.worker_sets import WorkerSets

MOST = 8  # waiting jobs, or running ones: where there are more, nothing is played out
GPUS = 64  # of the cluster at most: what is played out takes a time that grows with them
TRIED = 6  # sets of workers with which the first of the queue starts, those that cost least
TRIED_EACH = 3  # with which a running job grows
EXPECTED = 1.0  # jobs that may be expected to come meanwhile
LEAST_GAIN = 0.005  # of the sum above, which is 6 for what `shortest_first` would do
MACHINE_HOURS, LONGEST, MEANS = 3.0, 2.0, 0.5


class Run(NamedTuple):
    """A job that runs while it is played out what becomes of it."""

    job: Job
    workers: Ints  # (machines,)
    left_s: float  # with the GPUs that it asks for, of the type that it was measured on
    restart_s: float = 0.0  # of its restart
    ran: bool = False  # before now: a job that just started moves at no cost


class Outcome(NamedTuple):
    """What becomes of all jobs."""

    machine_s: float  # GPUs of machines in use x seconds
    longest_s: float  # completion time
    ends_s: float  # from now on, of all jobs
    slowdowns: float  # of all jobs, for what they have left

    def over(self, other: "Outcome") -> float:
        """Return how it compares with another one; less is better."""
        return (
            MACHINE_HOURS * self.machine_s / other.machine_s
            + LONGEST * self.longest_s / other.longest_s
            + MEANS * self.ends_s / other.ends_s
            + MEANS * self.slowdowns / other.slowdowns
        )


class Arrivals:
    """How many jobs came since the first ones."""

    def __init__(self) -> None:
        self._first_s = np.inf
        self._last_s = -np.inf
        self._later = 0

    def see(self, view: Snapshot) -> None:
        """Count the jobs that came since the last view."""
        submitted_s = [job.submit_s for job in all_jobs(view)]
        if submitted_s:
            self._first_s = min(self._first_s, *submitted_s)
            self._later += sum(self._last_s < at_s > self._first_s for at_s in submitted_s)
            self._last_s = max(self._last_s, *submitted_s)

    def expected(self, seconds: float, now_s: float) -> float:
        """Return how many jobs are expected to come from now on."""
        return self._later * seconds / max(now_s - self._first_s, ROUNDING)


class SizesLookahead:
    """Plays out what becomes of the jobs in a view with the workers that they could have."""

    def __init__(self, view: Snapshot, sets: WorkerSets) -> None:
        self._view = view
        self._sets = sets

    def better(self, queue: Sequence[Waiting], arrivals: Arrivals) -> tuple[Action, ...]:
        """Return how the first of the queue starts, or running jobs grow, better than in the usual way, if so."""
        view, sets = self._view, self._sets
        if not self._is_small(len(queue), len(view.running)):
            return ()
        waiting = [each.job for each in queue]
        running = {
            job_id: Run(job, sets.held(each), sets.left_s(job), ran=each.started_s < view.now_s)
            for job_id, each in view.running.items()
            for job in [each.submitted]
        }
        free = np.minimum(view.free, sets.up)
        usual = self.played_out(waiting, running, free)
        if arrivals.expected(usual.longest_s, view.now_s) > EXPECTED:
            return ()
        best, least = dict[str, Run](), usual.over(usual) - LEAST_GAIN
        for changed in self._starts(waiting[0], free) if waiting else self._growths(running, free):
            trial = {**running, **changed}
            left = free - sum((each.workers - _held(running, job_id) for job_id, each in changed.items()))
            sum_over = self.played_out(waiting[1:], trial, left).over(usual)
            if sum_over < least:
                best, least = changed, sum_over
        note = "best for all jobs that are there, as played out"
        placements = {each.job.id: placed(view, each.job, each.workers, note) for each in best.values()}
        if waiting:
            first = queue[0]
            return tuple(Start(first.job, found, first.attained_gpu_s) for found in placements.values())
        return tuple(Move(job_id, found) for job_id, found in placements.items())

    def _is_small(self, waiting: int, running: int) -> bool:
        """Say whether there are so few jobs and GPUs that what becomes of them is soon played out."""
        return max(waiting, running) <= MOST and waiting + running > 1 and int(self._sets.size.sum()) <= GPUS

    def _starts(self, job: Job, free: Ints) -> Iterator[dict[str, Run]]:
        """Yield the ways in which the first of the queue could start."""
        for workers, _ in nsmallest(TRIED, self._sets.sets(job, free), key=attrgetter("cost")):
            yield {job.id: Run(job, workers, self._sets.left_s(job))}

    def _growths(self, running: dict[str, Run], free: Ints) -> Iterator[dict[str, Run]]:
        """Yield the ways in which running jobs could grow that gain more than their restarts."""
        there = {job_id: each for job_id, each in running.items() if self._may_grow(each, free)}
        for job_id, run in there.items():
            sets = self._sets.sets(run.job, free + run.workers)
            gaining = (each for each in sets if self._gains(run, each.workers))
            for workers, _ in nsmallest(TRIED_EACH, gaining, key=attrgetter("cost")):
                yield {job_id: _on(run, workers)}
        shared = self._last_first(there, free)
        changed = {
            job_id: _on(there[job_id], workers)
            for job_id, workers in shared.items()
            if self._gains(there[job_id], workers)
        }
        if len(changed) > 1:
            yield changed

    def _last_first(self, running: dict[str, Run], free: Ints) -> dict[str, Ints]:
        """Return the workers of jobs if each free GPU goes to the one that would end last and can use it."""
        workers = {job_id: run.workers.copy() for job_id, run in running.items()}
        end_s = {job_id: self._end_s(run) for job_id, run in running.items()}
        free = free.copy()
        while end_s:
            last = max(end_s, key=end_s.__getitem__)
            run, own = running[last], workers[last]
            machine = self._sets.fastest(run.job, free, own) if own.sum() < max_gpus(run.job) else None
            if machine is None:
                del end_s[last]
                continue
            own[machine] += 1
            free[machine] -= 1
            end_s[last] = self._end_s(_on(run, own))
        return workers

    def _gains(self, run: Run, workers: Ints) -> bool:
        """Say whether a running job gains more than its restarts with other workers."""
        stretch = self._sets.stretch(run.job, workers)
        return self._is_enough(run, run.left_s * (self._sets.stretch(run.job, run.workers) - stretch))

    @staticmethod
    def _is_enough(run: Run, gained_s: float) -> bool:
        return gained_s > least_gain_s(run.job, run.left_s)

    def _end_s(self, run: Run) -> float:
        return run.restart_s + run.left_s * self._sets.stretch(run.job, run.workers)

    def played_out(self, queue: Sequence[Job], running: dict[str, Run], free: Ints) -> Outcome:
        """Let waiting jobs start in order, and running ones grow once none waits, until all have ended."""
        sets, waiting, running = self._sets, deque(queue), dict(running)
        length_s = {run.job.id: run.left_s for run in running.values()}
        length_s |= {job.id: sets.left_s(job) for job in waiting}
        now_s = machine_s = longest_s = ends_s = slowdowns = 0.0
        while True:
            while waiting and sets.has_room(waiting[0], free):
                job = waiting.popleft()
                workers = sets.worth_having_beside(job, waiting[0] if waiting else None, free)
                running[job.id] = Run(job, workers, length_s[job.id])
                free = free - workers
            if not waiting:
                free = self._grow(running, free)
            if not running:
                return Outcome(machine_s, longest_s, ends_s, slowdowns)
            step_s = min(map(self._end_s, running.values()))
            used = np.logical_or.reduce([run.workers > 0 for run in running.values()])
            machine_s += step_s * float(sets.size[used].sum())
            now_s += step_s
            for run in self._advance(running, step_s):
                ends_s += now_s
                slowdowns += now_s / max(length_s[run.job.id], ROUNDING)
                longest_s = max(longest_s, self._view.now_s + now_s - run.job.submit_s)
                free = np.minimum(free + run.workers, sets.up)

    def _advance(self, running: dict[str, Run], step_s: float) -> list[Run]:
        """Let time pass until the first job ends; take out, and return, those that end."""
        ended = []
        for job_id, run in list(running.items()):
            if self._end_s(run) <= step_s * (1.0 + ROUNDING):
                ended.append(running.pop(job_id))
                continue
            restarts_s = min(run.restart_s, step_s)
            done_s = (step_s - restarts_s) / self._sets.stretch(run.job, run.workers)
            running[job_id] = Run(run.job, run.workers, run.left_s - done_s, run.restart_s - restarts_s, ran=True)
        return ended

    def _grow(self, running: dict[str, Run], free: Ints) -> Ints:
        """Let running jobs grow as `shortest_first` does; return the GPUs that are left free."""
        while (grown := next(self._growing(running, free), None)) is not None:
            free = free + running[grown.job.id].workers - grown.workers
            running[grown.job.id] = grown
        return free

    def _growing(self, running: dict[str, Run], free: Ints) -> Iterator[Run]:
        for run in running.values():
            if self._may_grow(run, free):
                workers = self._sets.worth_having(run.job, free + run.workers)
                if self._gains(run, workers):
                    yield _on(run, workers)

    def _may_grow(self, run: Run, free: Ints) -> bool:
        """Say whether a job would gain if it communicated in no time; none leaves a drained machine."""
        usable = self._sets.usable(run.job, free)
        if not usable.any() or (run.workers > self._sets.up).any():
            return False
        stretch = self._sets.stretch_at_best(run.job, usable + run.workers)
        return self._is_enough(run, run.left_s * (self._sets.stretch(run.job, run.workers) - stretch))


def _held(running: dict[str, Run], job_id: str) -> Ints | int:
    """Return the workers that a job has before it starts or grows."""
    return running[job_id].workers if job_id in running else 0


def _on(run: Run, workers: Ints) -> Run:
    """Return a running job on other workers, for which it restarts."""
    return run._replace(workers=workers, restart_s=run.job.restart_s if run.ran else 0.0)
