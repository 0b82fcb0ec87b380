"""A trace: the jobs of a cluster in order of submission, held as columns."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cranny.model.collective import COLLECTIVES, DEFAULT_COLLECTIVE
from cranny.model.errors import InputError, unknown
from cranny.model.job import whole
from cranny.model.profile import ModelProfile, library
from cranny.model.validate import counted, seconds
from cranny.traces.presence import no_presence, presence_of, presence_rows, shifted
from cranny.traces.schema import CLOCKED, CPU_ONLY, LOGGED, REQUIRED, SCHEMA, checked, table_row, typed
from cranny.traces.trace_jobs import Jobs

# Models that are not trained by allreducing their whole gradient over a data-centre network, so that they are
# not drawn for a job without a model in its log: embeddings are exchanged sparsely, and models of
# billions of parameters are sharded. They can be named, or given as `models`.
NOT_DRAWN = frozenset({"dlrm", "gpt2-xl", "gpt3-2.7b", "llama-1b"})


class TraceWindow(NamedTuple):
    """The time that a trace was cut to, in seconds on its clock; waits of the first `warm_up_s` do not count."""

    begin_s: float
    end_s: float | None  # None: as far as the log goes
    warm_up_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Jobs as columns (see `docs/use/trace-format.md`), sorted by `submit_s`; equal times keep their order.

    Made by `read_trace`, `generate_trace` or, from a table of your own, `Trace.from_frame`.
    """

    name: str
    frame: pl.DataFrame
    notes: tuple[str, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)
    zero_epoch_s: float | None = None  # time zero in seconds since 1970; None if the log has a clock of its own
    zone: str | None = None  # in which people read its times; None: the log's own clock, if it has dates
    presence: pl.DataFrame = field(default_factory=no_presence)  # of skipped jobs, see `traces.presence`
    window: TraceWindow | None = None  # that it was cut to

    def __post_init__(self) -> None:
        for name, dtype in {**SCHEMA, **LOGGED}.items():
            if name in self.frame.columns:
                if self.frame.schema[name] != dtype:
                    raise InputError(f"{self.name}: {name}: must be {dtype}, not {self.frame.schema[name]}")
            elif name in REQUIRED:
                raise InputError(f"{self.name}: missing column {name}")
        if not self.frame["submit_s"].is_sorted():
            object.__setattr__(self, "frame", self.frame.sort("submit_s", maintain_order=True))

    @staticmethod
    def from_frame(
        frame: pl.DataFrame,
        name: str = "trace",
        *,
        strict: bool = True,
        profiles: Mapping[str, ModelProfile] | None = None,
    ) -> "Trace":
        """Check a table of jobs, column by column and row by row, and make it a trace.

        With `strict` false, rows that cannot be used are skipped and counted.
        """
        table = frame.select(typed(frame.schema, name))
        known = library() if profiles is None else profiles
        sound = checked(table, name, partial(table_row, name, frame.lazy()), known, strict=strict)
        return Trace(name, *sound, presence=presence_of(table.filter(CPU_ONLY.broken)))

    def __len__(self) -> int:
        return self.frame.height

    def jobs(
        self,
        seed: int = 0,
        collective: str | None = None,
        models: Sequence[str] | None = None,
        profiles: Mapping[str, ModelProfile] | None = None,
        partitions: Collection[str] = (),
        *,
        limits: bool = False,
    ) -> Jobs:
        """Return the jobs in order of submission.

        Those of one of the `partitions` run only there, and with `limits` policies know the limit that a job
        has in place of its duration.

        A job without a model gets one of `models` (all but `NOT_DRAWN` by default), each as likely; the draw
        depends on the seed and the row alone. A job without a collective gets `collective`.
        """
        known = library() if profiles is None else profiles
        drawn_from = [name for name in known if name not in NOT_DRAWN] if models is None else list(models)
        named = self.frame["model"].drop_nulls().unique().sort() if "model" in self.frame.columns else ()
        for name in (*drawn_from, *named):
            if name not in known:
                raise unknown("model", name, known)
        if not drawn_from:
            raise InputError("models: name at least one model to draw from")
        default = DEFAULT_COLLECTIVE if collective is None else collective
        if default not in COLLECTIVES:
            raise unknown("collective", default, COLLECTIVES)
        rng = np.random.default_rng(whole(seed, "seed", least=0, most=2**63 - 1))
        # One draw a row, needed or not: a job's model does not change when another job names its own.
        draws = rng.integers(len(drawn_from), size=len(self), dtype=np.uint32)
        return Jobs(self.frame, draws, drawn_from, default, known, partitions, limits=limits)

    def slice(
        self,
        start_s: float = 0.0,
        end_s: float = math.inf,
        skip: int = 0,
        count: int | None = None,
        *,
        from_zero: bool = False,
    ) -> "Trace":
        """Return the jobs submitted from `start_s` to just before `end_s`.

        Of those the first `skip` are passed over and at most `count` kept. With `from_zero` times are shifted
        so that the first job kept is submitted at 0. What is left of a window is none.
        """
        submit_s = self.frame["submit_s"]
        first = int(submit_s.search_sorted(start_s, side="left")) + max(skip, 0)
        last = int(submit_s.search_sorted(end_s, side="left"))
        if count is not None:
            last = min(last, first + count)
        if last <= first:
            span = f"jobs are submitted from {submit_s[0]:,.0f} s to {submit_s[-1]:,.0f} s"
            raise InputError(f"{self.name}: no jobs in that slice; {span}")
        frame = self.frame.slice(first, last - first)
        if from_zero:
            clocked = [name for name in CLOCKED if name in frame.columns]
            zero_s = float(frame["submit_s"][0])
            frame = frame.with_columns(pl.col(clocked) - zero_s)
            presence = shifted(self.presence, -zero_s)
            zero_epoch_s = None if self.zero_epoch_s is None else self.zero_epoch_s + zero_s
            return replace(self, frame=frame, zero_epoch_s=zero_epoch_s, presence=presence, window=None)
        return replace(self, frame=frame, window=None)

    def where(self, **values: object) -> "Trace":
        """Return the jobs whose columns hold these values, such as `where(cluster="cluster04")`."""
        for column in values:
            if column not in self.frame.columns:
                raise unknown("column", column, self.frame.columns)
        frame = self.frame.filter(*(pl.col(column) == pl.lit(value) for column, value in values.items()))
        if frame.is_empty():
            wanted = ", ".join(f"{column} {value!r}" for column, value in values.items())
            raise InputError(f"{self.name}: no jobs with {wanted}")
        return replace(self, frame=frame)

    def from_eligible(self) -> "Trace":
        """Return the jobs with each submitted when it was eligible to start, where that is later."""
        if "eligible_s" not in self.frame.columns:
            return self
        later = (self.frame["eligible_s"].is_finite() & (self.frame["eligible_s"] > self.frame["submit_s"])).sum()
        if not later:
            return self
        eligible_s = pl.max_horizontal("submit_s", pl.col("eligible_s").fill_nan(None))
        note = f"{counted(int(later), 'job')} count from when they were eligible to start, not from submission"
        frame = self.frame.with_columns(submit_s=eligible_s).sort("submit_s", maintain_order=True)
        return replace(self, frame=frame, notes=(*self.notes, note))

    def with_restarts(self, restart_s: float) -> "Trace":
        """Return the jobs with so many seconds to lose when they are stopped or moved, where they do not say."""
        seconds(restart_s, "restart_s")
        said = pl.col("restart_s").fill_null(restart_s) if "restart_s" in self.frame.columns else pl.lit(restart_s)
        return replace(self, frame=self.frame.with_columns(restart_s=said))

    def write(self, path: str | Path, *, presence: bool = False) -> None:
        """Write the trace as CSV or Parquet, as its name ends; `presence`: with rows for skipped jobs."""
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".csv", ".parquet"):
            raise InputError(f"{path}: a trace's name must end in .csv or .parquet")
        frame = self.frame
        if presence and self.presence.height:
            frame = pl.concat([frame, presence_rows(self.presence)], how="diagonal")
        write = frame.write_csv if suffix == ".csv" else frame.write_parquet
        try:
            write(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        except pl.exceptions.PolarsError as error:
            raise InputError(f"{path}: cannot be written: {str(error).splitlines()[0]}") from None
