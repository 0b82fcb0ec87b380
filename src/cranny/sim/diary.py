"""A diary of running jobs: how long their iterations took, from each change of the network to the next."""

from typing import NamedTuple

from cranny.core.phases.course import Course


class Stretch(NamedTuple):
    """A stretch of time in which a job had the same course."""

    job_id: str
    start_s: float
    end_s: float
    course: Course
    alone_s: float  # of an iteration there with nobody in the way

    @property
    def iterations(self) -> float:
        """How many iterations the job did in it, also parts of one."""
        return (self.end_s - self.start_s) / self.course.mean_s


class Diary:
    """The courses of all jobs over time. A network says what changed, and whoever knows the time says when."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []  # those that have ended
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
                self.stretches.append(Stretch(job_id, since_s, now_s, course, alone_s))
            if change is not None:
                self._open[job_id] = now_s, *change
        self._changes.clear()
