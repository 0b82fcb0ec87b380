"""Prices from a YAML or JSON file; the format is described in `docs/use/what-if.md`."""

from collections import defaultdict
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import polars as pl
from pydantic import BeforeValidator, Field

from cranny.analysis.whatif.headroom import HOLD_S
from cranny.analysis.whatif.prices import HOURS, UTC, HourlyRates, MachinePrices, Prices
from cranny.model.validate import not_negative
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, checked
from cranny.traces.gpu_types import canonical

_RATE = f"a number, zero or more, or a list of {HOURS}, one for each hour of the day"
_SECONDS = "a number of seconds, zero or more"
_MUST_BE = {
    "zone": "the name of a time zone, such as Europe/Berlin",
    "types": f"a mapping from types of GPU, names of 1 to {MAX_NAME} characters, to fields",
    "per_gpu_hour": _RATE,
    "per_kwh": _RATE,
    "least_off_s": _SECONDS,
    "boot_s": _SECONDS,
    **dict.fromkeys(
        ("idle_watts", "busy_watts", "machine_watts", "off_watts", "boot_cost"), "a number, zero or more"
    ),
}


def _rates(value: object) -> HourlyRates:
    """Return one price as 24 equal ones, and 24 as they are."""
    each = value if isinstance(value, list) else [value] * HOURS
    if len(each) != HOURS:
        raise ValueError
    return tuple(not_negative(rate, "a price") for rate in each)


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[HourlyRates, BeforeValidator(_rates)]


class MachinePriceFields(Fields):
    """What may differ from type to type."""

    per_gpu_hour: Rate = (0.0,) * HOURS
    idle_watts: Amount = 0.0
    busy_watts: Amount = 0.0
    machine_watts: Amount = 0.0
    off_watts: Amount = 0.0
    boot_s: Amount = 0.0
    boot_cost: Amount = 0.0


class PriceFields(MachinePriceFields):
    """The whole file: prices of all types, and others of some."""

    zone: Name = UTC
    per_kwh: Rate = (0.0,) * HOURS
    least_off_s: Amount = HOLD_S
    types: dict[Name, MachinePriceFields] = Field(default_factory=dict)


def read_prices(path: str | Path) -> Prices:
    """Read prices, or say in one line what is wrong with the file, and where."""
    document = Document(Path(path), text_fields=frozenset({"zone"}))
    below = defaultdict[str, type[Fields]](lambda: MachinePriceFields)  # under the name of any type
    read = checked(document, PriceFields, below, _MUST_BE)
    if not _known_zone(read.zone):
        raise document.error(("zone",), f"must be {_MUST_BE['zone']}, not {read.zone!r}")
    every = _with(MachinePrices(), read)
    types: dict[str, MachinePrices] = {}
    for name, own in read.types.items():
        twice = next((other for other in types if canonical(other) == canonical(name)), None)
        if twice is not None:
            raise document.error(("types", name), f"is the same type as {twice!r}, which is given above")
        types[name.casefold()] = _with(every, own)
    all_types = (every, *types.values())
    if any(each.machine_watts or each.idle_watts or each.busy_watts for each in all_types) and not any(
        read.per_kwh
    ):
        raise document.error((), "has watts but not `per_kwh`, the price of a kilowatt-hour")
    # With the cost of boots it follows from the prices how long a machine must be idle.
    prices = Prices(every, types, read.per_kwh, read.zone, read.least_off_s, str(path))
    if prices.boots and "least_off_s" not in read.model_fields_set:
        return replace(prices, least_off_s=0.0)
    return prices


def _with(every: MachinePrices, own: MachinePriceFields) -> MachinePrices:
    """Return the prices of a type: its own where the file has some, else those of every type."""
    named = {each.name for each in fields(MachinePrices)} & own.model_fields_set
    return replace(every, **own.model_dump(include=named))


def _known_zone(zone: str) -> bool:
    try:
        pl.Series([0]).cast(pl.Datetime("us", UTC)).dt.convert_time_zone(zone)
    except pl.exceptions.PolarsError:
        return False
    return True
