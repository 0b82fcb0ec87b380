"""The agent of a job that runs: it keeps the job's iterations to their beat, so that jobs take turns on a link.

CASSINI (NSDI'24) shifts jobs against each other. Its agents delay a job's next iteration by its shift (Sec. 4.2,
step 3), and bring it back when it is off by more than five percent of the ideal iteration time (Sec. 5.7). This is
such an agent for any training loop, with nothing but a clock; `cranny.agent.torch` adds what PyTorch needs.

Iterations ought to start at `epoch_s + shift_s + k * period_s` by the wall clock, which machines share. So
workers need not ask each other: all of them know the same beat, and in synchronous training a job goes on when its
last worker does. If one worker waits and another does not, the other waits for it in the next collective instead.
An agent must never be why a job stops: it calls no collective, waits for little more than a period at most, and
raises no error once it runs.

Departure: the paper measures when communication starts; we look when the iteration starts, when it is not too late
to wait. Departure: an iteration that would start early waits for its beat. `phases.md` says why for both.

Departure: the paper does not say what becomes of a job that cannot keep its beat. Ours lets go if it waits a lot.
"""

import json
import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple, Self

from cranny.model.errors import InputError, at, unknown
from cranny.model.validate import not_negative

TOLERANCE = 0.05  # of the period, by which an iteration may start late (Sec. 5.7)
PATIENCE = 0.2  # of the time: an agent that waits more lets go
WINDOW = 20  # iterations over which that is judged
SUSPEND_FOR = 1000  # iterations before an agent that let go tries again
KEPT = 1000  # iterations that a report is about
POLL_S = 1.0  # how often a file is looked at
FAR_S = 1e12  # later than any clock shows


@dataclass(frozen=True, slots=True)
class PacingSchedule:
    """When iterations ought to start: at `epoch_s + shift_s + k * period_s`, or at any time if the period is 0."""

    period_s: float = 0.0
    shift_s: float = 0.0
    epoch_s: float = 0.0

    def __post_init__(self) -> None:
        for name in SCHEDULE_FIELDS:
            object.__setattr__(self, name, not_negative(getattr(self, name), name))
        if self.period_s > 0.0 and math.isinf((self.epoch_s + self.shift_s + FAR_S) / self.period_s):
            raise InputError(f"period_s is too short to count such beats: {self.period_s!r}")

    def time_s(self, number: int) -> float:
        """Return the moment of a beat."""
        return self.epoch_s + self.shift_s + number * self.period_s

    def position(self, now_s: float) -> float:
        """Return where in the row of beats a moment is: 2.5 is halfway from beat 2 to beat 3."""
        return (now_s - self.epoch_s - self.shift_s) / self.period_s

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the beat to a file that agents watch, so that they see it whole or not at all."""
        target = Path(file)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(target)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Self:
        """Read the beat that a file holds."""
        try:
            found = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{at(file)}: no beat can be read: {error}") from None
        if not isinstance(found, dict):
            raise InputError(f"{at(file)}: a beat is an object with {', '.join(SCHEDULE_FIELDS)}")
        try:
            for name in found:
                if name not in SCHEDULE_FIELDS:
                    raise unknown("field", name, SCHEDULE_FIELDS)
            return cls(**found)
        except InputError as error:
            raise InputError(f"{at(file)}: {error}") from None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Return the beat in `CRANNY_PERIOD_S`, `CRANNY_SHIFT_S` and `CRANNY_EPOCH_S`; 0 where one is not set."""
        found = {}
        for name in SCHEDULE_FIELDS:
            variable = f"CRANNY_{name.upper()}"
            text = env.get(variable, "0")
            try:
                found[name] = not_negative(float(text), variable)
            except ValueError:  # an InputError is one, too
                raise InputError(f"{variable} must be a number, zero or more, not {text!r}") from None
        return cls(**found)


SCHEDULE_FIELDS = tuple(field.name for field in fields(PacingSchedule))


class StartedIteration(NamedTuple):
    """The iteration that runs."""

    waited_s: float  # before it started
    start_s: float  # by the clock that beats go by
    timer_s: float  # the same moment by the timer
    judged: bool  # whether it followed another one on its beat: the wait for a shift is no fault


