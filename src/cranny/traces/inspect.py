"""What a trace looks like, in numbers."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cranny.model.errors import InputError
from cranny.traces.duration_curve import Floats
from cranny.traces.trace import DEFAULT_COLLECTIVE, Trace

DAY_S = 86_400.0
HOUR_S = 3600.0
POWERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, eq=False)
class DemandOverTime:
    """GPUs held over time: `gpus[i]` of them from `times_s[i]` until the next change."""

    times_s: Floats  # (changes,), never falling
    gpus: Floats  # (changes,), the last is 0

    def peak(self) -> int:
        """Return the most that are held at once."""
        return int(self.gpus.max(initial=0))

    def means(self, edges_s: Floats) -> Floats:
        """Return the mean number held between each two edges, (edges - 1,)."""
        return self._means(self.gpus, edges_s)

    def share_above(self, gpus: int, edges_s: Floats) -> Floats:
        """Return the share of the time between each two edges in which more than `gpus` are held, (edges - 1,)."""
        return self._means((self.gpus > gpus).astype(np.float64), edges_s)

    def _means(self, level: Floats, edges_s: Floats) -> Floats:
        """Return the mean between each two edges of what has a level from each time until the next."""
        if not len(self.times_s):
            return np.zeros(len(edges_s) - 1)
        so_far = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(self.times_s))])
        mean: Floats = np.diff(np.interp(edges_s, self.times_s, so_far)) / np.diff(edges_s)
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
        "peak_requested_gpus": held.peak(),
        "requested_gpus": held.means(edges_s).tolist() if span_s > 0 else [],
        "bucket_s": span_s / max(buckets, 1),
        "jobs_without_model": len(trace) - _given(trace, "model"),
        "jobs_without_collective": len(trace) - _given(trace, "collective"),
        "skipped": dict(trace.skipped),
        "notes": list(trace.notes),
        "assumed": assumed(trace),
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


def requested(trace: Trace) -> DemandOverTime:
    """Return the GPUs that jobs would hold up to the last submission if each started when submitted."""
    submit_s = trace.frame["submit_s"].to_numpy()
    duration_s = trace.frame["duration_s"].to_numpy()
    gpus = trace.frame["gpus"].to_numpy().astype(np.float64)
    # What comes after the last submission is not looked at; cut off there, no duration is too long to add up.
    end_s = np.minimum(submit_s + duration_s, np.nextafter(submit_s[-1], np.inf))
    # Ends come first among equal times, for a GPU that is given back can be taken at once; but a job of
    # zero seconds would end before it began, and holds nothing.
    lasting = duration_s > 0
    times_s = np.concatenate([end_s[lasting], submit_s[lasting]])
    change = np.concatenate([-gpus[lasting], gpus[lasting]])
    order = np.argsort(times_s, kind="stable")
    return DemandOverTime(times_s[order], np.cumsum(change[order]))


def waits(trace: Trace) -> Floats:
    """Return the seconds from submission to start of the jobs with a logged start, (jobs,)."""
    if "start_s" not in trace.frame.columns:
        return np.empty(0)
    wait_s = trace.frame["start_s"].cast(pl.Float64, strict=False) - trace.frame["submit_s"]
    return wait_s.filter(wait_s.is_finite()).to_numpy()


def _some(count: int, jobs: int) -> str:
    """Name some of the jobs."""
    return f"{'all' if count == jobs else f'{count:,} of'} {jobs:,} jobs"


def _given(trace: Trace, column: str) -> int:
    """Return how many jobs have a value in this column."""
    return trace.frame[column].count() if column in trace.frame.columns else 0
