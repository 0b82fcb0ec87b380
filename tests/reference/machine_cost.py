"""What machines cost, minute by minute: each machine is on or off, and each GPU held or not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import polars as pl

from cranny.analysis.whatif.prices import Prices
from cranny.model.cluster import Machine

STEP_S = 60


class CostByMinutes(NamedTuple):
    on: float
    busy_energy: float
    idle_energy: float
    saved: float
    boots: int


def hour_of_day(at_s: int, zero_epoch_s: int, zone: str) -> int:
    return (
        (datetime.fromtimestamp(0, UTC) + timedelta(seconds=zero_epoch_s + at_s)).astimezone(ZoneInfo(zone)).hour
    )


def cost_by_minutes(
    runs: pl.DataFrame, machines: Sequence[Machine], prices: Prices, window: tuple[int, int], zero_epoch_s: int
) -> CostByMinutes:
    """Walk through the window; all times must be whole minutes."""
    on = busy_energy = idle_energy = saved = 0.0
    boots = 0
    moments = range(window[0], window[1], STEP_S)
    hours = [hour_of_day(at_s, zero_epoch_s, prices.zone) for at_s in moments]
    for index, machine in enumerate(machines):
        price = prices.of(machine)
        here = runs.filter(pl.col("machine") == index).rows(named=True)
        held = []
        for at_s in moments:
            then = [run for run in here if run["start_s"] <= at_s < run["end_s"]]
            held.append(sum(int(run["gpus"]).bit_count() for run in then))

        def watts_cost(watts: float, hour: int) -> float:
            return watts / 1000 * STEP_S / 3600 * prices.per_kwh[hour]

        for gpus, hour in zip(held, hours, strict=True):
            on += machine.gpus * price.per_gpu_hour[hour] * STEP_S / 3600
            busy_energy += watts_cost(gpus * price.busy_watts, hour)
            idle_energy += watts_cost(price.machine_watts + (machine.gpus - gpus) * price.idle_watts, hour)
        place = 0
        while place < len(held):
            if held[place]:
                place += 1
                continue
            past = place
            while past < len(held) and not held[past]:
                past += 1
            needs_boot = past < len(held)
            off = range(place, past - int(price.boot_s // STEP_S) if needs_boot else past)
            gain = -price.boot_cost if needs_boot else 0.0
            for minute in off:
                hour = hours[minute]
                gain += machine.gpus * price.per_gpu_hour[hour] * STEP_S / 3600
                gain += watts_cost(price.machine_watts + machine.gpus * price.idle_watts - price.off_watts, hour)
            if gain > 1e-9 and (past - place) * STEP_S >= prices.least_off_s:
                saved += gain
                boots += needs_boot
            place = past
    return CostByMinutes(on, busy_energy, idle_energy, saved, boots)
