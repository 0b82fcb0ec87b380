"""Measures of a simulation.

Definitions follow Titan's evaluation (ICNP'24, Sec. V-A), read as `metrics.md` says: used machines have at
least one GPU held; fragmentation is the mean share of GPUs without a rank over used machines; traffic is what
one iteration of every running job moves between machines; the profit rate is
jobs * mean price / (used machines * mean duration).

The event loop only notes a few numbers at each event; everything else is worked out from the notes at the end.
"""

from array import array
from collections.abc import Mapping
from struct import Struct

import numpy as np

from cranny.core.state import ClusterState
from cranny.core.traffic import GIGA
from cranny.sim.record import NOTED, Floats, Record, Stretches

SECONDS_PER_HOUR = 3600.0
# A difference of two sums that is smaller than this share of them is rounding.
ROUNDING = 1e-12

# The last five noted values are `ClusterState.totals`.
_PACK = Struct(f"{len(NOTED)}d").pack  # half the time of extending the array by a tuple


class Metrics:
    """Notes of the state after each event."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._noted = array("d")
        self.notes = 0  # how many were taken

    def note(self, now_s: float, arrival: int, waiting_jobs: int) -> None:
        """Note the state after an event."""
        self.notes += 1
        self._noted.frombytes(_PACK(now_s, arrival, waiting_jobs, *self._state.totals()))

    @property
    def noted(self) -> Floats:
        """All notes, (notes, NOTED)."""
        return np.frombuffer(self._noted, dtype=np.float64).reshape(-1, len(NOTED))


def measured(record: Record, share_unit: int, price_per_gpu_hour: float) -> dict[str, Floats]:
    """Return what was measured after each event, in columns."""
    time_s, arrival, waiting, used, idle_units, cross_bytes, held, running = record.noted.T
    span_s = np.diff(time_s, prepend=time_s[:1])
    used_before = np.concatenate([[0.0], used[:-1]])
    done = record.stretches
    price = _summed(done, done.gpus * (done.nominal_s / SECONDS_PER_HOUR) * price_per_gpu_hour, len(used))
    machine_hours = used * _summed(done, done.nominal_s * done.slowdown, len(used)) / SECONDS_PER_HOUR
    busy = (used > 0) & (machine_hours > 0)
    profit_rate = np.divide(running * price, machine_hours, out=np.zeros_like(used), where=busy)
    return {
        "time_s": time_s,
        "arrival": arrival,
        "used_machines": used,
        "fragmentation": np.divide(idle_units, share_unit * used, out=np.zeros_like(used), where=used > 0),
        "cross_traffic_gb": cross_bytes / GIGA,
        "profit_rate": profit_rate,
        "total_profit": np.cumsum(profit_rate * arrival),
        "machine_hours": np.cumsum(used_before * span_s) / SECONDS_PER_HOUR,
        "held_gpus": held,
        "running_jobs": running,
        "waiting_jobs": waiting,
    }


def _summed(stretches: Stretches, value: Floats, notes: int) -> Floats:
    """Return the sum, at each note, of a value of all stretches in which it was taken."""
    entered = np.cumsum(np.bincount(stretches.first_note, weights=value, minlength=notes + 1))[:notes]
    left = np.cumsum(np.bincount(stretches.past_note, weights=value, minlength=notes + 1))[:notes]
    held = entered - left
    held[held < ROUNDING * entered] = 0.0
    return np.asarray(held, dtype=np.float64)


def time_means(columns: Mapping[str, Floats], gpus: int) -> dict[str, float]:
    """Return means over time, each value weighted by how long it held."""
    time_s = columns["time_s"]
    weight = np.diff(time_s, append=time_s[-1:])
    if not weight.sum():
        weight = np.ones_like(time_s)

    def mean(name: str) -> float:
        return float(np.average(columns[name], weights=weight))

    return {
        "time_mean_used_machines": mean("used_machines"),
        "time_mean_fragmentation": mean("fragmentation"),
        "time_mean_cross_traffic_gb": mean("cross_traffic_gb"),
        "gpu_utilisation": mean("held_gpus") / gpus,
    }
