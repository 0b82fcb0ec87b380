"""Pollux: numbers of workers for all jobs that together make the most progress.

A. Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021. The text
of that paper was not at hand; this follows its outline from memory, and what CASSINI (NSDI 2024, Sec. 5.1) says of
it.

Symbols:

    THROUGHPUT   samples a second with k workers: the batch over the time to compute and to communicate, alone
    phi          `noise`: the gradient noise scale, in batches of the job as submitted
    EFFICIENCY   (phi + 1) / (phi + m): the progress of a sample in a batch m times as large; m = max(1, k / gpus)
    GOODPUT      their product
    SPEEDUP      GOODPUT with k workers over that with a fair share of the GPUs
    p            -1: FITNESS is the power mean of the jobs' speedups
    delta        `restart_s`: what a job loses that is moved
    REALLOC      age / (age + delta): by this the speedup of a job shrinks that would be moved

At most every `interval_s` GPUs are divided anew among all jobs, running or waiting; in between, waiting jobs may
start on GPUs that are free. A job that is not elastic has all of its workers or none, and is never stopped.

Departure: a deterministic local search instead of a genetic algorithm. From what jobs have now, the step that
raises the fitness most for a GPU is done, over and over: one job gets more workers, or its first ones, from the
free GPUs or from the jobs that lose least by giving some.

Departure: Pollux tunes batch sizes and learns phi from gradients. Our jobs keep their batch, and phi is not
measured: it is a parameter, of 10 batches. It matters only for jobs that may have more workers than they asked
for.

Departure: jobs may want certain types of GPU. Only such numbers of workers are tried for which there are GPUs, and
only jobs give some that hold what is short.

Departure: jobs that wait have a small speedup, `WAITING`, not none, of which there is no power mean.

Workers go to one machine if one holds them, else to the machines with the most free GPUs: by what CASSINI says,
Pollux does not look at racks. All places on as many machines are candidates. Of equal ones the first is taken, or
one is drawn by a seed `ties`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cranny.core.accounting import attained_gpu_s
from cranny.core.snapshot import ALL, Snapshot
from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.plan import Plan
from cranny.model.validate import not_negative, positive
from cranny.policies._shared.candidates import as_trained
from cranny.policies._shared.locality import drawn_by
from cranny.policies._shared.promises import GpuPool
from cranny.policies._shared.resize import ResizingPolicy, place_resized, plans, without_jobs

if TYPE_CHECKING:
    import numpy as np

WAITING = 0.05  # speedup of a job without GPUs
MOST_KNOWN = 100_000  # goodputs that are remembered
_GAIN = 1e-9
Badness = Callable[[str, int], float]


class Pollux(ResizingPolicy):
    """Divide GPUs among jobs so that their goodputs, against a fair share, are largest."""

    other_reason = "other jobs gain more from the GPUs"

    def __init__(
        self, *, interval_s: float = 60.0, restart_s: float = 30.0, noise: float = 10.0, ties: int | None = None
    ) -> None:
        self.interval_s = positive(interval_s, "pollux: interval_s")
        self.restart_s = not_negative(restart_s, "pollux: restart_s")
        self.noise = not_negative(noise, "pollux: noise")
        self._choose = partial(choose, ties=drawn_by(ties, "pollux: ties"))
        self._divided_s = -math.inf
        self._goodputs: dict[tuple[str, int], float] = {}

    def candidates(self, view: Snapshot, count: int) -> list[Plan]:
        """Divide GPUs anew if it is time, or start waiting jobs on free ones; plans differ in the machines."""
        due = view.now_s >= self._divided_s + self.interval_s
        if due:
            self._divided_s = view.now_s
        elif not view.waiting:
            return [Plan(view.version)]
        if len(self._goodputs) > MOST_KNOWN:
            self._goodputs.clear()
        return (
            self._changes(view, count, resize=due)
            or self._changes(view, count, resize=False)
            or [Plan(view.version)]
        )

    def _changes(self, view: Snapshot, count: int, *, resize: bool) -> list[Plan]:
        """Return plans that give jobs their new numbers of workers; none if a running job finds no machines so."""
        had = {job_id: len(running.placement.machines) for job_id, running in view.running.items()}
        sizes = self._divide(view, had, resize=resize)
        changed = {job_id: size for job_id, size in sizes.items() if size and size != had.get(job_id)}
        moved = {job_id: view.running[job_id] for job_id in changed if job_id in had}
        base = without_jobs(view, moved)
        machines_of = place_resized(changed, moved, base, self._choose)
        if not machines_of or not moved.keys() <= machines_of.keys():
            return []
        notes = {
            job_id: f"{len(machines)} workers, of {view.cluster.gpus} GPUs for {len(sizes)} jobs"
            for job_id, machines in machines_of.items()
        }
        # On how many machines a job is: all that Pollux knows of its locality.
        return plans(machines_of, view, base, {}, notes, count, lambda machines: len(set(machines)))

    def goodput(self, job: Job, gpus: int, cluster: Cluster) -> float:
        """Return the progress of a job with some workers, in batches as submitted a second."""
        key = job.id, gpus
        known = self._goodputs.get(key)
        if known is None:
            sizes = [machine.gpus for machine in cluster.machines]
            machines = choose(gpus, sizes, cluster) or ()
            trained = as_trained(job, gpus)
            comm_s = communication(cluster, trained, machines).comm_s if len(set(machines)) > 1 else 0.0
            larger = max(1.0, gpus / job.gpus)
            efficiency = (self.noise + 1.0) / (self.noise + larger)
            known = self._goodputs[key] = efficiency / (trained.profile.iteration_s + comm_s)
        return known

    def _divide(self, view: Snapshot, had: Mapping[str, int], *, resize: bool) -> dict[str, int]:
        """Return how many workers each job should have; running jobs keep theirs unless they may be resized."""
        jobs = {job_id: running.submitted for job_id, running in view.running.items()}
        jobs |= {each.job.id: each.job for each in view.waiting}
        feasible = _FeasibleSizes(view, jobs, had)
        sizes = feasible.sizes

        def badness(job_id: str, size: int) -> float:
            """Return 1 / SPEEDUP, of which p = -1 wants the least sum."""
            job, speedup, cluster = jobs[job_id], WAITING, view.cluster
            if size:
                share = min(max(cluster.gpus // len(jobs), job.least_gpus or job.gpus), job.most_gpus or job.gpus)
                speedup = max(self.goodput(job, size, cluster) / self.goodput(job, share, cluster), WAITING)
            if size != had.get(job_id, size):
                running = view.running[job_id]
                age_s = attained_gpu_s(running, view.now_s) / running.job.gpus
                realloc = age_s / (age_s + self.restart_s) if self.restart_s else 1.0
                speedup *= max(realloc, WAITING)
            return 1.0 / speedup

        elastic = [job_id for job_id in had if resize and (jobs[job_id].least_gpus or jobs[job_id].most_gpus)]
        growing = [*elastic, *[job_id for job_id in jobs if job_id not in had]]
        while True:
            best: tuple[float, dict[str, int]] | None = None
            for job_id, more in ((each, more) for each in growing for more in _options(jobs[each], sizes[each])):
                others = [each for each in elastic if each != job_id]
                step = _transfer(job_id, more, others, feasible, badness)
                if step is None:
                    continue
                gain = sum(badness(each, sizes[each]) - badness(each, size) for each, size in step.items())
                gain /= more - sizes[job_id]
                if gain > _GAIN and (best is None or gain > best[0] + _GAIN):
                    best = gain, step
            if best is None:
                return sizes
            feasible.settle(best[1])


class _FeasibleSizes:
    """How many workers jobs have so far, and which numbers they can have together.

    A job whose number changes is placed anew, on what is free and on what such jobs had; the others stay.
    """

    def __init__(self, view: Snapshot, jobs: Mapping[str, Job], had: Mapping[str, int]) -> None:
        self.least = {job_id: job.least_gpus or job.gpus for job_id, job in jobs.items()}
        self.sizes = {job_id: had.get(job_id, 0) for job_id in jobs}
        self._had = had
        self._suited = {job_id: view.eligible(job) for job_id, job in jobs.items()}
        self._typed = any(machines != ALL for machines in self._suited.values())
        self._free = int(view.free.sum())
        self._pool = GpuPool(view.free.tolist())
        self._held = {
            job_id: {machine: gpus for machine, gpus in running.placement.counts.items() if view.is_up(machine)}
            for job_id, running in view.running.items()
            if self._typed
        }

    def settle(self, step: Mapping[str, int]) -> None:
        """Give jobs other numbers of workers."""
        self._free -= sum(size - self.sizes[job_id] for job_id, size in step.items())
        self.sizes |= step

    def short(self, step: Mapping[str, int]) -> int:
        """Return machines that after a step had too few GPUs for jobs that can use no others, as a set."""
        if not self._typed:
            return ALL if sum([size - self.sizes[job_id] for job_id, size in step.items()]) > self._free else 0
        pool = self._pool.copy()
        for job_id, size in {**self.sizes, **step}.items():
            if size != self._had.get(job_id, 0):
                pool.add(self._held.get(job_id, {}))
                pool.take(self._suited[job_id], size)
        return pool.short()

    def helps(self, job_id: str, size: int, machines: int) -> bool:
        """Say whether there would be more GPUs on these machines if a job had fewer workers than so many."""
        if not self._suited[job_id] & ~machines:
            return True
        # It can go elsewhere, so all that it has there is given as soon as it changes.
        return size == self._had[job_id] and any(machines >> machine & 1 for machine in self._held[job_id])


def _options(job: Job, size: int) -> list[int]:
    """Return the numbers of workers that a job may try next: one more, twice as many, all it can have."""
    least, most = job.least_gpus or job.gpus, job.most_gpus or job.gpus
    return sorted(
        {more for more in (least, job.gpus, size + 1, 2 * size, most) if size < more <= most and more >= least}
    )


def _transfer(
    job_id: str, more: int, givers: Sequence[str], feasible: _FeasibleSizes, badness: Badness
) -> dict[str, int] | None:
    """Let a job have more workers, and take GPUs one by one where that does least harm until there are enough.

    Return the new sizes; None if there are never enough.
    """
    left = {each: feasible.sizes[each] for each in givers}
    step = {job_id: more}
    while machines := feasible.short(step):
        able = [each for each, size in left.items() if size > feasible.least[each]]
        if machines != ALL:
            able = [each for each in able if feasible.helps(each, left[each], machines)]
        if not able:
            return None
        harm = {each: badness(each, left[each] - 1) - badness(each, left[each]) for each in able}
        giver = min(able, key=lambda each: harm[each])
        step[giver] = left[giver] = left[giver] - 1
    return {each: left[each] for each in givers if each in step} | {job_id: more}


def choose(
    gpus: int,
    free: Sequence[int],
    cluster: Cluster,  # noqa: ARG001 - a `ChooseMachines`
    ties: "np.random.Generator | None" = None,
) -> tuple[int, ...] | None:
    """Return the tightest machine that holds so many workers, else those with the most free GPUs."""
    if sum(free) < gpus:
        return None
    order: list[int] = list(range(len(free))) if ties is None else ties.permutation(len(free)).tolist()
    holding = [machine for machine in order if free[machine] >= gpus]
    if holding:
        return (min(holding, key=lambda machine: free[machine]),) * gpus
    found: list[int] = []
    for machine in sorted(order, key=lambda machine: -free[machine]):
        found += [machine] * min(free[machine], gpus - len(found))
    return tuple(found if ties is None else sorted(found))
