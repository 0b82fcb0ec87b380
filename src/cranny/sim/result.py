"""What a simulation found: a summary, a row a job, a row an arrival, and who held which GPU when."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from cranny.core.traffic import GIGA
from cranny.model.cluster import Cluster, Machine
from cranny.model.errors import InputError, at
from cranny.sim.metrics import SECONDS_PER_HOUR, Column, OverNotes, time_means
from cranny.sim.replay import Log, Replay

TIMELINE = (
    "time_s",
    "used_machines",
    "fragmentation",
    "cross_traffic_gb",
    "profit_rate",
    "total_profit",
    "machine_hours",
    "held_gpus",
    "running_jobs",
    "waiting_jobs",
)

RUNS = {"job_id": pl.String, "start_s": pl.Float64, "end_s": pl.Float64, "machine": pl.Int32, "gpus": pl.UInt64}


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A finished simulation; all frames are polars frames."""

    cluster: Cluster
    settings: Mapping[str, Any]
    summary: Mapping[str, float]
    jobs: pl.DataFrame
    timeline: pl.DataFrame
    runs: pl.DataFrame

    @classmethod
    def of(cls, replay: Replay, settings: Mapping[str, Any], price_per_gpu_hour: float) -> Self:
        """Collect what a finished replay has noted."""
        columns = replay.metrics.columns(*_prices(replay.log, price_per_gpu_hour))
        cluster = replay.state.cluster
        jobs = _jobs(replay.log)
        timeline = pl.DataFrame({name: columns[name] for name in TIMELINE}).filter(columns["arrival"] > 0)
        summary = summarise(cluster, jobs, timeline, columns, price_per_gpu_hour)
        return cls(cluster, dict(settings), summary, jobs, timeline, _runs(replay.log))

    def save(self, folder: str | Path) -> Path:
        """Write the result to a folder: three Parquet files and one JSON file."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("jobs", "timeline", "runs"):
            getattr(self, name).write_parquet(folder / f"{name}.parquet")
        cluster = self.cluster
        told = {
            "settings": dict(self.settings),
            "summary": dict(self.summary),
            "cluster": {
                "name": cluster.name,
                "machines": [[m.name, m.gpus, m.gpu_type] for m in cluster.machines],
                "parent": cluster.parent,
                "uplink_gbps": cluster.uplink_gbps[:-1],  # the root's is infinite, which JSON has not
                "node_names": cluster.node_names,
                "spans": cluster.spans,
                "pat_gbps": cluster.pat_gbps,
            },
        }
        (folder / "result.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a result that was saved."""
        folder = Path(folder)
        try:
            told = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            frames = {name: pl.read_parquet(folder / f"{name}.parquet") for name in ("jobs", "timeline", "runs")}
            known = told["cluster"]
            cluster = Cluster(
                name=known["name"],
                machines=tuple(Machine(*machine) for machine in known["machines"]),
                parent=tuple(known["parent"]),
                uplink_gbps=(*known["uplink_gbps"], float("inf")),
                node_names=tuple(known["node_names"]),
                spans=tuple((first, past) for first, past in known["spans"]),
                pat_gbps=tuple(known["pat_gbps"]),
            )
            return cls(cluster, told["settings"], told["summary"], **frames)
        except OSError as error:
            raise InputError(f"{at(folder)}: not a saved result: {error.strerror or error}") from None
        except (KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise InputError(f"{at(folder)}: not a saved result: {str(error).splitlines()[0]}") from None


def _jobs(log: Log) -> pl.DataFrame:
    """Return a row a job: those done, then those unfinished, then those left out."""
    works = [*log.done, *log.unfinished]
    left_out = [job for job, _ in log.left_out]
    jobs = [*(work.job for work in works), *left_out]
    none = [None] * len(left_out)
    submit_s = np.array([job.submit_s for job in jobs], dtype=float)
    start_s = _seconds([*(work.first_start_s for work in works), *none])
    finish_s = _seconds([*(work.finish_s for work in log.done), *[None] * (len(jobs) - len(log.done))])
    status = ["done"] * len(log.done) + ["unfinished"] * len(log.unfinished) + ["left out"] * len(left_out)
    reasons = [*(work.reason or None for work in works), *(reason for _, reason in log.left_out)]
    return pl.DataFrame(
        {
            "job_id": [job.id for job in jobs],
            "gpus": pl.Series([job.gpus for job in jobs], dtype=pl.Int32),
            "model": pl.Series([job.profile.name for job in jobs], dtype=pl.String),
            "tenant": pl.Series([job.tenant for job in jobs], dtype=pl.String),
            "submit_s": submit_s,
            "start_s": start_s,
            "finish_s": finish_s,
            "wait_s": start_s - submit_s,
            "jct_s": finish_s - submit_s,
            "duration_s": pl.Series([job.duration_s for job in jobs], dtype=pl.Float64),
            "slowdown": pl.Series([*(work.slowdown for work in works), *none], dtype=pl.Float64),
            "machines": pl.Series([*(len(work.held or ()) for work in works), *none], dtype=pl.Int32),
            "cross_traffic_gb": pl.Series([*(work.cross_bytes / GIGA for work in works), *none], dtype=pl.Float64),
            "restarts": pl.Series([*(work.stops for work in works), *none], dtype=pl.Int32),
            "status": status,
            "reason": pl.Series(reasons, dtype=pl.String),
        }
    )


def _seconds(values: list[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)


def _runs(log: Log) -> pl.DataFrame:
    """Return a row for each stretch of time in which a job held GPUs of a machine."""
    if not log.runs:
        return pl.DataFrame(schema=RUNS)
    works, start_s, end_s, held, *_ = zip(*log.runs, strict=True)
    stretch = np.repeat(np.arange(len(held)), [len(each) for each in held])  # that each row belongs to
    return pl.DataFrame(
        {
            "job_id": pl.Series([work.job.id for work in works]).gather(stretch),
            "start_s": np.array(start_s)[stretch],
            "end_s": np.array(end_s)[stretch],
            "machine": [machine for each in held for machine in each],
            "gpus": [gpus for each in held for gpus in each.values()],
        },
        schema=RUNS,
    )


def _prices(log: Log, price_per_gpu_hour: float) -> tuple[OverNotes, OverNotes]:
    """Return the price of the work in each stretch, and the seconds that it takes where it is placed."""
    works, _, _, _, nominal_s, slowdown, first, past = zip(*log.runs, strict=True) if log.runs else ((),) * 8
    gpus = np.array([work.job.gpus for work in works], dtype=float)
    hours = np.array(nominal_s, dtype=float) / SECONDS_PER_HOUR
    held = np.array(first, dtype=np.int64), np.array(past, dtype=np.int64)
    duration_s = np.array(nominal_s, dtype=float) * np.array(slowdown, dtype=float)
    return OverNotes(gpus * hours * price_per_gpu_hour, *held), OverNotes(duration_s, *held)


def summarise(
    cluster: Cluster,
    jobs: pl.DataFrame,
    timeline: pl.DataFrame,
    columns: Mapping[str, Column],
    price_per_gpu_hour: float,
) -> dict[str, float]:
    """Work out the summary; `docs/metrics.md` defines each value."""
    done = jobs.filter(pl.col("status") == "done")
    machine_hours = float(columns["machine_hours"][-1]) if len(columns["machine_hours"]) else 0.0
    delivered = _total(done["gpus"] * done["duration_s"]) / SECONDS_PER_HOUR
    mean_gpus = cluster.gpus / len(cluster.machines)
    makespan_s = _number(done["finish_s"].max()) - _number(jobs["submit_s"].min())
    return {
        "jobs_done": done.height,
        "jobs_left_out": jobs.filter(pl.col("status") == "left out").height,
        "jobs_unfinished": jobs.filter(pl.col("status") == "unfinished").height,
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
        "restarts": int(_total(done["restarts"])),
    }


def _number(value: Any) -> float:
    """Return a polars aggregate as a float; nothing counts as zero."""
    return float(value) if value is not None else 0.0


def _total(values: pl.Series) -> float:
    return _number(values.sum())
