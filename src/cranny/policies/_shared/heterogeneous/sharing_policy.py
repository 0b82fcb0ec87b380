"""Policies that share a mixed cluster anew whenever something changes; they differ in the method alone.

HAS/JPS (TPDS 2024), Section V-C: the policy is recomputed at a *reset*, when a job comes or ends, a machine fails,
is drained or repaired, or an estimate changes. Then:

1. Jobs that run and can be resized stay, with their least number of workers at least. Jobs that cannot be resized
   stay as they are. Waiting jobs are let in as they came while all find their least number; from the first for
   whom that is not so they wait, however small they are.
2. The method shares all workers among them. Moves that do not pay are taken back (`moves`): what all jobs together
   gain by a move must be more than the restart of the job that moves and `margin` of what it has left.
3. If it is better still that nobody moves, the running ones stay and the new ones share what is free. If there is
   not enough free for the new ones, somebody makes room: one job alone, if that costs less than to share all anew.

Departure: the paper assumes K >= S, moves jobs for nothing, and knows no least or most number of workers.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import MAX_GPUS, Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Start, Stop
from cranny.model.validate import between, not_negative, positive
from cranny.policies._shared.heterogeneous.actions import in_order, placed
from cranny.policies._shared.heterogeneous.fewer_moves import SAME, Weighing, fewer_moves
from cranny.policies._shared.heterogeneous.instance import Scene, is_elastic, least_of, never
from cranny.policies._shared.heterogeneous.job_progress import Memory
from cranny.policies._shared.heterogeneous.min_max_workers import within
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem
from cranny.policies._shared.heterogeneous.solution import Shares

MARGIN = 0.05  # measured, see docs/understand/has-jps.md

# What a decision depends on: running jobs, waiting jobs, machines that are down, changes of estimates.
Reset = tuple[frozenset[str], frozenset[str], frozenset[int], int]


class Offer(NamedTuple):
    """What can be shared now."""

    scene: Scene  # of running jobs that can be resized, then of waiting ones
    running: tuple[Running, ...]
    waiting: tuple[Waiting, ...]
    has: Ints  # (running, machines) workers
    restart_s: Floats  # (running,) that a move takes,
    margin_s: Floats  # (running,) and must gain beyond that; nothing both if a job has only just started
    free: Ints  # (machines,) GPUs that nobody holds
    room: Ints  # (machines,) those, and what running jobs could give back

    def waits(self, job: int) -> bool:
        """Say whether a job of the scene does not run yet."""
        return job >= len(self.running)


class Sharing(ABC):
    """Share the cluster among all jobs by the method of a subclass."""

    order = "fifo"
    method = ""  # its name in texts
    minds_restarts = True  # whether what moves cost counts when they are decided

    def __init__(
        self,
        *,
        elastic: float | None = None,
        restart_s: float | None = None,
        margin: float = MARGIN,
        between_gbps: float | None = None,
        probe_error: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Set up.

        `elastic` lets jobs that do not say with how many workers they can run have from one to so many times
        those that they ask for; `restart_s` is what moving costs jobs that do not say. `between_gbps` is what the
        method takes for the rate between machines. `probe_error` makes first estimates wrong by up to this share.
        """
        own = self.method
        self._elastic = None if elastic is None else between(elastic, f"{own}: elastic", 1, MAX_GPUS)
        self._restart_s = None if restart_s is None else not_negative(restart_s, f"{own}: restart_s")
        self._margin = not_negative(margin, f"{own}: margin")
        self._between_gbps = None if between_gbps is None else positive(between_gbps, f"{own}: between_gbps")
        self.rng = rng if rng is not None else np.random.default_rng(0)
        self.memory = Memory(between(probe_error, f"{own}: probe_error", 0, 1, below=True), self.rng)
        self._settled: Reset | None = None  # what was true after the last decision

    @abstractmethod
    def solve(self, problem: Problem) -> Shares:
        """Share workers by the method."""

    def report(self, job_id: str, gpu_type: str, speed: float) -> None:
        """Take in how fast a worker was on a type of GPU, in those of the type of the job's duration."""
        self.memory.report(job_id, gpu_type, speed)

    def key(self, waiting: Waiting) -> float:
        """Let jobs queue as they come."""
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        """Share anew if something has changed."""
        self.memory.follow(view)
        running, waiting = frozenset(view.running), frozenset(each.job.id for each in view.waiting)
        down = frozenset(at for at in range(len(view.cluster.machines)) if not view.is_up(at))
        if (running, waiting, down, self.memory.changes) == self._settled:
            return Plan(view.version)
        actions = self._decide(view)
        stopped = {each.job_id for each in actions if isinstance(each, Stop)}
        started = {each.job.id for each in actions if isinstance(each, Start)}
        then = (running - stopped) | started
        self._settled = (then, (running | waiting) - then, down, self.memory.changes)
        return Plan(view.version, actions)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job on what is free."""
        job = self.as_elastic(job)
        if never(job, view.cluster) is not None:
            return None
        scene = Scene.of((job,), view.cluster, self.memory, self._between_gbps)
        if not scene.room_for([0], view.free):
            return None
        return self._placed(view, job, within(scene, self.solve, [0], view.free)[0])

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that GPUs are short, or that others came first."""
        job = self.as_elastic(job)
        impossible = never(job, view.cluster)
        if impossible is not None:
            return impossible
        first = next((each.job for each in view.waiting if never(each.job, view.cluster) is None), job)
        if first.id != job.id:
            return f"behind job {first.id!r}, which came first"
        return f"needs {least_of(job)} GPUs that can run it, beside those that running jobs need at least"

    def as_elastic(self, job: Job) -> Job:
        """Return a job with the range and the restart that the options give to jobs that name none."""
        fixed = job.tp * job.pp > 1 or job.least_gpus is not None or job.most_gpus is not None
        if self._elastic is not None and not fixed:
            job = replace(job, least_gpus=1, most_gpus=min(int(job.gpus * self._elastic), MAX_GPUS))
        if self._restart_s is not None and not job.restart_s:
            job = replace(job, restart_s=self._restart_s)
        return job

    def _decide(self, view: Snapshot) -> tuple[Action, ...]:
        """Return what should be done now."""
        offer = self._offer(view)
        if offer is None:
            return ()
        chosen = self._let_in(offer)
        if not chosen:
            return ()
        scene = offer.scene
        held = self._shared(offer, chosen)
        moves = {
            each.job.id: self._placed(view, each.submitted, held[job])
            for job, each in enumerate(offer.running)
            if (held[job] != offer.has[job]).any()
        }
        starts = [
            Start(scene.jobs[job], self._placed(view, scene.jobs[job], held[job]), waiting.attained_gpu_s)
            for job in chosen
            if offer.waits(job)
            for waiting in [offer.waiting[job - len(offer.running)]]
        ]
        return in_order(view, moves, starts)

    def _offer(self, view: Snapshot) -> Offer | None:
        """Return what can be shared; None if there is nothing, or nobody to share it."""
        free = view.free
        elastic = tuple(each for each in view.running.values() if is_elastic(each.submitted))
        has = np.zeros((len(elastic), len(free)), dtype=np.int64)
        for number, each in enumerate(elastic):
            for machine, gpus in each.placement.counts.items():
                has[number, machine] = gpus
        up = np.array([view.is_up(machine) for machine in range(len(free))])
        room = free + up * has.sum(axis=0)
        waiting: list[Waiting] = []
        for entry in view.waiting:
            job = self.as_elastic(entry.job)
            if len(waiting) >= room.sum():
                break
            if never(job, view.cluster) is None:
                waiting.append(entry._replace(job=job))
        jobs = [*(each.submitted for each in elastic), *(each.job for each in waiting)]
        if not jobs:
            return None
        scene = Scene.of(jobs, view.cluster, self.memory, self._between_gbps)
        if not scene.room_for(range(len(elastic)), room):
            # Too much is drained for the running jobs to go elsewhere: they stay, and only new ones are placed.
            if not waiting:
                return None
            scene = Scene.of(jobs[len(elastic) :], view.cluster, self.memory, self._between_gbps)
            return Offer(scene, (), tuple(waiting), has[:0], np.zeros(0), np.zeros(0), free, free)
        restart_s, margin_s = np.zeros((2, len(elastic)))
        for number, each in enumerate(elastic):
            if each.started_s < view.now_s:
                restart_s[number] = each.submitted.restart_s if self.minds_restarts else 0.0
                margin_s[number] = self._margin * scene.time_s(number, has[number])
        return Offer(scene, elastic, tuple(waiting), has, restart_s, margin_s, free, room)

    def _let_in(self, offer: Offer) -> list[int]:
        """Return the jobs that share: all that run, and waiting ones as they came while there is room."""
        chosen = list(range(len(offer.running)))
        for job in range(len(offer.running), len(offer.scene.jobs)):
            if not offer.scene.room_for([*chosen, job], offer.room):
                break
            chosen.append(job)
        return chosen

    def _shared(self, offer: Offer, chosen: list[int]) -> Ints:
        """Return the workers of each job, (jobs, machines): of several ways to share the one that costs least."""
        scene = offer.scene
        weighing = Weighing(scene, chosen, offer.has, offer.restart_s, offer.margin_s, offer.room)
        anew = fewer_moves(weighing, within(scene, self.solve, chosen, offer.room))
        stay = self._stay(offer, chosen)
        if stay is None:
            return weighing.cheapest([*self._making_room(offer, chosen), anew])
        return anew if weighing.cost_s(anew) < weighing.cost_s(stay) * (1 - SAME) else stay

    def _making_room(self, offer: Offer, chosen: list[int]) -> list[Ints]:
        """Let one running job after the other share its workers, and what is free, with the new ones.

        Where moves cost nothing there is no reason to, and the method decides.
        """
        if not offer.restart_s.any():
            return []
        new = [job for job in chosen if offer.waits(job)]
        found = []
        for job, has in enumerate(offer.has):
            room = np.minimum(offer.free + has, offer.room)
            if offer.scene.room_for([job, *new], room):
                held = within(offer.scene, self.solve, [job, *new], room)
                others = [other for other in range(len(offer.running)) if other != job]
                held[others] = offer.has[others]
                found.append(held)
        return found

    def _stay(self, offer: Offer, chosen: list[int]) -> Ints | None:
        """Let running jobs stay and new ones share what is free; None if that is not enough for them."""
        new = [job for job in chosen if offer.waits(job)]
        if not offer.scene.room_for(new, offer.free):
            return None
        held = within(offer.scene, self.solve, new, offer.free)
        held[: len(offer.running)] = offer.has
        return held

    def _placed(self, view: Snapshot, job: Job, workers: Ints) -> Placement:
        machines = view.cluster.machines
        by_type: dict[str, int] = {}
        for machine in np.flatnonzero(workers).tolist():
            name = machines[machine].gpu_type
            by_type[name] = by_type.get(name, 0) + int(workers[machine])
        mix = ", ".join(f"{count} {name}".strip() for name, count in by_type.items())
        return placed(view, job, workers, f"share by {self.method}: {mix} of {job.gpus} asked for")
