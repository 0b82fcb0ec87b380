import os
import random
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.read import READERS, read_trace

HEADER = "job_id,submit_s,gpus,duration_s"
Write = Callable[..., Path]


@pytest.fixture
def csv(tmp_path: Path) -> Write:
    def write(*lines: str, header: str = HEADER) -> Path:
        path = tmp_path / "bad.csv"
        path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
        return path

    return write


def refusal(path: Path, **options: object) -> str:
    """Return the one line with which a file is refused, with its folder cut off."""
    with pytest.raises(InputError) as caught:
        read_trace(path, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{path.parent}{os.sep}", "")


def test_reads_a_small_csv(csv: Write) -> None:
    trace = read_trace(csv("b,5,2,60.5", "a,1,8,0"))
    assert trace.name == "bad"
    assert len(trace) == 2
    assert trace.frame.rows() == [("a", 1.0, 8, 0.0), ("b", 5.0, 2, 60.5)]
    assert trace.skipped == {}


def test_equal_times_keep_the_order_of_the_file(csv: Write) -> None:
    trace = read_trace(csv(*(f"j{k},{k % 3},1,1" for k in range(99))))
    assert trace.frame["job_id"].to_list() == [f"j{k}" for r in range(3) for k in range(r, 99, 3)]


@pytest.mark.parametrize(
    ("row", "field", "must"),
    [
        ("j,0,1,nan", "duration_s", "must be a number of seconds, zero or more, not 'nan'"),
        ("j,0,1,-5", "duration_s", "must be a number of seconds, zero or more, not '-5'"),
        ("j,0,1,inf", "duration_s", "must be a number of seconds, zero or more, not 'inf'"),
        ("j,0,1,1e999", "duration_s", "must be a number of seconds, zero or more, not '1e999'"),
        ("j,0,1,an hour", "duration_s", "must be a number of seconds, zero or more, not 'an hour'"),
        ("j,0,1,", "duration_s", "must be a number of seconds, zero or more, but is empty"),
        ("j,NaN,1,5", "submit_s", "must be a number of seconds, zero or more, not 'NaN'"),
        ("j,-1,1,5", "submit_s", "must be a number of seconds, zero or more, not '-1'"),
        ("j,-inf,1,5", "submit_s", "must be a number of seconds, zero or more, not '-inf'"),
        ("j,noon,1,5", "submit_s", "must be a number of seconds, zero or more, not 'noon'"),
        ("j,,1,5", "submit_s", "must be a number of seconds, zero or more, but is empty"),
        ("j,0,many,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, not 'many'"),
        ("j,0,-1,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, not '-1'"),
        ("j,0,nan,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, not 'nan'"),
        ("j,0,inf,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, not 'inf'"),
        ("j,0,2.5,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, not '2.5'"),
        (
            "j,0,1000001,5",
            "gpus",
            "must be a whole number from 1 to 1000000, or 0 for CPU-only, not '1000001'",
        ),
        ("j,0,,5", "gpus", "must be a whole number from 1 to 1000000, or 0 for CPU-only, but is empty"),
        (",0,1,5", "job_id", "must not be empty, but is empty"),
    ],
)
def test_names_file_line_and_field_of_a_bad_value(csv: Write, row: str, field: str, must: str) -> None:
    assert refusal(csv("a,0,1,1", "b,0,1,1", row, "c,0,1,bad too")) == f"bad.csv:4: {field}: {must}"


def test_shows_only_the_beginning_of_a_long_bad_value(csv: Write) -> None:
    assert len(refusal(csv(f"a,0,1,{'x' * 10_000}"))) < 200


def test_counts_lines_and_not_records(csv: Write) -> None:
    path = csv('"a', 'b",0,1,1', "", "c,0,1,x")
    assert refusal(path).startswith("bad.csv:5: duration_s")


def test_takes_whole_numbers_written_with_a_point_and_spaces(csv: Write) -> None:
    trace = read_trace(csv("a, 1.5 , 8.0 , 1e3", header="job_id , submit_s, gpus,duration_s"))
    assert trace.frame.rows() == [("a", 1.5, 8, 1000.0)]


def test_blank_lines_are_passed_over(csv: Write) -> None:
    assert len(read_trace(csv("a,0,1,1", "", "b,0,1,1", "", ""))) == 2


def test_reads_windows_line_ends_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "windows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\na,0,1,1\r\n\r\n".encode())
    assert read_trace(path).frame.rows() == [("a", 0.0, 1, 1.0)]


