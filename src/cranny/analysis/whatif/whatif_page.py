"""The answer as a page: the report of the runs, with what operators ask at its top."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.tables import answer_tables
from cranny.report.page import write_report
from cranny.report.shell import escape
from cranny.report.text_table import text_table_html


def write_page(answer: WhatIfAnswer, path: str | Path) -> Path:
    """Write the self-contained page, with the first finding, which is about waiting, as its headline."""
    trace = answer.results[0].settings["trace"]
    headline, *others = findings(answer)
    return write_report(
        answer.results,
        path,
        title=f"What if: {trace}",
        headline=headline,
        lead=_lead(answer, others),
        lead_span=f"unlike the tables above, which are over {answer.span}",
    )


def _lead(answer: WhatIfAnswer, others: Sequence[str]) -> str:
    """Make the section with the other findings, tables and assumptions."""
    lines = [*(f"<strong>{escape(line)}</strong>" for line in answer.warnings), *map(escape, others)]
    tables = "".join(map(text_table_html, answer_tables(answer)))
    return (
        '<section id="what-if" aria-labelledby="what-if-head"><h2 id="what-if-head">What if</h2>'
        f'<div class="card prose">{_items(lines)}<div class="grid">{tables}</div>'
        f"<h3>Assumptions</h3>{_items(map(escape, answer.assumptions))}</div></section>"
    )


def _items(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>"
