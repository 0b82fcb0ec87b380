"""The columns of the comparison: what they mean, which way is better, and how their values are written."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cranny.network.networks import NETWORKS
from cranny.report.run_view import RunView, labels, policy_of
from cranny.report.scales import TIME_UNITS
from cranny.report.styles import STRONG_POLICY

if TYPE_CHECKING:
    from rich.table import Table

Kind = Literal["count", "mean", "percent", "time", "ms", "hours", "gb", "money", "ratio"]
MARK = "*"  # plain, so that it shows on every terminal
MISSING = "–"  # noqa: RUF001 - a dash, because a minus would read as a sign
BREAKS = {  # where a head breaks
    "mean_fragmentation": "frag- mented",
    "time_mean_fragmentation": "frag- mented, over time",
    "machine_hours": "machine- hours",
    "mean_comm_slowdown": "slow- down",
    "mean_iteration_s": "itera- tion, mean",
    "p99_iteration_s": "itera- tion, p99",
}
# What a terminal shows of runs in which jobs share links.
BRIEF_IF_SHARED = frozenset(
    {
        *(
            "mean_used_machines",
            "mean_jct_s",
            "p99_jct_s",
            "mean_wait_s",
            "mean_comm_slowdown",
            "mean_iteration_s",
        ),
        *("p99_iteration_s", "mean_above_gbit", "jobs_done", "jobs_skipped"),
    }
)
# What is counted at arrivals, and its mean over time if there is one. A policy that decides in rounds has not
# placed the arriving job yet, so what it holds at arrivals says little.
AT_ARRIVALS = {
    "mean_used_machines": "time_mean_used_machines",
    "mean_fragmentation": "time_mean_fragmentation",
    "mean_cross_traffic_gb": "time_mean_cross_traffic_gb",
    "mean_profit_rate": None,
    "total_profit": None,
}
IF_ROUNDS = frozenset({"time_mean_fragmentation", "time_mean_cross_traffic_gb"})  # shown for rounds only
OWN_SPAN = "No value is best: each policy's mean goes from the first arrival to its own last end."
SIZES_GB = (("PB", 1e6), ("TB", 1e3), ("GB", 1.0), ("MB", 1e-3), ("kB", 1e-6))


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of the comparison."""

    key: str
    label: str
    unit: str
    better: Literal["lower", "higher", ""]
    kind: Kind
    group: str
    explanation: str
    brief: bool = False  # shown on a terminal too, where there is little space
    quiet: bool = False  # hidden while it is zero for every run


@dataclass(frozen=True, slots=True)
class ValueScale:
    """The unit and the decimals that all values of one column share, so that they can be compared."""

    unit: str
    size: float
    decimals: int


