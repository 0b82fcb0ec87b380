"""A trace by the name that people give it: a file of jobs, or a preset to generate from."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from cranny.model.errors import InputError, unknown
from cranny.model.profile import ModelProfile
from cranny.traces.generate import generate_trace, presets
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

JOBS, LOAD = 5000, 0.8  # of a generated trace, if not said otherwise


def named_trace(
    name: str | Path,
    gpus: int,
    *,
    jobs: int = JOBS,
    seed: int = 0,
    load: float = LOAD,
    trace_format: str = "auto",
    strict: bool | None = None,
    profiles: Mapping[str, ModelProfile] | None = None,
    zone: str | None = None,
    count_parts: bool = False,
    attempts: bool = False,
) -> Trace:
    """Read a trace file, or generate from a preset to load a cluster of so many GPUs as wanted."""
    path = Path(name)
    if str(name) in presets() and not path.exists():
        return generate_trace(str(name), jobs=jobs, seed=seed, load=load, gpus=gpus)
    if not path.exists() and not path.suffix:
        raise unknown("trace file or preset", str(name), presets())
    return read_trace(
        path,
        trace_format,
        strict=strict,
        profiles=profiles,
        zone=zone,
        count_parts=count_parts,
        attempts=attempts,
    )


def as_trace(
    given: object, gpus: int, *, seed: int = 0, profiles: Mapping[str, ModelProfile] | None = None
) -> object:
    """Return the trace that text names, and anything else as it is if it can be one."""
    if isinstance(given, str | Path):
        return named_trace(given, gpus, seed=seed, profiles=profiles)
    if isinstance(given, Trace) or (isinstance(given, Iterable) and not isinstance(given, pl.DataFrame)):
        return given
    wanted = "a trace, jobs, the path of a trace file, or a preset"
    raise InputError(f"trace: must be {wanted} ({', '.join(presets())}), not {type(given).__name__}")
