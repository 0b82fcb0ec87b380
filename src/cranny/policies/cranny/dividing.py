"""Jobs that can be resized: whether GPUs are divided among them at all, and which machines their workers get.

`has-resets` says how many workers each job has. It counts what a restart costs, but not that jobs which come later
make it divide again, nor the links between racks. So GPUs are divided only if restarts are short for the jobs that
come; otherwise jobs have the workers that they ask for, or fewer from the start if they end well before they would
else. And where all GPUs are of one type, workers go where they cost least, as those of other jobs do. On GPUs of
several types jobs that can all be resized run one after the other instead (`shortest_first`).

Measured: where restarts take 0.09 of the length of jobs (HAS's four, 600 s each) jobs complete in 0.65 of the time
that they take undivided; where they take 0.4 of it (CASSINI's dynamic trace, 60 s each), in 1.16 times as long.
One after the other (ten tuned seeds each), HAS's jobs complete in 0.92 of the time of `has-resets` with restarts
of 60 s, in 0.67 with 600 s, and in 0.84 if they come in a stream, with 1.03, 1.00 and 1.04 of the machine-hours of
the policy that needs the fewest.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

from cranny.core.protocol import Policy, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Move, Plan, Start
from cranny.policies import policy
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.resize import elastic, feasible_order, without_jobs
from cranny.policies.cranny.preemption import SHORT_RESTART
from cranny.policies.cranny.shortest_first import ShortestFirst

if TYPE_CHECKING:
    from cranny.policies.cranny.followed import Followed


# If restarts take up to this share of the length of jobs, jobs in turn leave GPUs to the next that suit it better.
# Measured at 0.009 (HAS's four, 60 s each), where that needs 0.92 of the machine-hours, and at 0.09 (600 s), where
# jobs complete in 1.22 of the time.
SHARING_RESTART = 0.03


class Share(NamedTuple):
    """The workers that a job gets, and how long it still runs on one machine with as many as it asks for."""

    job: Job
    workers: int
    left_s: float


class GpuDivision:
    """Divides GPUs among all jobs as long as some can be resized, if that pays."""

    def __init__(self, patience: float) -> None:
        self._shortest_first = ShortestFirst(patience)
        self._shares = cast("Policy", policy("has-resets"))
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
        if in_turn(view):
            return lacks_gpus(job, view) or "behind jobs that come before it in the queue"
        return self._shares.why_wait(job, view)

    def plan(self, view: Snapshot, at: "Followed") -> Plan:
        """Divide GPUs, on the machines that cost least if all are of one type."""
        if in_turn(view):
            sharing = self._restart_s <= SHARING_RESTART * self._length_s
            return self._shortest_first.plan(view, sharing=sharing)
        plan = self._shares.plan(view)
        if not plan.actions or len(view.cluster.machines_with) > 1:
            return plan
        running = view.running
        shares: dict[str, Share] = {}  # of jobs that start or move, some by being stopped and started
        starts: dict[str, Start] = {}
        for action in plan.actions:
            if isinstance(action, Start | Move):
                if isinstance(action, Start) and action.job_id not in running:
                    starts[action.job_id] = action
                each = running.get(action.job_id)
                job = action.job if isinstance(action, Start) else running[action.job_id].submitted
                left_s = at.waiting_s(starts[action.job_id]) if each is None else at.remaining_s(each)
                shares[action.job_id] = Share(job, len(action.placement.machines), left_s)
        found = _placed(shares, view, at)
        if found is None:
            return plan
        moves = {
            job_id: placement
            for job_id, placement in found.items()
            if job_id in running and sorted(placement.machines) != sorted(running[job_id].placement.machines)
        }
        begin = [start._replace(placement=found[job_id]) for job_id, start in starts.items()]
        return Plan(view.version, feasible_order(view, moves, begin))


def in_turn(view: Snapshot) -> bool:
    """Say whether jobs run one after the other: there are several types of GPU, and all jobs can be resized."""
    jobs = [*(each.job for each in view.waiting), *(each.submitted for each in view.running.values())]
    return len(view.cluster.machines_with) > 1 and all(map(elastic, jobs))


def _placed(shares: dict[str, Share], view: Snapshot, at: "Followed") -> dict[str, Placement] | None:
    """Return the cheapest placement of each job, those with the most workers first; None if one finds none."""
    moved = [job_id for job_id in shares if job_id in view.running]
    trial = without_jobs(view, moved)
    found: dict[str, Placement] = {}
    with at.trying_without(moved) as placing:
        for job_id, share in sorted(shares.items(), key=lambda each: -each[1].workers):
            job = as_trained(share.job, share.workers)
            seconds = share.left_s * share.job.gpus / share.workers
            best = placing.best(job, trial, seconds)
            if best is None:
                return None
            found[job_id] = best.placement
            trial = trial.after(best.placement, job)
            at.try_out(trial.running[job_id], view.now_s + seconds)
    return found
