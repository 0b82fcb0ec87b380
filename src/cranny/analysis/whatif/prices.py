"""What machines cost: a price for each type of GPU and hour of the day, power, and boots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
import polars as pl

from cranny.analysis.whatif.headroom import HOLD_S, HOUR_S
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Machine
from cranny.model.errors import InputError
from cranny.report.scales import duration_text
from cranny.traces.gpu_types import matching
from cranny.traces.inspect import Window

HOURS = 24  # of a day
QUARTER_S = 900.0  # all time zones of today are whole quarters of an hour from UTC
UTC = "UTC"

HourlyRates = tuple[float, ...]  # a price for each hour of the day, from midnight


@dataclass(frozen=True, slots=True)
class MachinePrices:
    """What a machine with GPUs of one type costs while it is on, and to start it again."""

    per_gpu_hour: HourlyRates = (0.0,) * HOURS
    idle_watts: float = 0.0  # of a GPU that no job holds
    busy_watts: float = 0.0  # of a GPU that a job holds
    machine_watts: float = 0.0  # of a machine that is on, without its GPUs
    off_watts: float = 0.0  # of a machine that is off
    boot_s: float = 0.0  # from the start of a boot until jobs can run
    boot_cost: float = 0.0  # money for a boot, beside what the machine costs meanwhile

    def idle_machine_watts(self, gpus: int) -> float:
        """Return what a machine draws that is on and runs no job."""
        return self.machine_watts + gpus * self.idle_watts


@dataclass(frozen=True, slots=True)
class Prices:
    """All prices; hours of the day are those of `zone`."""

    every: MachinePrices = field(default_factory=MachinePrices)
    types: Mapping[str, MachinePrices] = field(default_factory=dict)  # by the name of the type, without case
    per_kwh: HourlyRates = (0.0,) * HOURS
    zone: str = UTC
    least_off_s: float = 0.0  # no machine is switched off for less, even if it paid
    name: str = ""  # of the file

    @classmethod
    def simple(cls, per_gpu_hour: float) -> Self:
        """One price for every GPU and hour; machines are worth switching off for `HOLD_S` or longer."""
        return cls(MachinePrices((per_gpu_hour,) * HOURS), least_off_s=HOLD_S)

    @property
    def by_hour(self) -> bool:
        """Whether some price depends on the hour of the day."""
        rates = [self.per_kwh, self.every.per_gpu_hour, *(each.per_gpu_hour for each in self.types.values())]
        return any(len(set(each)) > 1 for each in rates)

    @property
    def boots(self) -> bool:
        """Whether a boot takes time or money."""
        return any(each.boot_s or each.boot_cost for each in (self.every, *self.types.values()))

    @property
    def about(self) -> str:
        """Say at which prices money is counted."""
        if self.name:
            return f"at the prices of {self.name}"
        single = not (self.types or self.by_hour or any(self.per_kwh))
        return f"at ${self.every.per_gpu_hour[0]:,.2f} per GPU-hour" if single else "at the prices that were given"

    @property
    def idle_words(self) -> str:
        """Say how long a machine must be idle to be switched off."""
        return (
            "idle long enough to pay for a boot"
            if self.boots
            else f"idle for {duration_text(self.least_off_s)} or longer"
        )

    @property
    def off_rule(self) -> str:
        """Say when a machine is switched off."""
        return f"A machine is off while it is {self.idle_words}."

    def of(self, machine: Machine) -> MachinePrices:
        """Return the prices of a machine, whose type is matched without case and by alias."""
        name = self._type_of(machine)
        return self.every if name is None else self.types[name]

    def check(self, machines: Sequence[Machine]) -> None:
        """Raise an error if the type of a machine can be several of those that have prices of their own."""
        for machine in machines:
            self._type_of(machine)

    def unused_types(self, machines: Sequence[Machine]) -> list[str]:
        """Return the types that have a price of their own but no machine."""
        used = {self._type_of(machine) for machine in machines}
        return [name for name in self.types if name not in used]

    def _type_of(self, machine: Machine) -> str | None:
        """Return under which name a machine's type has prices of its own; None if it has none."""
        found = matching(machine.gpu_type.casefold(), self.types)
        if len(found) > 1:
            names = " or ".join(map(repr, found))
            raise InputError(f"{self.name}: types: {machine.gpu_type!r} of the cluster can be {names}; keep one")
        return found[0] if found else None

    def saved_a_second(self, machine: Machine) -> Floats:
        """Return what is saved in each second that an idle machine is off, by hour of the day, (24,)."""
        of_type = self.of(machine)
        kilowatts = (of_type.idle_machine_watts(machine.gpus) - of_type.off_watts) / 1000
        rates = machine.gpus * np.array(of_type.per_gpu_hour) + kilowatts * np.array(self.per_kwh)
        return np.asarray(rates / HOUR_S, dtype=np.float64)

    def break_even_s(self, machine: Machine) -> tuple[float, float]:
        """Return how long a machine must be idle for a boot to pay, in the dearest and in the cheapest hour."""
        of_type = self.of(machine)
        rates = self.saved_a_second(machine)
        dear_s, cheap_s = (
            of_type.boot_s + (of_type.boot_cost / rate if rate > 0 else math.inf)
            for rate in (float(rates.max()), float(rates.min()))
        )
        return max(dear_s, self.least_off_s), max(cheap_s, self.least_off_s)


class PriceClock(NamedTuple):
    """Stretches of the window within one hour of the day each."""

    edges_s: Floats  # (stretches + 1,)
    hour: Ints  # (stretches,) of the day, in the zone of the prices; empty if the log has no date

    def summed(self, rates: Floats) -> Floats:
        """Add up a rate a second, given by hour of the day, from the start of the window to each edge."""
        of_stretch = rates[self.hour] if self.hour.size else np.full(self.edges_s.size - 1, rates.mean())
        return np.concatenate([[0.0], np.cumsum(of_stretch * np.diff(self.edges_s))])


def price_clock(window: Window, zero_epoch_s: float | None, zone: str) -> PriceClock:
    """Say for each stretch of the window which hour of the day it is, on clocks that are set forward and back."""
    first_s, last_s = window
    if zero_epoch_s is None:
        return PriceClock(np.array([first_s, last_s]), np.empty(0, dtype=np.int64))
    start, end = first_s + zero_epoch_s, last_s + zero_epoch_s
    quarters = np.arange(math.floor(start / QUARTER_S) + 1, math.ceil(end / QUARTER_S)) * QUARTER_S
    edges = np.concatenate([[start], quarters, [end]])  # since 1970
    moments = pl.Series(edges[:-1] * 1e6).cast(pl.Int64).cast(pl.Datetime("us", UTC))
    hour = moments.dt.convert_time_zone(zone).dt.hour().cast(pl.Int64).to_numpy()
    changes = np.concatenate([[True], hour[1:] != hour[:-1]])
    edges_s = np.append(edges[:-1][changes], end) - zero_epoch_s
    edges_s[0], edges_s[-1] = first_s, last_s  # as they were before a date was added and taken away
    return PriceClock(edges_s, hour[changes])
