"""The columns of a trace, and the checks that every reader's table goes through.

A reader first casts its table with `typed`, which loses nothing but what is wrong, then calls `checked`. Only
when something is wrong does anyone go back to the file, to show the value and the line.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from cranny.model.collective import COLLECTIVES
from cranny.model.errors import InputError, unknown
from cranny.model.job import MAX_GPUS
from cranny.model.profile import ModelProfile

REQUIRED = ("job_id", "submit_s", "gpus", "duration_s")
TEXTS = ("model", "collective", "tenant", "gpu_type", "speeds")
DEGREES = ("tp", "pp")
COUNTS = (*DEGREES, "least_gpus", "most_gpus")
# GPU types and how fast a job is on them, such as T4=0.43 V100=1.
SPEEDS = r"^[^\s=]+=[0-9.eE+-]+(\s+[^\s=]+=[0-9.eE+-]+)*$"
SCHEMA: Mapping[str, pl.DataType] = {
    "job_id": pl.String(),
    "submit_s": pl.Float64(),
    "gpus": pl.Int32(),
    "duration_s": pl.Float64(),
    **{name: pl.String() for name in TEXTS},
    **{name: pl.Int32() for name in COUNTS},
    "restart_s": pl.Float64(),
}
# Further columns of a log; a policy uses none of them.
LOGGED: Mapping[str, pl.DataType] = {
    "start_s": pl.Float64(),  # when the job really started, on the clock of submit_s
    "end_s": pl.Float64(),
    "limit_s": pl.Float64(),  # running time that was asked for
    "deadline_s": pl.Float64(),
    "attempts": pl.Int32(),
    "machines": pl.Int32(),
    "batch_size": pl.Int32(),
    "iterations": pl.Int64(),
    "user": pl.String(),
    "status": pl.String(),
    "cluster": pl.String(),
}
CLOCKED = ("submit_s", "start_s", "end_s", "deadline_s")  # what counts from time zero
COLUMN_ALIASES: Mapping[str, str] = {"vc": "tenant", "nodes": "machines"}
MODEL_ALIASES: Mapping[str, str] = {"bert": "bert-base"}
# Published tables with this column (ElasticFlow, Muri) carry models that their authors drew at random.
DRAWN_MODELS_COLUMN = "iterations"

BLANK = "(blank line)"
_REPEATED = "job_id: repeated"
_SECONDS = "must be a number of seconds, zero or more"
_WHOLE = f"must be a whole number from 1 to {MAX_GPUS}"
_SHOWN = 60  # characters of a wrong value that an error shows


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a file as it stands there."""

    line: str  # "line 17" or "row 17"
    spot: str  # the same with the file, as compilers write it
    values: Mapping[str, object]  # by column name, before any cast
    called: Mapping[str, str] = field(default_factory=dict)  # the file's names for our columns, where they differ


Find = Callable[[int], SourceRow]  # goes back to the file for a row, counted from 0


def table_row(file: str, scan: pl.LazyFrame, row: int) -> SourceRow:
    """Read one row of a table again; rows count from 1 in messages."""
    line = f"row {row + 1}"
    values = scan.slice(row, 1).collect().row(0, named=True)
    return SourceRow(line, f"{file}: {line}", {name.strip(): value for name, value in values.items()})


@dataclass(frozen=True, slots=True)
class RowRule:
    """What a row must hold, and the rows that break it."""

    field: str
    text: str
    broken: pl.Expr
    of_value: bool = True  # about the field's value, which errors then show; otherwise the text says it all
    error: bool = True  # otherwise such rows are none of ours, and are counted even where bad rows are refused

    @property
    def reason(self) -> str:
        """Why a row is skipped."""
        return f"{self.field}: {self.text}" if self.of_value else self.text


# Rows for CPUs are none of ours, whatever else they hold.
CPU_ONLY = RowRule(
    "gpus", "CPU-only (gpus 0)", (pl.col("gpus") == 0).fill_null(value=False), of_value=False, error=False
)


def missing(file: str, needed: Iterable[str], found: Sequence[str]) -> None:
    """Raise if a table lacks columns, and name those it has."""
    lacks = [name for name in needed if name not in found]
    if lacks:
        names = ", ".join(name if name.isprintable() else repr(name) for name in found)
        names = names if len(names) <= 300 else names[:300] + "..."
        raise InputError(
            f"{file}: missing column{'s' * (len(lacks) > 1)} {', '.join(lacks)}; found: {names or 'none'}"
        )


