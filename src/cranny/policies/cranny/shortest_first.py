"""Jobs that can all be resized, on GPUs of several types: one after the other, each with the workers worth having.

`has-resets` gives every job workers from the start, and then pays a restart for each share that grows. A first
start costs nothing: so the first job of the queue gets all GPUs that it can use, and the next one what it leaves.

Where restarts are short, it gets no more than pays (`worker_sets`). Of its GPUs those that suit the next job
better are left to it from the start: both then need fewer GPU-seconds. And where no more jobs are expected to
come, it is played out what becomes of those that are there (`sizes_lookahead`).

A running job is stopped for the first of the queue only if it comes later with what it has left, and if that is
more than the other needs by far. So no job is passed for ever, as in the queue.
"""

from collections.abc import Sequence
from itertools import islice

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.plan import Action, Move, Plan, Start, Stop
from cranny.policies._shared.heterogeneous.instance import min_gpus, placed
from cranny.policies.cranny.queue_key import queue_key
from cranny.policies.cranny.restarts import RESTARTS, goes_on, least_gain_s
from cranny.policies.cranny.sizes_lookahead import MOST, Arrivals, SizesLookahead
from cranny.policies.cranny.worker_sets import JobsSeen, WorkerSets


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
        """Start the first job of the queue, or stop the one that has most left so that it can start."""
        waiting, *others = queue[:2]
        job = waiting.job
        chosen = sets.worth_having if sharing else sets.all_usable
        workers = chosen(job, view.free)
        if workers.sum() >= min_gpus(job):
            note = f"the first of the queue has all that {'are worth what they cost' if sharing else 'it can use'}"
            if sharing and others:
                suited = sets.left_to(others[0].job, job, workers)
                if suited is not None:
                    workers, note = suited, f"other GPUs suit job {others[0].job.id!r} better"
            return Start(job, placed(view, job, workers, note), waiting.attained_gpu_s)
        needs_s = sets.seconds(job, chosen(job, sets.up))
        key = self._key(job, sets)
        longest, most_s = None, 0.0
        for each in view.running.values():
            held = sets.held(each)
            left_s = sets.seconds(each.submitted, held)
            pays = left_s > max(most_s, needs_s + RESTARTS * each.submitted.restart_s)
            later = self._key(each.submitted, sets) > key
            if pays and later and goes_on(each, view) and sets.usable(job, held).any():
                longest, most_s = each.submitted.id, left_s
        return None if longest is None else Stop(longest, f"makes way for job {job.id!r}")

    def _key(self, job: Job, sets: WorkerSets) -> float:
        return queue_key(job, sets.left_s(job), self._patience)


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
