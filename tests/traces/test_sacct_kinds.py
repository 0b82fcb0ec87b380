"""Slurm's accounting as sites really write it: other commands, versions, delimiters and tables made of it."""

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cranny.model.errors import InputError
from cranny.traces.read import find_format, read_trace
from cranny.traces.trace import Trace

NAMES = "JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|NodeList|AllocTRES|ReqTRES"
FIELDS = tuple(NAMES.split("|"))
# Id, state, start, end, machines and how many, GPUs; submitted at 08:00.
JOBS = (
    ("1", "COMPLETED", "09:00", "10:00", "gpu[01]-ib", 1, 4),
    ("2_3", "CANCELLED by 1234", "10:00", "12:00", "gpu[01-02]-ib", 2, 8),
    ("3", "TIMEOUT", "10:00", "10:30", "rack[1]n[3]", 1, 2),
)
NEVER = ("4", "CANCELLED by 0", "None", "10:00", "None assigned", 0, 4)
DAY = "2026-03-02T"
WHERE = ["gpu01-ib:4", "gpu01-ib:4 gpu02-ib:4", "rack1n3:2"]
Row = dict[str, str]
Alter = Callable[[Row], Row]


def rows() -> list[Row]:
    """Return the rows of a log."""
    made = []
    for job, state, start, end, on, nodes, gpus in (*JOBS, NEVER):
        times = [word if word == "None" else f"{DAY}{word}:00" for word in (start, end)]
        lasted = 0 if start == "None" else int(moment(times[1]) - moment(times[0]))
        tres = f"billing=8,cpu=8,gres/gpu:a100={gpus},gres/gpu={gpus},mem=64G,node={nodes}"
        values = [job, "train", "ann", state, f"{DAY}08:00:00", *times, str(lasted), "1440", str(nodes), on]
        made.append(dict(zip(FIELDS, [*values, tres if nodes else "", tres], strict=True)))
    return made


def moment(text: str) -> float:
    """Return a time of UTC as seconds since 1970."""
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


def text(table: Sequence[Row], *, names: Sequence[str] = FIELDS, between: str = "|", end: str = "\n") -> str:
    """Write a log."""
    return end.join([between.join(names), *(between.join(row[name] for name in names) for row in table)]) + end


