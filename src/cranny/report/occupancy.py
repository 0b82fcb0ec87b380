"""Which job holds which GPU at a few chosen times, packed for the map of the page.

A row of `runs` that lasts over several of the chosen times is stored once, with its first time and its number
of times. Rows are columns of small numbers, compressed with gzip; the browser unpacks them by itself.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cranny.model.cluster import Cluster
from cranny.report.sampling import arrival_span_s, numbers
from cranny.sim.result import Result

TIMES = (60, 48, 36, 24, 16, 12, 10, 8, 6, 5, 4, 3, 2, 1)
BUDGET_BYTES = 800_000
# When jobs arrive in one burst and most then run for long, the map goes on after the last arrival.
BURST = 0.2
MOST = 0.9


@dataclass(frozen=True, slots=True)
class PackedMap:
    """The packed map: base64 of compressed JSON, how many times it holds, and the one it opens with."""

    packed: str
    times: int
    shown_s: float


def occupancy(results: Sequence[Result], *, at_s: float | None = None) -> PackedMap:
    """Pack the map of all runs, with as many times as fit the budget; `at_s` is the time to show first."""
    span_s = map_span_s(results)
    most = float(TIMES[0])
    for count in TIMES:
        if count > most and count > TIMES[-1]:
            continue
        times_s = sample_times_s(span_s, count, at_s)
        shown = int(times_s.size // 2) if at_s is None else int(np.searchsorted(times_s, at_s))
        content = _content(results, times_s, span_s[0], shown)
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
        # Safe inside any HTML element. No time stamp inside: the same results must give the same bytes.
        packed = base64.b64encode(gzip.compress(text, compresslevel=6, mtime=0)).decode("ascii")
        if len(packed) <= BUDGET_BYTES:
            break
        # Jobs that last are stored once, so half the times need about half the bytes or more: what lies
        # between here and this bound would not fit either.
        most = count * BUDGET_BYTES / len(packed)
    return PackedMap(packed, times_s.size, float(times_s[shown]))


def map_span_s(results: Sequence[Result]) -> tuple[float, float]:
    """Return the time that the map covers: the arrivals, or all of the run where they come in one burst."""
    first_s, last_s = arrival_span_s(results)
    ends = np.concatenate([*(numbers(result.runs, "end_s") for result in results), np.empty(0)])
    ends = ends[np.isfinite(ends)]
    if not ends.size or last_s - first_s >= BURST * (float(np.quantile(ends, MOST)) - first_s):
        return first_s, last_s
    return first_s, float(ends.max())


def sample_times_s(span_s: tuple[float, float], count: int, at_s: float | None) -> NDArray[np.float64]:
    """Spread `count` times evenly over the span, the asked-for time among them."""
    low_s, high_s = span_s
    # The middle of each slice: at the very first moment nothing runs yet.
    times_s = low_s + (np.arange(count) + 0.5) * (high_s - low_s) / count
    return times_s if at_s is None else np.unique(np.append(times_s, at_s))


def _content(
    results: Sequence[Result], times_s: NDArray[np.float64], origin_s: float, shown: int
) -> dict[str, Any]:
    """Return the map as plain lists: clusters, jobs, masks, and the rows of each run."""
    tables = [_rows(result, times_s) for result in results]
    jobs = (
        pl.concat([table.select("job_id", "wanted", "model") for table in tables])
        .unique(maintain_order=True)
        .sort("job_id", "wanted", "model")
        .with_row_index("job")
    )
    masks = np.unique(np.concatenate([table["gpus"].to_numpy() for table in tables]))
    models = jobs["model"].unique().sort().to_list()
    clusters: list[dict[str, Any]] = []
    runs = []
    for result, table in zip(results, tables, strict=True):
        cluster = _cluster(result.cluster)
        if cluster not in clusters:
            clusters.append(cluster)
        runs.append({"cluster": clusters.index(cluster), **_columns(table, jobs, masks)})
    return {
        "times_s": [round(float(at) - origin_s, 3) for at in times_s],
        "shown": shown,
        "clusters": clusters,
        "models": models,
        "jobs": {
            "id": jobs["job_id"].to_list(),
            "gpus": jobs["wanted"].to_list(),
            "model": np.searchsorted(np.array(models, dtype=object), jobs["model"].to_numpy()).tolist(),
        },
        "masks": [[slot for slot in range(64) if int(mask) >> slot & 1] for mask in masks],  # of GPUs
        "runs": runs,
    }


def _rows(result: Result, times_s: NDArray[np.float64]) -> pl.DataFrame:
    """Return the rows that are running at one of the times, with the size and the model of their job."""
    runs = result.runs
    start_s, end_s = numbers(runs, "start_s"), numbers(runs, "end_s")
    first = np.searchsorted(times_s, start_s, side="left")
    # A row without an end still runs; NaN sorts after every time, which is what we want.
    after = np.searchsorted(times_s, end_s, side="left")
    shown = runs.select(
        pl.col("job_id").cast(pl.String),
        pl.col("machine").cast(pl.Int64),
        pl.col("gpus").cast(pl.UInt64),
        pl.Series("first", first, dtype=pl.Int64),
        pl.Series("count", after - first, dtype=pl.Int64),
    ).filter(pl.col("count") > 0)
    # Few of the jobs of a long log run at one of the times: only these are looked up.
    about = (
        result.jobs.select(pl.col("job_id").cast(pl.String), "gpus", "model")
        .join(shown.select("job_id"), on="job_id", how="semi", maintain_order="left")
        .select(
            "job_id",
            pl.col("gpus").cast(pl.Int64).alias("wanted"),
            pl.col("model").cast(pl.String).fill_null(""),
        )
        .unique(subset="job_id", keep="first", maintain_order=True)
    )
    return shown.join(about, on="job_id", how="left", maintain_order="left").with_columns(
        pl.col("wanted").fill_null(0), pl.col("model").fill_null("")
    )


def _columns(table: pl.DataFrame, jobs: pl.DataFrame, masks: NDArray[np.uint64]) -> Mapping[str, list[int]]:
    """Return a run's rows as columns of small numbers, in an order that compresses well."""
    rows = table.join(jobs, on=["job_id", "wanted", "model"], how="left").sort("machine", "first", "job")
    machines = rows["machine"].to_numpy()
    return {
        "machine_step": np.diff(machines, prepend=0).tolist(),
        "first": rows["first"].to_list(),
        "count": rows["count"].to_list(),
        "job": rows["job"].to_list(),
        "mask": np.searchsorted(masks, rows["gpus"].to_numpy()).tolist(),
    }


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """Return the machines and racks as plain lists."""
    types = sorted({machine.gpu_type or "" for machine in cluster.machines})
    return {
        "machines": [str(machine.name) for machine in cluster.machines],
        "gpus": [int(machine.gpus) for machine in cluster.machines],
        "gpu_types": types,
        "gpu_type": [types.index(machine.gpu_type or "") for machine in cluster.machines],
        "rack_of": [int(rack) for rack in cluster.rack_of],
        "racks": [str(name) for name in cluster.rack_names],
    }
