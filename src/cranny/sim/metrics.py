"""Measures of a simulation.

Definitions follow Titan's evaluation (ICNP'24, Sec. V-A), read as `metrics.md` says: used machines have at
least one GPU held; fragmentation is the mean share of GPUs without a rank over used machines; traffic is what
one iteration of every running job moves between machines; the profit rate is
jobs * mean price / (used machines * mean duration).

The event loop samples a few numbers after each instant at which something happened; everything else is computed
from the samples at the end.
"""

from array import array
from collections.abc import Mapping
from struct import Struct

import numpy as np

from cranny.core.state import ClusterState
from cranny.core.traffic import GIGA
from cranny.model.arrays import Floats
from cranny.sim.record import SAMPLE_COLUMNS, ReplayRecord, RunColumns

SECONDS_PER_HOUR = 3600.0
# A difference of two sums that is smaller than this share of them is rounding.
ROUNDING = 1e-12

# The last five sampled values are `ClusterState.totals`.
_PACK = Struct(f"{len(SAMPLE_COLUMNS)}d").pack  # half the time of extending the array by a tuple


class Metrics:
    """Samples of the state after each instant at which something happened."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._samples = array("d")
        self.samples_taken = 0  # so far

    def sample(self, now_s: float, arrivals: int, waiting_jobs: int) -> None:
        """Sample the state after all events of an instant."""
        self.samples_taken += 1
        self._samples.frombytes(_PACK(now_s, arrivals, waiting_jobs, *self._state.totals()))

    @property
    def samples(self) -> Floats:
        """All samples, (samples, SAMPLE_COLUMNS)."""
        return np.frombuffer(self._samples, dtype=np.float64).reshape(-1, len(SAMPLE_COLUMNS))


def measured(record: ReplayRecord, share_unit: int, price_per_gpu_hour: float) -> dict[str, Floats]:
    """Return all measures after each instant, in columns."""
    time_s, arrivals, waiting, used, idle_units, cross_bytes, held, running = record.samples.T
    span_s = np.diff(time_s, prepend=time_s[:1])
    used_before = np.concatenate([[0.0], used[:-1]])
    done = record.run_columns
    price = _summed(done, done.gpus * (done.nominal_s / SECONDS_PER_HOUR) * price_per_gpu_hour, len(used))
    machine_hours = used * _summed(done, done.nominal_s * done.slowdown, len(used)) / SECONDS_PER_HOUR
    busy = (used > 0) & (machine_hours > 0)
    profit_rate = np.divide(running * price, machine_hours, out=np.zeros_like(used), where=busy)
    return {
        "time_s": time_s,
        "arrivals": arrivals,
        "used_machines": used,
        "fragmentation": np.divide(idle_units, share_unit * used, out=np.zeros_like(used), where=used > 0),
        "cross_traffic_gb": cross_bytes / GIGA,
        "profit_rate": profit_rate,
        "total_profit": np.cumsum(profit_rate * arrivals),
        "machine_hours": np.cumsum(used_before * span_s) / SECONDS_PER_HOUR,
        "held_gpus": held,
        "running_jobs": running,
        "waiting_jobs": waiting,
    }


def _summed(runs: RunColumns, value: Floats, count: int) -> Floats:
    """Return the sum, at each of `count` samples, of a value over the runs in progress."""
    entered = np.cumsum(np.bincount(runs.first_sample, weights=value, minlength=count + 1))[:count]
    left = np.cumsum(np.bincount(runs.past_sample, weights=value, minlength=count + 1))[:count]
    held = entered - left
    held[held < ROUNDING * entered] = 0.0
    return np.asarray(held, dtype=np.float64)


def time_means(columns: Mapping[str, Floats], gpus: int) -> dict[str, float]:
    """Return means over time, each value weighted by how long it held."""
    time_s = columns["time_s"]
    weight = np.diff(time_s, append=time_s[-1:])
    if not weight.sum():
        weight = np.ones_like(time_s)
    names = ("used_machines", "fragmentation", "cross_traffic_gb", "held_gpus")
    means = {f"time_mean_{name}": float(np.average(columns[name], weights=weight)) for name in names}
    held_gpus = means.pop("time_mean_held_gpus")
    return {**means, "gpu_utilisation": held_gpus / gpus}
