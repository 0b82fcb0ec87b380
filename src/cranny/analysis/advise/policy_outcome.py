"""What is kept of a replay so that policies can be compared, as a whole and part by part of the log."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl

from cranny.model.arrays import Floats, Ints
from cranny.sim.record import DONE
from cranny.sim.result import Result

SHORT_S = 10.0  # shorter jobs count as if they took so long, as is usual for slowdowns
P99 = 0.99


class JudgedMetric(NamedTuple):
    """A metric that policies are judged by; less is better."""

    label: str
    unit: str


METRICS: Mapping[str, JudgedMetric] = {
    "mean_jct_s": JudgedMetric("mean JCT", "s"),
    "p99_jct_s": JudgedMetric("p99 JCT", "s"),
    "machine_hours": JudgedMetric("machine-hours", "h"),
    "mean_slowdown": JudgedMetric("slowdown", ""),
}
KEPT = ("mean_comm_slowdown", "jobs_done", "jobs_skipped", "jobs_unfinished", "restarts", "moves")


@dataclass(frozen=True, slots=True, eq=False)
class PolicyOutcome:
    """A policy's jobs in the order of their submission, and the machine-hours up to each submission."""

    policy: str
    order: str
    summary: Mapping[str, float]
    job_ids: tuple[str, ...]  # of the jobs that are done
    submit_s: Floats  # (jobs,)
    jct_s: Floats
    duration_s: Floats
    hours_at_s: tuple[Floats, Floats]  # times, and the machine-hours until then

    @classmethod
    def of(cls, result: Result) -> Self:
        """Keep of a result what is compared."""
        done = result.jobs.filter(pl.col("status") == DONE).sort("submit_s", "job_id")
        summary = {name: float(result.summary[name]) for name in KEPT}
        summary["mean_not_running_s"] = _not_running(result, done)
        end_s = float(done["finish_s"].max() or 0.0)  # type: ignore[arg-type]
        at_s = np.append(result.timeline["time_s"].to_numpy(), end_s)
        hours = np.append(result.timeline["machine_hours"].to_numpy(), result.summary["machine_hours"])
        return cls(
            policy=str(result.settings["policy"]),
            order=str(result.settings["order"]),
            summary=summary,
            job_ids=tuple(done["job_id"]),
            submit_s=done["submit_s"].to_numpy(),
            jct_s=done["jct_s"].to_numpy(),
            duration_s=done["duration_s"].to_numpy(),
            hours_at_s=(at_s, hours),
        )

    @property
    def finished(self) -> bool:
        """Whether every job was run to its end: a policy that does less has it easier."""
        return not self.summary["jobs_skipped"] and not self.summary["jobs_unfinished"]

    @property
    def slowdown(self) -> Floats:
        """How many times its duration each job took to complete, (jobs,)."""
        return np.maximum(self.jct_s, SHORT_S) / np.maximum(self.duration_s, SHORT_S)

    def only(self, job_ids: frozenset[str]) -> Self:
        """Keep only some jobs."""
        kept = np.array([job_id in job_ids for job_id in self.job_ids], dtype=bool)
        ids = tuple(job_id for job_id in self.job_ids if job_id in job_ids)
        columns = {"submit_s": self.submit_s[kept], "jct_s": self.jct_s[kept], "duration_s": self.duration_s[kept]}
        return replace(self, job_ids=ids, **columns)

    def values(self) -> dict[str, float]:
        """Return the metrics over all jobs."""
        return {
            "mean_jct_s": float(self.jct_s.mean()),
            "p99_jct_s": float(np.quantile(self.jct_s, P99)),
            "machine_hours": float(self.hours_at_s[1][-1]),
            "mean_slowdown": float(self.slowdown.mean()),
        }

    def resampled(self, part: Ints, weights: Floats) -> dict[str, Floats]:
        """Return the metrics if each part of the jobs occurred so many times, (samples,) each.

        `part` is (jobs,) and counts from 0, `weights` is (samples, parts).
        """
        parts = weights.shape[1]
        jobs = weights @ np.bincount(part, minlength=parts)
        firsts = np.searchsorted(part, np.arange(1, parts))
        edges_s = np.concatenate([[self.submit_s[0]], self.submit_s[firsts], [np.inf]])
        hours = np.diff(np.interp(edges_s, *self.hours_at_s))
        sums = [np.bincount(part, weights=each, minlength=parts) for each in (self.jct_s, self.slowdown)]
        order = np.argsort(self.jct_s, kind="stable")
        counted = np.cumsum(weights[:, part[order]], axis=1)
        place = (counted < P99 * counted[:, -1:]).sum(axis=1)
        return {
            "mean_jct_s": weights @ sums[0] / jobs,
            "p99_jct_s": self.jct_s[order[place]],
            "machine_hours": weights @ hours,
            "mean_slowdown": weights @ sums[1] / jobs,
        }

    def facts(self) -> dict[str, Any]:
        """Return the outcome as plain values."""
        return {"policy": self.policy, "order": self.order, **self.values(), **self.summary}


def _not_running(result: Result, done: pl.DataFrame) -> float:
    """Return for how long jobs waited on average, to start or to go on: of one that is stopped, both count."""
    periods = result.runs.select("job_id", "start_s", "end_s").unique()
    ran = periods.join(done.select("job_id"), on="job_id", how="semi")
    ran_s = float((ran["end_s"] - ran["start_s"]).sum())
    return max(0.0, float(done["jct_s"].sum()) - ran_s) / max(1, done.height)
