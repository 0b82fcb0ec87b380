"""The agent of a training job: keeps its schedule, divides its batch, saves when asked, and reports.

    job = JobAgent(save=save, batch=256)
    for step in range(job.first_step or 0, steps):
        job.step()
        ...

It needs nothing but Python and the folder in `CRANNY_CHANNEL`, through which it talks to the service
(`docs/use/channel.md`); without one it only measures. `cranny.agent.torch` adds what PyTorch needs.

An agent must never be the reason that a job stops: it calls no collective, and no error of the channel ends a
training; the first of each kind is a warning.
"""

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sized
from pathlib import Path
from typing import Protocol, Self, TypeVar

from cranny.agent.agreement import Agreement, Due
from cranny.agent.measurement import Measurement
from cranny.agent.pacing import Pacer, PacingReport
from cranny.agent.sampler import Drawn, ShareSampler
from cranny.channel.control import MAX_NUMBER, CheckpointRequest, Control, samples
from cranny.channel.files import FOLDER_VARIABLE, TOKEN_VARIABLE
from cranny.channel.report import KEPT, Record, Report, Resumed, Saved
from cranny.model.errors import InputError
from cranny.model.placement import Aggregation
from cranny.model.validate import MAX_GPUS, not_negative, whole

REPORT_S = 5.0  # between two reports
FIRST_REPORT_S = 0.5  # the first ones come sooner, each after twice as long as the one before
MAX_BATCH = 10**12

T_co = TypeVar("T_co", covariant=True)
Save = Callable[[int], object]


class Scalable(Protocol[T_co]):
    """What can be multiplied: a number, or a tensor."""

    def __mul__(self, factor: float, /) -> T_co: ...


class ChannelWarning(UserWarning):
    """The channel between a job and the service does not work as it should; the training goes on."""


