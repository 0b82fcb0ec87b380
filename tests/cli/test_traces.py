"""`cranny traces list`, `inspect`, `convert` and `slice`."""

from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused

from cranny.cli.sparkline import chart
from cranny.model.errors import InputError
from cranny.traces.generate import generate_trace
from cranny.traces.read import read_trace, trace_files

HEADER = "job_id,submit_s,gpus,duration_s"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a trace of six jobs on two clusters, an hour apart, with what a log may tell besides."""
    path = tmp_path / "log.csv"
    rows = [
        "a,0,8,60,red,0,vgg16,5",
        "b,3600,1,1800,blue,3600,,",
        "c,7200,2,60.25,red,7205,,9",
        "d,10800,4,0,blue,,resnet50,",
        'e,14400,1,60,"red, dark",14500,,',
        "f,18000,16,86400,red,18000,,",
    ]
    path.write_text(f"{HEADER},cluster,start_s,model,attempts\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


# -- list -----------------------------------------------------------------------------------------------------


def test_list_shows_traces_and_passes_over_the_rest(run: Run, tmp_path: Path, log: Path) -> None:
    deep = tmp_path / "deep"
    deep.mkdir()
    read_trace(log).write(deep / "again.parquet")
    (tmp_path / "README.md").write_text("job logs of our cluster, see deep\n", encoding="utf-8")
    (tmp_path / "machines.csv").write_text("name,gpus\nm0,8\n", encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\x00\xff")
    (tmp_path / "empty.csv").touch()
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "other.parquet")
    told = run("traces", "list", tmp_path, "--json").json
    assert [(each["file"], each["format"], each["jobs"]) for each in told["files"]] == [
        ("log.csv", "cranny-csv", 6),
        ("deep/again.parquet", "cranny-parquet", 6),
    ]
    assert "philly" in told["presets"]
    shown = run("traces", "list", tmp_path).out
    assert "cranny-parquet         6   0.2        385        0  deep/again.parquet" in shown
    assert "can be generated: philly, itp" in shown


def test_list_says_why_a_trace_cannot_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(f"{HEADER}\na,0,1\n", encoding="utf-8")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "cpu.csv").write_text(f"{HEADER}\na,0,0,5\n", encoding="utf-8")
    shown = run("traces", "list", tmp_path)
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert lines[0].startswith("bad.csv: cranny-csv, cannot be read: ")
    assert lines[1].startswith("broken.parquet: cranny-parquet, cannot be read: broken or truncated")
    assert lines[2] == "cpu.csv: cranny-csv, cannot be read: no jobs (1 rows skipped: CPU-only (gpus 0))"


def test_list_counts_the_rows_it_leaves_out(run: Run, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text(f"{HEADER}\na,0,1,5\nb,1,1,never\nc,2,0,5\n", encoding="utf-8")
    (each,) = run("traces", "list", tmp_path, "--json").json["files"]
    assert (each["jobs"], each["skipped"]) == (1, 2)


def test_list_looks_neither_behind_links_nor_too_deep(tmp_path: Path, log: Path) -> None:
    (tmp_path / "link.csv").symlink_to(log)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    hidden, deep = tmp_path / ".hidden", tmp_path / "1" / "2"
    for folder in (hidden, deep):
        folder.mkdir(parents=True)
        (folder / "log.csv").write_bytes(log.read_bytes())
    assert list(trace_files(tmp_path, depth=1)) == [(log, "cranny-csv")]
    assert [path for path, _ in trace_files(tmp_path, depth=2)] == [log, deep / "log.csv"]


def test_list_of_an_empty_folder_says_so(run: Run, tmp_path: Path) -> None:
    assert run("traces", "list", tmp_path).out.startswith(f"{tmp_path}: no trace files here\n")


def test_list_needs_a_folder(run: Run, tmp_path: Path, log: Path) -> None:
    refused(run("traces", "list", log), "is a file, not a folder")
    refused(run("traces", "list", tmp_path / "none"), "no such folder")


# -- inspect --------------------------------------------------------------------------------------------------


def test_inspect_prints_figures_warnings_and_assumptions(run: Run, log: Path) -> None:
    shown = run("traces", "inspect", log, "--gpus", 10).out
    for part in (
        "log: 6 jobs over 0.2 days",
        "median 60 s, mean 14,730 s, p90 44,100 s",
        "median 0 s, mean 21 s, p99 96 s (of 5 jobs)",
        "mean 0, at most 16",
        "warning: 3 clusters are in one file (blue, red, red, dark): pick one",
        "warning: 2 of 6 jobs (33.3 %) ran in several attempts, up to 9",
        "warning: 1 of 6 jobs (16.7 %) last zero seconds",
        "warning: 1 of 6 jobs (16.7 %) ask for more GPUs than the cluster has, up to 16 of 10",
        "assumed: the model of 4 of 6 jobs is drawn by seed",
    ):
        assert part in shown


def test_inspect_takes_the_gpus_of_a_cluster(run: Run, log: Path) -> None:
    by_number = run("traces", "inspect", log, "--gpus", 8, "--json").json["warnings"]
    by_cluster = run("traces", "inspect", log, "--cluster", "1x2x4", "--json").json["warnings"]
    assert by_number == by_cluster
    assert by_cluster[-1].endswith("up to 16 of 8: they can never be placed")
    refused(run("traces", "inspect", log, "--gpus", 8, "--cluster", "1x2x4"), "give --gpus or --cluster, not both")


def test_inspect_refuses_or_counts_bad_rows(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"{HEADER}\na,0,1,5\nb,1,1,never\n", encoding="utf-8")
    for strict in ([], ["--strict"]):
        refused(run("traces", "inspect", file, *strict), f"{file}:3: duration_s: must be a number of seconds")
    assert "skipped: 1 row: duration_s: must be" in run("traces", "inspect", file, "--no-strict").out
    refused(run("traces", "inspect", file, "--format", "philli"), "unknown trace format 'philli'")


def test_a_chart_has_its_bars_over_its_axes() -> None:
    assert chart([0, 1, 2, 3.5, 4, 0, 0, 0, 0, 0.5, 1, 4], span_s=12 * 86_400, height=4) == [
        "4 ┤   ▄█      █",
        "3 ┤   ██      █",
        "2 ┤  ███      █",
        "1 ┤ ████    ▄██",
        "0 └┴─┴─┴─┴─┴─┴─",
        "   0 2 d 6 d 10 d",
    ]


def test_a_chart_of_nothing_is_flat() -> None:
    assert all(set(line) <= set("1 ┤│") or "0" in line or "." in line for line in chart([0, 0], span_s=10))


# -- convert --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_is_converted_reads_the_same(run: Run, tmp_path: Path, log: Path, ending: str) -> None:
    to = tmp_path / f"to.{ending}"
    assert run("traces", "convert", log, to).out == f"{to}: 6 jobs\n"
    assert_frame_equal(read_trace(to).frame, read_trace(log).frame)


def test_convert_keeps_where_jobs_without_gpus_were(run: Run, tmp_path: Path) -> None:
    log, to = tmp_path / "sacct.txt", tmp_path / "to.csv"
    rows = [
        "1|{0}T08:00:00|{0}T08:00:00|{0}T09:00:00|n1|gres/gpu=4",
        "2|{0}T08:00:00|{0}T08:30:00|{0}T10:00:00|n2|cpu=4",
    ]
    log.write_text("\n".join(["JobID|Submit|Start|End|NodeList|AllocTRES", *rows]).format("2024-03-01"), "utf-8")
    assert run("traces", "convert", log, to).out.startswith(f"{to}: 1 job\n")
    there = read_trace(to)
    assert there.presence.rows() == read_trace(log).presence.rows() == [("n2:0", 1800.0, 5400.0, 7200.0, None)]
    assert len(there) == 1


def test_convert_tells_what_is_skipped(run: Run, tmp_path: Path) -> None:
    file, to = tmp_path / "bad.csv", tmp_path / "to.csv"
    file.write_text(f"{HEADER}\na,0,1,5\nb,1,1,never\nc,2,0,5\n", encoding="utf-8")
    refused(run("traces", "convert", file, to), "bad.csv:3: duration_s")
    assert not to.exists()
    told = run("traces", "convert", file, to, "--no-strict", "--json").json
    assert told["jobs"] == 1
    assert told["skipped"] == {
        "CPU-only (gpus 0)": 1,
        "duration_s: must be a number of seconds, zero or more": 1,
    }
    assert "skipped: 1 row: CPU-only" in run("traces", "convert", file, to, "--no-strict").out


def test_convert_does_not_write_over_what_it_reads(run: Run, tmp_path: Path, log: Path) -> None:
    refused(run("traces", "convert", log, log), "is the file to read; write to another one")
    refused(run("traces", "slice", log, log), "is the file to read; write to another one")
    refused(run("traces", "convert", log, tmp_path / "to.txt"), "must end in .csv or .parquet")
    refused(run("traces", "convert", tmp_path / "none.csv", tmp_path / "to.csv"), "no such file")


def test_the_output_of_slurm_can_be_inspected_and_converted(run: Run, tmp_path: Path) -> None:
    file, to = tmp_path / "sacct.txt", tmp_path / "jobs.parquet"
    file.write_text(
        "JobID|Submit|Start|End|State|AllocTRES|Timelimit\n"
        "1|2024-05-01T10:00:00|2024-05-01T10:00:30|2024-05-01T11:00:30|TIMEOUT|gres/gpu=8|01:00:00\n"
        "2|2024-05-01T10:05:00|2024-05-01T10:06:00|2024-05-01T10:16:00|COMPLETED|gres/gpu=1|01:00:00\n"
        "3|2024-05-01T10:06:00|Unknown|Unknown|PENDING|gres/gpu=2|01:00:00\n",
        encoding="utf-8",
    )
    assert [each["format"] for each in run("traces", "list", tmp_path, "--json").json["files"]] == ["sacct"]
    shown = run("traces", "inspect", file).out
    assert "median 45 s, mean 45 s, p99 60 s" in shown
    assert "warning: 1 of 2 jobs (50 %) ran until their time limit" in shown
    assert "skipped: 1 row: " in shown
    refused(run("traces", "inspect", file, "--strict"), f"{file}:4: ")
    assert run("traces", "convert", file, to).out.startswith(f"{to}: 2 jobs\nskipped: 1 row: ")
    assert_frame_equal(read_trace(to).frame, read_trace(file).frame)


def test_every_real_log_reads_the_same_once_converted(shared: Path, tmp_path: Path) -> None:
    files = list(trace_files(shared / "traces"))
    assert len({name for _, name in files}) > 8
    for path, name in files:
        try:
            trace = read_trace(path, name, strict=False)
        except InputError:
            continue
        for ending in ("csv", "parquet"):
            to = tmp_path / f"to.{ending}"
            trace.write(to)
            again = read_trace(to).frame
            assert again.columns == trace.frame.columns
            # In CSV a column that no trace format names is text.
            same = [column for column in again.columns if again.schema[column] == trace.frame.schema[column]]
            assert {"job_id", "submit_s", "gpus", "duration_s"} <= set(same)
            assert len(same) == len(again.columns) or ending == "csv"
            assert_frame_equal(again.select(same), trace.frame.select(same), check_exact=True)


# -- slice ----------------------------------------------------------------------------------------------------


def kept(run: Run, file: Path, to: Path, *words: object) -> list[str]:
    """Slice a trace and return the ids of the jobs that are kept."""
    ran = run("traces", "slice", file, to, *words)
    assert ran.code == 0, ran.err
    return read_trace(to).frame["job_id"].to_list()


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ((), "abcdef"),
        (("--from", 3600, "--to", "3h"), "bc"),
        (("--from", "1.5h"), "cdef"),
        (("--to", "60m"), "a"),
        (("--skip", 4), "ef"),
        (("--from", "1h", "--skip", 1, "--count", 2), "cd"),
        (("--where", "cluster=red"), "acf"),
        (("--where", "cluster=red", "--where", "gpus=2"), "c"),
        (("--where", "cluster=red", "--skip", 1), "cf"),
        (("--where", "cluster=red, dark"), "e"),
    ],
)
def test_slice_keeps_the_jobs_that_are_wanted(
    run: Run, tmp_path: Path, log: Path, words: tuple[object, ...], ids: str
) -> None:
    assert kept(run, log, tmp_path / "to.csv", *words) == list(ids)


def test_slice_says_how_many_it_kept(run: Run, tmp_path: Path, log: Path) -> None:
    to = tmp_path / "to.csv"
    assert run("traces", "slice", log, to, "--count", 2).out == f"{to}: 2 of 6 jobs\n"
    assert run("traces", "slice", log, to, "--count", 2, "--json").json["jobs"] == 2


def test_slices_add_up_to_the_whole(run: Run, tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    generate_trace("itp", jobs=400).write(whole)
    edges = ["0", "1h", "2h", "4h", "20h", "99w"]
    parts = []
    for index, (start, end) in enumerate(pairwise(edges)):
        to = tmp_path / f"part{index}.parquet"
        if run("traces", "slice", whole, to, "--from", start, "--to", end).code == 0:
            parts.append(read_trace(to).frame)
    assert len(parts) > 2
    assert_frame_equal(pl.concat(parts), read_trace(whole).frame)


def test_a_slice_from_zero_shifts_every_time(run: Run, tmp_path: Path, log: Path) -> None:
    to = tmp_path / "to.parquet"
    kept(run, log, to, "--from", "1h", "--from-zero")
    frame = read_trace(to).frame
    assert frame["submit_s"].to_list() == [0, 3600, 7200, 10_800, 14_400]
    assert frame["start_s"].to_list() == [0, 3605, None, 10_900, 14_400]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--from", "soon"), ("--from: must be a time such as 3600, 90m, 3h, 2d or 1w, not 'soon'",)),
        (("--to", "-1"), ("--to: must be a time", "'-1'")),
        (("--from", "9d"), ("no jobs in that slice",)),
        (("--from", "2h", "--to", "1h"), ("no jobs in that slice",)),
        (("--skip", "6"), ("no jobs in that slice",)),
        (("--where", "gpus"), ("--where: must be COLUMN=VALUE, not 'gpus'",)),
        (("--where", "gpu=8"), ("unknown column 'gpu'; did you mean 'gpus'?",)),
        (("--where", "gpus=many"), ("--where: gpus: must be a number, not 'many'",)),
        (("--where", "gpus=1", "--where", "gpus=2"), ("--where: gpus is given twice",)),
        (("--where", "cluster=green"), ("no jobs with cluster 'green'",)),
    ],
)
def test_slice_says_what_is_wrong(
    run: Run, tmp_path: Path, log: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    to = tmp_path / "to.csv"
    refused(run("traces", "slice", log, to, *words), *parts)
    assert not to.exists()


def test_slice_finds_truth_in_a_column_of_it(run: Run, tmp_path: Path, log: Path) -> None:
    file = tmp_path / "cut.parquet"
    read_trace(log).frame.with_columns(cut=pl.col("gpus") > 3).write_parquet(file)
    assert kept(run, file, tmp_path / "to.csv", "--where", "cut=true") == ["a", "d", "f"]
