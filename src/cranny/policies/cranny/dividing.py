"""Jobs that can be resized: whether GPUs are divided among them at all, and which machines their workers get.

Where all GPUs are alike, jobs have the workers that are worth having in order of the queue (`sizes_in_order`), on
the machines where they cost least; where some job has a deadline or cannot use all GPUs, as many as `has-resets`
says. On GPUs of several types jobs that can all be resized run one after the other (`shortest_first`), and where
some cannot, `has-resets` decides.

All of these count what a restart costs, but not that jobs which come later change sizes again. So GPUs are divided
only if restarts are short for the jobs that come; otherwise jobs have the workers that they ask for, or fewer from
the start if they end well before they would else.

Measured: where restarts take 0.09 of the length of jobs (HAS's four, 600 s each) jobs complete in 0.65 of the time
that they take undivided; where they take 0.4 of it (CASSINI's dynamic trace, 60 s each), in 1.16 times as long.
One after the other (ten tuned seeds each), HAS's jobs complete in 0.92 of the time of `has-resets` with restarts
of 60 s, in 0.67 with 600 s, and in 0.84 if they come in a stream, with 1.03, 1.00 and 1.04 of the machine-hours of
the policy that needs the fewest.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from cranny.core.protocol import Policy, lacks_gpus
from cranny.core.snapshot import ALL, Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start, Stop
from cranny.policies import policy
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus
from cranny.policies._shared.resize import elastic, feasible_order, without_jobs
from cranny.policies.cranny.preemption import SHORT_RESTART
from cranny.policies.cranny.shortest_first import ShortestFirst, goes_on
from cranny.policies.cranny.sizes_in_order import Resizable, sizes_in_order

if TYPE_CHECKING:
    from cranny.policies.cranny.followed import Followed
    from cranny.policies.cranny.placing import Placing


# If restarts take up to this share of the length of jobs, jobs in turn leave GPUs to the next that suit it better.
# Measured at 0.009 (HAS's four, 60 s each), where that needs 0.92 of the machine-hours, and at 0.09 (600 s), where
# jobs complete in 1.22 of the time.
SHARING_RESTART = 0.03


class SuitedSizes(NamedTuple):
    """How many workers suit a job."""

    wanted: int  # where others wait
    most: int  # where none does


class GpuDivision:
    """Divides GPUs among all jobs as long as some can be resized, if that pays."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._shortest_first = ShortestFirst(patience)
        self._shares = cast("Policy", policy("has-resets"))
        self._suited: dict[str, SuitedSizes] = {}  # of jobs that run or wait
        self._restart_s = self._length_s = 0.0  # of all jobs that came and can be resized

    def see(self, job: Job, length_s: float) -> None:
        """Learn from a job that was submitted and can be resized."""
        self._restart_s += job.restart_s
        self._length_s += length_s

    def wanted(self, view: Snapshot) -> bool:
        """Say whether GPUs are divided now."""
        if self._restart_s > SHORT_RESTART * self._length_s:
            return False
        waiting = any(elastic(each.job) for each in view.waiting)
        return waiting or any(elastic(each.submitted) for each in view.running.values())

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say in a few words why a job must wait."""
        if in_turn(view) or (len(view.cluster.machines_with) == 1 and _all_alike(view)):
            return lacks_gpus(job, view) or "behind jobs that come before it in the queue"
        return self._shares.why_wait(job, view)

    def plan(self, view: Snapshot, at: "Followed") -> Plan:
        """Divide GPUs, on the machines that cost least if all are of one type."""
        if in_turn(view):
            sharing = self._restart_s <= SHARING_RESTART * self._length_s
            return self._shortest_first.plan(view, sharing=sharing)
        if len(view.cluster.machines_with) > 1:
            return self._shares.plan(view)
        jobs = self._resizable(view, at)
        if _all_alike(view):
            gpus = int(view.free.sum()) + sum(each.held for each in jobs)
            plan, sizes = None, sizes_in_order(jobs, gpus, self._patience, view.now_s)
        else:
            plan = self._shares.plan(view)
            sizes = {each.job.id: each.held for each in jobs} | _sizes(plan)
        found = _placed(jobs, sizes, view, at)
        return found or plan or self._shares.plan(view)

    def _resizable(self, view: Snapshot, at: "Followed") -> list[Resizable]:
        """Return all jobs with what they have left and the sizes that suit them."""
        present = {each.job.id: each.job for each in view.waiting}
        present |= {job_id: each.submitted for job_id, each in view.running.items()}
        known, self._suited = self._suited, {}
        for job_id, job in present.items():
            self._suited[job_id] = known.get(job_id) or suited_sizes(job, view, at.placing)
        left_s = {each.job.id: at.waiting_s(each) for each in view.waiting}
        left_s |= {job_id: at.remaining_s(each) for job_id, each in view.running.items()}
        held = {job_id: len(each.placement.machines) for job_id, each in view.running.items()}
        settled = {job_id for job_id, each in view.running.items() if goes_on(each, view)}
        return [
            Resizable(job, left_s[job_id], *self._suited[job_id], held.get(job_id, 0), job_id in settled)
            for job_id, job in present.items()
        ]


def in_turn(view: Snapshot) -> bool:
    """Say whether jobs run one after the other: there are several types of GPU, and all jobs can be resized."""
    jobs = [*(each.job for each in view.waiting), *(each.submitted for each in view.running.values())]
    return len(view.cluster.machines_with) > 1 and all(map(elastic, jobs))


def suited_sizes(job: Job, view: Snapshot, placing: "Placing") -> SuitedSizes:
    """Return how many workers a job should have, alone in the cluster.

    Two jobs that are alike complete on average after 1.5 times as long as one of them takes if they run one after
    the other, and side by side, with half the workers, after as long as one takes with half. So workers are worth
    having as long as twice as many are about 1.5 times as fast: a job wants the number with the least time x
    sqrt(workers), by which it also comes first in the queue.
    """
    least, most = min_gpus(job), min(max_gpus(job), view.cluster.gpus)
    if least >= most:
        return SuitedSizes(least, least)
    sizes = {least, most, job.gpus, *(most >> step for step in range(most.bit_length()))}
    times = {
        size: placing.slowdown_alone(as_trained(job, size), view) / size
        for size in sorted(sizes)
        if least <= size <= most
    }
    wanted = min((size for size in times if size <= job.gpus), key=lambda size: times[size] * math.sqrt(size))
    return SuitedSizes(wanted, min(times, key=times.__getitem__))


def _all_alike(view: Snapshot) -> bool:
    """Say whether all jobs can use all GPUs, and none has a deadline."""
    jobs = [*(each.job for each in view.waiting), *(each.submitted for each in view.running.values())]
    return all(job.deadline_s is None and view.eligible(job) == ALL for job in jobs)


def _sizes(plan: Plan) -> dict[str, int]:
    """Return how many workers jobs have after a plan that changes them."""
    found: dict[str, int] = {}
    for action in plan.actions:
        if isinstance(action, Start | Move | Stop):
            found[action.job_id] = 0 if isinstance(action, Stop) else len(action.placement.machines)
    return found


def _placed(jobs: Sequence[Resizable], sizes: Mapping[str, int], view: Snapshot, at: "Followed") -> Plan | None:
    """Give jobs so many workers where they cost least, the largest first; None if one finds no machines."""
    stopped = [each.job.id for each in jobs if each.held and not sizes[each.job.id]]
    changed = [each for each in jobs if each.held != sizes[each.job.id] > 0]
    gone = [*stopped, *(each.job.id for each in changed if each.held)]
    trial = without_jobs(view, gone)
    found: dict[str, Placement] = {}
    with at.trying_without(gone) as placing:
        for each in sorted(changed, key=lambda each: -sizes[each.job.id]):
            job = as_trained(each.job, sizes[each.job.id])
            seconds = each.left_s * each.job.gpus / job.gpus
            best = placing.best(job, trial, seconds)
            if best is None:
                return None
            found[job.id] = best.placement
            trial = trial.after(best.placement, job)
            at.try_out(trial.running[job.id], view.now_s + seconds)
    moves = {job_id: placement for job_id, placement in found.items() if job_id in view.running}
    starts = [
        Start(each.job, found[each.job.id], each.attained_gpu_s) for each in view.waiting if each.job.id in found
    ]
    stops = [Stop(job_id, "makes way for jobs that come before it") for job_id in stopped]
    return Plan(view.version, (*stops, *feasible_order(view, moves, starts, stopped)))
