"""A diary of running jobs: how long their iterations took, from each change of the network to the next."""

from cranny.network.phases.contention import Meetings
from cranny.network.phases.iteration_stats import Iterations, Stretch
from cranny.network.phases.outcome import Course


class Diary:
    """The courses of all jobs over time. A network says what changed, and whoever knows the time says when.

    Every stretch that ends is added to `iterations`; all of them are there to be read later only with `keep`.
    """

    def __init__(self, *, keep: bool = True) -> None:
        self.stretches: list[Stretch] = []
        self.iterations = Iterations()
        self.meetings = Meetings()
        self._keep = keep
        self._open: dict[str, tuple[float, Course, float]] = {}
        self._changes: dict[str, tuple[Course, float] | None] = {}

    def change(self, job_id: str, course: Course, alone_s: float) -> None:
        """Let a job have another course from the next note on."""
        self._changes[job_id] = course, alone_s

    def end(self, job_id: str) -> None:
        """Let a job be gone at the next note."""
        self._changes[job_id] = None

    def note(self, now_s: float) -> None:
        """Write down what has changed, as of now."""
        for job_id, change in self._changes.items():
            before = self._open.pop(job_id, None)
            if before is not None and now_s > before[0]:
                since_s, course, alone_s = before
                ended = Stretch(job_id, since_s, now_s, course, alone_s)
                self.iterations.add(ended)
                if self._keep:
                    self.stretches.append(ended)
            if change is not None:
                self._open[job_id] = now_s, *change
        self._changes.clear()
        self.meetings.note(now_s)
