"""The answer as sections of a page: a summary for people who decide, on one printed page, then each table."""

import re
from collections.abc import Iterable, Sequence

import polars as pl

from cranny.analysis.whatif.answer import WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.calibration import REPLAYED
from cranny.analysis.whatif.resampling import resampled_from
from cranny.analysis.whatif.wording import change_with_interval, dollar_range, dollars
from cranny.report.scales import duration_text
from cranny.report.shell import escape, html_section, html_table, unbroken
from cranny.report.text_table import TextTable, figures_kind


def answer_sections(answer: WhatIfAnswer, findings: Iterable[str], tables: Sequence[TextTable]) -> str:
    """Return the summary and a section for each table, as HTML."""
    lines = [*(f"<strong>{escape(line)}</strong>" for line in answer.warnings), *map(escape, findings)]
    lines += map(escape, answer.details.notes)
    summary = f'{_tiles(answer)}<div class="card prose">{_items(lines)}</div>'
    parts = [f'<div class="decide">{html_section("what-if", "What if", summary)}</div>']
    parts += map(_table_section, tables)
    assumptions = f'<div class="card prose">{_items(map(escape, answer.assumptions))}</div>'
    return "".join([*parts, html_section("assumptions", "Assumptions", assumptions)])


def _table_section(sheet: TextTable) -> str:
    rows = [[escape(cell) for cell in row] for row in sheet.rows]
    table = html_table([unbroken(cell) for cell in sheet.head], rows, kind=figures_kind(sheet))
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
    was, credited_s = answer.was.waits, answer.credited_wait_s(best)
    before = f"as it was {duration_text(was.wait.mean_s)}" if was is not None else "as it was: not in the log"
    shown_s = best.waits.wait.mean_s if credited_s is None else credited_s
    against = answer.details.against
    if against == best.name:
        return [("Mean wait", duration_text(shown_s), f"with {best.name}; {before}")]
    found = answer.details.waits.difference(best.name, against)
    sure = resampled_from(answer.details.window)
    change = f"{change_with_interval(found.mean_s, found.interval)} against {against!r}; {sure}"
    return [("Mean wait", duration_text(shown_s), f"with {best.name}; {before}; {change}")]


def _money_tile(answer: WhatIfAnswer) -> list[Tile]:
    """Show the largest saving of a policy that can be compared, and how sure it is."""
    savings, found = answer.details.savings, answer.savings()
    if not found:
        return [("Saved a year", "unknown", savings.why_none or "no policy did the same work as the log")]
    case, saving = found[0]
    shown = saving.shown
    interval = shown.year_interval
    sure = (
        shown.why_no_interval
        if interval is None
        else f"95 % interval from resampled weeks: {dollar_range(interval)}"
    )
    doubtful = shown.a_day <= 0 or (interval is not None and interval.has_zero)
    against = REPLAYED if savings.of_replay is not None else answer.was.name
    amounts = f"{dollars(shown.a_day)} a day, {dollars(shown.a_year)} a year"
    about = f"with {case.name} against {against!r}, {amounts}; {sure}"
    return [("Saved a year", "no clear saving" if doubtful else dollars(shown.a_year), about)]


def _jobs_tile(answer: WhatIfAnswer, best: WhatIfCase | None) -> list[Tile]:
    """Show how many jobs would wait clearly less and more."""
    details = answer.details
    if best is None or not details.changes.height:
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