def test_a_name_with_wildcards_is_just_a_name(tmp_path: Path) -> None:
    path = tmp_path / "week[1]*.csv"
    path.write_text(f"{HEADER}\na,0,1,1\n")
    assert len(read_trace(str(path))) == 1


def test_rejects_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.csv") == "none.csv: there is no such file"


def test_rejects_a_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    assert refusal(tmp_path / "jobs") == "jobs: is a folder, not a trace"


def test_rejects_a_file_that_may_not_be_read(csv: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv("a,0,1,1")

    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    # Not by chmod: tests may run as a user who may read everything.
    monkeypatch.setattr(Path, "open", refuse)
    assert refusal(path) == "bad.csv: cannot be read: Permission denied"


@pytest.mark.parametrize("content", [b"", b"\n\n", b"  \n"])
def test_rejects_an_empty_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.csv"
    path.write_bytes(content)
    assert refusal(path) == "empty.csv: is empty"


def test_rejects_a_header_without_jobs(csv: Write) -> None:
    assert refusal(csv()) == "bad.csv: no jobs"


def test_rejects_a_trace_of_cpu_jobs_only(csv: Write) -> None:
    assert refusal(csv("a,0,0,1", "b,0,0,1")) == "bad.csv: no jobs (2 rows skipped: CPU-only (gpus 0))"


def test_names_missing_columns_and_those_found(csv: Write) -> None:
    path = csv("a,0,1,1", header="job_id,submit_s,num_gpus,duration")
    expected = "bad.csv: missing columns gpus, duration_s; found: job_id, submit_s, num_gpus, duration"
    assert refusal(path) == expected


def test_the_columns_found_stay_on_one_line(csv: Write) -> None:
    path = csv("a,0", header='"job\nid",submit_s')
    assert refusal(path, format="cranny-csv").endswith("; found: 'job\\nid', submit_s")


def test_rejects_a_column_that_occurs_twice(csv: Write) -> None:
    assert refusal(csv("a,0,1,1,1", header=f"{HEADER},gpus")) == "bad.csv:1: column 'gpus' occurs twice"


def test_names_a_repeated_id_and_both_lines(csv: Write) -> None:
    path = csv("a,0,1,1", "b,0,1,1", "c,0,1,1", "b,9,1,1")
    assert refusal(path) == "bad.csv:5: job_id: must be unique, but 'b' is also in line 3"


def test_suggests_the_nearest_model(csv: Write) -> None:
    path = csv("a,0,1,1,vgg16", "b,0,1,1,resnet5", header=f"{HEADER},model")
    assert refusal(path) == "bad.csv:3: model: unknown model 'resnet5'; did you mean 'resnet50'?"


def test_suggests_the_nearest_collective(csv: Write) -> None:
    path = csv("a,0,1,1,ring", "b,0,1,1,rings", header=f"{HEADER},collective")
    assert refusal(path) == "bad.csv:3: collective: unknown collective 'rings'; did you mean 'ring'?"


def test_knows_the_models_that_are_passed_in(csv: Write) -> None:
    path = csv("a,0,1,1,mine", header=f"{HEADER},model")
    mine = {"mine": ModelProfile(name="mine", grad_bytes=1e6, iteration_ms=10)}
    trace = read_trace(path, profiles=mine)
    assert [job.profile for job in trace.jobs(profiles=mine)] == [mine["mine"]]


@pytest.mark.parametrize("row", ["b,0,1", "b,0,1,1", "b,0,1,1,t,9", "b"])
def test_rejects_a_row_of_another_width(csv: Write, row: str) -> None:
    path = csv("a,0,1,1,t", row, "c,0,1,1,t", header=f"{HEADER},tenant")
    count = row.count(",") + 1
    expected = f"bad.csv:3: has {count} field{'s' * (count > 1)} where the header has 5"
    assert refusal(path) == expected
    assert refusal(path, strict=False) == expected


def test_rejects_an_open_quotation_mark(csv: Write) -> None:
    assert refusal(csv("a,0,1,1", 'b,0,"1,1', "c,0,1,1")) == "bad.csv:3: a quotation mark is not closed"


def test_rejects_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes(f"{HEADER}\na,0,1,1\n".encode() + "bä,0,1,1\n".encode("latin-1"))
    assert refusal(path) == "latin.csv:3: not UTF-8 text"


@pytest.mark.parametrize("start", [b"", b"\x00\x01"])
def test_rejects_binary_rubbish(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "rubbish"
    path.write_bytes(start + b"\xff" + random.Random(1).randbytes(5000))  # noqa: S311
    assert refusal(path) == f"rubbish: not in a known trace format ({', '.join(READERS)})"


def test_rejects_what_only_begins_like_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "rubbish"
    path.write_bytes(b"\x1f\x8b\xff" + bytes(50))
    assert refusal(path) == "rubbish: cannot be read: Unknown compression method"


def test_parallel_groups_must_divide_the_gpus(csv: Write) -> None:
    header = f"{HEADER},tp,pp"
    trace = read_trace(csv("a,0,8,1,2,4", "b,0,3,1,,", header=header))
    assert [(job.tp, job.pp, job.dp) for job in trace.jobs()] == [(2, 4, 1), (1, 1, 3)]
    assert refusal(csv("a,0,8,1,3,", header=header)) == "bad.csv:2: tp: must divide gpus, not '3'"
    assert refusal(csv("a,0,8,1,2,8", header=header)) == "bad.csv:2: pp: times tp must divide gpus, not '8'"
    expected = "bad.csv:2: pp: must be a whole number from 1 to 1000000, not"
    for wrong in ("0", "x", "1.5", "-2"):
        assert refusal(csv(f"a,0,8,1,2,{wrong}", header=header)) == f"{expected} '{wrong}'"


def test_leaves_cpu_jobs_out_and_counts_them(csv: Write) -> None:
    trace = read_trace(csv("a,0,0,", "b,0,1,1", "c,0,0,5"))
    assert trace.frame["job_id"].to_list() == ["b"]
    assert trace.skipped == {"CPU-only (gpus 0)": 2}


def test_leaves_bad_rows_out_on_request_and_counts_them_by_reason(csv: Write) -> None:
    path = csv(
        "a,0,1,1,",
        "b,x,1,nan,",
        "c,0,1,nan,",
        "a,0,1,2,",
        "d,0,0,1,",
        "e,0,1,1,foo",
        header=f"{HEADER},model",
    )
    trace = read_trace(path, strict=False)
    assert trace.frame.select("job_id", "duration_s").rows() == [("a", 1.0)]
    assert trace.skipped == {
        "CPU-only (gpus 0)": 1,
        "submit_s: must be a number of seconds, zero or more": 1,
        "duration_s: must be a number of seconds, zero or more": 1,
        "model: must be known": 1,
        "job_id: repeated": 1,
    }


def test_vc_stands_for_tenant_unless_there_is_one(csv: Write) -> None:
    trace = read_trace(csv("a,0,1,1,red", "b,0,1,1,", header=f"{HEADER},vc"))
    assert trace.frame["tenant"].to_list() == ["red", None]
    assert [job.tenant for job in trace.jobs()] == ["red", ""]
    both = read_trace(csv("a,0,1,1,red,blue", header=f"{HEADER},vc,tenant"))
    assert both.frame.select("tenant", "vc").rows() == [("blue", "red")]


def test_extra_columns_are_kept(csv: Write) -> None:
    trace = read_trace(csv("a,0,1,1,x", "b,0,0,1,y", header=f"{HEADER},cluster"))
    assert trace.frame["cluster"].to_list() == ["x"]


def test_models_drawn_by_authors_need_no_profile(csv: Write) -> None:
    rows = ("a,0,1,1,bert,5", "b,0,1,1,deepspeech2,5", "c,0,1,1,vgg16,5")
    trace = read_trace(csv(*rows, header=f"{HEADER},model,iterations"))
    assert trace.frame["model"].to_list() == ["bert-base", None, "vgg16"]
    assert len(trace.notes) == 1
    assert "1 jobs name one without a profile (deepspeech2 1)" in trace.notes[0]
    assert refusal(csv(*(row[:-2] for row in rows), header=f"{HEADER},model")).startswith("bad.csv:3: model:")


@pytest.mark.parametrize("name", ["jobs.parquet", "jobs.csv", "jobs"])
def test_knows_parquet_by_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    frame = pl.DataFrame({"job_id": [7, 8], "submit_s": [0, 1], "gpus": ["4", "2"], "duration_s": [1.5, 2.5]})
    frame.write_parquet(path)
    assert read_trace(path).frame.rows() == [("7", 0.0, 4, 1.5), ("8", 1.0, 2, 2.5)]


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "duration_s",
            [1.0, None],
            "row 2: duration_s: must be a number of seconds, zero or more, but is empty",
        ),
        (
            "duration_s",
            [1.0, float("nan")],
            "row 2: duration_s: must be a number of seconds, zero or more, not nan",
        ),
        (
            "gpus",
            [1.5, 1.0],
            "row 1: gpus: must be a whole number from 1 to 1000000, or 0 for CPU-only, not 1.5",
        ),
        ("job_id", ["a", "a"], "row 2: job_id: must be unique, but 'a' is also in row 1"),
        ("gpus", [True, False], "gpus: the column must hold numbers, not Boolean"),
        ("submit_s", [[1], [2]], "submit_s: the column must hold numbers, not List(Int64)"),
        ("job_id", [[1], [2]], "job_id: the column must hold text, not List(Int64)"),
    ],
)
def test_names_row_and_field_of_a_bad_value_in_parquet(
    tmp_path: Path, column: str, values: list[object], message: str
) -> None:
    path = tmp_path / "bad.parquet"
    good = {"job_id": ["a", "b"], "submit_s": [0.0, 1.0], "gpus": [1, 1], "duration_s": [1.0, 1.0]}
    pl.DataFrame({**good, column: values}).write_parquet(path)
    assert refusal(path) == f"bad.parquet: {message}"


