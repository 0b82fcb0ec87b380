"""What machines cost over a window, what switching idle ones off saves, and how sure a saving is.

Money is added up block by block, each a week from the start of the window, so that the weeks can be resampled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cranny.analysis.whatif.headroom import HOUR_S, idle_stretches
from cranny.analysis.whatif.prices import MachinePrices, PriceClock, Prices
from cranny.analysis.whatif.resampling import (
    DAY_S,
    LEAST_WEEKS,
    WEEK_S,
    Interval,
    block_edges_s,
    interval_of_mean,
    whole_blocks,
)
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Machine
from cranny.model.validate import counted
from cranny.traces.inspect import Window

DAYS_A_YEAR = 365
ROUNDING = 1e-9  # a gain below this is none

Amounts = Callable[[Ints, Floats, Floats], Floats]  # of some machines from starts to ends: what that comes to


@dataclass(frozen=True, slots=True, eq=False)
class MachineCost:
    """What the machines of a cluster cost, week by week, (weeks,) each; the last week may be shorter."""

    on: Floats  # the price of all machines, all of the time
    busy_energy: Floats  # money for GPUs that jobs held
    idle_energy: Floats  # money for machines that are on and for GPUs that no job held
    saved: Floats  # by switching off machines that are idle for long enough, boots taken off
    boots: Floats
    off_hours: Floats  # machine-hours
    busy_kwh: Floats
    idle_kwh: Floats  # with all machines on
    held_gpu_hours: Floats  # of jobs

    @property
    def all_on(self) -> Floats:
        """What is paid if no machine is ever switched off, by week."""
        return np.asarray(self.on + self.busy_energy + self.idle_energy, dtype=np.float64)

    @property
    def total(self) -> Floats:
        """What is paid if machines are switched off when it pays, by week."""
        return np.asarray(self.all_on - self.saved, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class SavedMoney:
    """Money a day that one case costs less than another; `interval` is None where the log is too short for one."""

    a_day: float
    interval: Interval | None
    weeks: int  # whole ones

    @property
    def a_year(self) -> float:
        """The same over a year, if the year is like the window."""
        return self.a_day * DAYS_A_YEAR

    @property
    def year_interval(self) -> Interval | None:
        """The interval over a year."""
        return None if self.interval is None else self.interval.times(DAYS_A_YEAR)

    @property
    def why_no_interval(self) -> str:
        """Say what an interval would need; empty if there is one."""
        if self.interval is not None:
            return ""
        return (
            f"no interval: the window has {counted(self.weeks, 'whole week')}, and resampling takes {LEAST_WEEKS}"
        )


def machine_cost(
    runs: pl.DataFrame,
    machines: Sequence[Machine],
    prices: Prices,
    clock: PriceClock,
    window: Window,
    idle: pl.DataFrame | None = None,
) -> MachineCost:
    """Add up what machines cost in the window while jobs hold GPUs as `runs` says.

    The stretches in which machines are `idle` are those without runs, unless something else used them.
    """
    edges_s = block_edges_s(window, WEEK_S)
    rates = _Rates(machines, prices, clock)
    every = np.arange(len(machines))
    whole = every, np.full(len(machines), window[0]), np.full(len(machines), window[1])
    held_on = runs["machine"].cast(pl.Int64).to_numpy()
    held_from, held_to = (np.clip(runs[name].to_numpy(), *window) for name in ("start_s", "end_s"))
    held = runs["gpus"].bitwise_count_ones().cast(pl.Float64).to_numpy()

    def of_machines(amounts: Amounts) -> Floats:
        return _by_week(edges_s, *whole, np.ones(len(machines)), amounts)

    def of_runs(amounts: Amounts) -> Floats:
        return _by_week(edges_s, held_on, held_from, held_to, held, amounts)

    kwh = 1.0 / HOUR_S / 1000
    idle_gpu_kwh = of_runs(lambda machine, start, end: rates.idle_watts[machine] * (end - start) * kwh)
    idle = idle_stretches(runs, len(machines), window) if idle is None else idle
    off = _switched_off(idle, prices, rates, edges_s)
    return MachineCost(
        on=of_machines(rates.price),
        busy_energy=of_runs(lambda machine, start, end: rates.busy_watts[machine] * rates.energy(start, end)),
        idle_energy=of_machines(
            lambda machine, start, end: rates.idle_machine_watts[machine] * rates.energy(start, end)
        )
        - of_runs(lambda machine, start, end: rates.idle_watts[machine] * rates.energy(start, end)),
        saved=off.saved,
        boots=off.boots,
        off_hours=off.hours,
        busy_kwh=of_runs(lambda machine, start, end: rates.busy_watts[machine] * (end - start) * kwh),
        idle_kwh=of_machines(lambda machine, start, end: rates.idle_machine_watts[machine] * (end - start) * kwh)
        - idle_gpu_kwh,
        held_gpu_hours=of_runs(lambda _machine, start, end: (end - start) / HOUR_S),
    )


def saving(before: Floats, after: Floats, window: Window, seed: int = 0) -> SavedMoney:
    """Return what is saved a day, from what two cases cost in each week; weeks are drawn for both alike."""
    less = before - after
    days = np.diff(block_edges_s(window, WEEK_S)) / DAY_S
    weeks = whole_blocks(window, WEEK_S)
    interval = interval_of_mean(less, days, seed) if weeks >= LEAST_WEEKS else None
    return SavedMoney(float(less.sum() / days.sum()), interval, weeks)


def idle_cost_a_day(machines: Sequence[Machine], prices: Prices, clock: PriceClock, window: Window) -> float:
    """Return what machines cost a day that are on and run no job, with their energy."""
    rates = _Rates(machines, prices, clock)
    every = np.arange(len(machines))
    first_s, last_s = (np.full(len(machines), at_s) for at_s in window)
    paid = rates.price(every, first_s, last_s) + rates.idle_machine_watts * rates.energy(first_s, last_s)
    return float(paid.sum()) * DAY_S / (window[1] - window[0])


class _Rates:
    """Prices as sums over time, from which the price of any stretch is a difference."""

    def __init__(self, machines: Sequence[Machine], prices: Prices, clock: PriceClock) -> None:
        of_type = [prices.of(machine) for machine in machines]
        kinds: dict[MachinePrices, int] = {}
        self._kind = np.array([kinds.setdefault(each, len(kinds)) for each in of_type])  # (machines,)
        self._edges_s = clock.edges_s
        self._price = [clock.summed(np.array(each.per_gpu_hour) / HOUR_S) for each in kinds]
        self._energy = clock.summed(np.array(prices.per_kwh) / HOUR_S / 1000)
        self._gpus = np.array([machine.gpus for machine in machines], dtype=np.float64)
        self.idle_watts = np.array([each.idle_watts for each in of_type])
        self.busy_watts = np.array([each.busy_watts for each in of_type])
        self.idle_machine_watts = np.array(
            [each.idle_machine_watts(machine.gpus) for each, machine in zip(of_type, machines, strict=True)]
        )
        self.off_watts = np.array([each.off_watts for each in of_type])
        self.boot_s = np.array([each.boot_s for each in of_type])
        self.boot_cost = np.array([each.boot_cost for each in of_type])

    def price(self, machine: Ints, start_s: Floats, end_s: Floats) -> Floats:
        """Return the price of machines that are on from starts to ends, without energy."""
        found = np.zeros(machine.size)
        for kind, summed in enumerate(self._price):
            these = self._kind[machine] == kind
            found[these] = self._between(summed, start_s[these], end_s[these])
        return found * self._gpus[machine]

    def energy(self, start_s: Floats, end_s: Floats) -> Floats:
        """Return the price of one watt from starts to ends."""
        return self._between(self._energy, start_s, end_s)

    def saved(self, machine: Ints, start_s: Floats, end_s: Floats) -> Floats:
        """Return what is saved by machines that are off from starts to ends, boots not counted."""
        watts = self.idle_machine_watts[machine] - self.off_watts[machine]
        return np.asarray(
            self.price(machine, start_s, end_s) + watts * self.energy(start_s, end_s), dtype=np.float64
        )

    def _between(self, summed: Floats, start_s: Floats, end_s: Floats) -> Floats:
        ends, starts = (np.interp(at_s, self._edges_s, summed) for at_s in (end_s, start_s))
        return np.asarray(ends - starts, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Off:
    """What switching off brings, by week."""

    saved: Floats
    boots: Floats
    hours: Floats


def _switched_off(idle: pl.DataFrame, prices: Prices, rates: _Rates, edges_s: Floats) -> _Off:
    """Switch machines off in those idle stretches in which it pays, each on its own.

    A machine is off from the start of a stretch, and boots so that it is on again at its end. One that is idle to
    the end of the window boots after it, which is not counted.
    """
    machine = idle["machine"].cast(pl.Int64).to_numpy()
    start_s, end_s = idle["start_s"].to_numpy(), idle["end_s"].to_numpy()
    boots = (end_s < edges_s[-1]).astype(np.float64)
    off_to_s = np.maximum(start_s, end_s - boots * rates.boot_s[machine])
    gain = rates.saved(machine, start_s, off_to_s) - boots * rates.boot_cost[machine]
    pays = (gain > ROUNDING) & (end_s - start_s >= prices.least_off_s)
    machine, start_s, off_to_s, boots = machine[pays], start_s[pays], off_to_s[pays], boots[pays]
    weights = np.ones(machine.size)
    # A boot is paid in the week in which it begins.
    week = np.clip(np.searchsorted(edges_s, off_to_s, side="right") - 1, 0, edges_s.size - 2)
    paid = np.bincount(week, weights=boots * rates.boot_cost[machine], minlength=edges_s.size - 1)
    return _Off(
        _by_week(edges_s, machine, start_s, off_to_s, weights, rates.saved) - paid,
        np.bincount(week, weights=boots, minlength=edges_s.size - 1).astype(np.float64),
        _by_week(
            edges_s, machine, start_s, off_to_s, weights, lambda _machine, start, end: (end - start) / HOUR_S
        ),
    )


def _by_week(
    edges_s: Floats, machine: Ints, start_s: Floats, end_s: Floats, weight: Floats, amounts: Amounts
) -> Floats:
    """Add up amounts of stretches in the weeks that they lie in, (weeks,)."""
    weeks = edges_s.size - 1
    first = np.clip(np.searchsorted(edges_s, start_s, side="right") - 1, 0, weeks - 1)
    last = np.maximum(np.clip(np.searchsorted(edges_s, end_s, side="left") - 1, 0, weeks - 1), first)
    times = last - first + 1  # weeks that a stretch touches
    row = np.repeat(np.arange(machine.size), times)
    week = first[row] + np.arange(row.size) - np.repeat(np.cumsum(times) - times, times)
    start_s, end_s = np.maximum(start_s[row], edges_s[week]), np.minimum(end_s[row], edges_s[week + 1])
    found = weight[row] * amounts(machine[row], start_s, np.maximum(start_s, end_s))
    return np.bincount(week, weights=found, minlength=weeks).astype(np.float64)
