"""Reader of accounting logs of PBS (OpenPBS, PBS Professional, Torque): files of `server_priv/accounting`.

A line is a record: time, type, id and what is known of the job, between semicolons. A job that ended has a record
E, one that was requeued a record R for that attempt, and each start a record S, which counts only as long as
nothing says how it ended: then the job still runs. Times are seconds since 1970.

GPUs are those of `exec_vnode`, else those asked for: `Resource_List.ngpus`, `select`, in Torque `nodes=2:gpus=4`.
"""

import re
from collections.abc import Mapping, Sequence

import polars as pl

from cranny.traces.readers import slurm_rows, timestamps
from cranny.traces.readers.delimited import DelimitedFormat
from cranny.traces.readers.log_mapping import Columns, LogMapping, life
from cranny.traces.readers.slurm_rows import REPEAT, REPEATED
from cranny.traces.schema import RowRule

NAMES = ("time", "record", "id", "message")
ENDED, REQUEUED, STARTED = "E", "R", "S"
_BEGIN = re.compile(rb"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];[^;\n]*;")
_RECORD = "(record)"
_WHOLE_ARRAY = "(array)"
_PLACES = "(places)"
_HOSTS = "(hosts)"
# A machine of exec_vnode with what the job has there, such as gpu01[0]:ncpus=8:ngpus=2.
_PLACE = re.compile(r"([^\s:+()=]+)((?::[^\s:+()=]+=[^\s:+()]+)+)")

_OTHER = RowRule(
    "record",
    "a record that neither starts nor ends a job",
    ~pl.col(_RECORD).is_in([ENDED, REQUEUED, STARTED])
    | ((pl.col(_RECORD) != ENDED) & pl.col("start_s").is_null()),
    of_value=False,
    error=False,
)
_ARRAY = RowRule(
    "id",
    "an array as a whole, whose tasks have records of their own",
    pl.col(_WHOLE_ARRAY),
    of_value=False,
    error=False,
)
_START = RowRule(
    "record",
    "a start whose end has a record of its own",
    pl.col(REPEAT) & (pl.col(_RECORD) == STARTED),
    of_value=False,
    error=False,
)


def sniff(head: bytes) -> bool:
    """Say whether a file begins with a record."""
    return _BEGIN.match(head.lstrip(b"\xef\xbb\xbf \t\r\n")) is not None


def _of(key: str) -> pl.Expr:
    """Take the value of a key, which may stand in quotation marks."""
    begin = rf"(?:^|\s){re.escape(key)}="
    message = pl.col("message")
    return pl.coalesce(message.str.extract(begin + r'([^"\s]+)'), message.str.extract(begin + r'"([^"]+)"'))


def _time_s(key: str) -> pl.Expr:
    """Take a time; 0 stands for none."""
    time_s = timestamps.seconds(_of(key))
    return pl.when((time_s != 0).fill_null(value=False)).then(time_s)


def _each(text: pl.Expr, part: str, count: str, of: str) -> pl.Expr:
    """Add up GPUs over the parts of a text: how many there are of each (one if it does not say), times its own."""
    many = pl.element().str.extract(count).cast(pl.Float64, strict=False).fill_null(1.0)
    gpus = pl.element().str.extract(of).cast(pl.Float64, strict=False)
    return text.str.extract_all(part).list.eval(many * gpus).list.sum()


def _gpus() -> pl.Expr:
    """Count the GPUs of a job; 0 if nothing speaks of any."""
    chunk, count = r"[^+\s]+", r"^(\d+)(?::|$)"
    found = (
        _each(_of("exec_vnode"), r"[:(]ngpus=\d+", r"^(never)$", r"ngpus=(\d+)"),
        _of("Resource_List.ngpus").cast(pl.Float64, strict=False),
        _each(_of("Resource_List.select"), chunk, count, r"(?:^|:)ngpus=(\d+)"),
        _each(_of("Resource_List.nodes"), chunk, count, r":gpus=(\d+)"),
    )
    return pl.coalesce(*(pl.when(each > 0).then(each) for each in found), pl.lit(0.0))