def typed(schema: Mapping[str, pl.DataType], file: str) -> list[pl.Expr]:
    """Return the expressions that turn a raw table into our columns; what cannot be cast becomes null."""
    raw = {name.strip(): name for name in schema}
    for alias, name in COLUMN_ALIASES.items():
        if name not in raw and alias in raw:
            raw = {name if column == alias else column: source for column, source in raw.items()}
    missing(file, REQUIRED, list(raw))
    known = [name for name in (*SCHEMA, *LOGGED) if name in raw]
    exprs = [_cast(raw[name], schema[raw[name]], name, file) for name in known]
    extras = [pl.col(source).alias(name) for name, source in raw.items() if name not in known]
    blank = pl.all_horizontal(pl.col(source).is_null() for source in raw.values()).alias(BLANK)
    return [*exprs, *extras, blank]


def _cast(source: str, dtype: pl.DataType, name: str, file: str) -> pl.Expr:
    """Cast one column; numbers stay floats until they are checked, so that 2.5 GPUs are seen."""
    column = pl.col(source)
    text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Null)
    words = name in TEXTS or LOGGED.get(name) == pl.String()
    if name == "job_id" or words:
        if not text and not dtype.is_numeric():
            raise InputError(f"{file}: {name}: the column must hold text, not {dtype}")
        value = column.cast(pl.String)
        if words:  # nothing and an empty field are the same
            value = value.str.strip_chars()
            value = pl.when(value != "").then(value)
        return value.alias(name)
    if not text and not dtype.is_numeric():
        raise InputError(f"{file}: {name}: the column must hold numbers, not {dtype}")
    value = column.cast(pl.String).str.strip_chars() if text else column
    number = value.cast(pl.Float64, strict=False)
    if name in (*COUNTS, "restart_s"):  # may be empty, but not wrong
        empty = value.is_null() | (value == "") if text else value.is_null()
        number = pl.when(empty.not_()).then(number.fill_null(-1.0))
    elif name in LOGGED:
        # Infinity marks what is wrong, not just absent.
        number = pl.when(value != "").then(number.fill_null(math.inf)) if text else number.fill_nan(None)
    return number.alias(name)


def checked(
    frame: pl.DataFrame,
    file: str,
    find: Find,
    profiles: Mapping[str, ModelProfile],
    *,
    strict: bool = True,
    rules: Sequence[RowRule] = (CPU_ONLY,),
) -> tuple[pl.DataFrame, tuple[str, ...], dict[str, int]]:
    """Check the rows of a table; raise on the first bad one, or with `strict` false leave all bad ones out.

    `rules` come before those that hold for every trace. A row counts under the first rule that it breaks.
    Returns a table that holds only sound rows, notes, and how many rows were skipped for each reason.
    """
    frame, notes = _models(frame, profiles)
    rules = [*rules, *_rules(frame.columns, profiles)]
    masks = frame.select(rule.broken.fill_null(value=True).alias(str(k)) for k, rule in enumerate(rules))
    keep = ~frame[BLANK] if BLANK in frame.columns else pl.repeat(value=True, n=frame.height, eager=True)
    skipped: dict[str, int] = {}
    first: tuple[int, RowRule] | None = None
    for broken, rule in zip(masks, rules, strict=True):
        hit = broken & keep
        count = int(hit.sum())
        if count:
            skipped[rule.reason] = skipped.get(rule.reason, 0) + count
            keep &= ~hit
            if rule.error and (first is None or hit.arg_true()[0] < first[0]):
                first = hit.arg_true()[0], rule
    if strict and first is not None:
        raise _error(first[1], find(first[0]), profiles)
    frame = frame.drop(BLANK, strict=False)
    repeated = _repeated(frame["job_id"], keep)
    if repeated is not None:
        if strict:
            ids, again = frame["job_id"], repeated.arg_true()[0]
            where = find(((ids == ids[again]) & keep).arg_true()[0]).line
            problem = f"must be unique, but {_shown(ids[again])} is also in {where}"
            raise InputError(f"{find(again).spot}: job_id: {problem}")
        skipped[_REPEATED] = int(repeated.sum())
        keep &= ~repeated
    if not keep.any():
        why = "; ".join(f"{count} rows skipped: {reason}" for reason, count in skipped.items())
        raise InputError(f"{file}: no jobs" + (f" ({why})" if why else ""))
    if not keep.all():
        frame = frame.filter(keep)
    frame = frame.with_columns(pl.col(name).cast(SCHEMA[name]) for name in ("gpus", *COUNTS) if name in frame)
    frame, lost = _logged(frame)
    return frame, (*notes, *lost), skipped


