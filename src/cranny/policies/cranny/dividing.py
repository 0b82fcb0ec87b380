"""Jobs that can be resized: whether GPUs are divided among them at all, and which machines their workers get.

Where all GPUs are alike, jobs have the workers that are worth having in order of the queue (`sizes_in_order`), on
the machines where they cost least. On GPUs of several types jobs that can all be resized run one after the other
(`shortest_first`). Where neither can be, or some job has a deadline, `has-resets` decides.

All of these count what a restart costs, but not that jobs which come later change sizes again. So GPUs are divided
only if restarts are short for the jobs that come; otherwise jobs have the workers that they ask for, or fewer from
the start if they end well before they would else.

Measured: where restarts take 0.09 of the length of jobs (HAS's four, 600 s each) jobs complete in 0.65 of the time
that they take undivided; where they take 0.4 of it (CASSINI's dynamic trace, 60 s each), in 1.16 times as long.
One after the other (ten tuned seeds each), HAS's jobs complete in 0.92 of the time of `has-resets` with restarts
of 60 s, in 0.67 with 600 s, and in 0.84 if they come in a stream, with 1.00, 1.00 and 1.00 of the machine-hours of
the policy that needs the fewest.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from cranny.core.protocol import Policy, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start, Stop
from cranny.policies import policy
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.heterogeneous.instance import max_gpus, min_gpus
from cranny.policies._shared.resize import all_jobs, elastic, feasible_order, without_jobs
from cranny.policies.cranny.durations import worked_s
from cranny.policies.cranny.preemption import SHORT_RESTART
from cranny.policies.cranny.restarts import goes_on
from cranny.policies.cranny.shortest_first import ShortestFirst
from cranny.policies.cranny.sizes_in_order import DividedJob, critical_jobs, sizes_in_order

if TYPE_CHECKING:
    from cranny.policies.cranny.followed import Followed
    from cranny.policies.cranny.placing import Placing, Priced


# If restarts take up to this share of the length of jobs, jobs in turn leave GPUs that are not worth what they
# cost, and those that suit the next better. Measured at 0.009 (HAS's four, 60 s each), where that needs 0.90 of
# the machine-hours, and at 0.09 (600 s), where jobs complete in 1.19 of the time.
SHARING_RESTART = 0.03
# On GPUs of one type, how often the GPUs that a job asks for count as long as it is not done, beside those that it
# holds. Found on CASSINI's tuned traces with free moves: counted once, iterations take 1.02 times as long; four
# times, machine-hours are 1.03 times as many.
UNFINISHED = 2.0
FEWER_TRIED = 2  # workers less than it is given, with which a job is tried where links are shared


class SuitedSizes(NamedTuple):
    """How many workers suit a job."""

    wanted: int  # where others wait
    most: int  # where none does


class GpuDivision:
    """Divides GPUs among all jobs as long as some can be resized, if that pays."""

    def __init__(self, patience: float, *, lookahead: bool = True) -> None:
        self._patience = patience
        self._shortest_first = ShortestFirst(patience, lookahead=lookahead)
        self._shares = cast("Policy", policy("has-resets"))
        self._cluster: Cluster | None = None
        self._suited: dict[Hashable, SuitedSizes] = {}  # by kind of job, of those that run or wait
        self._critical: set[str] = set()
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
        if len(view.cluster.machines_with) == 1 or in_turn(view):
            short = lacks_gpus(as_trained(job, min_gpus(job)), view)
            return short or "behind jobs that come before it in the queue"
        return self._shares.why_wait(job, view)

    def plan(self, view: Snapshot, at: "Followed") -> Plan:
        """Divide GPUs, on the machines that cost least if all are of one type."""
        if in_turn(view):
            sharing = self._restart_s <= SHARING_RESTART * self._length_s
            return self._shortest_first.plan(view, sharing=sharing)
        found = self._in_order(view, at) if in_order(view) else None
        return self._shares.plan(view) if found is None else found

    def _in_order(self, view: Snapshot, at: "Followed") -> Plan | None:
        """Give jobs workers in order of the queue; None if one finds no machines.

        Running jobs on machines that take no more jobs keep what they have: to stop them would free no GPU.
        """
        if self._cluster is not view.cluster:
            self._cluster, self._suited = view.cluster, {}
        known, self._suited = self._suited, {}
        jobs = []
        for waiting in view.waiting:
            if view.eligible(waiting.job):
                suited = self._suited_sizes(waiting.job, view, at, known)
                jobs.append(DividedJob(waiting.job, at.waiting_s(waiting), *suited))
        for running in view.running.values():
            if all(map(view.is_up, running.held)):
                # One that runs longer than expected is expected to run as much longer again.
                left_s = at.remaining_s(running) or worked_s(running, view.now_s)
                suited = self._suited_sizes(running.submitted, view, at, known)
                held = len(running.placement.machines)
                jobs.append(DividedJob(running.submitted, left_s, *suited, held, goes_on(running, view)))
        gpus = int(view.free.sum()) + sum(each.held for each in jobs)
        self._critical = critical_jobs(jobs, gpus, self._critical)
        return _placed(jobs, sizes_in_order(jobs, gpus, self._critical, self._patience, view.now_s), view, at)

    def _suited_sizes(
        self, job: Job, view: Snapshot, at: "Followed", known: Mapping[Hashable, SuitedSizes]
    ) -> SuitedSizes:
        """Return the sizes that suit a job, found once for all of its kind."""
        kind = job.profile, job.collective, job.gpus, job.least_gpus, job.most_gpus, job.tp, job.pp
        if kind not in self._suited:
            self._suited[kind] = known.get(kind) or suited_sizes(job, view, at.placing)
        return self._suited[kind]


def in_turn(view: Snapshot) -> bool:
    """Say whether jobs run one after the other: there are several types of GPU, and all jobs can be resized."""
    return len(view.cluster.machines_with) > 1 and all(map(elastic, all_jobs(view)))


def in_order(view: Snapshot) -> bool:
    """Say whether workers go by order of the queue: jobs can use all GPUs or none, and have no deadline."""
    every = (1 << len(view.cluster.machines)) - 1
    return len(view.cluster.machines_with) == 1 and all(
        job.deadline_s is None and view.eligible(job) & every in (0, every) for job in all_jobs(view)
    )


def suited_sizes(job: Job, view: Snapshot, placing: "Placing") -> SuitedSizes:
    """Return how many workers a job should have, alone in the cluster.

    Tried are what it asks for, the least and the most that it can have, and half of the most again and again.

    A job wants those with which it costs least (`_cost`). So the last half of those that it asks for is worth
    having if it is 6/5 times as fast with them, and twice as many if it is 4/3 times as fast.
    """
    least, most = min_gpus(job), min(max_gpus(job), view.cluster.gpus)
    if least >= most:
        return SuitedSizes(least, least)
    sizes = {least, most, job.gpus, *(most >> step for step in range(most.bit_length()))}
    times = {
        size: placing.slowdown_alone(as_trained(job, size)) / size
        for size in sorted(sizes)
        if least <= size <= most
    }
    cost = {size: _cost(job, size, seconds) for size, seconds in times.items()}
    wanted = min((size for size in cost if size <= job.gpus), key=cost.__getitem__)
    return SuitedSizes(wanted, min(cost, key=cost.__getitem__))


def _cost(job: Job, workers: int, seconds: float) -> float:
    """Return what a job costs with some workers, in GPU-seconds: what it holds, and that it is not done."""
    return (workers + UNFINISHED * job.gpus) * seconds


def _cheapest(each: DividedJob, size: int, view: Snapshot, placing: "Placing") -> "Priced | None":
    """Return where a job costs least with so many workers, or a few less; None if it finds no machines.

    A running job that loses time by a restart has those that it is given: it would be moved again and again.
    """
    fewest = size if each.held and each.job.restart_s else max(each.least, size - FEWER_TRIED)
    best, least = None, math.inf
    for workers in range(size, fewest - 1, -1):
        seconds = each.seconds(workers)
        found = placing.best(as_trained(each.job, workers), view, seconds)
        if found is None:
            continue
        cost = _cost(each.job, workers, found.takes_s) + found.effect.others_gpu_s
        if cost < least:
            best, least = found, cost
        if workers == size and found.effect.slowdown <= 1.0 and not found.effect.others_gpu_s:
            break  # it shares no links
    return best


def _placed(jobs: Sequence[DividedJob], sizes: Mapping[str, int], view: Snapshot, at: "Followed") -> Plan | None:
    """Give jobs so many workers where they cost least, the largest first; None if one finds no machines.

    Some get a little fewer, where links are shared otherwise.
    """
    stopped = [each.job.id for each in jobs if each.held and not sizes[each.job.id]]
    changed = [each for each in jobs if each.held != sizes[each.job.id] > 0]
    gone = [*stopped, *(each.job.id for each in changed if each.held)]
    trial = without_jobs(view, gone)
    found: dict[str, Placement] = {}
    with at.trying_without(gone) as placing:
        for each in sorted(changed, key=lambda each: -sizes[each.job.id]):
            best = _cheapest(each, sizes[each.job.id], trial, placing)
            if best is None:
                return None
            job = as_trained(each.job, len(best.placement.machines))
            found[job.id] = best.placement
            trial = trial.after(best.placement, job)
            at.try_out(trial.running[job.id], view.now_s + each.seconds(job.gpus))
    moves = {  # of those that do not stay where they are
        job_id: placement
        for job_id, placement in found.items()
        if job_id in view.running and placement.machines != view.running[job_id].placement.machines
    }
    starts = [
        Start(each.job, found[each.job.id], each.attained_gpu_s) for each in view.waiting if each.job.id in found
    ]
    stops = [Stop(job_id, "makes way for jobs that come before it") for job_id in stopped]
    return Plan(view.version, (*stops, *feasible_order(view, moves, starts, stopped)))