class Iteration(NamedTuple):
    """What an agent remembers of an iteration."""

    waited_s: float  # before it started
    start_s: float  # by the clock that beats go by
    work_s: float  # from its start to its end
    communication: (
        tuple[float, float] | None
    )  # from when to when after its start it communicated, where that is known


@dataclass(frozen=True, slots=True)
class PacingReport:
    """How a job keeps its beat; means and medians are over the last 1,000 iterations."""

    iterations: int  # that have ended
    iteration_s: float | None  # mean, with waits
    work_s: float | None  # median, without waits
    comm_start_s: float | None  # median of when an iteration begins to communicate, after its start
    comm_end_s: float | None
    drift_s: float | None  # how long after its beat the last iteration could have started; negative if before
    waited_s: float  # in all
    adjustments: int
    adjustments_per_minute: float
    paced: bool  # whether iterations wait for their beat
    schedule: PacingSchedule


class Pacer:
    """Keep a training loop to its beat: call `step` at the start of every iteration, in every worker.

    `watch` names a file with a beat, written by `Beat.write`; when it changes, the new beat counts. `patience` is
    the share of the time that may be spent waiting for beats; with 1 the agent never lets go.
    """

    def __init__(
        self,
        period_s: float = 0.0,
        shift_s: float = 0.0,
        *,
        epoch_s: float = 0.0,
        tolerance: float = TOLERANCE,
        patience: float = PATIENCE,
        watch: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,  # noqa: TID251 - machines share the wall clock, and no other
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.schedule = PacingSchedule(period_s, shift_s, epoch_s)
        self._tolerance = not_negative(tolerance, "tolerance")
        self._patience = not_negative(patience, "patience")
        if self._tolerance >= 1.0:
            raise InputError(f"tolerance is a share of the period, less than 1, not {tolerance!r}")
        self._clock, self._timer, self._sleep = clock, timer, sleep
        self._past: deque[Iteration] = deque(maxlen=KEPT)
        self._waits: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # (waited, worked) while it keeps this beat
        self._intervals: list[tuple[float, float]] = []  # of the iteration that runs, by the clock
        self._began: StartedIteration | None = None
        self._due: int | None = None  # the number of the next beat, once there was a first one
        self._suspended = 0  # iterations until an agent that let go tries again
        self._iterations = self._adjustments = 0
        self._waited_s = 0.0
        self._drift_s: float | None = None
        self._since_s: float | None = None  # by the timer: the first step
        self._watch, self._reload_s = watch, -math.inf
        self._seen = (0, 0)  # which file that was: when it was written, and its number on the disk
        self.schedule = self._read_if_changed() or self.schedule

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Return the agent that the environment asks for, with `CRANNY_BEAT_FILE` as the file to watch.

        Without such variables it lets iterations start as they come, and only measures them.
        """
        schedule = PacingSchedule.from_env(env)
        return cls(
            schedule.period_s, schedule.shift_s, epoch_s=schedule.epoch_s, watch=env.get("CRANNY_BEAT_FILE")
        )

    def update(self, period_s: float, shift_s: float, epoch_s: float | None = None) -> None:
        """Keep another beat from the next iteration on."""
        self._adopt(PacingSchedule(period_s, shift_s, self.schedule.epoch_s if epoch_s is None else epoch_s))

    def step(self) -> float:
        """Start an iteration: wait if it is due later; return the seconds waited."""
        self._suspended = max(0, self._suspended - 1)
        self._reload()
        self._synchronize()
        timer_s = self._timer()
        self._end(timer_s)
        now_s = self._clock()
        judged = self._due is not None
        waited_s = self._wait_s(now_s)
        if waited_s > 0.0:
            self._sleep(waited_s)
            now_s, timer_s = self._clock(), self._timer()
        self._waited_s += waited_s
        self._began = StartedIteration(waited_s, now_s, timer_s, judged)
        return waited_s

    def communicated(self, start_s: float, end_s: float) -> None:
        """Note that the iteration that runs communicated from one moment to another, by the clock."""
        self._intervals.append((start_s, end_s))

    @property
    def past(self) -> tuple[Iteration, ...]:
        """The last 1,000 iterations that have ended."""
        return tuple(self._past)

    def report(self) -> PacingReport:
        """Return how the job keeps its beat; `dataclasses.asdict` makes JSON of it."""
        past = self._past
        intervals = [iteration.communication for iteration in past if iteration.communication is not None]
        minutes = (self._timer() - self._since_s) / 60.0 if self._since_s is not None else 0.0
        return PacingReport(
            iterations=self._iterations,
            iteration_s=fmean(each.waited_s + each.work_s for each in past) if past else None,
            work_s=median(each.work_s for each in past) if past else None,
            comm_start_s=median(start for start, _ in intervals) if intervals else None,
            comm_end_s=median(end for _, end in intervals) if intervals else None,
            drift_s=self._drift_s,
            waited_s=self._waited_s,
            adjustments=self._adjustments,
            adjustments_per_minute=self._adjustments / minutes if minutes > 0.0 else 0.0,
            paced=self._paced,
            schedule=self.schedule,
        )

    @property
    def _paced(self) -> bool:
        """Whether iterations wait for their beat."""
        return self.schedule.period_s > 0.0 and not self._suspended

    def _adopt(self, schedule: PacingSchedule) -> None:
        """Keep a beat that the job has not kept so far."""
        self.schedule, self._due, self._suspended, self._drift_s = schedule, None, 0, None
        self._waits.clear()
        if self._began is not None:  # by another beat
            self._began = self._began._replace(judged=False)

    def _reload(self) -> None:
        """Take the beat from the watched file if it has changed; a file that cannot be used changes nothing."""
        timer_s = self._timer()
        if timer_s < self._reload_s + POLL_S:
            return
        self._reload_s = timer_s
        try:
            schedule = self._read_if_changed()
        except InputError as error:  # no reason to end a training run
            warnings.warn(f"{error}; the job keeps its beat", stacklevel=3)
            return
        if schedule is not None and schedule != self.schedule:
            self._adopt(schedule)

    def _read_if_changed(self) -> PacingSchedule | None:
        """Return the beat in the watched file, or nothing if that has not changed or is not written yet."""
        if self._watch is None:
            return None
        try:
            found = Path(self._watch).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{at(self._watch)}: no beat can be read: {error}") from None
        version = (found.st_mtime_ns, found.st_ino)
        if version == self._seen:
            return None
        self._seen = version
        return PacingSchedule.read(self._watch)

    def _synchronize(self) -> None:
        """Wait until the last iteration is over, where the training loop runs ahead of it."""

    def _end(self, timer_s: float) -> None:
        """Note the end of an iteration, and let go if iterations wait too much."""
        intervals, self._intervals = self._intervals, []
        if self._began is None:
            self._since_s = timer_s
            return
        began, work_s, communication = self._began, timer_s - self._began.timer_s, None
        if intervals:
            starts, ends = zip(*intervals, strict=True)
            communication = (min(starts) - began.start_s, max(ends) - began.start_s)
        self._past.append(Iteration(began.waited_s, began.start_s, work_s, communication))
        self._iterations += 1
        if began.judged:
            self._waits.append((began.waited_s, work_s))
            waits, works = map(sum, zip(*self._waits, strict=True))
            trial_s = waits + works * WINDOW / len(self._waits)  # at least: if no more of its iterations wait
            if waits > self._patience * trial_s:
                self._adopt(self.schedule)
                self._suspended = SUSPEND_FOR

    def _wait_s(self, now_s: float) -> float:
        """Return how long the iteration that could start now is to wait, and count it if that is an adjustment."""
        schedule = self.schedule
        if not self._paced:
            return 0.0
        position = schedule.position(now_s)
        first = math.ceil(position - self._tolerance)  # the first beat that is not lost
        # More than a period early means that the clock was set back; that must not stop the job for long.
        if self._due is not None and -self._tolerance <= self._due - position <= 1.0 + self._tolerance:
            number = self._due
        else:
            number = first
            self._adjustments += self._due is not None
        self._drift_s = None if self._due is None else (position - self._due) * schedule.period_s
        self._due = number + 1
        # Numbers as large as a wrong epoch are not exact.
        return min(max(0.0, schedule.time_s(number) - now_s), (1.0 + self._tolerance) * schedule.period_s)
