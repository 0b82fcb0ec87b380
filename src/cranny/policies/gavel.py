"""Gavel: rounds in which each job has its GPUs of one type, or none, max-min fair over time.

D. Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads", OSDI 2020; a
baseline of HAS/JPS (TPDS 2024). A job asks for a fixed number of GPUs (`scale`). A linear program gives the
fraction of time X that it should spend on each type: its throughput over that with equal time on all GPUs, times
its scale, is as high as possible for the job where it is lowest. In each round those jobs run that are farthest
behind their fractions. HAS/JPS does not say which of Gavel's policies it compares with; this is the first of them
(LAS, max-min fairness).

`gavel` runs the jobs of one `Problem` to the end. `Gavel` is the policy: fractions are computed anew when a job
comes or ends. A job that keeps its type from one round to the next keeps its machines; any other is stopped or
moved, whatever that costs, as in Gavel.

Departure: as many jobs take part as there are GPUs for at once, in order of submission; others wait.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cranny.core.queue import BySubmission
from cranny.core.snapshot import Snapshot
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Action, Plan, Start, Stop
from cranny.model.validate import counted, positive, whole
from cranny.policies._shared.heterogeneous.estimates import JobEstimates, speed_on
from cranny.policies._shared.heterogeneous.instance import Instance, placed
from cranny.policies._shared.heterogeneous.min_max_workers import packed
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, Problem, exchange_s
from cranny.policies._shared.resize import feasible_order

ROUND_S = 360.0  # of its paper
NOT_NOW = -1


@dataclass(slots=True, eq=False)
class RoundState:
    """The jobs that take part until jobs or machines change, and the rounds that each has received."""

    key: tuple[frozenset[str], tuple[int, ...]]  # jobs, and GPUs of machines that are up
    instance: Instance
    wanted: Ints  # (jobs,) GPUs
    capacity: Ints  # (machines,)
    totals: Ints  # (types,)
    share: Floats  # (jobs, types) fractions of time
    received: Floats  # (jobs, types) rounds
    rounds: int = 0


class Gavel(BySubmission):
    """Give jobs whole rounds on one type of GPU, as often as is fair."""

    period_s = ROUND_S
    least_period_s = 10.0  # so that a simulation of months ends

    def __init__(self, *, between_gbps: float | None = None) -> None:
        self._between_gbps = None if between_gbps is None else positive(between_gbps, "gavel: between_gbps")
        self._decided_s = -1.0
        self._state: RoundState | None = None

    def plan(self, view: Snapshot) -> Plan:
        """Choose the jobs of the round that begins now; one decision a round is enough."""
        if view.now_s == self._decided_s:
            return Plan(view.version)
        self._decided_s = view.now_s
        state = self._update(view)
        runs: dict[str, int] = {}  # job -> its type
        if state is not None:
            chosen = next_round(state.share, state.received, state.rounds, state.wanted, state.totals)
            state.rounds += 1
            for at in np.flatnonzero(chosen != NOT_NOW).tolist():
                state.received[at, chosen[at]] += 1
                runs[state.instance.jobs[at].id] = int(chosen[at])
        stopped = [job_id for job_id in view.running if job_id not in runs]
        stops = [Stop(job_id, "its round is over") for job_id in stopped]
        rest = _actions(view, state, runs, stopped) if state is not None else ()
        return Plan(view.version, (*stops, *rest))

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place one job on free GPUs of one type, the fastest for it that has enough."""
        free = _by_type(view, view.free)
        able = {kind: speed_on(job, kind) or 0.0 for kind, gpus in free.items() if gpus.sum() >= job.gpus}
        kind = max(able, key=lambda each: able[each], default="")
        if not able.get(kind):
            return None
        return placed(view, job, packed(free[kind], job.gpus), _note(job, kind))

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return that no type has enough GPUs, or that other jobs are farther behind."""
        if not _feasible(job, view, _capacity(view)):
            return f"no GPU type of the cluster that can run job {job.id!r} has {job.gpus} GPUs"
        return "waits for a later round: jobs that are farther behind their fair share of time go first"

    def _update(self, view: Snapshot) -> RoundState | None:
        """Compute fractions of time anew if jobs or machines have changed; None if no job takes part."""
        running, capacity = view.running, _capacity(view)
        key = (frozenset([*running, *(each.job.id for each in view.waiting)]), tuple(capacity.tolist()))
        if self._state is not None and self._state.key == key:
            return self._state
        jobs = [*(each.submitted for each in running.values()), *(each.job for each in view.waiting)]
        jobs = [job for job in jobs if _feasible(job, view, capacity)]
        jobs = sorted(jobs, key=lambda job: (job.submit_s, job.id))[: int(capacity.sum())]
        if not jobs:
            self._state = None
            return None
        # Only jobs that could all have a GPU at once take part; a `Problem` takes no more.
        instance = Instance.of(jobs, view.cluster, JobEstimates(), self._between_gbps, view.now_s)
        instance = replace(instance, least=np.ones_like(instance.least))
        chosen: list[int] = []
        for job in range(len(jobs)):
            if instance.fits_minimum([*chosen, job], capacity):
                chosen.append(job)
        jobs = [jobs[job] for job in chosen]
        # Fractions of time do not depend on remaining work, so no progress of jobs is needed.
        instance = Instance.of(jobs, view.cluster, JobEstimates(), self._between_gbps, view.now_s)
        problem, wanted = instance.subproblem(range(len(jobs)), capacity), np.array([job.gpus for job in jobs])
        share = fractions(problem, wanted, throughput(problem, wanted), np.ones(len(jobs), dtype=bool))
        self._state = RoundState(key, instance, wanted, capacity, problem.totals, share, np.zeros_like(share))
        return self._state


def _actions(
    view: Snapshot, state: RoundState, runs: Mapping[str, int], stopped: Iterable[str]
) -> tuple[Action, ...]:
    """Return the moves and starts of a round; a job that keeps its type keeps its machines."""
    running, kind_of = view.running, state.instance.kind
    left, new = state.capacity.copy(), []
    for job in state.instance.jobs:
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
        where = placed(view, job, workers, _note(job, state.instance.problem.gpu_types[kind]))
        if job.id in running:
            moves[job.id] = where
        else:
            starts.append(Start(job, where, before[job.id]))
    return feasible_order(view, moves, starts, stopped)


def _note(job: Job, gpu_type: str) -> str:
    """Return a note on the GPUs of a job; their type may have no name."""
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
    """Divide GPUs, (machines,), by their type."""
    kinds = np.array([machine.gpu_type for machine in view.cluster.machines])
    return {kind: np.where(kinds == kind, gpus, 0) for kind in view.cluster.machines_with}


def _feasible(job: Job, view: Snapshot, capacity: Ints) -> bool:
    """Say whether any type has enough GPUs, and can run a job."""
    there = _by_type(view, capacity).items()
    return any(gpus.sum() >= job.gpus and speed_on(job, kind) is not None for kind, gpus in there)


@dataclass(frozen=True, slots=True, eq=False)
class GavelOutcome:
    """The completion times that rounds lead to."""

    jct_s: Floats  # (jobs,)
    rounds: int

    @property
    def mean_jct_s(self) -> float:
        """Return the mean completion time."""
        return float(self.jct_s.mean())


def gavel(problem: Problem, scale: Sequence[int] | None = None, round_s: float = ROUND_S) -> GavelOutcome:
    """Run all jobs of a problem by Gavel until they are done."""
    positive(round_s, "round_s")
    wanted = scales(problem, scale)
    speed = throughput(problem, wanted)
    left = np.array([float(job.work) for job in problem.jobs])
    done_s, rounds = np.zeros(len(left)), 0
    while (active := left > 0).any():
        share = fractions(problem, wanted, speed, active)
        received, since = np.zeros_like(share), rounds
        while (left[active] > 0).all():
            chosen = next_round(share, received, rounds - since, wanted, problem.totals)
            for job in np.flatnonzero(chosen != NOT_NOW).tolist():
                kind = chosen[job]
                took_s = min(round_s, left[job] / speed[job, kind])
                received[job, kind] += 1
                left[job] = 0.0 if took_s < round_s else left[job] - took_s * speed[job, kind]
                done_s[job] = rounds * round_s + took_s
            rounds += 1
    return GavelOutcome(done_s, rounds)


def scales(problem: Problem, scale: Sequence[int] | None) -> Ints:
    """Check the numbers of GPUs that jobs ask for; by default as many as any type has that can run the job."""
    if scale is None:
        usable = np.where((problem.rates > 0) & (problem.totals > 0), problem.totals, problem.size + 1)
        return np.asarray(usable.min(axis=1))
    if len(scale) != len(problem.jobs):
        raise InputError(f"there are {len(scale)} scales for {len(problem.jobs)} jobs")
    for job, rates, asked in zip(problem.jobs, problem.rates, scale, strict=True):
        whole(asked, f"job {job.name!r}: scale")
        if not ((rates > 0) & (problem.totals >= asked)).any():
            raise InputError(f"job {job.name!r}: no GPU type that can run it has {asked} workers")
    return np.array(scale, dtype=np.int64)


def throughput(problem: Problem, scale: Ints) -> Floats:
    """Return samples/s of each job on its number of GPUs of each type, the network counted; 0 where it cannot."""
    work = np.array([float(job.work) for job in problem.jobs])[:, None]
    count = scale[:, None]
    inside, between = exchange_s(problem, apart=False)[:, None], exchange_s(problem, apart=True)[:, None]
    exchange = (count - 1) / count * np.where(problem.counts.max(axis=0) >= count, inside, between)
    able = (problem.rates > 0) & (problem.totals >= count)
    return np.asarray(np.where(able, work / (work / np.where(able, count * problem.rates, 1.0) + exchange), 0.0))


def fractions(problem: Problem, scale: Ints, speed: Floats, active: np.typing.NDArray[np.bool_]) -> Floats:
    """Return the fraction of time that each job should spend on each type, (jobs, types)."""
    from scipy.optimize import linprog

    jobs, kinds = speed.shape
    equal = speed @ (problem.totals / problem.size)
    # X of all jobs and types, then the least normalised throughput, which is maximised.
    cells = np.kron(np.eye(jobs), np.ones(kinds))  # (jobs, jobs * types) those of each job
    gains = (-speed / equal[:, None] * scale[:, None]).ravel()
    behind = np.pad(cells * gains, ((0, 0), (0, 1)), constant_values=1.0)
    limits = np.pad(np.vstack([cells, np.kron(scale, np.eye(kinds))]), ((0, 0), (0, 1)))
    usable = (speed > 0) & active[:, None]
    solved = linprog(
        np.append(np.zeros(jobs * kinds), -1.0),
        A_ub=np.vstack([behind[active], limits]),
        b_ub=np.concatenate([np.zeros(int(active.sum())), np.ones(jobs), problem.totals]),
        bounds=[(0, 1 if can else 0) for can in usable.ravel()] + [(0, None)],
    )
    return np.asarray(solved.x[:-1]).reshape(jobs, kinds)


def next_round(share: Floats, received: Floats, rounds: int, scale: Ints, totals: Ints) -> Ints:
    """Return the type of each job in the next round, or NOT_NOW: those farthest behind first."""
    had = received / max(rounds, 1)
    priority = np.where(share > 1e-9, share / np.maximum(had, 1e-9), 0.0)
    chosen = np.full(len(share), NOT_NOW)
    left = totals.copy()
    for cell in np.argsort(-priority, axis=None, kind="stable").tolist():
        job, kind = divmod(cell, share.shape[1])
        if priority[job, kind] > 0 and chosen[job] == NOT_NOW and scale[job] <= left[kind]:
            chosen[job] = kind
            left[kind] -= scale[job]
    return chosen
