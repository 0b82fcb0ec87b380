"""The end of the page: settings, commands, notes, and the jobs that were skipped."""

from collections.abc import Mapping, Sequence

import polars as pl

from cranny.report.shell import escape, html_table
from cranny.report.styles import labels
from cranny.report.table import COLUMNS
from cranny.sim.result import Result

NAMES = {
    "trace": "trace",
    "cluster": "cluster",
    "links": "its links",
    "policy": "policy",
    "order": "queue order",
    "network": "network model",
    "seed": "seed",
    "price_per_gpu_hour": "price per GPU-hour",
    "trace_skipped": "rows of the trace skipped",
    "zone": "time zone",
    "version": "cranny version",
}
APART = frozenset({"zero_epoch_s", "command", "trace_notes"})  # shown in places of their own
EXAMPLES = 5


def settings_html(results: Sequence[Result]) -> str:
    """List the settings that all runs share, and a table of those in which they differ."""
    names = labels(results)
    keys = [*NAMES, *sorted({key for result in results for key in result.settings} - NAMES.keys() - APART)]
    shared: list[str] = []
    differing: list[tuple[str, list[str]]] = []
    for key in keys:
        title = escape(NAMES.get(key, key.replace("_", " ")))
        values = [_plain(result.settings.get(key)) for result in results]
        if not any(values):
            continue
        if len(set(values)) == 1:
            shared.append(f"<dt>{title}</dt><dd>{escape(values[0])}</dd>")
        else:
            differing.append((title, values))
    parts = [f'<dl class="settings">{"".join(shared)}</dl>'] if shared else []
    # The policy alone differs in most reports, and it is the run's name: no table is needed for it.
    if any(title != NAMES["policy"] for title, _ in differing):
        head = ["run", *(title for title, _ in differing)]
        rows = [
            [escape(name), *(escape(values[run]) for _, values in differing)] for run, name in enumerate(names)
        ]
        parts.append(html_table(head, rows))
    return "".join(parts)


def commands_html(results: Sequence[Result]) -> str:
    """Show the commands that repeat the runs, each once."""
    commands: dict[str, list[str]] = {}
    for result, name in zip(results, labels(results), strict=True):
        command = _plain(result.settings.get("command"))
        if command:
            commands.setdefault(command, []).append(name)
    if len(commands) == 1:
        return f"<pre>{escape(next(iter(commands)))}</pre>"
    return "".join(
        f'<p class="for">{escape(", ".join(names))}</p><pre>{escape(command)}</pre>'
        for command, names in commands.items()
    )


def notes_html(results: Sequence[Result]) -> str:
    """List what was assumed about the trace, each note once."""
    notes = dict.fromkeys(str(note) for result in results for note in result.settings.get("trace_notes") or ())
    return f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>" if notes else ""


def meanings_html() -> str:
    """Explain every column, for readers without a pointer to hover with."""
    return "".join(f"<dt>{escape(column.label)}</dt><dd>{escape(column.explanation)}</dd>" for column in COLUMNS)


def skipped_html(results: Sequence[Result]) -> str:
    """Count the jobs skipped, or not finished, by reason and run, with a few examples."""
    names = labels(results)
    rows: dict[tuple[str, str], dict[str, str]] = {}
    examples: dict[tuple[str, str], list[str]] = {}
    for result, name in zip(results, names, strict=True):
        reasons = (
            result.jobs.filter(pl.col("status") != "done")
            .group_by(pl.col("status").cast(pl.String), pl.col("reason").cast(pl.String).fill_null(""))
            .agg(pl.len(), pl.col("job_id").cast(pl.String).sort().head(EXAMPLES))
            .sort("status", "reason")
        )
        for status, reason, count, ids in reasons.iter_rows():
            rows.setdefault((status, reason), {})[name] = f"{count:,}"
            examples.setdefault((status, reason), ids)
    if not rows:
        return "<p>None: every job of the trace ran to its end under every policy.</p>"
    head = ["status", "reason", *(escape(name) for name in names), "for example"]
    body = [
        [
            escape(status),
            escape(reason) or "no reason was recorded",
            *(counts.get(name, "0") for name in names),
            ", ".join(f"<code>{escape(job)}</code>" for job in examples[status, reason]),
        ]
        for (status, reason), counts in sorted(rows.items())
    ]
    return html_table(head, body, kind="plain numbers")


def _plain(value: object) -> str:
    """Write a setting's value; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(entry)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(entry) for entry in value)
    return str(value)