def _columns() -> Columns:
    """Take our columns."""
    ended = _of("Exit_status").is_not_null()
    failed = pl.when(_of("Exit_status") == "0").then(pl.lit("Completed")).otherwise(pl.lit("Failed"))
    return {
        "job_id": pl.col("id").str.extract(r"^([^.]+)"),
        "cluster": pl.col("id").str.extract(r"^[^.]+\.(.+)$"),
        "submit_s": _time_s("ctime"),
        "eligible_s": _time_s("etime"),
        "start_s": _time_s("start"),
        "end_s": pl.when(pl.col("record") != STARTED).then(_time_s("end")),
        "gpus": _gpus(),
        "gpu_type": _of("Resource_List.gpu_type"),
        "limit_s": timestamps.length_s(_of("Resource_List.walltime")).fill_nan(None),
        "user": _of("user"),
        "account": pl.coalesce(_of("account"), _of("project")),
        "partition": _of("queue"),
        "tenant": _of("queue"),
        "status": pl.when(pl.col("record") == REQUEUED).then(pl.lit("Requeued")).when(ended).then(failed),
        _RECORD: pl.col("record"),
        _WHOLE_ARRAY: pl.col("id").str.contains("[]", literal=True),
        _PLACES: _of("exec_vnode"),
        _HOSTS: _of("exec_host"),
    }


def _before(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Tell attempts apart, and starts whose end is known."""
    frame, again = slurm_rows.attempts(frame)
    # A requeued job keeps the time of its first attempt.
    return frame.with_columns(pl.col("eligible_s").clip("submit_s", "start_s")), {}, again


def _after(frame: pl.DataFrame) -> tuple[pl.DataFrame, Mapping[str, int], Sequence[str]]:
    """Write out where jobs ran."""
    rows = frame.select(_PLACES, _HOSTS, "gpus").unique(maintain_order=True)
    places = [_ran_on(*row) for row in rows.rows()]
    table = rows.with_columns(
        ran_on=pl.Series([place for place, _ in places], dtype=pl.String),
        machines=pl.Series([count for _, count in places], dtype=pl.Int32),
    )
    frame = frame.join(table, on=[_PLACES, _HOSTS, "gpus"], how="left", nulls_equal=True, maintain_order="left")
    return frame, {}, ()


def _ran_on(places: str | None, hosts: str | None, gpus: int) -> tuple[str | None, int | None]:
    """Write machines with the GPUs on each, and count them; without counts where these are not certain."""
    held: dict[str, int] = {}
    for name, given in _PLACE.findall(places or ""):
        found = re.search(r":ngpus=(\d+)", given)
        host = name.partition("[")[0]
        held[host] = held.get(host, 0) + (int(found[1][:9]) if found else 0)
    if sum(held.values()) == gpus:
        used = {host: count for host, count in held.items() if count}
        return " ".join(f"{host}:{count}" for host, count in used.items()), len(used)
    named = list(held) or list(dict.fromkeys(part.partition("/")[0] for part in (hosts or "").split("+") if part))
    if not named:
        return None, None
    each = f":{gpus // len(named)}" if gpus % len(named) == 0 else ""
    return " ".join(host + each for host in named), len(named)


LOG = LogMapping(
    _columns(),
    rules=(_OTHER, _ARRAY, _START, REPEATED, *life(running=True)),
    called={
        "job_id": "id",
        "submit_s": "ctime",
        "start_s": "start",
        "end_s": "end",
        "gpus": "Resource_List.ngpus",
    },
    zone="UTC",
    before=_before,
    after=_after,
)

_FORMAT = DelimitedFormat(LOG, separator=";", names=NAMES, rest=True)
read = _FORMAT.read
