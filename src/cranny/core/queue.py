"""Queue orders: which waiting job is placed next. An order and a placer together are a policy."""

import math
from collections.abc import Mapping
from itertools import islice
from operator import itemgetter
from typing import Any

from cranny.core.accounting import Running, attained_gpu_s
from cranny.core.backfill import DEPTH, conservative, easy, remaining_s
from cranny.core.knapsack import KnapsackBatches
from cranny.core.protocol import FIFO, Placer, Slowdown
from cranny.core.snapshot import ALL, Snapshot, Waiting
from cranny.core.traffic import isolated
from cranny.model.errors import unknown
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start, Stop

ORDERS = {
    "fifo": "first come, first served; a job that must wait blocks later ones that could use its machines",
    "sjf": "shortest job first, by its stated duration",
    "srtf": "shortest remaining time first, running or waiting, among jobs that fit (Tiresias's `shortest`)",
    "las": "least attained service first, in levels of GPU-seconds (Tiresias); stops jobs of higher levels",
    "priority": "highest priority first, then by submission; else as fifo",
    "backfill": "as priority, but later jobs may start first if they do not delay the first (EASY)",
    "conservative": "as priority, but later jobs may start first if they delay none of the first 100 (Slurm)",
    "knapsack": "the jobs worth most together among those that fit; worth grows with waiting (NetPack)",
}

BY_PRIORITY = frozenset({"priority", "backfill", "conservative"})
# GPU-seconds at which a job falls to the next level of las.
# Departure: Tiresias (NSDI'19, Sec. 3.2) promotes jobs that starve and orders a level by first start; here a level
# is ordered by submission, no job is promoted, and a level is crossed at the next event, since no timer runs. Its
# simulator stops the running jobs that come last in that order; here those that attained most are stopped first.
LAS_LEVELS_GPU_S = (3_600.0, 36_000.0)


class BySubmission:
    """A policy whose queue is in order of submission; `plan` chooses among the jobs."""

    order = "fifo"

    def key(self, waiting: Waiting) -> float:
        """Order the queue by submission."""
        return waiting.job.submit_s


