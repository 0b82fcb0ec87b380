"""What Slurm's accounting says in several rows at once, or in words of its own.

- A requeued job has a row for each attempt (`sacct -D`): they become `123`, `123@2` and so on. Each is submitted
  when it was queued again, at the earliest when the attempt before had ended.
- The parts of a heterogeneous job (`123+0`, `123+1`) start together: they become one job with all their GPUs.
- MIG instances and shards are parts of GPUs.
- Where clocks are set back, a time has two readings: the one that fits the rest of the row is taken.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from cranny.model.errors import InputError
from cranny.model.hostlist import expand
from cranny.model.job import MAX_GPUS
from cranny.model.validate import counted
from cranny.traces.gpu_types import part_of_gpu, without_part
from cranny.traces.schema import RowRule

LATER = "(later) "  # before the name of a column: its times as they are read with the offset after a change
PARTS = "(parts)"  # the TRES or GRES of a row that names parts of GPUs
REPEAT = "(repeat)"
STEP = pl.col("job_id").str.contains(".", literal=True).fill_null(value=False)
REPEATED = RowRule(
    "job_id", "repeated: another row has the same attempt", pl.col(REPEAT), of_value=False, error=False
)
HETEROGENEOUS = "a further part of a heterogeneous job, which counts with the first"
LEAST_SHARDS = 2  # of a GPU that is shared at all
_PART_ID = r"^(.*\d)\+\d+(@\d+)?$"
_ROW = "(number)"
_GPUS = re.compile(r"gpu:([^:=,(]+)[:=](\d+)")
_TOTAL = re.compile(r"gres/gpu=(\d+)")
_SHARDS = re.compile(r"(?:gres/shard=|(?:^|,)shard:(?:[^:,]+:)?)(\d+)")


def once(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[str]]:
    """Choose between the two readings of times around a change of the clock; needs the columns `LATER`."""
    twice = {name: pl.col(LATER + name) > pl.col(name) for name in _both(frame)}
    if not twice:
        return frame, ()
    skipped = [pl.col(LATER + name) < pl.col(name) for name in twice]
    changes = frame.select(
        pl.sum_horizontal(each.sum() for each in twice.values()).alias("twice"),
        pl.sum_horizontal(each.sum() for each in skipped).alias("never"),
    ).row(0)
    if not any(changes):
        return frame, ()
    lasted_s = pl.col("duration_s") if "duration_s" in frame.columns else pl.lit(None, pl.Float64)
    submit_s, start_s, end_s = pl.col("submit_s"), pl.col("start_s"), pl.col("end_s")
    starts = (start_s < submit_s) | _nearer(pl.col(LATER + "start_s"), start_s, end_s - lasted_s)
    frame = frame.with_columns(_chosen("start_s", twice["start_s"] & starts))
    ends = (end_s < start_s) | _nearer(pl.col(LATER + "end_s"), end_s, start_s + lasted_s)
    frame = frame.with_columns(_chosen("end_s", twice["end_s"] & ends))
    if "eligible_s" in twice:
        frame = frame.with_columns(_chosen("eligible_s", twice["eligible_s"] & (pl.col("eligible_s") < submit_s)))
    notes = (
        (
            changes[0],
            "an hour that clocks show twice, read as fits the row, else as the first",
        ),
        (changes[1], "an hour that clocks skip, read as if they had been changed later"),
    )
    return frame, [f"{counted(count, 'time')} in {said}" for count, said in notes if count]


def _both(frame: pl.DataFrame) -> list[str]:
    return [name.removeprefix(LATER) for name in frame.columns if name.startswith(LATER)]


def _nearer(one: pl.Expr, other: pl.Expr, to: pl.Expr) -> pl.Expr:
    return ((one - to).abs() < (other - to).abs()).fill_null(value=False)


def _chosen(name: str, later: pl.Expr) -> pl.Expr:
    return pl.when(later).then(pl.col(LATER + name)).otherwise(pl.col(name)).alias(name)


def attempts(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[str]]:
    """Tell the attempts of jobs that have several rows apart, and mark rows that repeat an attempt."""
    frame = frame.with_columns(pl.lit(value=False).alias(REPEAT))
    # Distinct hashes mean distinct ids, and take far less memory than a table of strings.
    if not bool(frame["job_id"].hash().is_duplicated().any()):
        return frame, ()
    frame, notes = _apart_by_cluster(frame)
    started = (pl.col("start_s").is_finite() & (pl.col("gpus") > 0) & ~STEP).fill_null(value=False)
    numbered = frame.with_row_index(_ROW).filter(started).filter(pl.col("job_id").is_duplicated())
    if numbered.is_empty():
        return frame, notes
    numbered = numbered.select(_ROW, "job_id", "submit_s", "start_s", "end_s")
    # Of rows with one start the one that knows the end comes last, and stays.
    numbered = numbered.sort("job_id", "start_s", "end_s", _ROW, nulls_last=False)
    again = (pl.col("job_id") == pl.col("job_id").shift(-1)) & (pl.col("start_s") == pl.col("start_s").shift(-1))
    repeats = numbered.filter(again.fill_null(value=False))[_ROW]
    runs = numbered.filter(~pl.col(_ROW).is_in(repeats.implode()))
    next_s = pl.col("start_s").shift(-1).over("job_id")
    runs = runs.with_columns(
        pl.coalesce(pl.when(pl.col("end_s").is_not_null()).then(pl.col("end_s")), next_s).alias("end_s"),
        pl.int_range(1, pl.len() + 1).over("job_id").cast(pl.Float64).alias("attempt"),
    )
    queued_s = pl.max_horizontal("submit_s", pl.col("end_s").shift(1).over("job_id"))
    queued_s = pl.when(pl.col("attempt") > 1).then(pl.min_horizontal(queued_s, "start_s"))
    runs = runs.with_columns(pl.coalesce(queued_s, "submit_s").alias("submit_s"))
    name = pl.format("{}@{}", "job_id", pl.col("attempt").cast(pl.Int64))
    runs = runs.with_columns(pl.when(pl.col("attempt") > 1).then(name).otherwise("job_id").alias("job_id"))
    further = int((runs["attempt"] > 1).sum())
    frame = frame.with_row_index(_ROW).with_columns(pl.col(_ROW).is_in(repeats.implode()).alias(REPEAT))
    frame = frame.join(runs, on=_ROW, how="left", suffix=" (new)", maintain_order="left")
    renewed = [
        pl.coalesce(f"{each} (new)", each).alias(each) for each in ("job_id", "submit_s", "start_s", "end_s")
    ]
    frame = frame.with_columns(*renewed, pl.col("attempt").fill_null(1.0))
    frame = frame.drop(_ROW, *(f"{each} (new)" for each in ("job_id", "submit_s", "start_s", "end_s")))
    if further:
        notes = [*notes, f"requeued jobs have a row for each attempt: {counted(further, 'row')} more than jobs"]
    return frame, notes


def _apart_by_cluster(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[str]]:
    """Put the name of the cluster before ids that jobs of several clusters have."""
    if "cluster" not in frame.columns:
        return frame, ()
    shared = pl.col("cluster").n_unique().over("job_id") > 1
    count = int(frame.select(shared.sum()).item())
    name = pl.concat_str("cluster", "job_id", separator="/")
    frame = frame.with_columns(
        pl.when(shared).then(pl.coalesce(name, "job_id")).otherwise("job_id").alias("job_id")
    )
    said = "have an id that another cluster uses too, and are called CLUSTER/ID"
    return frame, [f"{counted(count, 'row')} {said}"] if count else ()


class _Parts(NamedTuple):
    """What a row with parts of GPUs says."""

    fraction: float  # of a GPU that each is, in the mean; shards: how many
    gpu_type: str | None
    shards: bool


def with_parts(frame: pl.DataFrame) -> tuple[pl.DataFrame, Sequence[str]]:
    """Say which part of a GPU each of a job's is; needs the column `PARTS`.

    How many shards make a GPU is in no row: it is taken to be the most that one job has on a machine, since all
    shards of a job are of one GPU there, and never fewer than two.
    """
    texts = frame[PARTS].drop_nulls().unique().to_list() if PARTS in frame.columns else []
    if not texts:
        return frame, ()
    read = [_parts(text) for text in texts]
    schema = {PARTS: pl.String(), "gpu_fraction": pl.Float64(), "(type)": pl.String(), "(shards)": pl.Boolean()}
    table = pl.DataFrame([(text, *parts) for text, parts in zip(texts, read, strict=True)], schema, orient="row")
    frame = frame.join(table, on=PARTS, how="left", maintain_order="left")
    shares = pl.col("(shards)").fill_null(value=False)
    held = pl.col("gpu_fraction") / pl.col("gpus")  # one GPU on each machine
    most = frame.select(pl.when(shares).then(held).max()).item()
    per_gpu = max(most or 0.0, float(LEAST_SHARDS))
    is_part = pl.col(PARTS).is_not_null()
    frame = frame.with_columns(
        pl.when(shares)
        .then((held / per_gpu).clip(0.0, 1.0))
        .otherwise("gpu_fraction")
        .fill_null(1.0)
        .alias("gpu_fraction"),
        pl.when(is_part & ~shares).then("(type)").otherwise("gpu_type").alias("gpu_type"),
    )
    notes = []
    if most is not None:
        count = int(frame["(shards)"].sum())
        notes.append(
            f"{counted(count, 'job')} hold shards: {per_gpu:g} are taken to make a GPU, as the log does not say"
        )
    return frame.drop("(type)", "(shards)"), notes


@lru_cache(maxsize=4096)
def _parts(text: str) -> _Parts:
    """Read the parts of GPUs that a TRES or GRES names."""
    named = [(name, float(count[:9])) for name, count in _GPUS.findall(text)]
    if not named:
        shards = _SHARDS.search(text)
        return _Parts(float(shards[1][:9]) if shards else 1.0, None, shards=True)
    total = _TOTAL.search(text)
    typed = sum(count for _, count in named)
    every = max(typed, float(total[1][:9])) if total else typed
    held = sum(count * (part_of_gpu(name) or 1.0) for name, count in named) + every - typed
    types = {without_part(name) for name, _ in named} - {""}
    return _Parts(held / every if every else 1.0, types.pop() if len(types) == 1 else None, shards=False)


def with_machines(frame: pl.DataFrame, *, allocated: bool) -> tuple[pl.DataFrame, Sequence[str]]:
    """Write out the machines of each job, with the GPUs on each where these are certain.

    They are on one machine, and on several if they divide evenly and are as `allocated`, not as asked for.
    """
    if "ran_on" not in frame.columns:
        return frame, ()
    several = pl.col("ran_on").str.contains(r"[\[,\s:]")
    lists = frame.filter(several.fill_null(value=False)).select("ran_on", "gpus").unique(maintain_order=True)
    expanded: dict[str, Sequence[str]] = {}
    for text in lists["ran_on"].unique().to_list():
        try:
            expanded[text] = expand(text)
        except InputError:
            expanded[text] = ()
    rows = [
        (text, gpus, _held(expanded[text], gpus, allocated=allocated), len(expanded[text]))
        for text, gpus in lists.rows()
    ]
    schema = {"ran_on": pl.String(), "gpus": frame.schema["gpus"], "(on)": pl.String(), "(count)": pl.Float64()}
    table = pl.DataFrame(rows, schema, orient="row")
    frame = frame.join(table, on=["ran_on", "gpus"], how="left", maintain_order="left")
    bad = int(frame.select((pl.col("(count)") == 0).sum()).item())
    alone = pl.format("{}:{}", "ran_on", "gpus")
    frame = frame.with_columns(pl.when(several).then("(on)").otherwise(alone).alias("ran_on"))
    count = pl.when(pl.col("ran_on").is_not_null()).then(pl.col("(count)").fill_null(1.0)).cast(pl.Int32)
    machines = pl.coalesce("machines", count) if "machines" in frame.columns else count
    frame = frame.with_columns(machines.alias("machines")).drop("(on)", "(count)")
    return frame, [f"{counted(bad, 'list')} of machines cannot be read"] if bad else ()


def _held(machines: Sequence[str], gpus: int, *, allocated: bool) -> str | None:
    """Write machines with the GPUs on each, if that is certain."""
    if not machines or any(":" in name for name in machines):
        return None
    each, rest = divmod(gpus, len(machines))
    certain = len(machines) == 1 or (allocated and not rest)
    return " ".join(f"{name}:{each}" if certain else name for name in machines)


def joined(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """Make the parts of each heterogeneous job one job."""
    whole = pl.col("job_id").str.extract_groups(_PART_ID)
    name = pl.concat_str(whole.struct[0], whole.struct[1].fill_null(""))
    if not bool(frame["job_id"].str.contains("+", literal=True).any()):
        return frame, {}
    frame = frame.with_row_index(_ROW).with_columns(name.alias("(whole)"))
    taken = frame.filter(pl.col("(whole)").is_null())["job_id"]
    parts = frame.filter(pl.col("(whole)").is_not_null() & ~pl.col("(whole)").is_in(taken.implode()))
    others = frame.filter(~pl.col(_ROW).is_in(parts[_ROW].implode())).drop("(whole)")
    jobs = parts.group_by("(whole)", maintain_order=True).agg(
        _joint(column) for column in others.columns if column != "job_id"
    )
    jobs = jobs.rename({"(whole)": "job_id"})
    if "ran_on" in jobs.columns:
        texts = [_together(each) for each in jobs["ran_on"].to_list()]
        jobs = jobs.with_columns(pl.Series("ran_on", texts, dtype=pl.String))
    frame = pl.concat([others, jobs.select(others.columns)]).sort(_ROW).drop(_ROW)
    further = parts.height - jobs.height
    return frame, {HETEROGENEOUS: further} if further else {}


def _joint(name: str) -> pl.Expr:
    """Return how a column of the parts becomes that of the job."""
    column = pl.col(name)
    match name:
        case "gpus" | "machines":
            return column.cast(pl.Int64).sum().clip(upper_bound=MAX_GPUS).cast(pl.Int32)
        case "start_s" | "submit_s" | "(number)":
            return column.min()
        case "end_s":  # none if a part still runs
            return pl.when(column.null_count() == 0).then(column.max())
        case "duration_s" | "limit_s" | "eligible_s" | "priority":
            return column.max()
        case "gpu_fraction":
            return (column * pl.col("gpus")).sum() / pl.col("gpus").sum()
        case "gpu_type":
            return pl.when(column.n_unique() == 1).then(column.first())
        case "ran_on":
            return column
        case _:
            return column.first()


def _together(texts: Iterable[str | None]) -> str | None:
    """Put machines of several parts together; without counts if one part has none."""
    parts = list(texts)
    if None in parts:
        return None
    words = [word.rpartition(":") for text in parts for word in (text or "").split()]
    if any(not colon for _, colon, _ in words):
        return " ".join(dict.fromkeys(name if colon else rest for name, colon, rest in words))
    held = Counter[str]()
    for name, _, gpus in words:
        held[name] += int(gpus)
    return " ".join(f"{name}:{gpus}" for name, gpus in held.items())
