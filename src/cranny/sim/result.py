"""The result of a simulation: a summary, a row a job, a row an arrival, and which job held which GPU when."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from cranny.model.arrays import Floats
from cranny.model.cluster import Cluster
from cranny.model.cluster_values import cluster_of_values, cluster_values
from cranny.model.errors import InputError, at
from cranny.network.phases.contention import Contention
from cranny.network.phases.iteration_log import IterationInterval
from cranny.network.steady.link_load import Load, load_at
from cranny.sim.metrics import SECONDS_PER_HOUR, measured, time_means
from cranny.sim.record import DONE, SKIPPED, UNFINISHED, ReplayRecord

FRAMES = ("jobs", "timeline", "runs")


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A finished simulation; all frames are polars frames."""

    cluster: Cluster
    settings: Mapping[str, Any]
    summary: Mapping[str, float]
    jobs: pl.DataFrame
    timeline: pl.DataFrame
    runs: pl.DataFrame
    streams: pl.DataFrame = field(default_factory=pl.DataFrame)  # empty where jobs shared no links
    contentions: tuple[Contention, ...] = ()  # the costliest ones on links, if jobs communicated in phases
    intervals: tuple[IterationInterval, ...] = ()  # of equally long iterations, if the network keeps them

    @classmethod
    def of(
        cls, cluster: Cluster, record: ReplayRecord, settings: Mapping[str, Any], price_per_gpu_hour: float
    ) -> Self:
        """Compute a result from the record of a replay."""
        columns = measured(record, cluster.share_unit, price_per_gpu_hour)
        arrivals = columns["arrivals"].astype(np.int64)  # those of one instant have equal rows
        timeline = pl.DataFrame(dict(columns)).drop("arrivals")[np.repeat(np.arange(len(arrivals)), arrivals)]
        summary = summarise(cluster, record.jobs, timeline, columns, price_per_gpu_hour)
        summary.update(record.iterations or {})
        streams = pl.DataFrame() if record.streams is None else record.streams
        found = record.jobs, timeline, record.runs, streams, record.contentions, record.intervals
        return cls(cluster, dict(settings), summary, *found)

    def load_at(self, at_s: float) -> Load | None:
        """Return what links and switches carried at a time; None if jobs shared no links."""
        return load_at(self.cluster, self.runs, self.streams, at_s) if self.streams.height else None

    def save(self, folder: str | Path) -> Path:
        """Write the result to a folder: one JSON file, and a Parquet file for each frame."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in (*FRAMES, *(["streams"] if self.streams.height else [])):
            getattr(self, name).write_parquet(folder / f"{name}.parquet")
        saved = {
            "settings": dict(self.settings),
            "summary": dict(self.summary),
            "contentions": [contention.to_dict() for contention in self.contentions],
            "cluster": cluster_values(self.cluster),
        }
        (folder / "result.json").write_text(json.dumps(saved, indent=1) + "\n", encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a result that was saved."""
        folder = Path(folder)
        try:
            saved = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            names = (*FRAMES, *(["streams"] if (folder / "streams.parquet").exists() else []))
            frames = {name: pl.read_parquet(folder / f"{name}.parquet") for name in names}
            cluster = cluster_of_values(saved["cluster"])
            contentions = tuple(Contention.from_dict(each) for each in saved.get("contentions", ()))
            # Results saved before version 0.2 have other words for skipped jobs.
            summary = {
                "jobs_skipped" if key == "jobs_left_out" else key: value for key, value in saved["summary"].items()
            }
            frames["jobs"] = frames["jobs"].with_columns(pl.col("status").replace("left out", SKIPPED))
            return cls(cluster, saved["settings"], summary, **frames, contentions=contentions, intervals=())
        except OSError as error:
            raise InputError(f"{at(folder)}: not a saved result: {error.strerror or error}") from None
        except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{at(folder)}: not a saved result: {str(error).splitlines()[0]}") from None


def summarise(
    cluster: Cluster,
    jobs: pl.DataFrame,
    timeline: pl.DataFrame,
    columns: Mapping[str, Floats],
    price_per_gpu_hour: float,
) -> dict[str, float]:
    """Compute the summary; `docs/understand/metrics.md` defines each value."""
    done = jobs.filter(pl.col("status") == DONE)
    machine_hours = float(columns["machine_hours"][-1]) if len(columns["machine_hours"]) else 0.0
    delivered = _number((done["gpus"] * done["duration_s"]).sum()) / SECONDS_PER_HOUR
    mean_gpus = cluster.gpus / len(cluster.machines)
    makespan_s = _number(done["finish_s"].max()) - _number(jobs["submit_s"].min())
    return {
        **{f"jobs_{status}": int((jobs["status"] == status).sum()) for status in (DONE, SKIPPED, UNFINISHED)},
        **{f"mean_{name}": _number(timeline[name].mean()) for name in ("used_machines", "fragmentation")},
        **time_means(columns, cluster.gpus),
        "mean_jct_s": _number(done["jct_s"].mean()),
        "p50_jct_s": _number(done["jct_s"].median()),
        "p99_jct_s": _number(done["jct_s"].quantile(0.99, "linear")),
        "mean_wait_s": _number(done["wait_s"].mean()),
        "p99_wait_s": _number(done["wait_s"].quantile(0.99, "linear")),
        "machine_hours": machine_hours,
        "gpu_hours_delivered": delivered,
        "cost_per_gpu_hour": machine_hours * mean_gpus * price_per_gpu_hour / delivered if delivered else 0.0,
        "mean_cross_traffic_gb": _number(timeline["cross_traffic_gb"].mean()),
        "mean_profit_rate": _number(timeline["profit_rate"].mean()),
        "total_profit": _number(timeline["profit_rate"].sum()),
        "makespan_s": max(0.0, makespan_s),
        "mean_comm_slowdown": _number(done["slowdown"].mean()),
        **{name: int(_number(done[name].sum())) for name in ("restarts", "moves")},
    }


def _number(value: Any) -> float:
    """Return a polars aggregate as a float; nothing counts as zero."""
    return float(value) if value is not None else 0.0