def test_rejects_a_truncated_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    pl.DataFrame({"job_id": ["a"] * 1000}).write_parquet(path)
    whole = path.read_bytes()
    for length in (4, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert refusal(path).startswith("cut.parquet: broken or truncated Parquet file: ")


def test_rejects_parquet_without_jobs(tmp_path: Path) -> None:
    path = tmp_path / "none.parquet"
    pl.DataFrame(schema=dict.fromkeys(HEADER.split(","), pl.Float64)).write_parquet(path)
    assert refusal(path) == "none.parquet: no jobs"


def test_a_named_format_is_taken_at_its_word(csv: Write) -> None:
    path = csv("a,0,1,1")
    assert len(read_trace(path, format="cranny-csv")) == 1
    assert refusal(path, format="cranny-parquet") == "bad.csv: not a Parquet file"
    expected = "unknown trace format 'cranny-cvs'; did you mean 'cranny-csv'?"
    assert refusal(path, format="cranny-cvs") == expected
    parquet = path.with_name("good.parquet")
    read_trace(path).write(parquet)
    assert refusal(parquet, format="cranny-csv").startswith("good.parquet: missing columns job_id, ")


def test_seconds_since_1970_have_dates(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,start_s\na,1772409729,1,60,1772409730\nb,1772409739,1,60,\n")
    trace = read_trace(path)
    assert trace.frame.select("submit_s", "start_s").rows() == [(0.0, 1.0), (10.0, None)]
    assert (trace.zero_epoch_s, trace.zone) == (1772409729.0, "UTC")
    assert trace.notes == ("time zero is 2026-03-02 00:02:09 (UTC): submit_s is taken as seconds since 1970",)
