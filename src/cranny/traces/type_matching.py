"""The types of GPU that jobs ask for, under the names that the cluster has for them."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import polars as pl

from cranny.model.errors import InputError
from cranny.model.validate import counted
from cranny.traces.gpu_types import closest, matching, parse
from cranny.traces.presence import presence_of
from cranny.traces.trace import Trace

SKIPPED = "gpu_type: not in the cluster"
_NAMED = 3  # unknown types that a message names at most
_LISTED = 8  # types of the cluster


def with_types_of(trace: Trace, known: Collection[str], *, skip_unknown: bool = False) -> Trace:
    """Return a trace whose jobs ask for types by the names in `known`, matched without case and by alias.

    A type that matches none, or several, is an error; with `skip_unknown` its jobs are skipped and counted. If
    nothing is known, what jobs ask for is ignored.
    """
    columns = [name for name in ("gpu_type", "speeds") if name in trace.frame.columns]
    columns = [name for name in columns if trace.frame[name].count() > 0]
    named = sorted(filter(None, known))  # a machine's type may be empty
    if not columns:
        return trace
    if not named:
        note = "the cluster names no types of GPU: those that jobs ask for are ignored"
        return replace(trace, frame=trace.frame.drop(columns), notes=(*trace.notes, note))
    frame, unknown, renamed = trace.frame, pl.Series("unknown", [False]).new_from_index(0, len(trace)), {}
    problems: list[str] = []
    for column in columns:
        asked = frame[column].value_counts(sort=True).drop_nulls()
        jobs_with = dict(zip(asked[column], asked["count"], strict=True))
        becomes = {text: (_speeds if column == "speeds" else _single)(text, named) for text in jobs_with}
        lost = [text for text, name in becomes.items() if name is None]
        problems += [f"{_problem(text, column, named)} ({counted(jobs_with[text], 'job')})" for text in lost]
        unknown |= frame[column].is_in(lost).fill_null(value=False)
        changed = {text: name for text, name in becomes.items() if name not in (None, text)}
        if changed:
            frame = frame.with_columns(pl.col(column).replace(changed))
            if column == "gpu_type":
                renamed = {f"{text} -> {name}": jobs_with[text] for text, name in changed.items()}
    if problems and not skip_unknown:
        raise InputError(f"{trace.name}: {_error(problems)}")
    if unknown.all():
        raise InputError(f"{trace.name}: no job asks for a type of the cluster: {_some(problems)}")
    notes = [_note(renamed)] if renamed else []
    if not problems:
        return replace(trace, frame=frame, notes=(*trace.notes, *notes)) if frame is not trace.frame else trace
    notes.append(f"{counted(int(unknown.sum()), 'job')} skipped for their type of GPU: {_some(problems)}")
    skipped = {**trace.skipped, SKIPPED: trace.skipped.get(SKIPPED, 0) + int(unknown.sum())}
    presence = pl.concat([trace.presence, presence_of(frame.filter(unknown))])
    return replace(
        trace, frame=frame.filter(~unknown), notes=(*trace.notes, *notes), skipped=skipped, presence=presence
    )


def _single(asked: str, known: Collection[str]) -> str | None:
    """Return the cluster's name for a type; None if none matches, or several do."""
    found = matching(asked, known)
    return found[0] if len(found) == 1 else None


def _speeds(asked: str, known: Collection[str]) -> str | None:
    """Return speeds on types, T4=0.43 V100=1, with the cluster's names; None if it has none of the types."""
    pairs = [each.partition("=") for each in asked.split()]
    names = [_single(kind, known) for kind, _, _ in pairs]
    if not any(names):
        return None
    renamed: dict[str, str] = {}  # of two that are one type for the cluster the first counts
    for (kind, _, speed), name in zip(pairs, names, strict=True):
        renamed.setdefault(name or kind, speed)
    return " ".join(f"{name}={speed}" for name, speed in renamed.items())


def _problem(asked: str, column: str, known: Collection[str]) -> str:
    """Say why a type has no name in the cluster."""
    found = matching(asked, known) if column == "gpu_type" else []
    if found:
        return f"{asked!r} can be {' or '.join(map(repr, found))}"
    near = closest(asked, known) if column == "gpu_type" else None
    if near is not None and (parse(near).model == parse(asked).model or len(known) > _LISTED):
        return f"{asked!r} is not in the cluster, did you mean {near!r}?"
    # A type that is only written alike, V100 for H100, is no help where all can be named.
    return f"{asked!r} is not in the cluster" + (
        f", which has {', '.join(known)}" if len(known) <= _LISTED else ""
    )


def _error(problems: list[str]) -> str:
    """Say what is wrong with types that have no name in the cluster, and what to do."""
    advice = "mend the cluster file, or skip such jobs: --skip-unknown-types (in Python skip_unknown_types=True)"
    return f"gpu_type: {_some(problems)}; {advice}"


def _some(problems: list[str]) -> str:
    """Name the first of some problems, which most jobs have."""
    more = len(problems) - _NAMED
    return ", ".join(problems[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _note(renamed: Mapping[str, int]) -> str:
    """Say which types were found under other names."""
    pairs = [f"{pair} ({counted(jobs, 'job')})" for pair, jobs in renamed.items()]
    return f"types of GPU under the cluster's names: {_some(pairs)}"