def _logged(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Give the further columns of a log their types; a value that is no such number is emptied, with a note."""
    notes = []
    for name, dtype in LOGGED.items():
        if name not in frame.columns or dtype == pl.String():
            continue
        given = frame[name].cast(pl.Float64).fill_nan(None)
        fits = given.is_finite()
        if dtype.is_integer():
            most = float(2**31 - 1 if dtype == pl.Int32() else 2**53)
            fits &= (given == given.floor()) & (given.abs() <= most)
        wrong = int((~fits).sum())
        if wrong:
            given = pl.select(pl.when(fits).then(given)).to_series()
            kind = "whole numbers" if dtype.is_integer() else "numbers"
            notes.append(f"{name}: {wrong} values are no {kind} and were left empty")
        frame = frame.with_columns(given.cast(dtype).alias(name))
    return frame, tuple(notes)


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


def _rules(columns: list[str], profiles: Mapping[str, ModelProfile]) -> list[RowRule]:
    """Return the rules for the columns at hand; a null verdict counts as broken."""

    def whole(name: str, most: int) -> pl.Expr:
        """Find what is no whole number from 0 to `most`."""
        number = pl.col(name)
        return ~(number.is_finite() & (number >= 0) & (number <= most) & (number == number.floor()))

    def seconds(name: str) -> pl.Expr:
        """Find what is no time."""
        return ~(pl.col(name).is_finite() & (pl.col(name) >= 0))

    rules = [
        RowRule("job_id", "must not be empty", pl.col("job_id") == ""),
        RowRule("submit_s", _SECONDS, seconds("submit_s")),
        RowRule(
            "gpus", f"must be a whole number from 1 to {MAX_GPUS}, or 0 for CPU-only", whole("gpus", MAX_GPUS)
        ),
        RowRule("duration_s", _SECONDS, seconds("duration_s")),
    ]
    groups = pl.lit(1.0)
    for name in COUNTS:
        if name in columns:
            given = pl.col(name).is_not_null()
            wrong = given & (whole(name, MAX_GPUS) | (pl.col(name) < 1)).fill_null(value=True)
            rules.append(RowRule(name, _WHOLE, wrong))
        if name in columns and name in DEGREES:
            groups = groups * pl.col(name).fill_null(1.0)
            uneven = (pl.col("gpus") % groups != 0).fill_null(value=False)
            rules.append(
                RowRule(name, "times tp must divide gpus" if name == "pp" else "must divide gpus", uneven)
            )
    rules += _elastic_rules(columns, groups)
    for name, known in (("model", list(profiles)), ("collective", list(COLLECTIVES))):
        if name in columns:
            foreign = pl.col(name).is_not_null() & ~pl.col(name).is_in(known).fill_null(value=True)
            rules.append(RowRule(name, "must be known", foreign))
    return rules


def _elastic_rules(columns: list[str], groups: pl.Expr) -> list[RowRule]:
    """Return the rules for jobs that can be resized; `groups` is the product of their degrees."""
    rules = []
    for name, beyond, text in (
        ("least_gpus", pl.col("least_gpus") > pl.col("gpus"), "must be at most gpus"),
        ("most_gpus", pl.col("most_gpus") < pl.col("gpus"), "must be at least gpus"),
    ):
        if name in columns:
            rules.append(RowRule(name, text, beyond.fill_null(value=False)))
            parted = (pl.col(name).is_not_null() & (groups > 1)).fill_null(value=False)
            rules.append(RowRule(name, "only jobs without tp and pp can be resized", parted, of_value=False))
    if "restart_s" in columns:
        number = pl.col("restart_s")
        wrong = number.is_not_null() & ~(number.is_finite() & (number >= 0))
        rules.append(RowRule("restart_s", _SECONDS, wrong.fill_null(value=False)))
    if "speeds" in columns:
        wrong = ~pl.col("speeds").str.contains(SPEEDS)
        rules.append(RowRule("speeds", "must be like T4=0.43 V100=1", wrong.fill_null(value=False)))
    return rules


def _error(rule: RowRule, found: SourceRow, profiles: Mapping[str, ModelProfile]) -> InputError:
    """Return the error of a row that breaks a rule."""
    name = found.called.get(rule.field, rule.field)
    value = found.values.get(name)
    spot = f"{found.spot}: {name}"
    if not rule.of_value:
        return InputError(f"{spot}: {rule.text}")
    if rule.text == "must be known":
        known = profiles if rule.field == "model" else COLLECTIVES
        return InputError(f"{spot}: {unknown(rule.field, str(value)[:_SHOWN], known)}")
    if value is None or value == "":
        return InputError(f"{spot}: {rule.text}, but is empty")
    return InputError(f"{spot}: {rule.text}, not {_shown(value)}")


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
