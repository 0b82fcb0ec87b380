"""The columns of a trace, and the checks that every reader's table goes through.

A reader first casts its table with `typed`, which loses nothing but what is wrong, then calls `checked`. Only
when something is wrong does anyone go back to the file, to show the value and the line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import polars as pl

from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError, unknown
from cranny.model.job import MAX_GPUS
from cranny.model.profile import ModelProfile

REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
TEXTS = ("model", "collective", "tenant", "gpu_type")
COUNTS = ("tp", "pp")
SCHEMA: Mapping[str, pl.DataType] = {
    "job_id": pl.String(),
    "submit_s": pl.Float64(),
    "gpus": pl.Int32(),
    "duration_s": pl.Float64(),
    **{name: pl.String() for name in TEXTS},
    **{name: pl.Int32() for name in COUNTS},
}
COLUMN_ALIASES: Mapping[str, str] = {"vc": "tenant"}
MODEL_ALIASES: Mapping[str, str] = {"bert": "bert-base"}
# Published tables with this column (ElasticFlow, Muri) carry models that their authors drew at random.
DRAWN_MODELS_COLUMN = "iterations"

_BLANK = "(blank line)"
_CPU_ONLY = "CPU-only (gpus 0)"
_REPEATED = "job_id: repeated"
_SECONDS = "must be a number of seconds, zero or more"
_SHOWN = 60  # characters of a wrong value that an error shows


@dataclass(frozen=True, slots=True)
class Found:
    """One row of a file as it stands there."""

    line: str  # "line 17" or "row 17"
    spot: str  # the same with the file, as compilers write it
    values: Mapping[str, object]  # by column name, before any cast


class Origin(Protocol):
    """Where a table came from."""

    @property
    def file(self) -> str:
        """Name of the file in messages."""

    def find(self, row: int) -> Found:
        """Go back to the file for a row, counted from 0."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A table that holds only sound rows, and what was noticed on the way."""

    frame: pl.DataFrame
    notes: tuple[str, ...]
    left_out: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a field must be, and the rows that break it."""

    field: str
    must: str
    broken: pl.Expr

    @property
    def reason(self) -> str:
        """Why a row is left out."""
        return f"{self.field}: {self.must}"


def typed(schema: Mapping[str, pl.DataType], file: str) -> list[pl.Expr]:
    """Return the expressions that turn a raw table into our columns; what cannot be cast becomes null."""
    raw = {name.strip(): name for name in schema}
    for alias, name in COLUMN_ALIASES.items():
        if name not in raw and alias in raw:
            raw = {name if column == alias else column: source for column, source in raw.items()}
    missing = [name for name in REQUIRED if name not in raw]
    if missing:
        found = ", ".join(name if name.isprintable() else repr(name) for name in raw)
        found = found if len(found) <= 300 else found[:300] + "..."
        raise InputError(
            f"{file}: missing column{'s' * (len(missing) > 1)} {', '.join(missing)}; found: {found or 'none'}"
        )
    exprs = [_cast(raw[name], schema[raw[name]], name, file) for name in SCHEMA if name in raw]
    extras = [pl.col(source).alias(name) for name, source in raw.items() if name not in SCHEMA]
    blank = pl.all_horizontal(pl.col(source).is_null() for source in raw.values()).alias(_BLANK)
    return [*exprs, *extras, blank]


def _cast(source: str, dtype: pl.DataType, name: str, file: str) -> pl.Expr:
    """Cast one column; numbers stay floats until they are checked, so that 2.5 GPUs are seen."""
    column = pl.col(source)
    text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Null)
    if name == "job_id" or name in TEXTS:
        if not text and not dtype.is_numeric():
            raise InputError(f"{file}: {name}: the column must hold text, not {dtype}")
        value = column.cast(pl.String)
        if name in TEXTS:  # nothing and an empty field are the same
            value = value.str.strip_chars()
            value = pl.when(value != "").then(value)
        return value.alias(name)
    if not text and not dtype.is_numeric():
        raise InputError(f"{file}: {name}: the column must hold numbers, not {dtype}")
    value = column.cast(pl.String).str.strip_chars() if text else column
    number = value.cast(pl.Float64, strict=False)
    if name in COUNTS:  # may be empty, but not wrong
        empty = value.is_null() | (value == "") if text else value.is_null()
        number = pl.when(empty.not_()).then(number.fill_null(-1.0))
    return number.alias(name)


def checked(
    frame: pl.DataFrame, origin: Origin, profiles: Mapping[str, ModelProfile], *, skip_bad_rows: bool = False
) -> Checked:
    """Check the rows of a `typed` table; raise on the first bad one, or leave all bad ones out."""
    frame, notes = _models(frame, profiles)
    rules = _rules(frame.columns, profiles)
    masks = frame.select(
        pl.col(_BLANK),
        (pl.col("gpus") == 0).fill_null(value=False).alias(_CPU_ONLY),
        *(rule.broken.fill_null(value=True).alias(rule.reason) for rule in rules),
    )
    if not skip_bad_rows:
        _raise_first(masks, rules, origin, profiles)

    # A row counts under the first reason that fits it. Rows for CPUs are none of ours, whatever they hold.
    left_out: dict[str, int] = {}
    keep = ~masks[_BLANK]
    for reason in masks.columns[1:]:
        count = int((masks[reason] & keep).sum())
        if count:
            left_out[reason] = count
            keep &= ~masks[reason]
    frame = frame.drop(_BLANK)
    repeated = _repeated(frame["job_id"], keep)
    if repeated is not None:
        if not skip_bad_rows:
            _raise_repeated(frame["job_id"], repeated, keep, origin)
        left_out[_REPEATED] = int(repeated.sum())
        keep &= ~repeated
    if not keep.any():
        why = "; ".join(f"{count} rows left out: {reason}" for reason, count in left_out.items())
        raise InputError(f"{origin.file}: no jobs" + (f" ({why})" if why else ""))
    if not keep.all():
        frame = frame.filter(keep)
    frame = frame.with_columns(pl.col(name).cast(SCHEMA[name]) for name in ("gpus", *COUNTS) if name in frame)
    return Checked(frame, notes, left_out)


def _models(frame: pl.DataFrame, profiles: Mapping[str, ModelProfile]) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Put our names for models; forget drawn models that have no profile, and say so."""
    if "model" not in frame.columns:
        return frame, ()
    aliases = {alias: name for alias, name in MODEL_ALIASES.items() if alias not in profiles}
    frame = frame.with_columns(pl.col("model").replace(aliases))
    if DRAWN_MODELS_COLUMN not in frame.columns:
        return frame, ()
    counts = frame["model"].drop_nulls().value_counts(sort=True)
    foreign = {name: count for name, count in counts.rows() if name not in profiles}
    if not foreign:
        return frame, ()
    frame = frame.with_columns(pl.when(pl.col("model").is_in(list(profiles))).then(pl.col("model")))
    named = ", ".join(f"{name} {count}" for name, count in sorted(foreign.items()))
    note = (
        f"models in this table were drawn by its authors, not observed; {sum(foreign.values())} jobs "
        f"name one without a profile ({named}) and get another drawn"
    )
    return frame, (note,)


