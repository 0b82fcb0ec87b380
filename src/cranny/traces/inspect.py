"""What a trace looks like, in numbers."""

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from cranny.model.collective import DEFAULT_COLLECTIVE
from cranny.model.errors import InputError
from cranny.traces.generate import Floats
from cranny.traces.readers.timestamps import said
from cranny.traces.trace import Trace

DAY_S = 86_400.0
HOUR_S = 3600.0
Window = tuple[float, float]  # seconds, from and to
MOST_QUEUES = 12  # partitions or queues that are named
POWERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class StepFunction:
    """The value from each moment to the next, the last one up to the end of the window."""

    at_s: Floats  # (steps,) ascending; the first is the start of the window
    value: Floats  # (steps,)
    end_s: float

    @classmethod
    def of(cls, start_s: Floats, end_s: Floats, weight: Floats, window: Window, base: float = 0.0) -> Self:
        """Add to `base` the weights of all stretches, each from its start to before its end."""
        first_s, last_s = window
        start_s, end_s = np.clip(start_s, first_s, last_s), np.clip(end_s, first_s, last_s)
        at_s, place = np.unique(np.concatenate([[first_s], start_s, end_s]), return_inverse=True)
        change = np.bincount(place[1:], weights=np.concatenate([weight, -weight]), minlength=at_s.size)
        inside = at_s < last_s
        inside[0] = True
        return cls(at_s[inside], np.asarray(base + np.cumsum(change)[inside], dtype=np.float64), last_s)

    @property
    def _lengths_s(self) -> Floats:
        lengths_s = np.diff(self.at_s, append=self.end_s)
        return lengths_s if lengths_s.sum() > 0 else np.ones_like(lengths_s)

    @property
    def mean(self) -> float:
        """Mean over time."""
        return float(np.average(self.value, weights=self._lengths_s))

    def share_from(self, least: float) -> float:
        """Return the share of time in which the value is `least` or more."""
        return float(np.average(self.value >= least, weights=self._lengths_s))

    def at(self, times_s: Floats) -> Floats:
        """Return the value at some times; outside the window that of its nearer end."""
        place = np.searchsorted(self.at_s, times_s, side="right") - 1
        return self.value[np.maximum(place, 0)]

    def above(self, level: float) -> Self:
        """Return 1 where the value is above a level, and 0 elsewhere."""
        return replace(self, value=(self.value > level).astype(np.float64))

    def means(self, edges_s: Floats) -> Floats:
        """Return the mean between each two edges, (edges - 1,)."""
        so_far = np.concatenate([[0.0], np.cumsum(self.value * np.diff(self.at_s, append=self.end_s))])
        mean: Floats = np.diff(np.interp(edges_s, np.append(self.at_s, self.end_s), so_far)) / np.diff(edges_s)
        return mean


def describe(trace: Trace, buckets: int = 60) -> dict[str, Any]:
    """Return the figures of a trace.

    `requested_gpus` is the offered load: the mean number of GPUs that jobs would hold in each of `buckets`
    equal stretches from the first submission to the last, if every job started the moment it was submitted.
    Waiting is that of the log, over the jobs with a logged start; a start before the submission is no wait.
    """
    gpus = trace.frame["gpus"].to_numpy().astype(np.float64)  # (jobs,)
    submit_s = trace.frame["submit_s"].to_numpy()
    duration_s = trace.frame["duration_s"].to_numpy()
    first_s, last_s = float(submit_s[0]), float(submit_s[-1])
    span_s = last_s - first_s
    with np.errstate(over="ignore"):
        gpu_s = float(gpus @ duration_s)
        if not math.isfinite(gpu_s + float(gpus.sum()) * last_s):
            raise InputError(f"{trace.name}: its times are too large to be added up")
    # "other" is a size up to 64 that is no power of two.
    sizes = {str(size): int((gpus == size).sum()) for size in POWERS} | {">64": int((gpus > POWERS[-1]).sum())}
    sizes["other"] = len(gpus) - sum(sizes.values())
    held = requested(trace)
    edges_s = np.linspace(first_s, last_s, max(buckets, 1) + 1)
    wait_s = waits(trace)
    wait_s = wait_s[wait_s >= 0]
    return {
        "name": trace.name,
        "jobs": len(trace),
        "share_by_size_percent": {size: 100.0 * count / len(gpus) for size, count in sizes.items()},
        "mean_gpus": float(gpus.mean()),
        "largest_job_gpus": int(gpus.max()),
        "median_duration_s": float(np.median(duration_s)),
        "mean_duration_s": float(duration_s.mean()),
        "p90_duration_s": float(np.quantile(duration_s, 0.9)),
        "longest_duration_s": float(duration_s.max()),
        "mean_gap_s": span_s / (len(trace) - 1) if len(trace) > 1 else None,
        "gpu_hours": gpu_s / HOUR_S,
        "first_submit_s": first_s,
        "days": span_s / DAY_S,
        "jobs_with_wait": len(wait_s),
        "median_wait_s": float(np.median(wait_s)) if len(wait_s) else None,
        "mean_wait_s": float(wait_s.mean()) if len(wait_s) else None,
        "p99_wait_s": float(np.quantile(wait_s, 0.99)) if len(wait_s) else None,
        "mean_requested_gpus": gpu_s / span_s if span_s > 0 else None,
        "peak_requested_gpus": int(held.value.max()),
        "requested_gpus": held.means(edges_s).tolist() if span_s > 0 else [],
        "bucket_s": span_s / max(buckets, 1),
        "jobs_without_model": len(trace) - _given(trace, "model"),
        "jobs_without_collective": len(trace) - _given(trace, "collective"),
        "log": _log_facts(trace),
        "skipped": dict(trace.skipped),
        "notes": list(trace.notes),
        "assumed": assumed(trace),
    }


