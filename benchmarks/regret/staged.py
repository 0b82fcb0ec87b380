"""Schedules in stages, found with hindsight: how near a real one comes to what `shares_bound` says none is below.

In each *stage*, from one completion to the next, every job has workers on machines, or waits for its first start,
which costs nothing. A job whose workers change restarts. All jobs come at once. Shares change only when a job
completes, and simulated annealing finds good ones but proves nothing, so the best schedule may be better still.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.regret.shares_bound import LINEAR, SHARE
from benchmarks.regret.sharing import Sharing
from cranny.core.jit import compiled
from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.plan import Plan, Start
from cranny.policies._shared.heterogeneous.instance import placed
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, fairness
from cranny.policies._shared.resize import feasible_order
from cranny.sim.metrics import SECONDS_PER_HOUR

STEPS = 500_000
TRIES = 4
HOT, COLD = 0.05, 0.0003  # by how much worse a change is still taken, at the beginning and at the end
METRICS = (*LINEAR, "fairness")
ROWS = 4  # of what a replay keeps of each job: what is left of it, of its restart, its whole time, and its end
LEFT, RESTART, NEEDS, ENDS = range(ROWS)
OF_MEAN = 0.01  # of two schedules that are equally bad where they are worst, the one with the lower mean


class Stages(NamedTuple):
    """A schedule: workers in each stage, (stages, jobs, machines), and what comes of them."""

    workers: Ints
    ends_s: Floats  # (jobs,)
    machine_hours: float

    def metrics(self, shared: Sharing) -> dict[str, float]:
        """Return what is judged, less is better."""
        return {
            "machine_hours": self.machine_hours,
            "mean_jct_s": float(self.ends_s.mean()),
            "p99_jct_s": float(np.quantile(self.ends_s, SHARE)),
            "mean_slowdown": float((self.ends_s / shared.duration_s).mean()),
            "fairness": 1.0 / fairness(self.ends_s, shared.equal_s),
        }


def played(shared: Sharing, workers: Ints) -> Stages | None:
    """Return what comes of workers in each stage; None if no job runs in one, or a running job gets none."""
    jobs = np.zeros((ROWS, len(shared.duration_s)))
    used_s = _play(workers, shared.rate, shared.between_s, shared.restart_s, jobs)
    return Stages(workers, jobs[ENDS], used_s / SECONDS_PER_HOUR) if math.isfinite(used_s) else None


def least_worst(shared: Sharing, best: Mapping[str, float]) -> Stages:
    """Search for the schedule whose largest ratio to the best other policies is least."""
    over = np.array([best[metric] for metric in METRICS])
    shape = (len(shared.duration_s), *shared.rate.shape)
    found: list[tuple[float, Ints]] = []
    rng = np.random.default_rng(0)
    for _ in range(TRIES):
        schedules = np.zeros((3, *shape), dtype=np.int64)
        for place, job in enumerate(np.argsort(shared.duration_s).tolist()):  # one after the other, shortest first
            schedules[:, place, job] = shared.gpus
        value = _anneal(
            schedules, shared.rate, shared.between_s, shared.restart_s, shared.duration_s, shared.equal_s,
            shared.gpus, over, np.zeros((ROWS, shape[0])), rng, STEPS,
        )  # fmt: skip
        found.append((value, schedules[0]))
    made = played(shared, min(found, key=lambda each: each[0])[1])
    if made is None:
        raise ValueError("no schedule in stages was found")
    return made


@compiled
def _used(workers: Ints, ends_s: Floats) -> int:
    """Count the machines that jobs have which have not ended."""
    used = 0
    for machine in range(workers.shape[1]):
        for job in range(workers.shape[0]):
            if ends_s[job] == 0.0 and workers[job, machine] > 0:
                used += 1
                break
    return used


@compiled
def _play(workers: Ints, rate: Floats, between_s: Floats, restart_s: float, state: Floats) -> float:
    """Set when each job ends, and return for how many seconds machines are in use; inf if it cannot be done.

    `state` has a row of each kind that is named above, with a number for each job.
    """
    jobs, machines = rate.shape
    state[:] = 0.0
    state[LEFT] = 1.0
    now_s, used_s = 0.0, 0.0
    for stage in range(jobs):
        first, step_s = -1, np.inf
        for job in range(jobs):
            if state[ENDS, job] > 0.0:
                continue
            count, places, speed, same = 0, 0, 0.0, stage > 0
            for machine in range(machines):
                here = workers[stage, job, machine]
                count += here
                places += here > 0
                speed += here * rate[job, machine]
                same = same and here == workers[stage - 1, job, machine]
            started = state[NEEDS, job] > 0.0
            if count == 0:
                if started:
                    return np.inf
                continue
            if not same:
                state[RESTART, job] = restart_s if started else 0.0
            state[NEEDS, job] = 1.0 / speed + (between_s[job] * (count - 1) / count if places > 1 else 0.0)
            more_s = state[RESTART, job] + state[LEFT, job] * state[NEEDS, job]
            if more_s < step_s:
                first, step_s = job, more_s
        if first < 0:
            return np.inf
        now_s += step_s
        used_s += step_s * _used(workers[stage], state[ENDS])
        for job in range(jobs):
            if state[ENDS, job] == 0.0 and state[NEEDS, job] > 0.0:
                spent_s = min(state[RESTART, job], step_s)
                state[RESTART, job] -= spent_s
                state[LEFT, job] -= (step_s - spent_s) / state[NEEDS, job]
        state[ENDS, first] = now_s
    return used_s


@compiled
def _worst(used_s: float, ends_s: Floats, duration_s: Floats, equal_s: Floats, over: Floats) -> float:
    """Return the largest ratio to the best other policies, and a little of the mean; p99 of at most 101 jobs."""
    jobs = len(ends_s)
    last_s, before_s, total_s, slowdown, fair, fair_squares = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for job in range(jobs):
        end_s = ends_s[job]
        if end_s > last_s:
            last_s, before_s = end_s, last_s
        elif end_s > before_s:
            before_s = end_s
        total_s += end_s
        slowdown += end_s / duration_s[job]
        fair += end_s / equal_s[job]
        fair_squares += (end_s / equal_s[job]) ** 2
    of_last = SHARE * (jobs - 1) - (jobs - 2)
    hours = used_s / SECONDS_PER_HOUR / over[0]
    mean = total_s / jobs / over[1]
    late = (of_last * last_s + (1 - of_last) * before_s) / over[2]
    slow = slowdown / jobs / over[3]
    unfair = jobs * fair_squares / fair**2 / over[4]
    return float(max(hours, mean, late, slow, unfair) + OF_MEAN * (hours + mean + late + slow + unfair) / 5)


@compiled
def _copy(source: Ints, target: Ints) -> None:
    """Copy without making an array, which compiled code here cannot."""
    for stage in range(source.shape[0]):
        for job in range(source.shape[1]):
            for machine in range(source.shape[2]):
                target[stage, job, machine] = source[stage, job, machine]


@compiled
def _change(workers: Ints, gpus: Ints, rng: np.random.Generator) -> None:
    """Change something of a schedule at random."""
    jobs, machines = workers.shape[1:]
    stage, job, machine = int(jobs * rng.random()), int(jobs * rng.random()), int(machines * rng.random())
    kind = rng.random()
    if kind < 0.1 and stage > 0:  # as in the stage before
        _copy(workers[stage - 1 : stage], workers[stage : stage + 1])
    elif kind < 0.3 and stage > 0:  # that job as in the stage before, others what is left
        for at in range(machines):
            room = gpus[at] - workers[stage - 1, job, at]
            for other in range(jobs):
                if other != job:
                    workers[stage, other, at] = min(workers[stage, other, at], room)
                    room -= workers[stage, other, at]
            workers[stage, job, at] = workers[stage - 1, job, at]
    elif kind < 0.4:
        workers[stage, job] = 0
    elif kind < 0.5:
        workers[stage, :, machine] = 0
        workers[stage, job, machine] = gpus[machine]
    else:
        giver = int((jobs + 1) * rng.random())  # the last: GPUs that no job has
        if giver < jobs and workers[stage, giver, machine] > 0:
            workers[stage, giver, machine] -= 1
        held = 0
        for other in range(jobs):
            held += workers[stage, other, machine]
        if held < gpus[machine] and rng.random() < 0.8:
            workers[stage, job, machine] += 1


@compiled
def _anneal(
    schedules: Ints, rate: Floats, between_s: Floats, restart_s: float, duration_s: Floats, equal_s: Floats,
    gpus: Ints, over: Floats, state: Floats, rng: np.random.Generator, steps: int,
) -> float:  # fmt: skip
    """Search by small changes; of `schedules`, (3, stages, jobs, machines), the first is the best in the end."""
    best, present, trial = schedules[0], schedules[1], schedules[2]
    value = _worst(_play(present, rate, between_s, restart_s, state), state[ENDS], duration_s, equal_s, over)
    least = value
    for step in range(steps):
        heat = HOT * (COLD / HOT) ** (step / steps)
        _copy(present, trial)
        for _ in range(1 + int(3 * rng.random())):
            _change(trial, gpus, rng)
        used_s = _play(trial, rate, between_s, restart_s, state)
        if used_s == np.inf:
            continue
        after = _worst(used_s, state[ENDS], duration_s, equal_s, over)
        if after < value or rng.random() < math.exp((value - after) / heat):
            value = after
            _copy(trial, present)
            if value < least:
                least = value
                _copy(trial, best)
    return least


class FollowsStages(BySubmission):
    """A policy that follows a schedule, to replay it."""

    def __init__(self, names: Sequence[str], workers: Ints) -> None:
        self._names, self._workers = tuple(names), workers

    def plan(self, view: Snapshot) -> Plan:
        """Give every job its workers of this stage."""
        stage = len(self._names) - len(view.running) - len(view.waiting)  # all jobs come at once
        wanted = dict(zip(self._names, self._workers[stage], strict=True)) if stage < len(self._names) else {}
        moves = {
            job_id: placed(view, each.submitted, wanted[job_id], "a stage")
            for job_id, each in view.running.items()
            if {at: int(count) for at, count in enumerate(wanted[job_id]) if count} != dict(each.placement.counts)
        }
        starts = [
            Start(each.job, placed(view, each.job, wanted[each.job.id], "a stage"))
            for each in view.waiting
            if wanted[each.job.id].any()
        ]
        return Plan(view.version, feasible_order(view, moves, starts))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002 - the same for all
        """Say that the schedule has it so."""
        return "waits as the schedule says"
