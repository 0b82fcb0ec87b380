"""The answer as tables (waiting, machines, the largest job, the search, and others), and as a page with them.

The page is the report of the runs, with what operators ask at its top.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cranny.analysis.whatif.answer import CollectiveCase, WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.answer_sections import answer_sections
from cranny.analysis.whatif.baseline import UNKNOWN
from cranny.analysis.whatif.calibration_tables import calibration_tables
from cranny.analysis.whatif.detail_tables import detail_tables
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.job_spread import LEAST_GPUS
from cranny.analysis.whatif.large_jobs import MOMENTS
from cranny.analysis.whatif.machine_search import TOLERANCE, TOLERANCE_S, MachineSearch
from cranny.analysis.whatif.money_tables import choice_table, money_tables
from cranny.analysis.whatif.type_changes import TypeOutcome
from cranny.analysis.whatif.waits import SIZES
from cranny.model.validate import counted, percent
from cranny.report.page import Lead, write_report
from cranny.report.scales import duration_text
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.traces.inspect import StepFunction

HOURS = ("hours used", "hours idle", "hours off")


def answer_tables(answer: WhatIfAnswer) -> list[TextTable]:
    """Return the tables in the order in which people ask."""
    made = [_waiting(answer), _by_size(answer), choice_table(answer)]
    made += [_machines(answer), *money_tables(answer), _places(answer), _largest(answer), *_large_jobs(answer)]
    if answer.searches:
        made += [_removal(answer), _addition(answer.searches)]
    made += _type_changes(answer.type_changes)
    made += [*detail_tables(answer.details), *calibration_tables(answer)]
    if answer.collectives:
        made.append(_collectives(answer.collectives))
    return [
        replace(sheet, note=f"{sheet.note} {MISSING} {UNKNOWN}.")
        if any(MISSING in row for row in sheet.rows)
        else sheet
        for sheet in made
        if sheet.rows
    ]


def write_page(answer: WhatIfAnswer, path: str | Path) -> Path:
    """Write the self-contained page, with the first finding, which is about waiting, as its headline."""
    trace = answer.results[0].settings["trace"]
    headline, *others = findings(answer)
    lead = Lead(
        headline,
        answer_sections(answer, others, answer.tables),
        f"unlike the tables above, which are over {answer.span}",
    )
    return write_report(answer.results, path, title=f"What if: {trace}", lead=lead)


def _collectives(cases: Sequence[CollectiveCase]) -> TextTable:
    rows = [
        [
            each.collective,
            each.policy,
            duration_text(each.mean_jct_s),
            f"{each.machine_hours:,.1f}",
            f"{each.mean_cross_traffic_gb:,.2f}",
        ]
        for each in cases
    ]
    note = "For jobs that name none: mean JCT of all jobs, machine-hours to the last end, traffic at arrivals."
    head = ("collective", "", "JCT, mean", "machine-hours", "cross traffic, GB")
    return TextTable("What the collective decides", note, head, rows)


def _waiting(answer: WhatIfAnswer) -> TextTable:
    rows = []
    for case in answer.cases:
        waits = case.waits
        if waits is None:
            rows.append(_unknown(case, 9))
            continue
        wait, jct = waits.wait, waits.jct
        times = (wait.mean_s, wait.p50_s, wait.p95_s, wait.p99_s, jct.mean_s, jct.p50_s, jct.p99_s)
        shown = [duration_text(value) for value in times]
        rows.append([case.name, *shown[:4], f"{waits.over_10_min:,}", f"{waits.over_1_h:,}", *shown[4:]])
    jobs = next((case.waits.jobs for case in answer.cases if case.waits is not None), 0)
    return TextTable(
        "How long jobs waited and took",
        f"Over {jobs:,} jobs; JCT is from submission to finish, waiting included.",
        ("", "wait, mean", "median", "p95", "p99", "over 10 min", "over 1 h", "JCT, mean", "median", "p99"),
        rows,
    )


def _by_size(answer: WhatIfAnswer) -> TextTable:
    sizes = [
        size for size in SIZES if any(size in case.waits.mean_s_by_size for case in answer.cases if case.waits)
    ]
    rows = [
        [case.name, *(duration_text(case.waits.mean_s_by_size[size]) for size in sizes)]
        if case.waits is not None
        else _unknown(case, len(sizes))
        for case in answer.cases
    ]
    return TextTable("Mean wait by size of job", "GPUs of the job.", ("", *sizes), rows)


def _machines(answer: WhatIfAnswer) -> TextTable:
    details = answer.details
    rows = [
        [
            case.name,
            f"{machines.used:,.1f}",
            *map(
                _hours, (machines.used_hours, machines.idle_hours, float(details.costs[case.name].off_hours.sum()))
            ),
            f"{details.machines_off(case.name):,.1f}",
        ]
        if (machines := case.machines) is not None
        else _unknown(case, 5)
        for case in answer.cases
    ]
    anyway = (
        " What was idle anyway is not in the log, so what is off is not a saving."
        if answer.was.machines is None
        else ""
    )
    return TextTable(
        "Machines, and what could have been off",
        f"Of {counted(len(answer.cluster.machines), 'machine')} over {answer.span}; hours are machine-hours. "
        f"{details.prices.off_rule}{anyway}",
        ("", "machines used", *HOURS, "machines off"),
        rows,
    )


def _places(answer: WhatIfAnswer) -> TextTable:
    rows = []
    for case in answer.cases:
        spread = (
            [MISSING] * 2 if case.spread is None else [f"{case.spread.machines:,.2f}", f"{case.spread.racks:,.2f}"]
        )
        sent = MISSING if case.cross_traffic_gb is None else f"{case.cross_traffic_gb:,.2f}"
        rows.append([case.name, _percent(case.fragmentation, 1), *spread, sent])
    return TextTable(
        "Where jobs ran",
        f"Machines and racks per job are means over jobs of {LEAST_GPUS} GPUs or more; fragmentation, the share "
        "of GPUs that are free on machines in use, and cross traffic, what one iteration of every running job "
        "moves between machines, are means over arrivals.",
        ("", "fragmented", "machines per job", "racks per job", "cross traffic, GB"),
        rows,
    )


def _largest(answer: WhatIfAnswer) -> TextTable:
    sizes = answer.sizes_to_start
    rows = [
        [case.name, *_steps(case.headroom.free_gpus, sizes), *_steps(case.headroom.idle_gpus, sizes)]
        if case.headroom is not None
        else _unknown(case, 2 * len(sizes) + 2)
        for case in answer.cases
    ]
    shares = [f"{size}" for size in sizes]
    return TextTable(
        "Largest job that could have started",
        "GPUs free, mean over time, and the share of time in which a job of so many GPUs could have started: on "
        "any machines that have some (anywhere), and on idle machines alone, where it shares none.",
        ("", "anywhere", *shares, "on idle", *shares),
        rows,
    )


def _large_jobs(answer: WhatIfAnswer) -> list[TextTable]:
    known = next((case.large_jobs for case in answer.cases if case.large_jobs), ())
    if not known:
        return []
    rows = [
        [case.name, *(duration_text(value) for each in case.large_jobs for value in (each.mean_s, each.p90_s))]
        if case.large_jobs is not None
        else _unknown(case, 2 * len(known))
        for case in answer.cases
    ]
    kind = f" {known[0].gpu_type}" if known[0].gpu_type else ""
    sheet = TextTable(
        "How long a large job would wait",
        f"A job of so many{kind} GPUs, submitted at {MOMENTS:,} moments spread evenly over {answer.span}, each "
        "for itself: until so many are free of all jobs submitted before it for good, so that it delays none of "
        "them (the reservation of conservative backfill), on any machines.",
        ("", *(head for each in known for head in (f"{each.gpus:,} GPUs, mean", "p90"))),
        rows,
    )
    return [sheet]


def _removal(answer: WhatIfAnswer) -> TextTable:
    rows = [
        [
            search.policy,
            f"{removal.machines:,}",
            *map(duration_text, (removal.tried[0], removal.tried[removal.machines], removal.limit_s)),
            ", ".join(f"{count:,}" for count in removal.tried if count),
        ]
        for search in answer.searches
        for removal in [search.removal]
    ]
    return TextTable(
        "How many machines could be removed",
        "Taken evenly from the racks; every job still runs and the mean wait grows by no more than "
        f"{percent(TOLERANCE)} or {duration_text(TOLERANCE_S)}.",
        ("", "machines", "wait now", "wait then", "at most", "tried"),
        rows,
    )


def _addition(searches: Sequence[MachineSearch]) -> TextTable:
    sizes = list(dict.fromkeys(size for search in searches for size in search.addition.before_s))
    rows = []
    for search in searches:
        for when, wait_s in (("now", search.addition.before_s), ("then", search.addition.after_s)):
            shown = (duration_text(wait_s[size]) if size in wait_s else "none" for size in sizes)
            rows.append([f"{search.policy}, {when}", *shown])
    count = searches[0].addition.machines
    return TextTable(
        f"Mean wait by size with {counted(count, 'more machine')}",
        "GPUs of the job. The new machines are like the last one of their rack.",
        ("", *sizes),
        rows,
    )


def _type_changes(changes: Sequence[TypeOutcome]) -> list[TextTable]:
    rows = [
        [
            f"{each.machines:+,} {each.gpu_type or 'of all types'}",
            f"{each.of:,}",
            duration_text(each.before_s),
            _then(each.after_s),
            f"{each.own_jobs:,}",
            duration_text(each.own_before_s),
            _then(each.own_after_s),
            f"{each.lost_jobs:,}",
        ]
        for each in changes
    ]
    if not rows:
        return []
    sheet = TextTable(
        "Machines of one type more or fewer",
        f"Replayed with {changes[0].policy}, each for itself; mean waits of all jobs that run before and after, "
        "and of those that ran on that type before. Lost are jobs that can never run any more.",
        ("", "of", "wait now", "wait then", "jobs there", "wait now", "wait then", "lost"),
        rows,
    )
    return [sheet]


def _then(seconds: float | None) -> str:
    return "none" if seconds is None else duration_text(seconds)


def _steps(steps: StepFunction | None, sizes: Sequence[int]) -> list[str]:
    if steps is None:
        return [MISSING] * (1 + len(sizes))
    return [f"{steps.mean:,.0f}", *(_percent(steps.share_from(size)) for size in sizes)]


def _unknown(case: WhatIfCase, cells: int) -> list[str]:
    return [case.name, *[MISSING] * cells]


def _hours(hours: float) -> str:
    return f"{hours:,.0f}" if abs(hours) >= 100 else f"{hours:.1f}"


def _percent(share: float | None, places: int = 0) -> str:
    return MISSING if share is None else percent(share, places)
