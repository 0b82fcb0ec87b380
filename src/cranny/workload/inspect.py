"""What a trace looks like, in numbers."""

from typing import Any

import numpy as np

from cranny.workload.curve import Floats
from cranny.workload.trace import Trace

DAY_S = 86_400.0
HOUR_S = 3600.0
POWERS = (1, 2, 4, 8, 16, 32, 64)


def describe(trace: Trace, buckets: int = 48) -> dict[str, Any]:
    """Return the figures of a trace.

    `requested_gpus` is the offered load: the mean number of GPUs that jobs would hold in each of `buckets`
    equal stretches from the first submission to the last, if every job started the moment it was submitted.
    """
    gpus = trace.frame["gpus"].to_numpy().astype(np.float64)  # (jobs,)
    submit_s = trace.frame["submit_s"].to_numpy()
    duration_s = trace.frame["duration_s"].to_numpy()
    first_s, last_s = float(submit_s[0]), float(submit_s[-1])
    span_s = last_s - first_s
    gpu_s = float(gpus @ duration_s)
    edges = np.linspace(first_s, last_s, max(buckets, 1) + 1)
    return {
        "name": trace.name,
        "jobs": len(trace),
        "share_by_size_percent": _shares(gpus),
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
        "mean_requested_gpus": gpu_s / span_s if span_s > 0 else None,
        "peak_requested_gpus": _peak(submit_s, duration_s, gpus),
        "requested_gpus": _requested(submit_s, duration_s, gpus, edges) if span_s > 0 else [],
        "bucket_s": span_s / max(buckets, 1),
        "jobs_without_model": len(trace) - _given(trace, "model"),
        "jobs_without_collective": len(trace) - _given(trace, "collective"),
        "left_out": dict(trace.left_out),
        "notes": list(trace.notes),
    }


def _shares(gpus: Floats) -> dict[str, float]:
    """Return percent of jobs by size; "other" is a size up to 64 that is no power of two."""
    counts = {str(size): int((gpus == size).sum()) for size in POWERS}
    counts[">64"] = int((gpus > POWERS[-1]).sum())
    counts["other"] = len(gpus) - sum(counts.values())
    return {size: 100.0 * count / len(gpus) for size, count in counts.items()}


def _given(trace: Trace, column: str) -> int:
    """Return how many jobs have a value in this column."""
    return trace.frame[column].count() if column in trace.frame.columns else 0


def _requested(submit_s: Floats, duration_s: Floats, gpus: Floats, edges: Floats) -> list[float]:
    """Return the mean number of GPUs held between each two edges."""

    def held_before(times: Floats) -> Floats:
        """Return the sum of gpus x (edge - time) over the times before each edge, (edges,)."""
        order = np.argsort(times, kind="stable")
        sorted_s = times[order] - edges[0]
        weight = np.concatenate([[0.0], np.cumsum(gpus[order])])
        moment = np.concatenate([[0.0], np.cumsum(gpus[order] * sorted_s)])
        now = edges - edges[0]
        begun = np.searchsorted(sorted_s, now, side="right")
        so_far: Floats = now * weight[begun] - moment[begun]
        return so_far

    # A job holds its GPUs from its start, less what it would hold after its end.
    held = held_before(submit_s) - held_before(submit_s + duration_s)
    mean: list[float] = (np.diff(held) / np.diff(edges)).tolist()
    return mean


def _peak(submit_s: Floats, duration_s: Floats, gpus: Floats) -> int:
    """Return the most GPUs held at once if every job started when submitted."""
    times = np.concatenate([submit_s + duration_s, submit_s])
    change = np.concatenate([-gpus, gpus])
    # Ends come first among equal times, for a GPU that is given back can be taken at once; but a job of
    # zero seconds would end before it began, and holds nothing.
    lasting = np.concatenate([duration_s > 0, duration_s > 0])
    order = np.argsort(times[lasting], kind="stable")
    running = np.cumsum(change[lasting][order])
    return int(running.max()) if len(running) else 0