def _log_facts(trace: Trace) -> dict[str, Any]:
    """Return what a log says about its jobs besides size and time."""
    frame, columns = trace.frame, trace.frame.columns
    parts = frame.filter(pl.col("gpu_fraction") < 1) if "gpu_fraction" in columns else frame.clear()
    part_s = (parts["gpus"] * parts["gpu_fraction"] * parts["duration_s"]).sum() if len(parts) else 0.0
    days = [
        None
        if trace.zero_epoch_s is None
        else said(trace.zero_epoch_s + float(frame["submit_s"][place]), trace.zone)
        for place in (0, -1)
    ]
    queues = {
        name: frame[name].drop_nulls().value_counts(sort=True)[name].head(MOST_QUEUES).to_list()
        for name in ("partition", "queue")
        if name in columns
    }
    return {
        "first_day": days[0],
        "last_day": days[1],
        "jobs_with_machines": _given(trace, "ran_on"),
        "partitions": queues.get("partition", []),
        "queues": queues.get("queue", []),
        "further_attempts": int((frame["attempt"] > 1).sum()) if "attempt" in columns else 0,
        "running_at_end": frame["end_s"].null_count() if {"start_s", "end_s"} <= set(columns) else 0,
        "jobs_on_parts": len(parts),
        "gpu_hours_on_parts": float(part_s) / HOUR_S,
    }


def assumed(trace: Trace) -> list[str]:
    """Say what is assumed where the log has no value, a sentence each."""
    jobs = len(trace)
    model, collective, gpu_type = (jobs - _given(trace, name) for name in ("model", "collective", "gpu_type"))
    silent = jobs - len(waits(trace))
    assumptions = [
        (model, f"the model of {_some(model, jobs)} is drawn by seed when they are simulated"),
        (
            collective,
            f"{_some(collective, jobs)} communicate by {DEFAULT_COLLECTIVE}, unless --collective says otherwise",
        ),
        (gpu_type, f"{_some(gpu_type, jobs)} run on any type of GPU"),
        (jobs, "a duration is that of a job with all workers on one machine; links between machines add to it"),
        (silent, f"nothing about how long {_some(silent, jobs)} waited: their start is not in the log"),
    ]
    return [sentence for count, sentence in assumptions if count]


def requested(trace: Trace) -> StepFunction:
    """Return the GPUs that jobs would hold up to the last submission if each started when submitted."""
    submit_s = trace.frame["submit_s"].to_numpy()
    duration_s = trace.frame["duration_s"].to_numpy()
    gpus = trace.frame["gpus"].to_numpy().astype(np.float64)
    lasting = duration_s > 0
    # What comes after the last submission is not looked at; cut off there, no duration is too long to add up.
    window = float(submit_s[0]), float(np.nextafter(submit_s[-1], np.inf))
    return StepFunction.of(submit_s[lasting], (submit_s + duration_s)[lasting], gpus[lasting], window)


def waits(trace: Trace) -> Floats:
    """Return the seconds from submission to start of the jobs with a logged start, (jobs,)."""
    if "start_s" not in trace.frame.columns:
        return np.empty(0)
    wait_s = trace.frame["start_s"].cast(pl.Float64, strict=False) - trace.frame["submit_s"]
    return wait_s.filter(wait_s.is_finite()).to_numpy()


def _some(count: int, jobs: int) -> str:
    return f"{'all' if count == jobs else f'{count:,} of'} {jobs:,} jobs"


def _given(trace: Trace, column: str) -> int:
    return trace.frame[column].count() if column in trace.frame.columns else 0
