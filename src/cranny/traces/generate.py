"""Synthetic traces with sizes, durations and arrivals that follow published statistics of real clusters.

The numbers and their sources are in `data/workloads.json`. What comes out is synthetic: it has the published
shares and quantiles, not the jobs of any log.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from cranny.model.errors import InputError, unknown
from cranny.model.job import MAX_GPUS, whole
from cranny.traces.trace import Trace

Floats = npt.NDArray[np.float64]

MAX_JOBS = 100_000_000
HOUR_S = 3600.0
WEEK_HOURS = 168
# Names under which people know a preset, besides its own.
ALIASES: Mapping[str, str] = {"elasticflow-itp": "itp", "microsoft-itp": "itp"}

# Scores of the tilt below: standard normal, plus a shift of a few units for large jobs.
_SCORES = np.arange(-6.0, 14.0, 0.02)  # (scores,)
_NORMAL = np.array([0.5 * (1.0 + math.erf(x / math.sqrt(2.0))) for x in _SCORES])  # (scores,)
_ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Preset:
    """A workload that can be generated, and where its statistics come from."""

    name: str
    description: str
    source: str
    licence: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class QuantileCurve:
    """A distribution given by points: the share `levels[i]` of all values is at most `values[i]`.

    Between two points the logarithm of the value grows linearly, since durations span seven decades.
    """

    levels: Floats  # (points,), from 0 to 1, never falling
    values: Floats  # (points,), positive, never falling

    @staticmethod
    def of(levels: Sequence[float], values: Sequence[float]) -> "QuantileCurve":
        """Make a curve from plain numbers."""
        return QuantileCurve(np.array(levels, dtype=np.float64), np.array(values, dtype=np.float64))

    def at(self, level: Floats) -> Floats:
        """Return the value below which each share of all values lies."""
        drawn: Floats = np.exp(np.interp(level, self.levels, np.log(self.values)))
        return drawn

    def mean(self) -> float:
        """Return the mean of what `at` draws from uniform levels."""
        low, high = self.values[:-1], self.values[1:]
        ratio = np.log(high / low)
        flat = ratio < 1e-9
        of_segment = np.where(flat, low, (high - low) / np.where(flat, 1.0, ratio))
        return float(np.diff(self.levels) @ of_segment)


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadModel:
    """What jobs of a preset look like; each row is a job size with its share and its duration curve."""

    gpus: np.ndarray[tuple[int], np.dtype[np.int32]]  # (rows,)
    weights: Floats  # (rows,), sum 1
    curve_of: np.ndarray[tuple[int], np.dtype[np.intp]]  # (rows,), index into curves
    curves: tuple[QuantileCurve, ...]
    mean_gap_s: float
    gaps: QuantileCurve | None  # shape of the times between submissions; None: exponential (Poisson arrivals)
    week: Floats  # (168,), arrival rate of each hour of the week over the mean rate
    surge_sigma: float = 0.0  # of the logarithm of an hour's rate over what the week says
    surge_memory: float = 0.0  # its correlation from one hour to the next

    def up_to(self, max_gpus: int) -> "WorkloadModel":
        """Return the workload without larger jobs, as if each were drawn again until it fits."""
        weights = np.where(self.gpus <= max_gpus, self.weights, 0.0)
        return replace(self, weights=weights / weights.sum())


def presets() -> dict[str, Preset]:
    """Return the presets of `generate_trace` by name."""
    return {
        name: Preset(
            name, about["description"], about["source"], about["licence"], tuple(about.get("remarks", ()))
        )
        for name, about in _data().items()
    }


def generate_trace(
    preset: str,
    jobs: int,
    seed: int = 0,
    load: float | None = None,
    gpus: int | None = None,
    max_gpus: int | None = None,
) -> Trace:
    """Draw a trace of `jobs` jobs; the same arguments give the same bytes.

    Jobs arrive at the published mean gap. With `load`, gaps are stretched instead until the jobs ask for that
    share of `gpus` GPUs between the first and the last submission (GPU-seconds over GPUs times seconds).
    No job is larger than `max_gpus`, or than `gpus` where only that is given; larger ones are drawn again.
    """
    name = ALIASES.get(preset.lower().replace("_", "-"), preset)
    if name not in _data():
        raise unknown("preset", preset, [*_data(), *ALIASES])
    count = whole(jobs, "jobs", most=MAX_JOBS)
    rng = np.random.default_rng(whole(seed, "seed", least=0, most=2**63 - 1))
    workload = _workload(name)
    most = gpus = None if gpus is None else whole(gpus, "gpus", most=2**40)
    if max_gpus is not None:
        most = whole(max_gpus, "max_gpus", most=MAX_GPUS)
    if most is not None:
        workload = workload.up_to(most)

    row = np.searchsorted(np.cumsum(workload.weights), rng.random(count), side="right")
    # Rounding may leave the last step a hair below 1: a draw above it belongs to the last size in use.
    row = np.minimum(row, np.flatnonzero(workload.weights)[-1])
    size = workload.gpus[row]
    curve, level, duration_s = workload.curve_of[row], rng.random(count), np.empty(count)
    for index, points in enumerate(workload.curves):
        mine = np.flatnonzero(curve == index)
        duration_s[mine] = points.at(level[mine])
    # To the millisecond: the last bits of a logarithm differ between machines.
    duration_s = np.round(duration_s, 3)
    span_s = _span(count, workload.mean_gap_s, load, gpus, float(duration_s @ size))
    submit_s = _arrivals(workload, count, span_s, rng)

    width = max(6, len(str(count)))
    numbers = pl.int_range(1, count + 1, dtype=pl.Int64, eager=True).cast(pl.String).str.zfill(width)
    frame = pl.DataFrame(
        {"job_id": f"{name}-" + numbers, "submit_s": submit_s, "gpus": size, "duration_s": duration_s}
    )
    note = f"generated from published statistics of {presets()[name].source}; synthetic, seed {seed}"
    return Trace(name=name, frame=frame, notes=(note,))


def _span(count: int, mean_gap_s: float, load: float | None, gpus: int | None, gpu_s: float) -> float:
    """Return the seconds from the first submission to the last."""
    if load is None:
        return (count - 1) * mean_gap_s
    if gpus is None:
        raise InputError("load needs gpus: say of how many GPUs the jobs should ask for that share")
    if isinstance(load, bool) or not isinstance(load, int | float) or not 0 < load < math.inf:
        raise InputError(f"load must be a positive number, such as 0.85, not {load!r}")
    return gpu_s / (load * gpus)


def _arrivals(workload: WorkloadModel, count: int, span_s: float, rng: np.random.Generator) -> Floats:
    """Draw submission times, (jobs,), from 0 to `span_s`, with the workload's cycle, surges and bursts."""
    draws = rng.random(count - 1)
    gaps = -np.log1p(-draws) if workload.gaps is None else workload.gaps.at(draws)
    # Work time: the clock that runs fast in busy hours, on which the gaps follow one distribution.
    work = np.concatenate([[0.0], np.cumsum(gaps)])
    hours = int(span_s // HOUR_S) + 1
    rate = workload.week[np.arange(hours) % WEEK_HOURS] * _surges(workload, hours, rng)
    done = np.concatenate([[0.0], np.cumsum(rate)]) * HOUR_S  # (hours + 1,) work done by each full hour
    clock = np.arange(hours + 1) * HOUR_S
    scale = float(np.interp(span_s, clock, done)) / work[-1] if work[-1] > 0 else 0.0
    submit_s: Floats = np.round(np.interp(work * scale, done, clock), 3)
    return submit_s


def _surges(workload: WorkloadModel, hours: int, rng: np.random.Generator) -> Floats:
    """Draw by what factor each hour is busier than its place in the week says, (hours,)."""
    if workload.surge_sigma == 0.0:
        return np.ones(hours)
    keep = workload.surge_memory
    level, levels = float(rng.standard_normal()), []
    for fresh in (rng.standard_normal(hours) * math.sqrt(1.0 - keep * keep)).tolist():
        levels.append(level)
        level = keep * level + fresh
    surges: Floats = np.exp(workload.surge_sigma * np.array(levels))
    return surges


@cache
def _data() -> dict[str, Any]:
    """Return the published statistics by preset."""
    text = resources.files("cranny.data").joinpath("workloads.json").read_text(encoding="utf-8")
    workloads: dict[str, Any] = json.loads(text)["workloads"]
    return workloads


@cache
def _workload(name: str) -> WorkloadModel:
    """Calibrate a preset."""
    entry = _data()[name]
    if "mix" in entry:
        return _mixed(entry)
    gpus = np.array([int(size) for size in entry["sizes"]], dtype=np.int32)
    weights = np.array(list(entry["sizes"].values()), dtype=np.float64)
    weights /= weights.sum()
    groups = entry["durations"] if "durations" in entry else entry["gpu_time"]
    curve_of = np.searchsorted([group["up_to_gpus"] for group in groups], gpus)
    if "durations" in entry:
        curves = tuple(QuantileCurve.of(group["levels"], group["seconds"]) for group in groups)
    else:
        # Mean duration of a group is its GPU time over the GPUs that its jobs ask for.
        jobs: Floats = np.bincount(curve_of, weights=weights, minlength=len(groups)).astype(np.float64)
        asked = np.bincount(curve_of, weights=weights * gpus, minlength=len(groups))
        gpu_time = np.array([group["percent"] for group in groups])
        overall = QuantileCurve.of(entry["duration"]["levels"], entry["duration"]["seconds"])
        curves = split_by_group(overall, jobs, gpu_time / asked)
    workload = WorkloadModel(gpus, weights, curve_of, curves, entry["mean_gap_s"], None, _week(entry))
    if "gaps" not in entry:
        return workload
    return replace(
        workload,
        gaps=QuantileCurve.of(entry["gaps"]["levels"], entry["gaps"]["values"]),
        surge_sigma=entry["surges"]["sigma"],
        surge_memory=entry["surges"]["hour_to_hour"],
    )


def _mixed(entry: Mapping[str, Any]) -> WorkloadModel:
    """Put several presets into one stream, each with the weight of its published number of jobs."""
    parts = [_workload(name) for name in entry["mix"]]
    jobs = np.array([_data()[name]["jobs"] for name in entry["mix"]], dtype=np.float64)
    first = np.cumsum([0, *(len(part.curves) for part in parts)])
    return WorkloadModel(
        gpus=np.concatenate([part.gpus for part in parts]),
        weights=np.concatenate(
            [part.weights * share for part, share in zip(parts, jobs / jobs.sum(), strict=True)]
        ),
        curve_of=np.concatenate([part.curve_of + start for part, start in zip(parts, first[:-1], strict=True)]),
        curves=tuple(curve for part in parts for curve in part.curves),
        mean_gap_s=entry["mean_gap_s"],
        gaps=None,
        week=_week(entry),
    )


def _week(entry: Mapping[str, Any]) -> Floats:
    """Return the arrival rate of each hour of the week over the mean rate, (168,)."""
    days = np.array(entry.get("day_of_week", [1.0] * 7))
    hours = np.array(entry.get("hour_of_day", [1.0] * 24))
    product = np.outer(days, hours).ravel()
    week: Floats = product / product.mean()
    return week


def split_by_group(overall: QuantileCurve, weights: Floats, ratios: Floats) -> tuple[QuantileCurve, ...]:
    """Split `overall` into one curve a group, so that the groups' means stand in the given ratios.

    weights: (groups,) share of the jobs in each group; ratios: (groups,) wanted means up to one factor.
    Mixed by their weights the curves give `overall` again, exactly.

    Published curves say how long jobs run and how GPU time falls on sizes, but not how long jobs of one size
    run. We use a normal score: a job of group k scores m_k + z, z standard normal; a job's duration is the
    quantile of `overall` at the rank of its score among all jobs. The shift m_k follows from the wanted mean.
    """
    wanted = ratios * overall.mean() / float(weights @ ratios)
    shift = np.zeros(len(weights))
    for _ in range(_ROUNDS):
        below = _below(shift)
        duration = overall.at(np.clip(weights @ below, 0.0, 1.0))
        middle = np.sqrt(duration[:-1] * duration[1:])
        mean = np.diff(below, axis=1) @ middle
        if np.all(np.abs(mean / wanted - 1.0) < 1e-3):
            break
        shift += 0.3 * np.log(wanted / mean)
        # Only differences of shifts matter; the most common group stays where the table of scores is densest.
        shift = np.clip(shift - shift[np.argmax(weights)], -6.0, 8.0)
    below = _below(shift)
    duration = overall.at(np.clip(weights @ below, 0.0, 1.0))
    return tuple(_trimmed(levels, duration) for levels in below)


def _below(shift: Floats) -> Floats:
    """Return the share of each group that scores below each table entry, (groups, scores)."""
    return np.stack([np.interp(_SCORES - m, _SCORES, _NORMAL, left=0.0, right=1.0) for m in shift])


def _trimmed(levels: Floats, values: Floats) -> QuantileCurve:
    """Cut the parts of a curve that no draw can reach, and close it at 0 and 1."""
    first = int(np.searchsorted(levels, 1e-9, side="right"))
    last = int(np.searchsorted(levels, 1.0 - 1e-9, side="left"))
    kept = levels[first : last + 1].copy()
    kept[0], kept[-1] = 0.0, 1.0
    return QuantileCurve(kept, values[first : last + 1])
