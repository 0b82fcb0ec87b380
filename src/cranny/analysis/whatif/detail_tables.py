"""Money, groups of jobs and problem jobs as tables."""

from typing import Any

import polars as pl

from cranny.analysis.whatif.details import AnswerDetails
from cranny.analysis.whatif.money import Interval, SavedMoney
from cranny.analysis.whatif.problem_jobs import PROBLEMS
from cranny.model.validate import counted
from cranny.report.scales import duration_text
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable

MOST_GROUPS = 8  # shown of each kind; all are in the exported tables
WAYS = {"gpu_type": "type of GPU", "size": "size of job", "qos": "QOS"}


def detail_tables(details: AnswerDetails) -> list[TextTable]:
    """Return the tables in the order in which people ask."""
    ways = details.groups["by"].unique(maintain_order=True).to_list()
    made = [_money(details), _changes(details), *(_group(details, by) for by in ways if by != "size")]
    return [sheet for sheet in (*made, _problems(details)) if sheet.rows]


def dollars(value: float) -> str:
    """Write money, with its sign before the currency."""
    return f"{'-' if round(value) < 0 else ''}${abs(value):,.0f}"


def with_interval(value: float, interval: Interval | None) -> str:
    """Write money with its interval, where there is one."""
    return dollars(value) + (f" ({dollars(interval.low)} to {dollars(interval.high)})" if interval else "")


def _money(details: AnswerDetails) -> TextTable:
    rows = []
    for name, cost in details.costs.items():
        saved = details.saved.get(name)
        energy = cost.busy_energy.sum() + cost.idle_energy.sum()
        a_day = (each / details.days for each in (cost.on.sum(), energy, -cost.saved.sum(), cost.total.sum()))
        rows.append([name, *(dollars(float(each)) for each in a_day), f"{cost.boots.sum():,.0f}", *_saved(saved)])
    reasons = {each.why_no_interval for each in details.saved.values() if each.why_no_interval}
    sure = "; ".join(reasons) or "in brackets the 95 % interval from resampled weeks"
    return TextTable(
        "What machines cost a day, and what a policy saves",
        f"{_rule(details)} Saved is against what the log itself cost with the same rule; {sure}. A year is 365 "
        "days like these.",
        ("", "machines on", "energy", "off", "total", "boots", "saved a day", "saved a year"),
        rows,
    )


def _rule(details: AnswerDetails) -> str:
    """Say when a machine is switched off."""
    prices = details.prices
    if not any(each.boot_s or each.boot_cost for each in (prices.every, *prices.types.values())):
        return f"A machine is off while it is idle for {duration_text(prices.least_off_s)} or longer."
    return "A machine is off in every idle stretch in which that pays after its boot."


def _saved(saved: SavedMoney | None) -> list[str]:
    if saved is None:
        return [MISSING, MISSING]
    return [with_interval(saved.a_day, saved.interval), with_interval(saved.a_year, saved.year_interval)]


def _changes(details: AnswerDetails) -> TextTable:
    """Show for each case all jobs, and the groups that change most, weighted by their jobs."""
    rows = []
    for name in details.changes["case"].unique(maintain_order=True) if details.changes.height else ():
        these = details.changes.filter(pl.col("case") == name)
        weight = (pl.col("mean_change_s") * pl.col("jobs")).abs()
        groups = these.filter(pl.col("by") != "all", pl.col("mean_change_s").abs() >= 1.0)
        everyone = these.filter(pl.col("by") == "all")
        most = groups.sort(weight, descending=True, maintain_order=True).head(MOST_GROUPS)
        rows += [[name, _named(row), *_change_cells(row)] for row in pl.concat([everyone, most]).rows(named=True)]
    return TextTable(
        "Who would gain and who would lose",
        f"Against {details.against!r}: jobs that wait clearly less or more, by a minute and 5 % at least, and the "
        f"mean wait. All jobs, then the {MOST_GROUPS} groups with the largest change.",
        ("", "group", "jobs", "sooner", "later", "wait then", "change"),
        rows,
        words=2,
    )


def _change_cells(row: dict[str, Any]) -> list[str]:
    change_s = row["mean_change_s"]
    sign = "-" if change_s < 0 else "+"
    counts = [f"{row[key]:,}" for key in ("jobs", "sooner", "later")]
    return [*counts, duration_text(row["mean_wait_s"]), f"{sign}{duration_text(abs(change_s))}"]


def _named(row: dict[str, Any]) -> str:
    return "all jobs" if row["by"] == "all" else f"{WAYS.get(row['by'], row['by'])} {row['group']}"


def _group(details: AnswerDetails, by: str) -> TextTable:
    """Show the mean wait of each group in every case, most GPU-hours first."""
    of_way = details.groups.filter(pl.col("by") == by)
    cases = of_way["case"].unique(maintain_order=True).to_list()
    first = of_way.filter(pl.col("case") == cases[0])
    rows = []
    for row in first.head(MOST_GROUPS).rows(named=True):
        waits = dict(of_way.filter(pl.col("group") == row["group"]).select("case", "mean_wait_s").rows())
        shown = [duration_text(waits[case]) for case in cases]
        rows.append([row["group"], f"{row['jobs']:,}", f"{row['gpu_hours']:,.0f}", *shown])
    rest = first.height - len(rows)
    more = f" {counted(rest, 'further one')} in the exported tables." if rest > 0 else ""
    way = WAYS.get(by, by)
    note = f"By mean wait in each row of the tables above; most GPU-hours first.{more}"
    return TextTable(f"Mean wait by {way}", note, (way, "jobs", "GPU-hours", *cases), rows)


def _problems(details: AnswerDetails) -> TextTable:
    rows = []
    for row in details.problems.rows(named=True):
        if row["rank"] > 5:
            continue
        amount = duration_text(row["amount"]) if row["problem"] == "wait_s" else f"{row['amount']:,.1f} h"
        what = PROBLEMS[row["problem"]].removeprefix("seconds of ")
        rows.append(
            [what, row["job_id"], str(row.get("user") or row.get("tenant") or ""), f"{row['gpus']:,}", amount]
        )
    return TextTable(
        "Which jobs are the problem",
        f"In the row {details.problems_of!r}: the five worst of each kind.",
        ("what", "job", "user", "GPUs", "amount"),
        rows,
        words=3,
    )
