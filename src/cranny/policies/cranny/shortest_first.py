"""Jobs that can all be resized, on GPUs of several types: one after the other, each with the workers worth having.

`has-resets` gives every job workers from the start, and then pays a restart for each share that grows. A first
start costs nothing: so the first job of the queue gets all GPUs that it can use, and the next one what it leaves.

Where restarts are short, it gets no more than pays (`worker_sets`). Of its GPUs those that suit the next job
better are left to it from the start: both then need fewer GPU-seconds. And where no more jobs are expected to
come, it is played out what becomes of those that are there (`sizes_lookahead`).

A running job is stopped for the first of the queue only if it comes later with what it has left, and if that is
more than the other needs by far; or, where restarts are short, if the first can start, but gains more on its GPUs
than it loses: a short job need not run on slow ones since a long one has all others. So no job is passed for ever,
as in the queue.
"""

from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice
from operator import itemgetter

import numpy as np

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.arrays import Ints
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies._shared.heterogeneous.instance import min_gpus, placed
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import RESTARTS, goes_on, least_gain_s
from cranny.policies.cranny.sizes_lookahead import MOST, Arrivals, SizesLookahead
from cranny.policies.cranny.worker_sets import JobsSeen, WorkerSets

# Seconds that a job which could start must gain for each that another loses which is stopped for it: if they are
# about as long, who goes first makes no difference, and each that is stopped would stop the next.
STOP_MARGIN = 1.1
STOPS_TRIED = 4  # running jobs whose GPUs might gain the first of the queue most