def _rules(columns: list[str], profiles: Mapping[str, ModelProfile]) -> list[_Rule]:
    """Return the rules for the columns at hand; a null verdict counts as broken."""

    def whole(name: str, most: int) -> pl.Expr:
        """Find what is no whole number from 0 to `most`."""
        number = pl.col(name)
        return ~(number.is_finite() & (number >= 0) & (number <= most) & (number == number.floor()))

    def seconds(name: str) -> pl.Expr:
        """Find what is no time."""
        return ~(pl.col(name).is_finite() & (pl.col(name) >= 0))

    rules = [
        _Rule("job_id", "must not be empty", pl.col("job_id") == ""),
        _Rule("submit_s", _SECONDS, seconds("submit_s")),
        _Rule("gpus", f"must be a whole number from 1 to {MAX_GPUS}, or 0 for CPU-only", whole("gpus", MAX_GPUS)),
        _Rule("duration_s", _SECONDS, seconds("duration_s")),
    ]
    groups = pl.lit(1.0)
    for name in COUNTS:
        if name in columns:
            given = pl.col(name).is_not_null()
            wrong = given & (whole(name, MAX_GPUS) | (pl.col(name) < 1)).fill_null(value=True)
            rules.append(_Rule(name, f"must be a whole number from 1 to {MAX_GPUS}", wrong))
            groups = groups * pl.col(name).fill_null(1.0)
            uneven = (pl.col("gpus") % groups != 0).fill_null(value=False)
            rules.append(_Rule(name, "times tp must divide gpus" if name == "pp" else "must divide gpus", uneven))
    for name, known in (("model", list(profiles)), ("collective", list(COLLECTIVES))):
        if name in columns:
            foreign = pl.col(name).is_not_null() & ~pl.col(name).is_in(known).fill_null(value=True)
            rules.append(_Rule(name, "must be known", foreign))
    return rules


def _raise_first(
    masks: pl.DataFrame, rules: list[_Rule], origin: Origin, profiles: Mapping[str, ModelProfile]
) -> None:
    """Raise the error of the first bad row, if there is one."""
    ours = ~(masks[_BLANK] | masks[_CPU_ONLY])
    broken = [(masks[rule.reason] & ours).arg_true() for rule in rules]
    first = [(rows[0], order) for order, rows in enumerate(broken) if len(rows)]
    if not first:
        return
    row, order = min(first)
    rule = rules[order]
    found = origin.find(row)
    value = found.values.get(rule.field)
    spot = f"{found.spot}: {rule.field}"
    if rule.must == "must be known":
        known = profiles if rule.field == "model" else COLLECTIVES
        raise InputError(f"{spot}: {unknown(rule.field, str(value)[:_SHOWN], known)}")
    if value is None or value == "":
        raise InputError(f"{spot}: {rule.must}, but is empty")
    raise InputError(f"{spot}: {rule.must}, not {_shown(value)}")


def _shown(value: object) -> str:
    """Return a value as Python writes it, cut to what fits on a line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _repeated(ids: pl.Series, keep: pl.Series) -> pl.Series | None:
    """Return which kept rows repeat an earlier kept id, (rows,), or None if none does."""
    kept = ids if keep.all() else ids.filter(keep)
    # Distinct hashes mean distinct ids, and take far less memory than a table of ten million strings.
    if not bool(kept.hash().is_duplicated().any()) or not bool(kept.is_duplicated().any()):
        return None
    once = kept.is_first_distinct()
    rows = keep.arg_true().filter(~once)
    return pl.int_range(len(ids), dtype=pl.UInt32, eager=True).is_in(rows.implode())


def _raise_repeated(ids: pl.Series, repeated: pl.Series, keep: pl.Series, origin: Origin) -> None:
    """Raise the error of the first repeated id."""
    again = repeated.arg_true()[0]
    first = ((ids == ids[again]) & keep).arg_true()[0]
    where = f"{_shown(ids[again])} is also in {origin.find(first).line}"
    raise InputError(f"{origin.find(again).spot}: job_id: must be unique, but {where}")
