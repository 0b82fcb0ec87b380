"""The jobs of a trace with their models drawn: to be gone through, looked up one by one, or read as columns."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.traces.schema import COUNTS, LOGGED, SCHEMA

CHUNK = 8192
LOOKED_UP = 128  # rows around one that is looked up, which others near it are looked up in
CHUNKS_KEPT = 256  # a replay looks at the jobs that arrive, and at those that wait

QUEUED = ("partition", "priority", "limit_s")  # columns of a log that schedulers go by

Fields = tuple[list[Any], ...]  # of the jobs of a chunk


class Jobs(Sequence[Job]):
    """Jobs in order of submission, made from columns when they are asked for.

    Columns are turned into jobs a chunk at a time: looking rows up one by one would take most of a replay.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        draws: npt.NDArray[np.uint32],
        drawn_from: Sequence[str],
        collective: str,
        profiles: Mapping[str, ModelProfile],
        partitions: Collection[str] = (),
        *,
        limits: bool = False,
    ) -> None:
        kept = {"partition": bool(partitions), "priority": True, "limit_s": limits}
        names = [*SCHEMA, *(name for name in QUEUED if kept[name])]
        self._frame = frame.select([name for name in names if name in frame.columns])
        self._partitions = partitions  # that restrict where jobs run; others do not
        self._draws = draws  # (jobs,) index into `drawn_from`
        self._drawn_from = drawn_from
        self._collective = collective
        self._profiles = profiles
        self._queued = any(name in self._frame.columns for name in QUEUED)
        self._plain = not any(name in frame.columns for name in (*COUNTS, "restart_s", "speeds"))
        # What makes a job of the fields of a row.
        self._make: Callable[..., Job] = Job.checked_before if self._plain else _checked
        self._chunks: dict[int, Fields] = {}  # those that were looked into lately

    def __len__(self) -> int:
        return self._frame.height

    def __iter__(self) -> Iterator[Job]:
        for chunk in range(-(-len(self) // CHUNK)):
            yield from map(self._make, *self._fields(chunk * CHUNK, CHUNK))

    @overload
    def __getitem__(self, index: int) -> Job: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...

    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self._draws)
        if not 0 <= index < len(self._draws):
            raise IndexError(index)
        chunk, row = divmod(index, LOOKED_UP)
        if chunk not in self._chunks:
            while len(self._chunks) >= CHUNKS_KEPT:
                del self._chunks[next(iter(self._chunks))]
            self._chunks[chunk] = self._fields(chunk * LOOKED_UP, LOOKED_UP)
        return self._make(*[field[row] for field in self._chunks[chunk]])

    def shared(self) -> "Jobs":
        """Return the same jobs for another thread, with the same columns."""
        other = copy(self)
        vars(other)["_chunks"] = {}
        return other

    @cached_property
    def columns(self) -> pl.DataFrame:
        """The jobs in columns: the model is a job's own or drawn, the collective likewise.

        Empty are only the type of GPU and the partition of jobs that have none that restricts them. Policies
        expect a job to run for `known_s`.
        """
        own, drawn = self._filled("model", None), pl.Series(self._drawn_from, dtype=pl.String).gather(self._draws)
        partition, limit_s = self._filled("partition", None), self._filled("limit_s", None)
        duration_s = self._frame["duration_s"]
        return self._frame.select("job_id", "gpus", "submit_s", "duration_s").with_columns(
            model=own.zip_with(own.is_not_null(), drawn),
            tenant=self._filled("tenant", ""),
            collective=self._filled("collective", self._collective),
            gpu_type=self._filled("gpu_type", None),
            partition=partition.set(~partition.is_in(list(self._partitions)), None),
            priority=self._filled("priority", 0.0),
            known_s=limit_s.zip_with((limit_s > 0).fill_null(value=False), duration_s),
        )

    @property
    def data_parallel(self) -> bool:
        """Whether ranks only reduce gradients: no job has stages, shards or partitioned embeddings."""
        partitioned = any(profile.exchanged_bytes for profile in self._profiles.values())
        return not partitioned and "tp" not in self._frame.columns and "pp" not in self._frame.columns

    @property
    def is_rigid(self) -> bool:
        """Whether every job runs on as many GPUs as it asks for, whose speed makes no difference."""
        elastic = ("speeds", "least_gpus", "most_gpus")
        return all(name not in self._frame.columns or self._frame[name].count() == 0 for name in elastic)

    def _filled(self, name: str, default: Any) -> pl.Series:
        """Return a column with `default` where it is empty, or all `default` where there is none."""
        if name not in self._frame.columns:
            dtype = SCHEMA.get(name) or LOGGED[name]
            return pl.repeat(default, len(self), dtype=dtype, eager=True)
        column = self._frame[name]
        return column if default is None else column.fill_null(default)

    def _fields(self, start: int, most: int) -> Fields:
        """Return the fields of a chunk of at most so many jobs, in the order in which `_make` takes them."""
        rows = min(most, len(self) - start)

        def part(name: str, default: object = None) -> list[Any]:
            if name not in self._frame.columns:
                return [default] * rows
            values = self._frame[name].slice(start, rows).to_list()
            return values if default is None else [default if value is None else value for value in values]

        model = [self._drawn_from[draw] for draw in self._draws[start : start + rows].tolist()]
        if "model" in self._frame.columns:
            model = [mine or other for mine, other in zip(part("model"), model, strict=True)]
        by_name = {name: self._profiles[name] for name in set(model)}
        profile = [by_name[name] for name in model]
        known = part("job_id"), part("gpus"), model, part("collective", self._collective)
        times, owner = (part("submit_s"), part("duration_s")), (part("tenant", ""), part("gpu_type"))
        queued: Fields = ()
        if self._queued:
            limit_s = [value if value is not None and value > 0 else None for value in part("limit_s")]
            partition = [name if name in self._partitions else None for name in part("partition")]
            queued = partition, part("priority", 0.0), limit_s
        if self._plain:
            return *known, *times, *owner, profile, *queued
        speeds = [_speeds(text) for text in part("speeds")] if "speeds" in self._frame.columns else [None] * rows
        elastic = part("least_gpus"), part("most_gpus"), speeds, part("restart_s", 0.0)
        return *known, *times, part("tp", 1), part("pp", 1), [None] * rows, *owner, *elastic, *queued, profile


def _checked(*fields: Any) -> Job:
    """Make a job of the fields of a row, the last of which is its profile, and check it."""
    named: dict[str, Any] = {"profile": fields[-1]}
    return Job(*fields[:-1], **named)


def _speeds(text: str | None) -> dict[str, float] | None:
    """Read how fast a job is on types of GPU."""
    if text is None:
        return None
    pairs = (pair.split("=") for pair in text.split())
    try:
        return {gpu_type: float(speed) for gpu_type, speed in pairs}
    except ValueError:
        raise InputError(f"speeds: must be like T4=0.43 V100=1, not {text!r}") from None
