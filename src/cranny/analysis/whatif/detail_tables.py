"""Groups of jobs and problem jobs as tables."""

from typing import Any

import polars as pl

from cranny.analysis.whatif.baseline import AS_IT_WAS
from cranny.analysis.whatif.details import AnswerDetails
from cranny.analysis.whatif.problem_jobs import PROBLEMS
from cranny.analysis.whatif.wording import change_text
from cranny.model.validate import counted
from cranny.report.scales import duration_text
from cranny.report.text_table import TextTable

MOST_GROUPS = 8  # shown of each kind; all are in the exported tables
WAYS = {"gpu_type": "type of GPU", "size": "size of job", "qos": "QOS"}


def detail_tables(details: AnswerDetails) -> list[TextTable]:
    """Return the tables in the order in which people ask."""
    ways = details.groups["by"].unique(maintain_order=True).to_list()
    made = [_changes(details), *(_group(details, by) for by in ways if by != "size")]
    return [sheet for sheet in (*made, _problems(details)) if sheet.rows]


def _changes(details: AnswerDetails) -> TextTable:
    """Show for each case all jobs, and the groups that change most, weighted by their jobs."""
    rows = []
    cases = details.changes["case"].unique(maintain_order=True).to_list() if details.changes.height else []
    for name in cases:
        if name == AS_IT_WAS:  # which no policy changes
            continue
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
    counts = [f"{row[key]:,}" for key in ("jobs", "sooner", "later")]
    return [*counts, duration_text(row["mean_wait_s"]), change_text(row["mean_change_s"])]


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