class ShortestFirst:
    """Starts the first job of the queue with the workers that are worth having."""

    def __init__(self, patience: float, *, lookahead: bool = True) -> None:
        self._patience = patience
        self._seen = JobsSeen()
        self._arrivals = Arrivals()
        self._looks_ahead = lookahead

    def plan(self, view: Snapshot, *, sharing: bool) -> Plan:
        """Start the first job on free GPUs, or stop a job for it; once none waits, let one grow.

        With `sharing` a job leaves GPUs that cost more than they gain it, and the first those that suit the second
        better.
        """
        sets = self._seen.follow(view)
        self._arrivals.see(view)
        queue = list(islice((each for each in view.waiting if sets.has_room(each.job, sets.up)), MOST + 1))
        action = self._first(queue, view, sets, sharing=sharing) if queue else _grown(view, sets, sharing=sharing)
        if sharing and self._looks_ahead and not isinstance(action, Stop):
            better = SizesLookahead(view, sets).better(queue, self._arrivals)
            if better:
                return Plan(view.version, better)
        return Plan(view.version, () if action is None else (action,))

    def _first(
        self, queue: Sequence[Waiting], view: Snapshot, sets: WorkerSets, *, sharing: bool
    ) -> Action | None:
        """Start the first job of the queue, or stop one for it."""
        job = queue[0].job
        if not sets.has_room(job, view.free):
            return self._make_room(job, view, sets, sharing=sharing)
        if not sharing:
            workers, note = sets.all_usable(job, view.free), "the first of the queue has all that it can use"
            return Start(job, placed(view, job, workers, note), queue[0].attained_gpu_s)
        following = queue[1].job if len(queue) > 1 else None
        workers = sets.worth_having_beside(job, following, view.free)
        stopped = self._gains_by_stop(job, workers, following, view, sets)
        if stopped is not None:
            return Stop(stopped, f"job {job.id!r} gains more on its GPUs than it loses")
        note = "the first of the queue has all that are worth what they cost"
        if following is not None and workers.sum() < sets.worth_having(job, view.free).sum():
            note = f"other GPUs suit job {following.id!r} better"
        return Start(job, placed(view, job, workers, note), queue[0].attained_gpu_s)

    def _make_room(self, job: Job, view: Snapshot, sets: WorkerSets, *, sharing: bool) -> Stop | None:
        """Stop the job that has most left, if that is more than the first of the queue needs by far."""
        workers = sets.worth_having(job, sets.up) if sharing else sets.all_usable(job, sets.up)
        needs_s = sets.seconds(job, workers)
        longest, most_s = None, 0.0
        for each, held in self._later(job, view, sets):
            left_s = sets.seconds(each.submitted, held)
            if left_s > max(most_s, needs_s + RESTARTS * each.submitted.restart_s):
                longest, most_s = each.submitted.id, left_s
        return None if longest is None else Stop(longest, f"makes way for job {job.id!r}")

    def _gains_by_stop(
        self, job: Job, workers: Ints, following: Job | None, view: Snapshot, sets: WorkerSets
    ) -> str | None:
        """Return the running job of whose stop one that can start gains most, beyond what that one loses.

        It restarts, at once on what is left if that is enough, and once more when it gets its GPUs back.
        """
        starts_s = sets.seconds(job, workers)
        best, most_s = None, 0.0
        most = []  # that it could gain, if it communicated in no time on the GPUs of others
        for each, held in self._later(job, view, sets):
            there = np.minimum(view.free + held, sets.up)
            at_best_s = sets.left_s(job) * sets.stretch_at_best(job, sets.usable(job, there))
            most.append((starts_s - at_best_s - RESTARTS * each.submitted.restart_s, each, there, held))
        for bound_s, each, there, held in nlargest(STOPS_TRIED, most, key=itemgetter(0)):
            if bound_s <= most_s:
                break
            other = each.submitted
            is_next = following is None or self._place(other, sets) < self._place(following, sets)
            better = sets.worth_having_beside(job, other if is_next else following, there)
            takes_s = sets.seconds(job, better)
            # Otherwise it would start on free GPUs, and move once the other has ended.
            ends_s = sets.seconds(other, held)
            moves_s = ends_s + job.restart_s + max(0.0, 1.0 - ends_s / starts_s) * takes_s
            gain_s = min(starts_s, moves_s) - takes_s - STOP_MARGIN * RESTARTS * other.restart_s
            if gain_s <= most_s:
                continue
            rest = sets.worth_having(other, there - better)
            runs_on = rest.sum() >= min_gpus(other)
            slower = sets.stretch(other, held) / sets.stretch(other, rest) if runs_on else 0.0
            gain_s -= STOP_MARGIN * takes_s * max(0.0, 1.0 - slower)
            if gain_s > most_s:
                best, most_s = other.id, gain_s
        return best

    def _later(self, job: Job, view: Snapshot, sets: WorkerSets) -> Iterator[tuple[Running, Ints]]:
        """Yield the running jobs that come later with what they have left, and their GPUs, which a job can use."""
        place = self._place(job, sets)
        for each in view.running.values():
            held = sets.held(each)
            if self._place(each.submitted, sets) > place and goes_on(each, view) and sets.usable(job, held).any():
                yield each, held

    def _place(self, job: Job, sets: WorkerSets) -> tuple[float, float]:
        """Return the place of a job in the queue with what it has left."""
        return -job.priority, queue_key(job, sets.left_s(job), self._patience)


def _grown(view: Snapshot, sets: WorkerSets, *, sharing: bool) -> Action | None:
    """Move a job to other GPUs, or more, if it gains more than its restart."""
    chosen = sets.worth_having if sharing else sets.all_usable
    for each in view.running.values():
        job, held = each.submitted, sets.held(each)
        free = sets.usable(job, view.free)
        if not free.any() or not all(map(view.is_up, each.held)):
            continue
        least_s = least_gain_s(job, sets.left_s(job))
        held_s = sets.seconds(job, held)
        if held_s - sets.left_s(job) * sets.stretch_at_best(job, free + held) <= least_s:
            continue
        more = chosen(job, free + held)
        if held_s - sets.seconds(job, more) > least_s:
            return Move(job.id, placed(view, job, more, "GPUs that no other job waits for"))
    return None