COLUMNS: tuple[Metric, ...] = (
    Metric(
        "mean_used_machines", "used machines", "", "lower", "mean", "Machines",
        "Machines with at least one GPU held, counted at each arrival of a job and averaged.", brief=True,
    ),
    Metric(
        "time_mean_used_machines", "used, over time", "", "", "mean", "Machines",
        f"Machines with at least one GPU held, averaged over time instead of over arrivals. {OWN_SPAN}",
    ),
    Metric(
        "mean_fragmentation", "fragmentation", "%", "lower", "percent", "Machines",
        "Share of GPUs that stand idle on used machines, averaged over the arrivals.", brief=True,
    ),
    Metric(
        "time_mean_fragmentation", "fragmented, over time", "%", "", "percent", "Machines",
        f"Share of GPUs that stand idle on used machines, averaged over time. {OWN_SPAN}",
    ),
    Metric(
        "machine_hours", "machine-hours", "h", "lower", "hours", "Machines",
        "Hours that used machines were on, added up over the machines.", brief=True,
    ),
    Metric(
        "gpu_utilisation", "GPUs held", "%", "", "percent", "Machines",
        "Share of the cluster's GPU time that jobs held, from the first arrival to the policy's own last end. No "
        "value is best: for the same work, jobs slowed down by their communication hold GPUs for longer.",
    ),
    Metric(
        "mean_jct_s", "JCT, mean", "s", "lower", "time", "Time",
        "Job completion time: from submission to finish, waiting included; mean over the finished jobs.",
        brief=True,
    ),
    Metric(
        "p50_jct_s", "JCT, median", "s", "lower", "time", "Time",
        "Half of the finished jobs took no longer than this from submission to finish.",
    ),
    Metric(
        "p99_jct_s", "JCT, p99", "s", "lower", "time", "Time",
        "99 of 100 finished jobs took no longer than this from submission to finish.", brief=True,
    ),
    Metric(
        "mean_wait_s", "wait, mean", "s", "lower", "time", "Time",
        "Time from submission to start, averaged over the finished jobs.", brief=True,
    ),
    Metric(
        "p99_wait_s", "wait, p99", "s", "lower", "time", "Time",
        "99 of 100 finished jobs waited no longer than this.",
    ),
    Metric(
        "makespan_s", "makespan", "s", "lower", "time", "Time",
        "Time from the first submission to the last finish.",
    ),
    Metric(
        "mean_cross_traffic_gb", "cross traffic", "GB", "lower", "gb", "Network",
        "Gradient bytes that cross between machines, averaged over the arrivals.",
        brief=True,
    ),
    Metric(
        "time_mean_cross_traffic_gb", "cross traffic, over time", "GB", "", "gb", "Network",
        f"Gradient bytes that cross between machines, averaged over time. {OWN_SPAN}",
    ),
    Metric(
        "mean_comm_slowdown", "slowdown", "×", "lower", "ratio", "Network",  # noqa: RUF001
        "Running time over the running time with all workers on one machine, averaged over the jobs.",
    ),
    Metric(
        "mean_iteration_s", "iteration, mean", "ms", "lower", "ms", "Iterations",
        "Time that a training iteration takes, averaged over all iterations of all jobs.",
    ),
    Metric(
        "p99_iteration_s", "iteration, p99", "ms", "lower", "ms", "Iterations",
        "99 of 100 iterations took no longer than this.",
    ),
    Metric(
        "mean_above_gbit", "above capacity", "Gbit", "lower", "mean", "Iterations",
        "Gigabits that a job asked of its links in an iteration and did not get at once, on average: a stand-in "
        "for packets with congestion marks.",
    ),
    Metric(
        "adjustments_per_min", "adjustments a minute", "", "lower", "mean", "Iterations",
        "How often a job was delayed to bring it back to its pace, for each minute of a running job.", quiet=True,
    ),
    Metric(
        "mean_profit_rate", "profit rate", "$/h", "higher", "money", "Money",
        "Price of the running jobs for each hour of each used machine, averaged over the arrivals. "
        "$ stands for the currency of the price per GPU-hour.", brief=True,
    ),
    Metric(
        "total_profit", "total profit", "$", "higher", "money", "Money",
        "Profit rates of all arrivals, added up as in the Titan paper.",
    ),
    Metric(
        "cost_per_gpu_hour", "GPU-hour cost", "$", "lower", "money", "Money",
        "What one GPU-hour of training costs when the idle GPUs of used machines are paid for as well.",
    ),
    Metric(
        "jobs_done", "done", "", "higher", "count", "Jobs",
        "Jobs that ran to their end.", brief=True,
    ),
    Metric(
        "jobs_skipped", "skipped", "", "lower", "count", "Jobs",
        "Jobs that this cluster or policy can never run; the reasons are at the end of the page.",
        brief=True, quiet=True,
    ),
    Metric(
        "restarts", "restarts", "", "lower", "count", "Jobs",
        "Times that a running job was stopped and started again.", quiet=True,
    ),
    Metric(
        "moves", "moves", "", "lower", "count", "Jobs",
        "Times that a running job went on with other workers, without waiting in between.", quiet=True,
    ),
)  # fmt: skip


def column(key: str) -> Metric:
    """Return the column of this name."""
    return next(column for column in COLUMNS if column.key == key)


def number(result: RunView, column: Metric) -> float | None:
    """Return a run's value, or None where it has none."""
    value = result.summary.get(column.key)
    return float(value) if value is not None and math.isfinite(value) else None


def shown_columns(results: Sequence[RunView], *, brief: bool = False) -> tuple[Metric, ...]:
    """Return the columns with something to say about these runs."""
    shown = []
    brief_keys = _brief_keys(results)
    hidden = frozenset(AT_ARRIVALS) if in_rounds(results) else IF_ROUNDS
    for column in COLUMNS:
        values = [value for result in results if (value := number(result, column)) is not None]
        if not values or (column.quiet and not any(values)) or column.key in hidden:
            continue
        # With little space, job counts are worth a column only where they differ.
        wanted = column.key in brief_keys
        if not brief or (wanted and (column.kind != "count" or len(set(values)) > 1)):
            shown.append(column)
    return tuple(shown)


def _brief_keys(results: Sequence[RunView]) -> frozenset[str]:
    """Return the columns for a terminal; with rounds, means over time stand for those at arrivals."""
    shared = share_links(results)
    keys = BRIEF_IF_SHARED if shared else frozenset(column.key for column in COLUMNS if column.brief)
    if not in_rounds(results):
        return keys
    return keys | {over_time for key in keys if (over_time := AT_ARRIVALS.get(key)) is not None}


