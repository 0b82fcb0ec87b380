"""Measures of a simulation, kept up to date with each event.

Definitions follow Titan's evaluation (ICNP'24, Sec. V-A), read as `docs/metrics.md` says: used machines have at
least one GPU held; fragmentation is the mean share of GPUs without a rank over used machines; traffic is what
one iteration of every running job moves between machines; the profit rate is
jobs * mean price / (used machines * mean duration).
"""

from array import array

from cranny.core.state import ClusterState

SECONDS_PER_HOUR = 3600.0
GIGA = 1e9

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


class Metrics:
    """Integrals over time, and a row of values at each arrival."""

    def __init__(self, state: ClusterState, price_per_gpu_hour: float) -> None:
        self._state = state
        self._price_per_gpu_hour = price_per_gpu_hour
        self._since_s = 0.0
        self._first_s: float | None = None
        self.machine_s = 0.0
        self.gpu_s = 0.0
        self._fragmentation_s = 0.0
        self._cross_byte_s = 0.0
        self._total_profit = 0.0
        # Over the running jobs: their prices and the hours that they take where they are placed.
        self._prices = 0.0
        self._hours = 0.0
        self.timeline = {name: array("d") for name in TIMELINE}
        self._append = tuple(column.append for column in self.timeline.values())

    def advance(self, now_s: float) -> None:
        """Count the time up to now with the values that held in it; call before anything changes."""
        if self._first_s is None:
            self._first_s = self._since_s = now_s
        passed_s = now_s - self._since_s
        if passed_s:
            state = self._state
            self._since_s = now_s
            self.machine_s += passed_s * state.used_machines
            self.gpu_s += passed_s * state.held_gpus
            self._fragmentation_s += passed_s * state.fragmentation
            self._cross_byte_s += passed_s * state.cross_bytes

    def started(self, gpus: int, nominal_s: float, slowdown: float) -> None:
        """Count a job in: its price is for the work it asked for, its hours are what that takes here."""
        hours = nominal_s / SECONDS_PER_HOUR
        self._prices += gpus * hours * self._price_per_gpu_hour
        self._hours += hours * slowdown

    def ended(self, gpus: int, nominal_s: float, slowdown: float) -> None:
        """Count a job out."""
        if not self._state.running_jobs:
            self._prices = self._hours = 0.0  # no rounding is left over
            return
        hours = nominal_s / SECONDS_PER_HOUR
        self._prices -= gpus * hours * self._price_per_gpu_hour
        self._hours -= hours * slowdown

    def arrival(self, now_s: float, waiting_jobs: int) -> None:
        """Take a row of the timeline, after the arrived job has been placed or queued."""
        state = self._state
        jobs, used = state.running_jobs, state.used_machines
        profit = jobs * self._prices / (used * self._hours) if used and self._hours > 0 else 0.0
        self._total_profit += profit
        row = (
            now_s,
            used,
            state.fragmentation,
            state.cross_bytes / GIGA,
            profit,
            self._total_profit,
            self.machine_s / SECONDS_PER_HOUR,
            state.held_gpus,
            jobs,
            waiting_jobs,
        )
        for append, value in zip(self._append, row, strict=True):
            append(value)

    def time_means(self) -> dict[str, float]:
        """Return means over time, weighted by how long each value held."""
        span_s = self._since_s - (self._first_s or 0.0)
        over = 1.0 / span_s if span_s else 0.0
        return {
            "time_mean_used_machines": self.machine_s * over,
            "time_mean_fragmentation": self._fragmentation_s * over,
            "time_mean_cross_traffic_gb": self._cross_byte_s * over / GIGA,
            "gpu_utilisation": self.gpu_s * over / self._state.cluster.gpus,
        }
