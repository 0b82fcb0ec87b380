"""Pacing: an agent inside a running job keeps its iterations to a schedule, so that jobs interleave on a link.

CASSINI (NSDI'24) shifts jobs against each other. Its agents delay a job's next iteration by its shift (Sec. 4.2,
step 3), and correct it when it is off by more than five percent of the ideal iteration time (Sec. 5.7). This is
such an agent for any training loop, with nothing but a clock; `cranny.agent.torch` adds what PyTorch needs.

Iterations start in slots at `epoch_s + shift_s + k * period_s` of the wall clock, which machines share. So workers
need not communicate: all of them have the same schedule, and in synchronous training a job continues when its last
worker does. If one worker waits and another does not, the other waits for it in the next collective instead.
An agent must never be the reason that a job stops: it calls no collective, waits for little more than a period at
most, and raises no error once it runs.

Departure: the paper measures when communication starts; we measure when the iteration starts, when it is not too
late to wait. Departure: an iteration that would start early waits for its slot. `phases.md` says why for both.

Departure: the paper does not say what becomes of a job that cannot keep its schedule. If its iterations take a
little longer than the period, each adjustment costs nearly a period: with one that is 1 % short, 17 to 19 % more
time. So the agent learns from the job's own times, and keeps a period that is as many percent longer as they
need, until they need no more. If that is too much longer, or the job waits too much, it suspends pacing, and says
so. Two jobs that something disturbs for a while keep different periods then, or none, and would be in each other's
way for good; so both come back to their schedules, soon the first time, later if that fails.
"""

import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple, Self

from cranny.agent.pacing_schedule import PacingSchedule
from cranny.model.errors import InputError, at
from cranny.model.validate import not_negative

TOLERANCE = 0.05  # of the period, by which an iteration may start late (Sec. 5.7)
PATIENCE = 0.2  # share of the time: pacing is suspended if waits take more
WINDOW = 20  # iterations over which that share is measured
FAR_OFF = 0.5  # of the period: a schedule of which iterations take less is not theirs
STEP = 0.01  # of the period, by which it is lengthened: whole steps, so that workers and like jobs keep the same
FEWEST = 3  # iterations from which a period is learned
SUSPEND_FIRST = 50  # iterations until suspended pacing is resumed; twice as many each time that fails
SUSPEND_MOST = 1000
KEPT = 1000  # iterations that a report covers
POLL_S = 1.0  # between two checks of the watched file


class PacingWarning(UserWarning):
    """The agent does not keep the schedule as given."""


class StartedIteration(NamedTuple):
    """The iteration that runs."""

    waited_s: float  # before it started
    start_s: float  # by the clock of the schedule
    timer_s: float  # the same moment by the timer
    judged: bool  # whether it followed another one on the schedule: the wait for a shift does not count


class CommunicationTimes(NamedTuple):
    """When an iteration exchanged gradients, in seconds after its start."""

    start_s: float
    end_s: float
    busy_s: float  # while anything was exchanged
    alone_s: float  # after the last exchange has begun: all gradients are computed by then

    @classmethod
    def of(cls, intervals: Sequence[tuple[float, float]], start_s: float) -> Self:
        """Return the communication of an iteration that started then, from the intervals of its exchanges."""
        busy_s, until_s = 0.0, -math.inf
        for begin_s, end_s in sorted(intervals):
            busy_s += max(0.0, end_s - max(begin_s, until_s))
            until_s = max(until_s, end_s)
        first_s, last_s = min(intervals)[0], max(intervals)[0]
        return cls(first_s - start_s, until_s - start_s, busy_s, until_s - last_s)


class Iteration(NamedTuple):
    """What an agent remembers of an iteration."""

    waited_s: float  # before it started
    start_s: float  # by the clock of the schedule
    work_s: float  # from its start to its end
    communication: CommunicationTimes | None  # where known