def in_rounds(results: Sequence[RunView]) -> tuple[str, ...]:
    """Name the runs with a policy that decides periodically, and not when a job arrives."""
    return tuple(
        name
        for name, result in zip(labels(results), results, strict=True)
        if isinstance(period_s := result.settings.get("period_s"), int | float) and period_s > 0
    )


def share_links(results: Sequence[RunView]) -> bool:
    """Say whether jobs that share a link slow each other in some of these runs."""
    models = (NETWORKS.get(str(result.settings.get("network"))) for result in results)
    return any(model is not None and model.shared is not None for model in models)


def scale_for(column: Metric, values: Iterable[float | None]) -> ValueScale:
    """Choose the unit and the decimals that suit the greatest of the values."""
    greatest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    if column.kind == "count":
        return ValueScale(column.unit, 1.0, 0)
    if column.kind == "percent":
        return ValueScale("%", 0.01, 1)
    if column.kind == "ms":
        return ValueScale("ms", 1e-3, 0 if greatest >= 0.1 else 1)
    unit, size = column.unit, 1.0
    if column.kind == "time":
        # Up to two days read well in hours, up to two hours in minutes.
        unit, size = next((entry for entry in TIME_UNITS if greatest >= 2 * entry[1]), ("s", 1.0))
    elif column.kind == "gb":
        unit, size = next((entry for entry in SIZES_GB if greatest >= entry[1]), ("GB", 1.0))
    elif column.kind in ("hours", "money") and greatest >= 1e6:
        unit, size = f"M {column.unit}", 1e6
    greatest /= size
    if column.kind == "ratio":
        return ValueScale(unit, size, 3 if greatest < 2 else 2)
    decimals = 0 if greatest >= 1000 else 1 if greatest >= 10 else 2 if greatest >= 1 or greatest == 0 else 3
    return ValueScale(unit, size, decimals)


def format_value(column: Metric, value: float | None, scale: ValueScale | None = None) -> str:
    """Write a value without its unit; give the column's scale so that all its values have the same unit."""
    if value is None or not math.isfinite(value):
        return MISSING
    scale = scale if scale is not None else scale_for(column, [value])
    text = f"{value / scale.size:,.{scale.decimals}f}"
    if value > 0 and float(text.replace(",", "")) == 0:
        return f"<{10.0**-scale.decimals:.{scale.decimals}f}"
    return "0" if value == 0 else text


def with_unit(column: Metric, value: float | None) -> str:
    """Write one value by itself, with its unit."""
    scale = scale_for(column, [value])
    text = format_value(column, value, scale)
    return f"{text} {scale.unit}" if scale.unit and text != MISSING else text


def best(results: Sequence[RunView], column: Metric) -> frozenset[int]:
    """Return which runs have the best value; none where all are equal or no value is better than another."""
    values = {run: value for run, result in enumerate(results) if (value := number(result, column)) is not None}
    if not column.better or len(values) < 2:
        return frozenset()
    scale = scale_for(column, values.values())
    top = min(values.values()) if column.better == "lower" else max(values.values())
    # Runs that read the same are the same: a difference too small to print does not count.
    winner = format_value(column, top, scale)
    winners = frozenset(run for run, value in values.items() if format_value(column, value, scale) == winner)
    return winners if len(winners) < len(values) else frozenset()


def rich_table(results: Sequence[RunView], *, brief: bool = True) -> "Table":
    """Return the comparison for a terminal, the best value of each column bold, green and marked with `*`."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    names = labels(results)
    # Eight columns and the longest name just fit 80 characters without padding; the marks leave enough space.
    table = Table(box=SIMPLE_HEAD, header_style="bold", padding=0, caption_justify="left")
    table.add_column("policy", no_wrap=True, vertical="bottom")
    cells = [
        [Text(name, style="bold" if policy_of(result) == STRONG_POLICY else "")]
        for name, result in zip(names, results, strict=True)
    ]
    for column in shown_columns(results, brief=brief):
        values = [number(result, column) for result in results]
        scale = scale_for(column, values)
        winners = best(results, column)
        # One word a line: columns as narrow as their numbers fit an ordinary terminal.
        words = [*BREAKS.get(column.key, column.label).split(), scale.unit]
        head = "\n".join(f"{word} " for word in words if word)
        table.add_column(head, justify="right", vertical="bottom", no_wrap=True)
        for run, value in enumerate(values):
            text = format_value(column, value, scale)
            # The blank keeps the digits of the others in line with the marked one.
            mark = MARK if run in winners else " "
            cells[run].append(Text(text + mark, style="bold green" if run in winners else ""))
    for row in cells:
        table.add_row(*row)
    if len(results) > 1:
        table.caption = f"{MARK} best of its column"
    return table