def read(path: Path, content: str | bytes, **options: Any) -> Trace:
    """Read a file with this content."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path, **options)


def same(trace: Trace, gpu_type: str | None = "a100") -> None:
    """Check that a trace holds the three jobs that ran."""
    frame = trace.frame
    columns = ("job_id", "gpus", "submit_s", "start_s", "duration_s", "ran_on", "gpu_type")
    hours = [(1, 1), (2, 2), (2, 0.5)]
    assert frame.select(columns).rows() == [
        (job[0], job[-1], 0.0, 3600.0 * waited, 3600.0 * lasted, where, gpu_type)
        for job, (waited, lasted), where in zip(JOBS, hours, WHERE, strict=True)
    ]
    assert trace.zero_epoch_s == moment(f"{DAY}08:00:00")
    assert trace.skipped == {"never started": 1}


@pytest.mark.parametrize("between", ["|", "\t", ";", "^", "~"])
def test_any_delimiter(tmp_path: Path, between: str) -> None:
    same(read(tmp_path / "log", text(rows(), between=between)))


def test_ends_of_lines_and_marks_of_windows(tmp_path: Path) -> None:
    same(read(tmp_path / "log", b"\xef\xbb\xbf" + text(rows(), end="|\r\n").encode()))


def test_lines_before_the_field_names(tmp_path: Path) -> None:
    before = "Loading module slurm/23.11\n# sacct of March | by ann\n\n"
    same(read(tmp_path / "log", before + text(rows())))
    with pytest.raises(InputError, match=r"log:5: Submit: must be a time, not 'soon'"):
        read(tmp_path / "log", before + text([{**rows()[0], "Submit": "soon"}]), strict=True)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_utf_16_as_powershell_writes_it(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    log = mark + text([{**row, "User": "jörg"} for row in rows()], end="\r\n")
    trace = read(tmp_path / "log", log.encode(encoding))
    same(trace)
    assert trace.frame["user"].to_list() == ["jörg"] * 3


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compressed_logs(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "march.txt.gz"
    trace = read(path, pack(text(rows()).encode()))
    same(trace)
    assert trace.name == "march"
    assert find_format(path) == "sacct"
    with pytest.raises(InputError, match=r"march\.txt\.gz:2: Submit: must be a time, not 'soon'"):
        read(path, pack(text([{**rows()[0], "Submit": "soon"}]).encode()), strict=True)
    with pytest.raises(InputError, match=r"march\.txt\.gz: cannot be (read|unpacked)"):
        read(path, pack(text(rows()).encode())[:40])


@pytest.mark.parametrize("column", ["JobName", "SubmitLine"])
def test_a_delimiter_in_what_a_user_wrote(tmp_path: Path, column: str) -> None:
    names = [column if name == "JobName" else name for name in FIELDS]
    table = [{**row, column: "cat a | grep b || true"} for row in rows()]
    same(read(tmp_path / "log", text(table, names=names)))


def test_a_delimiter_in_one_of_two_texts_is_a_row_that_cannot_be_read(tmp_path: Path) -> None:
    table = [{**row, "Comment": "a|b" if row["JobID"] == "1" else ""} for row in rows()]
    trace = read(tmp_path / "log", text(table, names=[*FIELDS, "Comment"]))
    assert trace.skipped == {"does not have 14 fields": 1, "never started": 1}


def alloc(form: str) -> Alter:
    """Write what was allocated in another form."""
    return lambda row: {**row, "AllocTRES": form.format(gpus(row)) if row["AllocTRES"] else ""}


def gpus(row: Row) -> str:
    """Return the GPUs of a row."""
    return row["ReqTRES"].rpartition("gres/gpu=")[2].partition(",")[0]


@pytest.mark.parametrize(
    "form", ["gres/gpu:a100={}", "gres:gpu:a100:{}", "cpu=8,gres/gpu:A100:{}", "gres/gpu={0},gres/gpu:a100={0}"]
)
def test_spellings_of_allocated_gpus(tmp_path: Path, form: str) -> None:
    trace = read(tmp_path / "log", text([alloc(form)(row) for row in rows()]))
    kind = "A100" if "A100" in form else "a100"
    same(trace, kind)


def test_gpus_that_only_another_field_names(tmp_path: Path) -> None:
    """Slurm that keeps no account of GPUs has an AllocTRES without them."""
    table = [{**alloc("cpu=8,node=1")(row), "ReqTRES": f"cpu=8,gres/gpu={gpus(row)}"} for row in rows()]
    same(read(tmp_path / "log", text(table)), None)
    for form in ("gpu:{}", "gpu:{}(IDX:0-1)", "7696487:{}", "gres:gpu:{}"):
        old = [{**row, "AllocGRES": form.format(gpus(row)), "ReqTRES": "cpu=8"} for row in table]
        same(read(tmp_path / "log", text(old, names=[*FIELDS, "AllocGRES"])), None)


def test_a_log_that_names_no_gpus_says_what_to_look_for(tmp_path: Path) -> None:
    table = [{**alloc("cpu=8,node=1")(row), "ReqTRES": "cpu=8"} for row in rows()]
    with pytest.raises(InputError, match=r"log: no jobs: no row names GPUs; .* AccountingStorageTRES"):
        read(tmp_path / "log", text(table))


def test_gpus_of_each_node(tmp_path: Path) -> None:
    table = [{**row, "ReqGRES": f"PER_NODE:gpu:{int(gpus(row)) // max(int(row['NNodes']), 1)}"} for row in rows()]
    names = [name for name in FIELDS if "TRES" not in name]
    assert read(tmp_path / "log", text(table, names=[*names, "ReqGRES"])).frame["gpus"].to_list() == [4, 8, 2]


def test_machines_say_that_a_job_ran_where_nothing_is_said_to_be_allocated(tmp_path: Path) -> None:
    same(read(tmp_path / "log", text([{**row, "AllocTRES": ""} for row in rows()])))


def test_times_as_numbers_in_any_unit(tmp_path: Path) -> None:
    for unit in (1, 1000, 10**6, 10**9):
        table = []
        for row in rows():
            times = {name: row[name] for name in ("Submit", "Start", "End") if row[name] != "None"}
            table.append({**row, **{name: str(int(moment(time) * unit)) for name, time in times.items()}})
        same(read(tmp_path / "log", text(table)))


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_end_follows_from_start_and_length(tmp_path: Path, zone: str | None) -> None:
    table = [*rows(), {**rows()[0], "JobID": "9", "State": "RUNNING", "ElapsedRaw": "600"}]
    names = [name for name in FIELDS if name != "End"]
    frame = read(tmp_path / "log", text(table, names=names), zone=zone).frame
    assert frame["end_s"].to_list() == [7200.0, 14400.0, 9000.0, None]
    assert frame["duration_s"].to_list() == [3600.0, 7200.0, 1800.0, 600.0]


def test_tables_that_pandas_writes(tmp_path: Path) -> None:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["", *FIELDS])
    writer.writerows([k, *row.values()] for k, row in enumerate(rows()))
    same(read(tmp_path / "log.csv", out.getvalue().replace(DAY, DAY.replace("T", " "))))
    broken = out.getvalue().replace("CANCELLED by 1234,2026-03-02T08:00:00", "CANCELLED by 1234,soon")
    with pytest.raises(InputError, match=r"log\.csv:3: Submit: must be a time, not 'soon'"):
        read(tmp_path / "log.csv", broken, strict=True)
    with pytest.raises(InputError, match=r"log\.csv:2: has 23 fields where the header has 13"):
        read(tmp_path / "log.csv", text(rows(), between=","))


@pytest.mark.parametrize("columns", ["text", "typed"])
def test_parquet_with_the_fields_of_sacct(tmp_path: Path, columns: str) -> None:
    frame, path = pl.DataFrame(rows()), tmp_path / "log.parquet"
    if columns == "typed":
        frame = frame.with_columns(
            pl.col("Submit", "Start", "End").str.to_datetime(strict=False).dt.replace_time_zone("UTC"),
            pl.col("NNodes").cast(pl.Float64),
            pl.duration(seconds=pl.col("ElapsedRaw").cast(pl.Int64)).alias("Elapsed"),
        ).drop("ElapsedRaw")
    frame.write_parquet(path)
    assert find_format(path) == "sacct"
    same(read_trace(path))


def test_names_in_lower_case(tmp_path: Path) -> None:
    head, _, body = text(rows()).partition("\n")
    same(read(tmp_path / "log", f"{head.lower()}\n{body}"))
    with pytest.raises(InputError, match=r"log:2: Submit: must be a time, not 'soon'"):
        read(tmp_path / "log", f"{head.lower()}\n{body}".replace(f"{DAY}08:00:00", "soon"), strict=True)
    pl.DataFrame(rows()).rename(str.lower).write_parquet(tmp_path / "log.parquet")
    same(read_trace(tmp_path / "log.parquet"))


def test_an_extract_of_the_database(tmp_path: Path) -> None:
    """Columns of the table of jobs: ids and states are numbers, 0 is no time, resources have numbers too."""
    head = (
        "id_job,id_user,state,time_submit,time_start,time_end,timelimit,nodes_alloc,nodelist,tres_alloc,gres_used"
    )
    zero = int(moment(f"{DAY}08:00:00"))
    table = [
        f"7,1001,4,{zero},{zero + 60},{zero + 3660},4294967295,2,\"['n1', 'n2']\",\"1=8,4=2,1001=4\",gpu:volta:4",
        f'8,1002,1,{zero},{zero + 60},0,90,1,n3,"1=8,4=1,1001=2",gpu:volta:2',
        f"9,1002,0,{zero},0,0,90,0,None assigned,,",
    ]
    trace = read(tmp_path / "slurm.csv", "\n".join([head, *table]))
    columns = ("job_id", "user", "status", "gpus", "gpu_type", "start_s", "end_s", "limit_s", "ran_on")
    assert trace.frame.select(columns).rows() == [
        ("7", "1001", "CANCELLED", 4, "volta", 60.0, 3660.0, None, "n1:2 n2:2"),
        ("8", "1002", "RUNNING", 2, "volta", 60.0, None, 5400.0, "n3:2"),
    ]
    assert trace.skipped == {"never started": 1}


def test_a_float_is_no_step_of_a_job(tmp_path: Path) -> None:
    frame = pl.DataFrame(rows()[:1]).with_columns(JobID=pl.lit(17.0))
    frame.write_parquet(tmp_path / "log.parquet")
    assert read_trace(tmp_path / "log.parquet").frame["job_id"].to_list() == ["17"]


def as_json(*, plain: bool = False) -> dict[str, Any]:
    """Write the log as `sacct --json` does, or as its first versions did: numbers and states plain."""

    def number(value: int | None) -> object:
        return value if plain else {"set": value is not None, "infinite": False, "number": value or 0}

    jobs = []
    for row in rows():
        whole, _, task = row["JobID"].partition("_")
        times = {name: 0 if row[name] == "None" else int(moment(row[name])) for name in ("Submit", "Start", "End")}
        count = int(gpus(row))
        listed = [
            {"type": "cpu", "name": "", "id": 1, "count": 8},
            {"type": "gres", "name": "gpu", "id": 1001, "count": count},
            {"type": "gres", "name": "gpu:a100", "id": 1002, "count": count},
        ]
        state = row["State"].partition(" ")[0]
        jobs.append(
            {
                "job_id": int(whole) + 1000 if task else int(whole),
                "array": {"job_id": int(whole) if task else 0, "task_id": number(int(task) if task else None)},
                "het": {"job_id": 0, "job_offset": number(None)},
                "association": {"account": "lab", "cluster": "big", "partition": "", "user": "ann"},
                "nodes": row["NodeList"],
                "allocation_nodes": int(row["NNodes"]),
                "state": {"current": state if plain else [state], "reason": "None"},
                "time": {
                    "submission": times["Submit"],
                    "start": times["Start"],
                    "end": times["End"],
                    "elapsed": int(row["ElapsedRaw"]),
                    "eligible": times["Submit"],
                    "limit": number(1440),
                },
                "tres": {"allocated": listed if row["AllocTRES"] else [], "requested": listed},
                "steps": [{"step": {"id": "1.batch"}}],
            }
        )
    return {"meta": {"slurm": {"release": "23.11.1"}}, "jobs": jobs, "errors": []}


@pytest.mark.parametrize("numbers", ["plain", "in objects"])
def test_json(tmp_path: Path, numbers: str) -> None:
    document = as_json(plain=numbers == "plain")
    trace = read(tmp_path / "log.json", json.dumps(document))
    same(trace)
    columns = ("user", "account", "cluster", "status", "limit_s", "machines")
    assert trace.frame.select(columns).row(1) == ("ann", "lab", "big", "CANCELLED", 86_400.0, 2)
    assert trace.zone == "UTC"
    het = document["jobs"][0] | {"het": {"job_id": 77, "job_offset": {"set": True, "number": 0}}}
    more = document["jobs"][2] | {"het": {"job_id": 77, "job_offset": {"set": True, "number": 1}}}
    joined = read(tmp_path / "log.json", json.dumps({"jobs": [het, more]}))
    assert joined.frame.select("job_id", "gpus", "ran_on").rows() == [("77", 6, "gpu01-ib:4 rack1n3:2")]


def test_json_that_is_not_accounting(tmp_path: Path) -> None:
    squeue = {"jobs": [{"job_id": 1, "submit_time": {"number": 5}}], "meta": {"slurm": {}}}
    with pytest.raises(InputError, match=r"job 1: time: is missing, as in `squeue --json`"):
        read(tmp_path / "log.json", json.dumps(squeue))
    with pytest.raises(InputError, match=r"jobs: must be a list of jobs"):
        read(tmp_path / "log.json", json.dumps({"jobs": {}, "meta": {"slurm": {}}}))
    broken = as_json()
    broken["jobs"][1]["time"]["start"] = "soon"
    with pytest.raises(InputError, match=r"log\.json: job 2 \(2_3\): Start: must be a time, not 'soon'"):
        read(tmp_path / "log.json", json.dumps(broken), strict=True)


def test_json_with_rubbish_is_read_or_refused_in_one_line(tmp_path: Path) -> None:
    rubbish: Iterator[object] = itertools.cycle([None, {}, "x", -1, [], 1e300, True])
    job = as_json()["jobs"][0]
    keys: list[tuple[str, ...]] = [(key,) for key in job]
    keys += [(key, inner) for key in job for inner in as_mapping(job[key])]
    for key in keys:
        document = as_json()
        place = document["jobs"][0]
        for outer in key[:-1]:
            place = place[outer]
        place[key[-1]] = next(rubbish)
        try:
            trace = read(tmp_path / "log.json", json.dumps(document))
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            assert len(trace) + sum(trace.skipped.values()) == 4


def as_mapping(value: object) -> dict[str, Any]:
    """Return an object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def padded() -> str:
    """Write what sacct prints for people."""
    names = "JobID    JobName  Partition    Account  AllocCPUS      State ExitCode"
    return f"{names}\n{'------- ' * 7}\n1      train    gpu     lab     8   COMPLETED   0:0\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            padded(),
            "looks like sacct without -P, which cuts its columns; ask for sacct -a -D -X -P -o Cluster,JobID",
        ),
        (text(rows()).partition("\n")[2], "looks like sacct without a line of field names; leave -n away"),
        ("NAMESPACE   NAME   READY   STATUS\n", "looks like what kubectl prints for people"),
        ("apiVersion: v1\nitems:\n", "looks like YAML of kubectl"),
        ('"JOB_FINISH" "10.1" 1772438400 101', "looks like lsb.acct of LSF, which is not read"),
        (b"\x28\xb5\x2f\xfd\x00\x01", "is compressed: unpack it with `zstd -d`"),
        (b"PK\x03\x04..[Content_Types].xml", "looks like a workbook of Excel: save its sheet as CSV"),
        ("when,what\n1,2\n", "not in a known trace format"),
    ],
    ids=["for people", "without names", "kubectl", "yaml", "LSF", "zstd", "Excel", "unknown"],
)
def test_a_log_that_cannot_be_read_says_what_to_give(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path / "log", content)
    assert str(raised.value).startswith(f"{tmp_path / 'log'}: {said}")


def test_a_log_without_a_job_shows_a_row_that_could_not_be_read(tmp_path: Path) -> None:
    table = [{**row, "Submit": "03/02/26-08:00:00"} for row in rows()[:3]]
    said = (
        r"no jobs \(3 rows skipped: submit_s: must be a time\); .*log:2: Submit: must be a time, not '03/02/26-08"
    )
    with pytest.raises(InputError, match=said):
        read(tmp_path / "log", text(table))
