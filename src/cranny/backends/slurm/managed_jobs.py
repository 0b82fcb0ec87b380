"""Which jobs of Slurm the service has launched: the source does not list them, the backend follows them."""

import threading
from collections.abc import Collection


class ManagedJobs:
    """Ids of jobs, shared by two threads; times are those of a monotonic clock."""

    def __init__(self) -> None:
        self.comments = threading.Lock()  # held while the AdminComment of a job is written
        self._lock = threading.Lock()
        self._followed: set[int] = set()
        self._dropped: dict[int, float] = {}  # id -> when it was no longer followed
        self._resting: dict[int, float] = {}  # id -> until when it is not listed as waiting
        # id -> nodes that did not start it, until when
        self._avoided: dict[int, tuple[frozenset[str], float]] = {}

    def follow(self, job: int) -> None:
        """Note a job that is launched, before Slurm is asked to start it."""
        with self._lock:
            self._followed.add(job)
            self._dropped.pop(job, None)
            self._resting.pop(job, None)

    def drop(self, job: int, now: float, rest_s: float = 0.0) -> None:
        """Note that a job is no longer followed, and for how long it is not to be placed again."""
        with self._lock:
            self._followed.discard(job)
            self._dropped[job] = now
            if rest_s:
                self._resting[job] = now + rest_s

    def avoid(self, job: int, nodes: Collection[str], until: float) -> None:
        """Note nodes on which Slurm does not start a job, for some reason that it does not say of the nodes."""
        with self._lock:
            known = self._avoided.get(job, (frozenset(), 0.0))[0]
            self._avoided[job] = known | frozenset(nodes), until

    def avoided(self, job: int, now: float) -> frozenset[str]:
        """Return the nodes on which a job is not to be placed now."""
        with self._lock:
            nodes, until = self._avoided.get(job, (frozenset(), 0.0))
            return nodes if now < until else frozenset()

    def ours(self, job: int, asked_at: float) -> bool:
        """Return whether a job is followed now, or was when Slurm was asked."""
        with self._lock:
            return job in self._followed or self._dropped.get(job, asked_at - 1) >= asked_at

    def rests(self, job: int, now: float) -> bool:
        """Return whether a job is not to be placed yet, since Slurm did not start it where it was placed."""
        with self._lock:
            return self._resting.get(job, now) > now

    def forget(self, known: set[int]) -> None:
        """Forget what there was to know of jobs that Slurm has forgotten."""
        with self._lock:
            for notes in (self._dropped, self._resting, self._avoided):
                for job in [job for job in notes if job not in known]:
                    del notes[job]
