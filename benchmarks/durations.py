"""Estimates of durations on real logs: each job is predicted when it comes, and learned when it ends.

The estimates' constants were chosen on logs of ITP and Philly, of which three are shown; the budgets are on the
other logs. The virtual cluster is the tenant in `philly-passed`, whose log names it only for jobs that passed, the
user in `philly-users`, and the class of service in `openb`. The other logs name neither tenant nor model.
"""

import time
from bisect import insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from benchmarks.measure import Budget, Measured
from cranny.model.arrays import Floats
from cranny.model.job import Job
from cranny.policies.cranny.durations import DurationEstimates, RemainingTime
from cranny.traces.read import read_trace

CHOSEN_ON = ("itp-04", "itp-08", "philly-passed")
HELD_OUT = ("philly-users", "acme", "pai", "openb")
MOST_JOBS = 1_000_000  # of a log
PHILLY_USERS_END_S = 4_977_039.0  # users are known up to here
LAST = 10  # jobs of a tenant, for the mean of its last
HOUR_S = 3600.0
RIVALS = ("median_of_all", "tenants_last", "mean_of_tenants_last")


class LogJob(NamedTuple):
    """A job as the estimates see it, and how long it ran."""

    job: Job
    ran_s: float


class Predicted(NamedTuple):
    """What was predicted of each job of a log, (jobs,)."""

    ran_s: Floats
    mean_s: Floats
    median_s: Floats
    low_s: Floats
    high_s: Floats
    rivals_s: Mapping[str, Floats]
    hour_coverage: float  # of jobs that ran longer than an hour, predicted after an hour
    call_us: float  # processor time of a prediction or a lesson


def run() -> Measured:
    """Replay each log; nothing is measured where the folder of real logs is not beside the project."""
    folder = logs_folder()
    if folder is None:
        return Measured("durations", {}, [])
    metrics: dict[str, float] = {}
    budgets: list[Budget] = []
    call_us = 0.0
    for name in (*CHOSEN_ON, *HELD_OUT):
        predicted = replay(read_log(folder, name))
        call_us = max(call_us, predicted.call_us)
        found = scores(predicted)
        metrics |= {f"{name}_{what}": value for what, value in found.items()}
        if name in HELD_OUT:
            least = min(found[f"log_error_{rival}"] for rival in RIVALS)
            budgets.append(Budget(f"{name}_log_error", found["log_error"], least))
    correlation = {each: _mean(metrics, f"spearman{each}") for each in ("", *(f"_{rival}" for rival in RIVALS))}
    metrics |= {f"mean_spearman{each}": value for each, value in correlation.items()} | {"call_us": call_us}
    most = max(value for each, value in correlation.items() if each)
    budgets.append(Budget("mean_spearman", correlation[""], most, at_least=True))
    budgets.append(Budget("call_us", call_us, 100.0))
    return Measured("durations", metrics, budgets)


def _mean(metrics: Mapping[str, float], what: str) -> float:
    """Return the mean of a metric over the logs that nothing was chosen on."""
    return sum(metrics[f"{name}_{what}"] for name in HELD_OUT) / len(HELD_OUT)


def logs_folder() -> Path | None:
    """Return the folder of real logs beside the project, if it is there."""
    folders = (parent / "shared" / "traces" for parent in Path(__file__).resolve().parents)
    return next((folder for folder in folders if folder.is_dir()), None)


def read_log(folder: Path, name: str) -> list[LogJob]:
    """Read the jobs of a log in order of submission, without what they state of their duration."""
    family, _, part = name.partition("-")
    files = {"itp": "elasticflow_itp", "acme": "acme_kalos_head800", "pai": "alibaba_pai2020_sample"}
    files |= {"openb": "alibaba_openb2023", "philly": "philly"}
    frame = read_trace(folder / f"{files[family]}.parquet", strict=False).frame
    tenant = ""
    if family == "itp":
        frame = frame.filter(pl.col("cluster") == f"cluster{part}")
    elif part == "users":
        frame, tenant = frame.filter(pl.col("submit_s") <= PHILLY_USERS_END_S), "user"
    elif part == "passed":
        late = pl.col("submit_s") > PHILLY_USERS_END_S
        frame, tenant = frame.filter(late & pl.col("tenant").is_not_null()), "tenant"
    elif family == "openb":
        tenant = "queue"
    frame = frame.sort("submit_s", maintain_order=True).head(MOST_JOBS)
    tenants = frame[tenant].cast(pl.String).to_list() if tenant else [""] * frame.height
    rows = zip(frame["submit_s"], frame["gpus"], frame["duration_s"], tenants, strict=True)
    return [
        LogJob(Job(id=str(number), gpus=gpus, submit_s=submit_s, tenant=tenant or ""), ran_s)
        for number, (submit_s, gpus, ran_s, tenant) in enumerate(rows)
    ]