class QueuePolicy:
    """A policy of a placer and a queue order: it places waiting jobs one after the other in that order."""

    def __init__(self, placer: Placer, order: str = FIFO, slowdown: Slowdown = isolated) -> None:
        if order not in ORDERS:
            raise unknown("queue order", order, ORDERS)
        self.placer = placer
        self.order = order
        self.slowdown = slowdown  # how placements are expected to stretch jobs, for backfill
        # The job found not to fit, and the state's version then: until that changes it cannot fit, save by
        # stopping jobs, of which none more may be stopped before `_retry_s`.
        self._stuck: tuple[Job | None, int] = (None, 0)
        self._retry_s = 0.0
        self._batches = KnapsackBatches()  # for knapsack

    def key(self, waiting: Waiting) -> Any:
        """Return what the queue is sorted by; ties keep the order of submission."""
        if self.order == "sjf":
            return waiting.job.duration_s if waiting.job.duration_s is not None else float("inf")
        if self.order == "srtf":
            return (remaining_s(waiting.job, waiting.attained_gpu_s, 1.0), waiting.job.submit_s)
        if self.order == "las":
            return (las_level(waiting.attained_gpu_s), waiting.job.submit_s)
        if self.order in BY_PRIORITY:
            return (-waiting.job.priority, waiting.job.submit_s)
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        """Start the first job of the queue; if it must wait, start what the order allows instead."""
        if not view.waiting:
            return Plan(view.version)
        if self.order == "knapsack":
            return self._knapsack(view)
        if self.order == "srtf":
            return self._shortest(view)
        first = view.waiting[0]
        job = first.job
        placement = self.place_first(job, view)
        if placement is not None:
            return Plan(view.version, (Start(job, placement, first.attained_gpu_s),))
        if self.order == "backfill":
            return easy(view, self.placer, self.slowdown)
        if self.order == "conservative":
            return conservative(view, self.placer, self.slowdown)
        if self.order == "las":
            preempting = self._preempt(view) if view.now_s >= self._retry_s else None
            if preempting is not None:
                return preempting
            for waiting in view.waiting[1 : 1 + DEPTH]:  # the next that fits, as in Tiresias
                placement = self.placer.place(waiting.job, view)
                if placement is not None:
                    return Plan(view.version, (Start(waiting.job, placement, waiting.attained_gpu_s),))
            return Plan(view.version)
        return self._start_elsewhere(view)

    def place_first(self, job: Job, view: Snapshot) -> Placement | None:
        """Place the first job of the queue; one that did not fit is not tried again before something changes."""
        stuck, version = self._stuck
        if stuck is job and version == view.version:
            return None
        placement = self.placer.place(job, view)
        if placement is None:
            self._stuck = (job, view.version)
            self._retry_s = view.now_s
        return placement

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say why a job must wait: because of itself, or of the first of the queue."""
        if self.order == "knapsack" and self.placer.place(job, view) is not None:
            return "skipped: other waiting jobs are worth more together"
        ahead = self._ahead_of(job, view)
        if ahead is not None and self.placer.place(job, view) is not None:
            return f"behind job {ahead.id!r}, which is first in the queue"
        return self.placer.why_wait(job, view)

    @staticmethod
    def _ahead_of(job: Job, view: Snapshot) -> Job | None:
        """Return the first waiting job that could use machines of this one, if that is before it."""
        eligible = view.eligible(job)
        first = next((each.job for each in view.waiting if view.eligible(each.job) & eligible), None)
        return None if first is None or first.id == job.id else first

    def _start_elsewhere(self, view: Snapshot) -> Plan:
        """Start the first job that could use none of the machines for which those before it wait."""
        blocked = view.eligible(view.waiting[0].job)
        if blocked == ALL:  # as most jobs
            return Plan(view.version)
        whole = (1 << len(view.cluster.machines)) - 1
        for waiting in islice(view.waiting, 1, None):
            eligible = view.eligible(waiting.job)
            if not eligible & blocked:
                placement = self.placer.place(waiting.job, view)
                if placement is not None:
                    return Plan(view.version, (Start(waiting.job, placement, waiting.attained_gpu_s),))
            blocked |= eligible
            if blocked & whole == whole:
                break
        return Plan(view.version)

    def _knapsack(self, view: Snapshot) -> Plan:
        """Place the jobs of the next batch one after the other."""
        starts = []
        trial = view
        for waiting in self._batches.choose(view):
            placement = self.placer.place(waiting.job, trial)
            if placement is not None:
                starts.append(Start(waiting.job, placement, waiting.attained_gpu_s))
                trial = trial.after(placement, waiting.job)
        return Plan(view.version, tuple(starts))

    def _shortest(self, view: Snapshot) -> Plan:
        """Run the jobs that are first by the key, running or waiting, as far as GPUs go; stop the others."""
        needs: dict[str, float] = {}  # GPUs of waiting jobs that turn out to need more than they ask for
        while True:
            chosen = self._first_by_key(view, needs)
            stops = [Stop(job_id, "preempted by shorter jobs") for job_id in view.running if job_id not in chosen]
            trial = view
            for stop in stops:
                trial = trial.without(stop.job_id)
            starts = []
            for waiting in view.waiting:
                job = waiting.job
                if job.id in chosen:
                    placement = self.placer.place(job, trial)
                    # There may be enough GPUs, but not where it needs them; or it holds spare ones.
                    need = math.inf if placement is None else job.gpus + len(placement.spare)
                    if placement is None or need > needs.get(job.id, job.gpus):
                        needs[job.id] = need
                        break
                    starts.append(Start(job, placement, waiting.attained_gpu_s))
                    trial = trial.after(placement, job)
            else:
                return Plan(view.version, (*stops, *starts))

    def _first_by_key(self, view: Snapshot, needs: Mapping[str, float]) -> set[str]:
        """Return the jobs that run if each takes GPUs in turn, by the key, and those too large are passed over.

        Of equals a running job is first. The key of a job is the same whether it runs or waits, so that each plan
        runs jobs of a lesser key than the one before, and planning comes to an end.
        """
        up, now_s = view.up_machines, view.now_s
        left: float = view.machines.gpus
        turns: list[tuple[Any, bool, float, str]] = []
        for running in view.running.values():
            gpus = running.gpus_on(up)
            left += gpus
            as_waiting = Waiting(running.submitted, attained_gpu_s(running, now_s))
            turns.append((self.key(as_waiting), False, gpus, running.job.id))
        for waiting in view.waiting:
            job = waiting.job
            turns.append((self.key(waiting), True, needs.get(job.id, job.gpus), job.id))
        chosen = set()
        for _, _, need, job_id in sorted(turns, key=itemgetter(0, 1)):
            if need <= left:
                chosen.add(job_id)
                left -= need
        return chosen

    def _preempt(self, view: Snapshot) -> Plan | None:
        """Preempt running jobs of higher levels, those that attained most first, until the first job fits."""
        first = view.waiting[0]
        level = las_level(first.attained_gpu_s)
        victims = [
            (attained, running)
            for running in view.running.values()
            if las_level(attained := attained_gpu_s(running, view.now_s)) > level
        ]
        victims.sort(key=lambda victim: (-victim[0], victim[1].job.id))
        stopped: list[Running] = []
        trial = view
        for _, running in victims:
            stopped.append(running)
            trial = trial.without(running.job.id)
            placement = self.placer.place(first.job, trial)
            if placement is not None:
                # Those whose machines are not needed go on, if the job still fits.
                needed = [each for each in stopped if placement.counts.keys() & each.held.keys()]
                trial = view
                for each in needed:
                    trial = trial.without(each.job.id)
                replaced = self.placer.place(first.job, trial)
                if replaced is not None:
                    stopped, placement = needed, replaced
                stops = [Stop(each.job.id, f"preempted by job {first.job.id!r}") for each in stopped]
                return Plan(view.version, (*stops, Start(first.job, placement, first.attained_gpu_s)))
        self._retry_s = self._next_victim_s(level, view)
        return None

    def _next_victim_s(self, level: int, view: Snapshot) -> float:
        """Return when the next running job rises above a level, if it goes on running."""
        if level >= len(LAS_LEVELS_GPU_S):
            return math.inf
        limit = LAS_LEVELS_GPU_S[level]
        return min(
            (
                running.started_s + (limit - running.attained_gpu_s) / running.job.gpus
                for running in view.running.values()
                if attained_gpu_s(running, view.now_s) < limit
            ),
            default=math.inf,
        )


def las_level(attained: float) -> int:
    """Return the level of a job by its attained service; a lower level goes first."""
    return sum(attained >= limit for limit in LAS_LEVELS_GPU_S)