@dataclass(frozen=True, slots=True)
class PacingReport:
    """How a job keeps its schedule; means and medians are over the last 1,000 iterations."""

    iterations: int  # that have ended
    iteration_s: float | None  # mean, with waits
    work_s: float | None  # median, without waits
    comm_start_s: float | None  # median of when an iteration begins to communicate, after its start
    comm_end_s: float | None
    drift_s: float | None  # how long after its slot the last iteration could have started; negative if before
    waited_s: float  # in all
    adjustments: int
    adjustments_per_minute: float
    paced: bool  # whether iterations wait for their slots
    schedule: PacingSchedule  # as given
    kept_period_s: float  # longer than that of the schedule if the job's own iterations are


class Pacer:
    """Keeps a training loop to its schedule: call `step` at the start of every iteration, in every worker.

    `watch` names a file with a schedule, written by `PacingSchedule.write`; when it changes, the new one applies.
    `patience` is the share of the time that may be spent waiting for slots; with 1 waits never suspend pacing.
    Without `learn` the period is kept as given, even if iterations take longer.
    """

    def __init__(
        self,
        period_s: float = 0.0,
        shift_s: float = 0.0,
        *,
        epoch_s: float = 0.0,
        tolerance: float = TOLERANCE,
        patience: float = PATIENCE,
        learn: bool = True,
        watch: str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.time,  # noqa: TID251 - machines share the wall clock, and no other
        timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.schedule = PacingSchedule(period_s, shift_s, epoch_s)
        self._tolerance = not_negative(tolerance, "tolerance")
        self._patience = not_negative(patience, "patience")
        self._learn = learn
        if self._tolerance >= 1.0:
            raise InputError(f"tolerance is a share of the period, less than 1, not {tolerance!r}")
        self._clock, self._timer, self._sleep = clock, timer, sleep
        self._past: deque[Iteration] = deque(maxlen=KEPT)
        self.heard: deque[CommunicationTimes] = deque(maxlen=KEPT)  # until it is taken from here
        self._waits: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # (waited, worked) with this schedule
        self._intervals: list[tuple[float, float]] = []  # of the iteration that runs, by the clock
        self._began: StartedIteration | None = None
        self._due: int | None = None  # the number of the next slot, once there was a first one
        self._steps = 0  # by which the period is lengthened
        self._suspended = 0  # iterations until suspended pacing is resumed
        self._suspend_for = SUSPEND_FIRST  # iterations, the next time
        self._paced_for = 0  # iterations since pacing was resumed, or the period changed
        self._fitted = False  # whether the job has kept the schedule for a while
        self._iterations = self._adjustments = 0
        self._waited_s = 0.0
        self._drift_s: float | None = None
        self._since_s: float | None = None  # by the timer: the first step
        self._watch, self._reload_s = watch, -math.inf
        self._seen = (0, 0)  # modification time and inode of the file read last
        self.schedule = self._read_if_changed() or self.schedule

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Return the agent that the environment describes, with `CRANNY_SCHEDULE_FILE` as the file to watch.

        Without such variables it lets iterations start as they come, and only measures them.
        """
        schedule = PacingSchedule.from_env(env)
        file = env.get("CRANNY_SCHEDULE_FILE", env.get("CRANNY_BEAT_FILE"))  # the latter was its name before 0.2
        return cls(schedule.period_s, schedule.shift_s, epoch_s=schedule.epoch_s, watch=file)

    def update(self, period_s: float, shift_s: float, epoch_s: float | None = None) -> None:
        """Switch to another schedule from the next iteration on."""
        self._suspend_for, self._fitted = SUSPEND_FIRST, False
        self._adopt(PacingSchedule(period_s, shift_s, self.schedule.epoch_s if epoch_s is None else epoch_s))

    def step(self) -> float:
        """Start an iteration: wait if it is due later; return the seconds waited."""
        self.end()
        return self.start()

    def end(self) -> None:
        """End the iteration that runs: what is done until the next one starts is no part of either."""
        self._suspended = max(0, self._suspended - 1)
        self._reload()
        self._synchronize()
        self._end(self._timer())

    def start(self) -> float:
        """Start an iteration after the end of another one; return the seconds waited."""
        now_s, timer_s = self._clock(), self._timer()
        if self.paced and self._due is not None and self._kept.position(now_s) > self._due + self._tolerance:
            self._lengthen()  # a slot was missed
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

    @property
    def last(self) -> Iteration | None:
        """The latest iteration that has ended."""
        return self._past[-1] if self._past else None

    @property
    def paced(self) -> bool:
        """Whether iterations wait for their slots: there is a schedule, and pacing is not suspended."""
        return self.schedule.period_s > 0.0 and not self._suspended

    @property
    def kept_period_s(self) -> float:
        """The period that is kept: longer than that of the schedule if the job's own iterations are."""
        return self._kept.period_s

    def recent_s(self) -> float | None:
        """Return the median of the last iterations with waits."""
        recent = self._latest(WINDOW)
        return median(each.waited_s + each.work_s for each in recent) if recent else None

    def report(self) -> PacingReport:
        """Return how the job keeps its schedule; `dataclasses.asdict` makes JSON of it."""
        past = self._past
        heard = [iteration.communication for iteration in past if iteration.communication is not None]
        minutes = (self._timer() - self._since_s) / 60.0 if self._since_s is not None else 0.0
        return PacingReport(
            iterations=self._iterations,
            iteration_s=fmean(each.waited_s + each.work_s for each in past) if past else None,
            work_s=median(each.work_s for each in past) if past else None,
            comm_start_s=median(each.start_s for each in heard) if heard else None,
            comm_end_s=median(each.end_s for each in heard) if heard else None,
            drift_s=self._drift_s,
            waited_s=self._waited_s,
            adjustments=self._adjustments,
            adjustments_per_minute=self._adjustments / minutes if minutes > 0.0 else 0.0,
            paced=self.paced,
            schedule=self.schedule,
            kept_period_s=self.kept_period_s,
        )

    @property
    def _kept(self) -> PacingSchedule:
        """The schedule that iterations wait for."""
        given = self.schedule
        return replace(given, period_s=given.period_s * (1.0 + STEP * self._steps)) if self._steps else given

    def _adopt(self, schedule: PacingSchedule, steps: int = 0) -> None:
        """Switch to a new schedule, or to the same with a longer period."""
        self.schedule, self._steps, self._due, self._suspended, self._drift_s = schedule, steps, None, 0, None
        self._paced_for = 0
        self._waits.clear()
        if self._began is not None:  # by another schedule
            self._began = self._began._replace(judged=False)

    def _reload(self) -> None:
        """Reload the schedule if the watched file has changed; an invalid file changes nothing."""
        timer_s = self._timer()
        if timer_s < self._reload_s + POLL_S:
            return
        self._reload_s = timer_s
        try:
            schedule = self._read_if_changed()
        except InputError as error:  # no reason to end a training run
            warnings.warn(f"{error}; the job keeps its schedule", stacklevel=4)
            return
        if schedule is not None and schedule != self.schedule:
            self.update(schedule.period_s, schedule.shift_s, schedule.epoch_s)

    def _read_if_changed(self) -> PacingSchedule | None:
        """Return the schedule in the watched file; None if it has not changed, or does not exist yet."""
        if self._watch is None:
            return None
        try:
            found = Path(self._watch).stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InputError(f"{at(self._watch)}: no schedule can be read: {error}") from None
        version = (found.st_mtime_ns, found.st_ino)
        if version == self._seen:
            return None
        self._seen = version
        return PacingSchedule.read(self._watch)

    def _synchronize(self) -> None:
        """Wait until the last iteration is over, where the training loop runs ahead of it."""

    def _end(self, timer_s: float) -> None:
        """Note the end of an iteration, and suspend pacing if iterations wait too much."""
        intervals, self._intervals = self._intervals, []
        began, self._began = self._began, None
        if began is None:
            self._since_s = timer_s if self._since_s is None else self._since_s
            return
        work_s = timer_s - began.timer_s
        self._past.append(Iteration(began.waited_s, began.start_s, work_s, communication=None))
        self._iterations += 1
        if intervals:
            self._hear(self._iterations, CommunicationTimes.of(intervals, began.start_s))
        if began.judged:
            self._waits.append((began.waited_s, work_s))
            waits, works = map(sum, zip(*self._waits, strict=True))
            trial_s = waits + works * WINDOW / len(self._waits)  # at least: if no more of its iterations wait
            if waits > self._patience * trial_s:
                if not self._fitted and work_s < FAR_OFF * self.schedule.period_s:  # every trial would be long
                    self._suspend_for = SUSPEND_MOST
                self._suspend(f"waits take {waits / trial_s:.0%} of the time or more")
            else:
                self._return_to_schedule()

    def _hear(self, number: int, communication: CommunicationTimes) -> None:
        """Note the communication of an iteration, by its number; it may be known some iterations later."""
        self.heard.append(communication)
        place = len(self._past) - 1 - (self._iterations - number)
        if place >= 0:
            self._past[place] = self._past[place]._replace(communication=communication)

    def _suspend(self, reason: str) -> None:
        """Let iterations start as they come for a while, and say why."""
        period_s, lasts = self._kept.period_s, self._suspend_for
        self._adopt(self.schedule)
        self._suspended, self._suspend_for = lasts, min(2 * lasts, SUSPEND_MOST)
        text = f"pacing is suspended for {lasts} iterations: with a period of {period_s:g} s {reason}"
        warnings.warn(text, PacingWarning, stacklevel=5)

    def _return_to_schedule(self) -> None:
        """Forget what disturbed the job, once it has gone well for a while: a longer period, failed trials."""
        self._paced_for += 1
        if self._paced_for >= self._suspend_for:
            self._suspend_for = SUSPEND_FIRST
        full = len(self._waits) == WINDOW
        self._fitted |= full
        fits_s = self.schedule.period_s * (1.0 - STEP / 2)  # clearly, so that it does not change each time
        if self._steps and full and median(work_s for _, work_s in self._waits) <= fits_s:
            self._adopt(self.schedule)

    def _lengthen(self) -> None:
        """Learn a longer period if the job's own iterations take longer than the one it is to keep."""
        if not self._learn or len(self._waits) < FEWEST:
            return
        given_s, work_s = self.schedule.period_s, self._own_s()
        steps = math.ceil((work_s / given_s - 1.0) / STEP)
        if steps * STEP > self._tolerance:
            self._suspend(f"iterations take {work_s:g} s")
        elif steps > self._steps:
            self._adopt(self.schedule, steps)
            kept_s = self._kept.period_s
            text = f"iterations take {work_s:g} s: the period is {kept_s:g} s from now on, not {given_s:g} s"
            warnings.warn(text, PacingWarning, stacklevel=4)

    def _latest(self, count: int) -> list[Iteration]:
        """Return the latest iterations that have ended, the last one first."""
        return [self._past[-each] for each in range(1, min(count, len(self._past)) + 1)]

    def _own_s(self) -> float:
        """Return what an iteration of late takes with no other job on its links, as far as that is known.

        Other jobs make exchanges longer, and nothing makes them shorter. They are no reason to give up the slots,
        which are there to keep jobs apart.
        """
        recent = self._latest(len(self._waits))
        work_s = median(each.work_s for each in recent)
        known = [(each.work_s, each.communication.busy_s) for each in recent if each.communication is not None]
        if not known:
            return work_s
        computing_s = median(each_s - busy_s for each_s, busy_s in known)
        return min(work_s, computing_s + min(busy_s for _, busy_s in known))

    def _wait_s(self, now_s: float) -> float:
        """Return how long the iteration that could start now is to wait, and count it if that is an adjustment."""
        if not self.paced:
            return 0.0
        schedule = self._kept
        position = schedule.position(now_s)
        first = math.ceil(position - self._tolerance)  # the first slot that is not missed
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