class JobAgent:
    """One rank of a training job: call `step` at the start of every iteration, in every rank.

    `save(step)` saves a checkpoint of a training that has done so many iterations; it is called in the same one on
    all ranks. `batch` is how many samples all ranks together have in an iteration. `first_step` is the iteration
    from which a training goes on. `lead` is how many iterations the loop may run ahead of its device.
    """

    def __init__(
        self,
        *,
        save: Save | None = None,
        batch: int | None = None,
        first_step: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        gradient_bytes: float | None = None,
        lead: int = 0,
        pacer: Pacer | None = None,
        env: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,  # noqa: TID251 - machines share the wall clock, and no other
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank = whole(_number(env, "RANK", 0) if rank is None else rank, "rank", least=0)
        self.ranks = whole(_number(env, "WORLD_SIZE", 1) if ranks is None else ranks, "ranks")
        if self.rank >= self.ranks:
            raise InputError(f"rank must be less than the number of ranks, {self.ranks}, not {self.rank}")
        self.batch = None if batch is None else whole(batch, "batch", most=MAX_BATCH)
        self.first_step = first_step
        self.pacer = Pacer.from_env(env) if pacer is None else pacer
        self.lead = lead
        self._save, self._seed = save, seed
        self._clock, self._timer = clock, timer
        self._channel = Path(env[FOLDER_VARIABLE]) if env.get(FOLDER_VARIABLE) else None
        self._token = env.get(TOKEN_VARIABLE, "")
        self._agreement = None if self._channel is None else Agreement(self._channel, self.rank, lead=lead)
        self._control = Control()
        self._request: CheckpointRequest | None = None  # that is not answered yet
        self._answered = 0  # the number of the request that was answered last
        self._measurement = Measurement(gradient_bytes)
        self._records: list[Record] = []
        self._saved: Saved | None = None
        self._resumed: Resumed | None = None
        self._next = 0  # the iteration that is about to start
        self._began = False
        self._sampler: ShareSampler | None = None
        self._plain: Drawn | None = None  # the division of a whole batch, until shares change
        self._interval_s, self._reported_s = FIRST_REPORT_S, timer()
        self._warned: set[str] = set()
        if first_step is not None:
            self.resumed(first_step)

    # -- what a training loop calls ----------------------------------------------------------------------------

    def step(self) -> float:
        """Start an iteration; return the seconds that it waited for its slot.

        Before it, what was agreed for this step is applied: a schedule, shares of ranks, a checkpoint.
        """
        self.pacer.end()
        if self._began:
            self._count()
        else:
            self._begin()
        self._listen()
        waited_s = self.pacer.start()
        self._next += 1
        return waited_s

    @property
    def connected(self) -> bool:
        """Whether there is a channel to a service."""
        return self._channel is not None

    @property
    def samples(self) -> int:
        """How many samples this rank has in the iteration that runs; 0 if no batch was given."""
        return self._drawn().own

    def scale(self, loss: Scalable[T_co]) -> T_co:
        """Weight the mean loss of this rank's samples, so that gradients are the mean over those of all ranks.

        For ranks whose gradients are averaged, as PyTorch does.
        """
        drawn = self._drawn()
        return loss * (drawn.own * self.ranks / drawn.all if drawn.all else 1.0)

    def sampler(self, dataset: Sized, *, shuffle: bool = True) -> ShareSampler:
        """Return which samples of a dataset this rank has, an iteration at a time; needs `batch`."""
        if self.batch is None:
            raise InputError("a sampler needs to know the batch: give `batch`")
        self._sampler = ShareSampler(
            dataset,
            self.batch,
            rank=self.rank,
            seed=self._seed,
            shuffle=shuffle,
            next_step=lambda: self._next,
            divide=self._divide,
        )
        return self._sampler

    @property
    def asked_to_save(self) -> bool:
        """Whether a checkpoint is asked for now, of a script that gave no `save`; until it calls `saved`."""
        return self._request is not None

    @property
    def aggregate(self) -> Aggregation | None:
        """Whether switches are to aggregate gradients, or the racks whose switches do; None if it was not said."""
        return self._control.aggregate

    def saved(self, step: int, took_s: float = 0.0) -> None:
        """Say that the script has saved a checkpoint by itself, after so many iterations."""
        step = whole(step, "step", least=0, most=MAX_NUMBER)
        self._note_saved(step, not_negative(took_s, "took_s"))

    def resumed(self, step: int) -> None:
        """Say that the training goes on after so many iterations; call it before the first step."""
        if self._began:
            self.warn("resumed was called after the first step, and is ignored")
            return
        self.first_step = self._next = whole(step, "step", least=0, most=MAX_NUMBER)

    def communicated(self, start_s: float, end_s: float) -> None:
        """Note that the iteration that runs communicated from one moment to another, by the wall clock."""
        self.pacer.communicated(start_s, end_s)

    def report(self) -> PacingReport:
        """Return how the job keeps its schedule."""
        return self.pacer.report()

    def close(self) -> None:
        """Report the last iterations; also done when Python ends, by agents that `connect` returns."""
        if self._began:
            self.pacer.end()
            self._count(final=True)
            self._began = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- samples -----------------------------------------------------------------------------------------------

    def _drawn(self) -> Drawn:
        """Return how many samples the iteration that runs has; before the first one, those of that."""
        current = max(self._next - 1, self.first_step or 0)
        drawn = None if self._sampler is None else self._sampler.drawn(current)
        if drawn is not None:
            return drawn
        if self._plain is None:
            all_samples = self.batch or 0
            own = samples(all_samples, self._control.shares, self.ranks)[self.rank] if all_samples else 0
            self._plain = Drawn(own, all_samples)
        return self._plain

    def _divide(self, step: int, batch: int) -> tuple[int, ...]:
        """Return the samples of each rank in an iteration that comes."""
        shares = self._control.shares
        if self._agreement is not None:
            shares = self._agreement.shares_at(step, shares)
        return samples(batch, shares, self.ranks)

    # -- the channel -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Report how long it took to come to the first step: a service asks only jobs that report to save."""
        self._began = True
        self._resumed = Resumed(self._next, self._clock(), _process_age_s())
        self._write()

    def _count(self, *, final: bool = False) -> None:
        """Count the iteration that has ended, and report now and then."""
        last = self.pacer.last
        if last is not None:
            self._measurement.add(last, self._drawn().own)
        now_s = self._timer()
        if not final and now_s < self._reported_s + self._interval_s:
            return
        self._reported_s, self._interval_s = now_s, min(2 * self._interval_s, REPORT_S)
        if self._measurement.iterations:
            self._records.append(self._measurement.record(self.pacer, self._next, self._clock()))
            del self._records[:-KEPT]
        self._write()

    def _write(self) -> None:
        """Replace the report."""
        if self._channel is None:
            return
        report = Report(self.rank, tuple(self._records), self._saved, self._resumed)
        try:
            report.write(self._channel, self._token)
        except Exception as error:  # noqa: BLE001 - no error of the channel ends a training
            self.warn(f"nothing can be reported: {error}")

    def _listen(self) -> None:
        """Apply what was agreed for the step that is about to start."""
        if self._agreement is None:
            return
        now_s, step = self._clock(), self._next
        drawn = 0 if self._sampler is None else self._sampler.ahead
        try:
            due = self._agreement.due(step, now_s, iteration_s=self.pacer.recent_s, drawn=drawn)
        except Exception as error:  # noqa: BLE001 - no error of the channel ends a training
            self.warn(f"the channel cannot be read: {error}")
            return
        for each in due:
            self._apply(each)
        if self._request is not None and self._save is not None:
            self._save_as_asked(self._save)

    def _apply(self, due: Due) -> None:
        """Switch to another control."""
        before, self._control = self._control, due.control
        self._plain = None
        pace, request = due.control.pace, due.control.checkpoint
        if pace != before.pace:
            try:
                self.pacer.update(*(pace or (0.0, 0.0, 0.0)))
                self._interval_s = FIRST_REPORT_S  # a period that does not fit costs time until the service knows
            except InputError as error:
                self.warn(f"the job keeps its schedule: {error}")
        if request is None or request.number <= self._answered:
            return
        if not due.late:
            self._request = request
        elif self._next > (self.first_step or 0):  # saving now might wait for ranks that have saved before
            self.warn(f"rank {self.rank} was asked too late to save with the other ranks, and did not")

    def _save_as_asked(self, save: Save) -> None:
        """Save because the service asks for it."""
        began_s = self._timer()
        try:
            save(self._next)
        except Exception as error:  # noqa: BLE001 - the training was going well
            self.warn(f"the checkpoint that was asked for cannot be saved: {error!r}")
            if self._request is not None:
                self._answered, self._request = self._request.number, None
            return
        self._note_saved(self._next, self._timer() - began_s)

    def _note_saved(self, step: int, took_s: float) -> None:
        """Report a checkpoint, as the answer to what was asked for if anything was.

        One that the script makes by itself soon after is an answer, too: it replaces the report of the one before,
        which the service may not have read yet.
        """
        request, self._request = self._request, None
        if request is not None:
            self._answered = request.number
        self._saved = Saved(step, self._clock(), took_s, self._answered)
        self._write()

    def warn(self, text: str) -> None:
        """Warn, once of each kind."""
        kind = text.partition(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, ChannelWarning, stacklevel=2)


def _number(env: Mapping[str, str], name: str, otherwise: int) -> int:
    """Return a variable that is a number."""
    text = env.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= len(str(MAX_GPUS)) else otherwise


def _process_age_s() -> float:
    """Return how long ago this process started; 0 where the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
