"""What is found beside waits and machines: money with its intervals, groups of jobs, and problem jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from cranny.analysis.whatif.groups import case_jobs, changes_by_group, labels, same_jobs, waits_by_group
from cranny.analysis.whatif.money import DAY_S, Interval, MachineCost, SavedMoney, machine_cost, saving
from cranny.analysis.whatif.prices import Prices, price_clock
from cranny.analysis.whatif.problem_jobs import problem_jobs
from cranny.analysis.whatif.waits import counted_jobs
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.trace import Trace

LESS_WORK = 0.99  # of the GPU-hours as they were: what is below this puts work off, which is no saving


@dataclass(frozen=True, slots=True, eq=False)
class AnswerDetails:
    """Details of the cases whose names they are by; frames have a row for each case and group, or for each job."""

    prices: Prices
    window: Window
    zero_epoch_s: float | None
    costs: Mapping[str, MachineCost]  # of cases of which it is known which machines jobs held
    saved: Mapping[str, SavedMoney]  # against as it was; of cases that do the same work
    against: str  # the case that waits are compared with
    groups: pl.DataFrame
    changes: pl.DataFrame
    problems: pl.DataFrame
    problems_of: str  # the case whose jobs these are
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def days(self) -> float:
        """Length of the window."""
        return (self.window[1] - self.window[0]) / DAY_S

    def facts(self) -> dict[str, Any]:
        """Return the details as plain values, for JSON."""
        money = {name: self._money(name, cost) for name, cost in self.costs.items()}
        return {
            "zero_epoch_s": self.zero_epoch_s,
            "money": money,
            "waits_compared_with": self.against,
            "groups": self.groups.to_dicts(),
            "changes": self.changes.to_dicts(),
            "problem_jobs_of": self.problems_of,
            "problem_jobs": self.problems.to_dicts(),
            "notes": list(self.notes),
        }

    def money_frame(self) -> pl.DataFrame:
        """Return a row for each case of which the machines are known: money over the window, and what is saved."""
        rows = []
        for name, cost in self.costs.items():
            row = {"case": name, **self._money(name, cost)}
            saved = row.pop("saved_against_as_it_was") or {}
            row |= {"saved_a_day": saved.get("a_day"), "saved_a_year": saved.get("a_year")}
            for key, interval in (("day", saved.get("interval_a_day")), ("year", saved.get("interval_a_year"))):
                low, high = interval or (None, None)
                row |= {f"saved_a_{key}_low": low, f"saved_a_{key}_high": high}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def _money(self, name: str, cost: MachineCost) -> dict[str, Any]:
        saved = self.saved.get(name)
        return {
            "machines_on": float(cost.on.sum()),
            "busy_energy": float(cost.busy_energy.sum()),
            "idle_energy": float(cost.idle_energy.sum()),
            "saved_by_switching_off": float(cost.saved.sum()),
            "total": float(cost.total.sum()),
            "boots": int(cost.boots.sum()),
            "off_machine_hours": float(cost.off_hours.sum()),
            "busy_kwh": float(cost.busy_kwh.sum()),
            "idle_kwh": float(cost.idle_kwh.sum()),
            "held_gpu_hours": float(cost.held_gpu_hours.sum()),
            "saved_against_as_it_was": None if saved is None else _saved(saved),
        }


def details(
    results: Sequence[Result],
    trace: Trace,
    was: str,
    window: Window,
    prices: Prices,
    seed: int,
    scheduler: str = "",
) -> AnswerDetails:
    """Measure the cases of a what-if; `was` names the log itself, `scheduler` a replay of its scheduler."""
    by_name = {str(result.settings["policy"]): result for result in results}
    machines = results[0].cluster.machines
    clock = price_clock(window, trace.zero_epoch_s, prices.zone)
    costs = {
        name: machine_cost(result.runs, machines, prices, clock, window)
        for name, result in by_name.items()
        if result.runs.height
    }
    jobs = same_jobs({name: case_jobs(result) for name, result in by_name.items()}, counted_jobs(trace))
    label = labels(trace.frame)
    against = next(name for name in (scheduler, was, *by_name) if name in by_name)
    blamed = was if was in costs else against if against in costs else next(iter(costs))
    blamed_jobs = case_jobs(by_name[blamed])
    saved, late = _saved_money(costs, was, window, seed)
    return AnswerDetails(
        prices,
        window,
        trace.zero_epoch_s,
        costs,
        saved,
        against,
        waits_by_group(jobs, label),
        changes_by_group(jobs, label, against),
        problem_jobs(by_name[blamed].runs, blamed_jobs, trace.frame, machines, window),
        blamed,
        [*_price_notes(prices, results[0], trace), *late],
    )


def _saved_money(
    costs: Mapping[str, MachineCost], was: str, window: Window, seed: int
) -> tuple[dict[str, SavedMoney], list[str]]:
    """Compare with what the log itself cost; a case that puts work off has no saving, and is named."""
    if was not in costs:
        return {}, ["On which machines jobs ran is not in the log: what policies cost is known, a saving is not."]
    saved, notes = {}, []
    before = costs[was]
    for name, cost in costs.items():
        if name == was:
            continue
        if cost.held_gpu_hours.sum() < LESS_WORK * before.held_gpu_hours.sum():
            notes.append(f"{name}: fewer GPU-hours of jobs in the window than as it was, so no saving is given.")
        else:
            saved[name] = saving(before.total, cost.total, window, seed)
    return saved, notes


def _price_notes(prices: Prices, result: Result, trace: Trace) -> list[str]:
    """Say where prices do not fit the cluster or the log."""
    notes = []
    unused = prices.unused_types(result.cluster.machines)
    if unused:
        there = sorted({machine.gpu_type or "no type" for machine in result.cluster.machines})
        notes.append(
            f"{prices.name}: types {', '.join(unused)} are not in the cluster, which has {', '.join(there)}."
        )
    if prices.by_hour and trace.zero_epoch_s is None:
        notes.append("The log has no dates, so the mean price of the day was taken for every hour.")
    return notes


def _saved(saved: SavedMoney) -> dict[str, Any]:
    return {
        "a_day": saved.a_day,
        "a_year": saved.a_year,
        "interval_a_day": _bounds(saved.interval),
        "interval_a_year": _bounds(saved.year_interval),
        "whole_weeks": saved.weeks,
        "why_no_interval": saved.why_no_interval or None,
    }


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [*asdict(interval).values()]
