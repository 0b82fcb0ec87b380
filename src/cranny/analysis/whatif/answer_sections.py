"""The answer as sections of a page: a summary for people who decide, on one printed page, then each table."""

import re
from collections.abc import Iterable, Sequence

import polars as pl

from cranny.analysis.whatif.answer import WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.detail_tables import dollars
from cranny.analysis.whatif.money import Interval
from cranny.report.scales import duration_text
from cranny.report.shell import escape, html_section, html_table
from cranny.report.text_table import TextTable


def answer_sections(answer: WhatIfAnswer, findings: Iterable[str], tables: Sequence[TextTable]) -> str:
    """Return the summary and a section for each table, as HTML."""
    lines = [*(f"<strong>{escape(line)}</strong>" for line in answer.warnings), *map(escape, findings)]
    notes = answer.details.notes if answer.details is not None else ()
    lines += map(escape, notes)
    summary = f'{_tiles(answer)}<div class="card prose">{_items(lines)}</div>'
    parts = [f'<div class="decide">{html_section("what-if", "What if", summary)}</div>']
    parts += map(_table_section, tables)
    assumptions = f'<div class="card prose">{_items(map(escape, answer.assumptions))}</div>'
    return "".join([*parts, html_section("assumptions", "Assumptions", assumptions)])


def _table_section(sheet: TextTable) -> str:
    rows = [[escape(cell) for cell in row] for row in sheet.rows]
    kind = "plain figures" if sheet.words == 1 else "plain figures worded"
    table = html_table([escape(cell) for cell in sheet.head], rows, kind=kind)
    name = re.sub("[^a-z]+", "-", sheet.title.lower()).strip("-")
    return html_section(name, sheet.title, f'<div class="card prose">{table}</div>', sheet.note)


def _tiles(answer: WhatIfAnswer) -> str:
    """Show the few numbers that a decision needs, each with what it is compared with."""
    best = min(
        (case for case in answer.compared if case.waits is not None),
        key=lambda case: case.waits.wait.mean_s if case.waits is not None else 0.0,
        default=None,
    )
    tiles = [*_wait_tile(answer, best), *_money_tile(answer), *_jobs_tile(answer, best), *_machines_tile(answer)]
    made = "".join(
        f'<div class="card"><dt>{escape(name)}</dt><dd>{escape(value)}</dd><p>{escape(about)}</p></div>'
        for name, value, about in tiles
    )
    return f'<dl class="tiles">{made}</dl>'


Tile = tuple[str, str, str]  # its name, the value, and what that means


def _wait_tile(answer: WhatIfAnswer, best: WhatIfCase | None) -> list[Tile]:
    if best is None or best.waits is None:
        return []
    was = answer.cases[0].waits
    before = f"as it was {duration_text(was.wait.mean_s)}" if was is not None else "as it was: not in the log"
    return [("Mean wait", duration_text(best.waits.wait.mean_s), f"with {best.name}; {before}")]


def _money_tile(answer: WhatIfAnswer) -> list[Tile]:
    """Show the largest saving, and how sure it is."""
    if answer.details is None or not answer.details.saved:
        return [("Saved a year", "unknown", "on which machines jobs ran is not in the log")]
    name, saved = max(answer.details.saved.items(), key=lambda each: each[1].a_day)
    sure = _range(saved.year_interval) or saved.why_no_interval
    doubtful = saved.interval is not None and saved.interval.low <= 0 <= saved.interval.high
    shown = "no clear saving" if doubtful else dollars(saved.a_year)
    return [
        (
            "Saved a year",
            shown,
            f"with {name}, {dollars(saved.a_day)} a day, {dollars(saved.a_year)} a year; {sure}",
        )
    ]


def _range(interval: Interval | None) -> str:
    return (
        f"95 % interval from resampled weeks: {dollars(interval.low)} to {dollars(interval.high)}"
        if interval
        else ""
    )


def _jobs_tile(answer: WhatIfAnswer, best: WhatIfCase | None) -> list[Tile]:
    """Show how many jobs would wait clearly less and more."""
    details = answer.details
    if details is None or best is None or not details.changes.height:
        return []
    row = details.changes.filter(pl.col("case") == best.name, pl.col("by") == "all").rows(named=True)
    if not row:
        return []
    sooner, later = (f"{row[0][key]:,}" for key in ("sooner", "later"))
    about = f"with {best.name} against {details.against}, of {row[0]['jobs']:,}"
    return [("Jobs sooner and later", f"{sooner} / {later}", about)]


def _machines_tile(answer: WhatIfAnswer) -> list[Tile]:
    if not answer.searches:
        return []
    most = max(answer.searches, key=lambda search: search.removal.machines)
    of_all = f"of {len(answer.cluster.machines):,}, with {most.policy}, and jobs wait no longer"
    return [("Machines to spare", f"{most.removal.machines:,}", of_all)]


def _items(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
