"""Gavel as a policy: rounds, in which each job has its GPUs of one type or none.

D. Narayanan et al., OSDI 2020, as in `gavel`. Fractions of time are worked out anew when a job comes or ends. Jobs
run with the number of GPUs that they ask for. A job that stays on its type from one round to the next stays where
it is; one that does not is stopped, or moved, whatever that costs: so it is in Gavel.

Departure: as many jobs take part as there are GPUs for at once, those that came first; others wait.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Start, Stop
from cranny.model.validate import counted, positive
from cranny.policies._shared.heterogeneous.actions import in_order, placed
from cranny.policies._shared.heterogeneous.instance import Scene
from cranny.policies._shared.heterogeneous.job_progress import Memory, speed_on
from cranny.policies._shared.heterogeneous.min_max_workers import packed
from cranny.policies._shared.heterogeneous.problem import Floats, Ints


@dataclass(slots=True, eq=False)
class Turns:
    """Who takes part from one reset to the next, and the rounds that each has had."""

    key: tuple[frozenset[str], tuple[int, ...]]  # jobs, and GPUs of machines that are up
    scene: Scene
    wanted: Ints  # (jobs,) GPUs
    capacity: Ints  # (machines,)
    totals: Ints  # (types,)
    share: Floats  # (jobs, types) fractions of time
    received: Floats  # (jobs, types) rounds
    rounds: int = 0


class Gavel:
    """Give jobs whole rounds on one type of GPU, as often as is fair."""

    order = "fifo"
    period_s = 360.0
    least_period_s = 10.0  # so that a simulation of months ends

    def __init__(self, *, between_gbps: float | None = None) -> None:
        self._between_gbps = None if between_gbps is None else positive(between_gbps, "gavel: between_gbps")
        self._decided_s = -1.0
        self._turns: Turns | None = None

    def key(self, waiting: Waiting) -> float:
        """Let jobs queue as they come."""
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        """Choose who runs in the round that begins now; one decision is enough."""
        if view.now_s == self._decided_s:
            return Plan(view.version)
        self._decided_s = view.now_s
        return Plan(view.version, self._round(view))

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job on free GPUs of one type, the fastest for it that has enough."""
        free = _by_type(view, view.free)
        able = {kind: speed_on(job, kind) or 0.0 for kind, gpus in free.items() if gpus.sum() >= job.gpus}
        kind = max(able, key=lambda each: able[each], default="")
        if not able.get(kind):
            return None
        return placed(view, job, packed(free[kind], job.gpus), _note(job, kind))

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that no type has enough GPUs, or that others are farther behind."""
        if not _possible(job, view, _capacity(view)):
            return f"no GPU type of the cluster that can run job {job.id!r} has {job.gpus} GPUs"
        return "its turn has not come: jobs that are farther behind their fair share of time go first"

    def _round(self, view: Snapshot) -> tuple[Action, ...]:
        """Return what is to be done at the beginning of a round."""
        from cranny.policies.gavel.allocation import NOT_NOW, next_round

        turns = self._follow(view)
        runs: dict[str, int] = {}  # job -> its type
        if turns is not None:
            chosen = next_round(turns.share, turns.received, turns.rounds, turns.wanted, turns.totals)
            turns.rounds += 1
            for at in np.flatnonzero(chosen != NOT_NOW).tolist():
                turns.received[at, chosen[at]] += 1
                runs[turns.scene.jobs[at].id] = int(chosen[at])
        stopped = [job_id for job_id in view.running if job_id not in runs]
        stops = [Stop(job_id, "its round is over") for job_id in stopped]
        return (*stops, *(_seats(view, turns, runs, stopped) if turns is not None else ()))

    def _follow(self, view: Snapshot) -> Turns | None:
        """Work out fractions of time anew if jobs or machines have changed; None if nobody takes part."""
        from cranny.policies.gavel.allocation import fractions, throughput

        running, capacity = view.running, _capacity(view)
        key = (frozenset([*running, *(each.job.id for each in view.waiting)]), tuple(capacity.tolist()))
        if self._turns is not None and self._turns.key == key:
            return self._turns
        jobs = [*(each.submitted for each in running.values()), *(each.job for each in view.waiting)]
        jobs = [job for job in jobs if _possible(job, view, capacity)]
        jobs = sorted(jobs, key=lambda job: (job.submit_s, job.id))[: int(capacity.sum())]
        jobs = self._at_once(jobs, view, capacity)
        if not jobs:
            self._turns = None
            return None
        # How much is left does not matter to fractions of time, so nothing need be remembered of jobs.
        scene = Scene.of(jobs, view.cluster, Memory(), self._between_gbps)
        problem, wanted = scene.sharing(range(len(jobs)), capacity), np.array([job.gpus for job in jobs])
        share = fractions(problem, wanted, throughput(problem, wanted), np.ones(len(jobs), dtype=bool))
        self._turns = Turns(key, scene, wanted, capacity, problem.totals, share, np.zeros_like(share))
        return self._turns

    def _at_once(self, jobs: list[Job], view: Snapshot, capacity: Ints) -> list[Job]:
        """Return the jobs that could all have a GPU at once; a `Problem` is about no more."""
        if not jobs:
            return []
        scene = Scene.of(jobs, view.cluster, Memory(), self._between_gbps)
        scene = replace(scene, least=np.ones_like(scene.least))
        chosen: list[int] = []
        for job in range(len(jobs)):
            if scene.room_for([*chosen, job], capacity):
                chosen.append(job)
        return [jobs[job] for job in chosen]


def _seats(view: Snapshot, turns: Turns, runs: Mapping[str, int], stopped: Iterable[str]) -> tuple[Action, ...]:
    """Return the moves and starts of a round; who keeps his type keeps his machines."""
    running, kind_of = view.running, turns.scene.kind
    left, new = turns.capacity.copy(), []
    for job in turns.scene.jobs:
        held = running[job.id].placement.counts if job.id in running else {}
        if job.id not in runs:
            continue
        if held and all(view.is_up(machine) and kind_of[machine] == runs[job.id] for machine in held):
            for machine, gpus in held.items():
                left[machine] -= gpus
        else:
            new.append(job)
    before = {each.job.id: each.attained_gpu_s for each in view.waiting}
    moves, starts = {}, []
    for job in sorted(new, key=lambda each: -each.gpus):
        kind = runs[job.id]
        workers = packed(np.where(kind_of == kind, left, 0), job.gpus)
        left -= workers
        where = placed(view, job, workers, _note(job, turns.scene.problem.gpu_types[kind]))
        if job.id in running:
            moves[job.id] = where
        else:
            starts.append(Start(job, where, before[job.id]))
    return in_order(view, moves, starts, stopped)


def _note(job: Job, gpu_type: str) -> str:
    """Say what a job has; the type of its GPUs may have no name."""
    gpus = f"{job.gpus:,} {gpu_type}" if gpu_type else counted(job.gpus, "GPU")
    return f"share by gavel: {gpus} in this round"


def _capacity(view: Snapshot) -> Ints:
    """Return the GPUs of machines that are up, free or held by jobs that the view shows, (machines,)."""
    capacity = view.free.copy()
    for running in view.running.values():
        for machine, gpus in running.held.items():
            if view.is_up(machine):
                capacity[machine] += gpus.bit_count()
    return capacity


def _by_type(view: Snapshot, gpus: Ints) -> dict[str, Ints]:
    """Part GPUs, (machines,), by their type."""
    kinds = np.array([machine.gpu_type for machine in view.cluster.machines])
    return {kind: np.where(kinds == kind, gpus, 0) for kind in view.cluster.machines_with}


def _possible(job: Job, view: Snapshot, capacity: Ints) -> bool:
    """Say whether any type has enough GPUs, and can run a job."""
    there = _by_type(view, capacity).items()
    return any(gpus.sum() >= job.gpus and speed_on(job, kind) is not None for kind, gpus in there)
