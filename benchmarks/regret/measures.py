"""What is measured in a replay, and which way is better."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from benchmarks.regret.world import AT_ARRIVALS, World
from cranny.run import Result
from cranny.sim.record import DONE

SHORT_S = 10.0  # jobs that are shorter count as if they took so long, as is usual for bounded slowdowns
KEPT = ("mean_wait_s", "jobs_done", "jobs_skipped", "jobs_unfinished", "restarts", "moves")
Measures = Mapping[str, float]


class Metric(NamedTuple):
    """How a metric is called in a table, and whether more of it is better."""

    label: str
    more_is_better: bool = False


METRICS: dict[str, Metric] = {
    "machine_hours": Metric("machine-hours"),
    "mean_jct_s": Metric("JCT"),
    "p99_jct_s": Metric("p99 JCT"),
    "mean_slowdown": Metric("slowdown"),
    "mean_iteration_s": Metric("iteration"),
    "p99_iteration_s": Metric("p99 iteration"),
    "fairness": Metric("fairness", more_is_better=True),
    "mean_used_machines": Metric("used machines"),
    "mean_fragmentation": Metric("fragmentation"),
    "mean_cross_traffic_gb": Metric("traffic"),
    "mean_profit_rate": Metric("profit rate", more_is_better=True),
}


def measured(world: World, result: Result, seed: int, cpu_s: float) -> dict[str, float]:
    """Return all measures of a replay."""
    done = result.jobs.filter(pl.col("status") == DONE)
    slowdown = (done["jct_s"].clip(SHORT_S) / done["duration_s"].clip(SHORT_S)).mean()
    fairness = world.fairness(result, seed)
    own = {"mean_slowdown": slowdown, "fairness": fairness, "cpu_s": cpu_s}
    known = {name: result.summary[name] for name in (*METRICS, *KEPT) if name in result.summary}
    return known | {name: float(value) for name, value in own.items() if isinstance(value, int | float)}


def may_be_best(measures: Measures, metric: str) -> bool:
    """Say whether a policy may be the one that others are compared with.

    One that left a job unfinished may not. Nor may one that let jobs wait, for means at arrivals: waiting flatters
    these.
    """
    finished = not measures["jobs_skipped"] and not measures["jobs_unfinished"]
    return finished and (metric not in AT_ARRIVALS or measures["mean_wait_s"] < 1.0)
