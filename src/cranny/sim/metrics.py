"""Measures of a simulation.

Definitions follow Titan's evaluation (ICNP'24, Sec. V-A), read as `docs/metrics.md` says: used machines have at
least one GPU held; fragmentation is the mean share of GPUs without a rank over used machines; traffic is what
one iteration of every running job moves between machines; the profit rate is
jobs * mean price / (used machines * mean duration).

The event loop only notes a few numbers at each event; everything else is worked out from the notes at the end.
"""

from array import array
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cranny.core.state import ClusterState

SECONDS_PER_HOUR = 3600.0
GIGA = 1e9

Column = npt.NDArray[np.float64]

NOTES = (
    "time_s",
    "arrival",  # 1 for an arrival, 0 for anything else
    "waiting_jobs",
    "prices",
    "seconds",
    "used_machines",
    "idle_units",
    "cross_bytes",
    "held_gpus",
    "running_jobs",
)


class Metrics:
    """Notes of the state after each event, and what follows from them."""

    def __init__(self, state: ClusterState, price_per_gpu_hour: float) -> None:
        self._state = state
        self._price_per_gpu_s = price_per_gpu_hour / SECONDS_PER_HOUR
        self._notes = array("d")
        # Over the running jobs: their prices, and the seconds that they take where they are placed.
        self._prices = 0.0
        self._seconds = 0.0

    def started(self, gpus: int, nominal_s: float, slowdown: float) -> None:
        """Count a job in: its price is for the work it asked for, its time is what that takes here."""
        self._prices += gpus * nominal_s * self._price_per_gpu_s
        self._seconds += nominal_s * slowdown

    def ended(self, gpus: int, nominal_s: float, slowdown: float) -> None:
        """Count a job out."""
        self._prices -= gpus * nominal_s * self._price_per_gpu_s
        self._seconds -= nominal_s * slowdown

    def note(self, now_s: float, arrival: int, waiting_jobs: int) -> None:
        """Note the state after an event."""
        totals = self._state.totals()
        if not totals[-1]:
            self._prices = self._seconds = 0.0  # no rounding is left over
        self._notes.extend((now_s, arrival, waiting_jobs, self._prices, self._seconds, *totals))

    def columns(self) -> dict[str, Column]:
        """Return what was measured after each event, in columns."""
        noted = np.frombuffer(self._notes, dtype=np.float64).reshape(-1, len(NOTES))
        time_s, arrival, waiting, prices, seconds, used, idle_units, cross_bytes, held, running = noted.T
        span_s = np.diff(time_s, prepend=time_s[:1])
        used_before = np.concatenate([[0.0], used[:-1]])
        hours = seconds / SECONDS_PER_HOUR
        profit_rate = np.divide(running * prices, used * hours, out=np.zeros_like(used), where=used * hours > 0)
        unit = self._state.cluster.share_unit
        return {
            "time_s": time_s,
            "arrival": arrival,
            "used_machines": used,
            "fragmentation": np.divide(idle_units, unit * used, out=np.zeros_like(used), where=used > 0),
            "cross_traffic_gb": cross_bytes / GIGA,
            "profit_rate": profit_rate,
            "total_profit": np.cumsum(profit_rate * arrival),
            "machine_hours": np.cumsum(used_before * span_s) / SECONDS_PER_HOUR,
            "held_gpus": held,
            "running_jobs": running,
            "waiting_jobs": waiting,
        }


def time_means(columns: Mapping[str, Column], gpus: int) -> dict[str, float]:
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