class Rivals:
    """Simple predictions: the median of all jobs so far, the tenant's last job, and the mean of its last few."""

    def __init__(self) -> None:
        self._all: list[float] = []
        self._last: dict[str, deque[float]] = {}

    def learn(self, job: Job, ran_s: float) -> None:
        """Learn that a job ended."""
        insort(self._all, ran_s)
        self._last.setdefault(job.tenant, deque(maxlen=LAST)).append(ran_s)

    def predict(self, job: Job, otherwise_s: float) -> tuple[float, ...]:
        """Return the predictions in the order of `RIVALS`; `otherwise_s` before anything is known."""
        median_s = self._all[len(self._all) // 2] if self._all else otherwise_s
        last = self._last.get(job.tenant)
        return (median_s, last[-1], sum(last) / len(last)) if last else (median_s, median_s, median_s)


def replay(log: Sequence[LogJob]) -> Predicted:
    """Predict each job of a log when it comes, as if all started at once, and learn it when it ends."""
    estimates, rivals = DurationEstimates(), Rivals()
    estimates.learn(log[0].job, log[0].ran_s)  # compiles
    estimates.remaining(log[0].job)
    estimates = DurationEstimates()
    found: list[RemainingTime | None] = [None] * len(log)
    of_rivals: list[tuple[float, ...]] = [()] * len(log)
    within_hour = []
    spent_s = 0.0
    for _, kind, number in _events(log):
        job, ran_s = log[number]
        began = time.process_time()
        if kind == 0:
            estimates.learn(job, ran_s)
            spent_s += time.process_time() - began
            rivals.learn(job, ran_s)
            continue
        estimate = estimates.remaining(job, HOUR_S if kind == 1 else 0.0)
        spent_s += time.process_time() - began
        if kind == 1:
            within_hour.append(estimate.low_s <= ran_s - HOUR_S <= estimate.high_s)
        else:
            found[number] = estimate
            of_rivals[number] = rivals.predict(job, estimate.median_s)
    made = np.array(found, dtype=np.float64)  # (jobs, mean and quantiles)
    by_rival = np.array(of_rivals)
    return Predicted(
        ran_s=np.array([each.ran_s for each in log]),
        mean_s=made[:, 0],
        low_s=made[:, 1],
        median_s=made[:, 2],
        high_s=made[:, 3],
        rivals_s={name: by_rival[:, column] for column, name in enumerate(RIVALS)},
        hour_coverage=float(np.mean(within_hour)) if within_hour else 0.0,
        call_us=1e6 * spent_s / (2 * len(log) + len(within_hour)),
    )


def _events(log: Sequence[LogJob]) -> Iterator[tuple[float, int, int]]:
    """Yield times, kinds and jobs in order: ends (0), an hour of running (1) and submissions (2)."""
    events = []
    for number, (job, ran_s) in enumerate(log):
        events += [(job.submit_s + ran_s, 0, number), (job.submit_s, 2, number)]
        if ran_s > HOUR_S:
            events.append((job.submit_s + HOUR_S, 1, number))
    # A job of no length is submitted before it ends.
    yield from sorted(events, key=lambda event: (event[0], event[1] if log[event[2]].ran_s else 2 - event[1]))


def scores(predicted: Predicted) -> dict[str, float]:
    """Return rank correlation, mean absolute error of the logarithm, and coverage of the 80 % interval."""
    found = {
        "spearman": _spearman(predicted.median_s, predicted.ran_s),
        "spearman_of_mean": _spearman(predicted.mean_s, predicted.ran_s),
        "log_error": _log_error(predicted.median_s, predicted.ran_s),
        "predicted_of_real_hours": float(predicted.mean_s.sum() / predicted.ran_s.sum()),
        "coverage": float(np.mean((predicted.low_s <= predicted.ran_s) & (predicted.ran_s <= predicted.high_s))),
        "coverage_after_an_hour": predicted.hour_coverage,
        "interval_factor": float(np.exp(np.mean(np.log(predicted.high_s / np.maximum(predicted.low_s, 1e-3))))),
    }
    for rival, rival_s in predicted.rivals_s.items():
        found[f"spearman_{rival}"] = _spearman(rival_s, predicted.ran_s)
        found[f"log_error_{rival}"] = _log_error(rival_s, predicted.ran_s)
    return found


def _spearman(a: Floats, b: Floats) -> float:
    """Return the correlation of ranks; 0 if one of them is constant."""
    ranks = [pl.Series(values).rank("average").to_numpy() for values in (a, b)]
    if min(float(each.std()) for each in ranks) == 0.0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _log_error(found_s: Floats, ran_s: Floats) -> float:
    """Return the mean absolute error of the natural logarithm; less than a second counts as one."""
    return float(np.mean(np.abs(np.log(np.maximum(found_s, 1.0) / np.maximum(ran_s, 1.0)))))
