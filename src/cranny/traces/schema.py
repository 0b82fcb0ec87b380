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
    "eligible_s": pl.Float64(),  # when a scheduler could first have started it; waits count from here
    "limit_s": pl.Float64(),  # running time that was asked for
    "deadline_s": pl.Float64(),
    "attempts": pl.Int32(),
    "machines": pl.Int32(),
    "batch_size": pl.Int32(),
    "iterations": pl.Int64(),
    "attempt": pl.Int32(),  # which start of a requeued job this row is, from 1
    "gpu_fraction": pl.Float64(),  # of a GPU that each of `gpus` is, for MIG instances and shards
    "gpu_utilisation": pl.Float64(),  # share of the time in which its GPUs were busy, 0 to 1
    "priority": pl.Float64(),  # the scheduler's own number, higher first
    "ran_on": pl.String(),  # machines with GPUs held on each, such as "n1:4 n2:4", or "n1 n2" if unknown
    "user": pl.String(),
    "account": pl.String(),
    "partition": pl.String(),  # whose machines the job is bound to
    "queue": pl.String(),  # in which it waited, if that binds it to no machines, as in Kubernetes
    "qos": pl.String(),
    "reservation": pl.String(),
    "status": pl.String(),
    "cluster": pl.String(),
    "counted": pl.Boolean(),  # whether its wait is in the means; not that of a job there when a window begins
    "running": pl.Boolean(),  # whether it ran when a window began; then `start_s` is the begin
}
CLOCKED = ("submit_s", "start_s", "end_s", "eligible_s", "deadline_s")  # what counts from time zero
COLUMN_ALIASES: Mapping[str, str] = {"vc": "tenant", "nodes": "machines"}
MODEL_ALIASES: Mapping[str, str] = {"bert": "bert-base"}
# Published tables with this column (ElasticFlow, Muri) carry models that their authors drew at random.
DRAWN_MODELS_COLUMN = "iterations"

TIME_ZERO = "time zero is "  # so begins the note that says when it was
BLANK = "(blank line)"
_REPEATED = "job_id: repeated"
_SECONDS = "must be a number of seconds, zero or more"
_WHOLE = f"must be a whole number from 1 to {MAX_GPUS}"
_KNOWN = "must be known"
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


def _of(name: str, wrong: pl.Expr) -> pl.Expr:
    """Find rows with a wrong value in a column that may be empty."""
    return pl.col(name).is_not_null() & wrong.fill_null(value=True)


def _no_time(name: str) -> pl.Expr:
    return ~(pl.col(name).is_finite() & (pl.col(name) >= 0))


def _not_whole(name: str, least: int) -> pl.Expr:
    number = pl.col(name)
    return ~(number.is_finite() & number.is_between(least, MAX_GPUS) & (number == number.floor()))


def _false_if_null(broken: pl.Expr) -> pl.Expr:
    return broken.fill_null(value=False)


# Rows for CPUs are none of ours, whatever else they hold.
CPU_ONLY = RowRule("gpus", "CPU-only (gpus 0)", _false_if_null(pl.col("gpus") == 0), of_value=False, error=False)
_GROUPS = pl.col("tp").fill_null(1.0) * pl.col("pp").fill_null(1.0)
_PARTED = "only jobs without tp and pp can be resized"
# What holds for the columns of every trace, where they are there; a null verdict counts as broken.
RULES = (
    RowRule("job_id", "must not be empty", pl.col("job_id") == ""),
    RowRule("submit_s", _SECONDS, _no_time("submit_s")),
    RowRule("gpus", f"must be a whole number from 1 to {MAX_GPUS}, or 0 for CPU-only", _not_whole("gpus", 0)),
    RowRule("duration_s", _SECONDS, _no_time("duration_s")),
    RowRule("tp", _WHOLE, _of("tp", _not_whole("tp", 1))),
    RowRule("tp", "must divide gpus", _false_if_null(pl.col("gpus") % pl.col("tp").fill_null(1.0) != 0)),
    RowRule("pp", _WHOLE, _of("pp", _not_whole("pp", 1))),
    RowRule("pp", "times tp must divide gpus", _false_if_null(pl.col("gpus") % _GROUPS != 0)),
    RowRule("least_gpus", _WHOLE, _of("least_gpus", _not_whole("least_gpus", 1))),
    RowRule("most_gpus", _WHOLE, _of("most_gpus", _not_whole("most_gpus", 1))),
    RowRule("least_gpus", "must be at most gpus", _false_if_null(pl.col("least_gpus") > pl.col("gpus"))),
    RowRule("least_gpus", _PARTED, _of("least_gpus", _GROUPS > 1), of_value=False),
    RowRule("most_gpus", "must be at least gpus", _false_if_null(pl.col("most_gpus") < pl.col("gpus"))),
    RowRule("most_gpus", _PARTED, _of("most_gpus", _GROUPS > 1), of_value=False),
    RowRule("restart_s", _SECONDS, _of("restart_s", _no_time("restart_s"))),
    RowRule("speeds", "must be like T4=0.43 V100=1", _false_if_null(~pl.col("speeds").str.contains(SPEEDS))),
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
    if LOGGED.get(name) == pl.Boolean():
        said = column.cast(pl.String).str.strip_chars().str.to_lowercase()
        return said.replace_strict({"true": True, "false": False}, default=None, return_dtype=pl.Boolean).alias(
            name
        )
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
    # What is missing of tp and pp is 1 for every job.
    lacks = [name for name in DEGREES if name not in frame.columns]
    whole = frame.with_columns(pl.lit(None, pl.Float64).alias(name) for name in lacks if len(lacks) == 1)
    names = {"model": list(profiles), "collective": list(COLLECTIVES)}
    every = [*RULES, *(RowRule(name, _KNOWN, _of(name, ~pl.col(name).is_in(names[name]))) for name in names)]
    rules = [*rules, *(rule for rule in every if {*whole.columns}.issuperset(rule.broken.meta.root_names()))]
    masks = whole.select(rule.broken.fill_null(value=True).alias(str(k)) for k, rule in enumerate(rules))
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
        example = f"; {_error(first[1], find(first[0]), profiles)}" if first is not None else ""
        raise InputError(f"{file}: no jobs" + (f" ({why}){example}" if why else ""))
    if not keep.all():
        frame = frame.filter(keep)
    frame = frame.with_columns(pl.col(name).cast(SCHEMA[name]) for name in ("gpus", *COUNTS) if name in frame)
    frame, lost = _logged(frame)
    return frame, (*notes, *lost), skipped


def _logged(frame: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Give the further columns of a log their types; a value that is no such number is emptied, with a note."""
    notes = []
    for name, dtype in LOGGED.items():
        if name not in frame.columns or not dtype.is_numeric():
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


def _error(rule: RowRule, found: SourceRow, profiles: Mapping[str, ModelProfile]) -> InputError:
    """Return the error of a row that breaks a rule."""
    name = found.called.get(rule.field, rule.field)
    value = found.values.get(name)
    spot = f"{found.spot}: {name}"
    if not rule.of_value:
        return InputError(f"{spot}: {rule.text}")
    if rule.text == _KNOWN:
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
