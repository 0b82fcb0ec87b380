"""What a running job tells the service: how long its iterations take, and which step it has saved.

Each rank replaces its own file, `report-RANK.json`, every few seconds. It holds the latest records only, so that
it stays small for as long as the job runs; a service that was away misses some, and nothing breaks.

A service believes a report about the job that wrote it, and about nothing else. The file must name the job's
token, which only processes of the user as whom it runs can read, and every number must be possible.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cranny.channel import files
from cranny.channel.control import MAX_NUMBER
from cranny.model.errors import InputError
from cranny.model.validate import MAX_GPUS, not_negative, whole, yes_or_no

KEPT = 32  # records in a file
MAX_SECONDS = 1e9
MAX_SAMPLES = 1e15
MAX_GRADIENT_BYTES = 1e15


class Record(NamedTuple):
    """Some iterations in a row of one rank; seconds and samples are sums over them."""

    number: int  # of this record, from 1
    at_s: float  # when the last of them ended, by the wall clock
    step: int  # of the last of them: how many iterations the training has done since its very beginning
    iterations: int
    wall_s: float  # from the first one's start to the last one's end, with waits
    waited_s: float = 0.0  # for their slots
    compute_s: float = 0.0  # neither waiting nor only communicating
    comm_s: float = 0.0  # in which gradients were exchanged; some of it while computing
    comm_start_s: float | None = None  # median of when an iteration begins to communicate, after its start
    comm_end_s: float | None = None
    samples: float = 0.0  # of this rank
    gradient_bytes: float | None = None  # that an iteration exchanges
    paced: bool = False  # whether iterations wait for slots
    period_s: float = 0.0  # that is kept; longer than asked if the job's own iterations are


class Saved(NamedTuple):
    """A checkpoint that is complete."""

    step: int
    at_s: float
    took_s: float
    request: int = 0  # the number of the last request that came before it; 0 if there was none


class Resumed(NamedTuple):
    """From which step an attempt went on, and how long it took from the start of its process to its first step."""

    step: int
    at_s: float
    took_s: float


class Report(NamedTuple):
    """All that a rank reports."""

    rank: int
    records: tuple[Record, ...] = ()
    saved: Saved | None = None  # the latest
    resumed: Resumed | None = None

    def write(self, folder: Path, token: str) -> None:
        """Replace the file of this rank."""
        value = {
            "token": token,
            "rank": self.rank,
            "records": [each._asdict() for each in self.records[-KEPT:]],
            "saved": None if self.saved is None else self.saved._asdict(),
            "resumed": None if self.resumed is None else self.resumed._asdict(),
        }
        files.write(report_file(folder, self.rank), value)

    @classmethod
    def read(cls, folder: Path, rank: int, token: str) -> "Report | None":
        """Read the file of a rank, or say what is wrong with it; None if there is none yet."""
        found = files.read(report_file(folder, rank))
        if found is None:
            return None
        if found.get("token") != token:
            raise InputError("the report is not of this attempt: its token is another one")
        if found.get("rank") != rank:
            raise InputError(f"the report of rank {rank} says that it is of another one")
        records = found.get("records", [])
        if not isinstance(records, list) or len(records) > KEPT:
            raise InputError(f"records must be a list of at most {KEPT}")
        made = tuple(map(_record, records))
        if any(later.number <= before.number for before, later in pairwise(made)):
            raise InputError("records must be numbered in order")
        saved, resumed = found.get("saved"), found.get("resumed")
        return cls(
            rank, made, None if saved is None else _saved(saved), None if resumed is None else _resumed(resumed)
        )


def report_file(folder: Path, rank: int) -> Path:
    """Return where a rank reports."""
    return folder / f"report-{whole(rank, 'rank', least=0, most=MAX_GPUS)}.json"


def _record(value: object) -> Record:
    found = _fields(value, "record", Record._fields)
    for name in ("number", "step", "iterations"):
        found[name] = whole(found.get(name), name, most=MAX_NUMBER)
    for name in ("at_s", "wall_s", "waited_s", "compute_s", "comm_s", "period_s"):
        found[name] = _at_most(found.get(name, 0.0), name, MAX_SECONDS * (10 if name == "at_s" else 1))
    for name in ("comm_start_s", "comm_end_s"):
        if found.get(name) is not None:
            found[name] = _at_most(found[name], name, MAX_SECONDS)
    found["samples"] = _at_most(found.get("samples", 0.0), "samples", MAX_SAMPLES)
    if found.get("gradient_bytes") is not None:
        found["gradient_bytes"] = _at_most(found["gradient_bytes"], "gradient_bytes", MAX_GRADIENT_BYTES)
    found["paced"] = yes_or_no(found.get("paced", False), "paced")
    record = Record(**found)
    if record.waited_s + record.compute_s > record.wall_s * 1.001 + 1e-6:
        raise InputError("waited_s and compute_s are together more than wall_s")
    return record


def _saved(value: object) -> Saved:
    found = _fields(value, "saved", Saved._fields)
    request = whole(found.get("request", 0), "saved: request", least=0, most=MAX_NUMBER)
    return Saved(*_step_and_times(found, "saved"), request)


def _resumed(value: object) -> Resumed:
    return Resumed(*_step_and_times(_fields(value, "resumed", Resumed._fields), "resumed"))


def _step_and_times(found: dict[str, Any], what: str) -> tuple[int, float, float]:
    """Return a step, when it was reached and how long that took."""
    return (
        whole(found.get("step"), f"{what}: step", least=0, most=MAX_NUMBER),
        _at_most(found.get("at_s"), f"{what}: at_s", MAX_SECONDS * 10),
        _at_most(found.get("took_s"), f"{what}: took_s", MAX_SECONDS),
    )


def _fields(value: object, what: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the fields of an object that are known."""
    if not isinstance(value, dict):
        raise InputError(f"{what} must be an object")
    return {name: value[name] for name in names if name in value}


def _at_most(value: object, what: str, most: float) -> float:
    number = not_negative(value, what)
    if number > most:
        raise InputError(f"{what} must be at most {most:g}, not {number:g}")
    return number
