"""What is found beside waits and machines: money and waits with their intervals, groups of jobs, problem jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from cranny.analysis.whatif.groups import (
    case_jobs,
    changes_by_group,
    credited_by_group,
    labels,
    same_jobs,
    waits_by_group,
)
from cranny.analysis.whatif.money import MachineCost, SavedMoney, idle_cost_a_day, machine_cost, saving
from cranny.analysis.whatif.prices import PriceClock, Prices, price_clock
from cranny.analysis.whatif.problem_jobs import problem_jobs
from cranny.analysis.whatif.resampling import DAY_S, Interval
from cranny.analysis.whatif.savings import Savings, savings
from cranny.analysis.whatif.wait_differences import BlockWaits, WaitDifference, block_waits
from cranny.analysis.whatif.waits import counted_jobs
from cranny.model.cluster import Machine
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class AnswerDetails:
    """Details of the cases whose names they are by; frames have a row for each case and group, or for each job."""

    prices: Prices
    window: Window
    zero_epoch_s: float | None
    costs: Mapping[str, MachineCost]  # of cases of which it is known which machines jobs held
    savings: Savings
    against: str  # the case that waits are compared with
    waits: BlockWaits
    groups: pl.DataFrame
    changes: pl.DataFrame
    credited: pl.DataFrame  # see `credited_by_group`; empty if the log's scheduler was not replayed
    problems: pl.DataFrame
    problems_of: str  # the case whose jobs these are
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def days(self) -> float:
        """Length of the window."""
        return (self.window[1] - self.window[0]) / DAY_S

    @property
    def clock(self) -> PriceClock:
        """Hours of the day over the window."""
        return price_clock(self.window, self.zero_epoch_s, self.prices.zone)

    def machines_off(self, case: str) -> float:
        """Return how many machines are off in a case, mean over time."""
        return float(self.costs[case].off_hours.sum()) / (self.days * 24)

    def off_a_day(self, case: str) -> float:
        """Return what is not paid a day in a case because machines are off; some of them may be idle anyway."""
        return float(self.costs[case].saved.sum()) / self.days

    def more_a_day(self, case: str, other: str) -> SavedMoney:
        """Return what a case costs a day more than another, in the same weeks."""
        return saving(self.costs[case].total, self.costs[other].total, self.window, self.waits.seed)

    def idle_cost_a_day(self, machines: Sequence[Machine]) -> float:
        """Return what some machines cost a day that are on and run no job."""
        return idle_cost_a_day(machines, self.prices, self.clock, self.window)

    def facts(self) -> dict[str, Any]:
        """Return the details as plain values, for JSON."""
        money = {name: self._money(name, cost) for name, cost in self.costs.items()}
        of_replay = self.savings.of_replay
        return {
            "zero_epoch_s": self.zero_epoch_s,
            "prices": self.prices.name or None,
            "money": money,
            "replay_saved_against_as_it_was": None if of_replay is None else _saved(of_replay),
            "why_no_saving": self.savings.why_none or None,
            "why_saving_is_whole": self.savings.why_whole or None,
            "waits_compared_with": self.against,
            "wait_differences": self._wait_differences(),
            "groups": self.groups.to_dicts(),
            "changes": self.changes.to_dicts(),
            "credited": self.credited.to_dicts(),
            "problem_jobs_of": self.problems_of,
            "problem_jobs": self.problems.to_dicts(),
            "notes": list(self.notes),
        }

    def money_frame(self) -> pl.DataFrame:
        """Return a row for each case of which the machines are known: money over the window, and what is saved."""
        rows = []
        for name, cost in self.costs.items():
            row = {"case": name, **self._money(name, cost)}
            kinds = {"saved": row.pop("saved_against_as_it_was"), "credited": row.pop("saved_against_replay")}
            for kind, found in kinds.items():
                saved = found or {}
                row |= {f"{kind}_a_{key}": saved.get(f"a_{key}") for key in ("day", "year")}
                for key in ("day", "year"):
                    low, high = saved.get(f"interval_a_{key}") or (None, None)
                    row |= {f"{kind}_a_{key}_low": low, f"{kind}_a_{key}_high": high}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def wait_frame(self) -> pl.DataFrame:
        """Return a row for each two cases: how much longer jobs wait in one than in the other."""
        rows = []
        for row in self._wait_differences():
            low, high = row.pop("interval_s") or (None, None)
            rows.append({**row, "low_s": low, "high_s": high})
        numbers = dict.fromkeys(("mean_s", "low_s", "high_s"), pl.Float64)
        return pl.DataFrame(rows, schema={"case": pl.String, "than": pl.String, **numbers})

    def _money(self, name: str, cost: MachineCost) -> dict[str, Any]:
        saved = self.savings.of_case.get(name)
        credited = None if saved is None else saved.credited
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
            "saved_against_as_it_was": None if saved is None else _saved(saved.whole),
            "saved_against_replay": None if credited is None else _saved(credited),
        }

    def _wait_differences(self) -> list[dict[str, Any]]:
        """Return how much longer jobs wait in each case than in every other, on the same weeks."""
        names = list(self.waits.wait_s)
        return [
            {"case": case, "than": other, **_difference(self.waits.difference(case, other))}
            for case in names
            for other in names
            if case != other
        ]


def details(
    results: Sequence[Result],
    trace: Trace,
    was: str,
    window: Window,
    prices: Prices,
    seed: int,
    idle: Mapping[str, pl.DataFrame],
    scheduler: str = "",
    why_no_replay: str = "",
) -> AnswerDetails:
    """Measure the cases of a what-if; `was` names the log itself, `scheduler` a replay of its scheduler.

    `idle` has the stretches in which machines of each case were idle.
    """
    named = {str(result.settings["policy"]): result for result in results}
    by_name = {name: named[name] for name in dict.fromkeys([was, scheduler, *named]) if name in named}
    machines = results[0].cluster.machines
    clock = price_clock(window, trace.zero_epoch_s, prices.zone)
    costs = {
        name: machine_cost(result.runs, machines, prices, clock, window, idle[name])
        for name, result in by_name.items()
        if result.runs.height
    }
    done = {name: case_jobs(result) for name, result in by_name.items()}
    against = next(name for name in (scheduler, was, *by_name) if name in by_name)
    blamed = was if was in costs else against if against in costs else next(iter(costs))
    problems = problem_jobs(by_name[blamed].runs, done[blamed], trace.frame, machines, window)
    jobs, label = same_jobs(done, trace.frame, counted_jobs(trace)), labels(trace.frame)
    groups = waits_by_group(jobs, label)
    replayed = was in by_name and scheduler in by_name
    return AnswerDetails(
        prices=prices,
        window=window,
        zero_epoch_s=trace.zero_epoch_s,
        costs=costs,
        savings=savings(costs, was, scheduler, why_no_replay, window, seed),
        against=against,
        waits=block_waits(jobs, trace.frame, window, seed),
        groups=groups,
        changes=changes_by_group(jobs, label, against),
        credited=credited_by_group(groups, was, scheduler) if replayed else pl.DataFrame(),
        problems=problems,
        problems_of=blamed,
        notes=_price_notes(prices, results[0], trace),
    )


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


def _difference(found: WaitDifference) -> dict[str, Any]:
    return {"mean_s": found.mean_s, "interval_s": _bounds(found.interval)}


def _bounds(interval: Interval | None) -> list[float] | None:
    return None if interval is None else [*asdict(interval).values()]
