"""Logs of other systems: our own samples in their layouts, and real ones where they are at hand."""

import json
import os
from pathlib import Path

import polars as pl
import pytest

from cranny.model.errors import InputError
from cranny.model.profile import ModelProfile
from cranny.traces.read import READERS, find_format, read_trace
from cranny.traces.readers import json_log

SAMPLES = Path(__file__).parent / "samples"
CPU, NEVER = "CPU-only (gpus 0)", "never started"
RUNNING, BACKWARDS = "no end in the log: still running", "ended before it started"
SIZES = ("job_id", "submit_s", "gpus", "duration_s")


@pytest.mark.parametrize(
    ("file", "format_name", "jobs", "skipped"),
    [
        (
            "philly.json",
            "philly",
            [("application_1_0001", 0.0, 1, 20.0), ("application_1_0002", 20.0, 16, 3660.0)],
            {NEVER: 2, RUNNING: 1, BACKWARDS: 1},
        ),
        ("seren.csv", "acme", [("104", 0.0, 1, 1.5), ("100", 10.0, 8, 3600.0)], {CPU: 1, NEVER: 1, RUNNING: 1}),
        ("kalos.csv", "acme", [("dlca", 0.0, 16, 120.0), ("dlcb", 600.0, 8, 20.0)], {}),
        (
            "helios.csv",
            "helios",
            [("10", 0.0, 8, 1209610.0), ("7", 86400.0, 16, 7200.0)],
            {CPU: 1, NEVER: 1, BACKWARDS: 1},
        ),
        (
            "pai_task_table.csv",
            "pai",
            [("bb/tensorflow", 0.0, 2, 60.0), ("aa/worker", 600.0, 4, 600.0)],
            {CPU: 1, NEVER: 1, RUNNING: 1},
        ),
        ("openb.csv", "openb", [("pod-0", 0.0, 8, 540.0), ("pod-1", 30.0, 1, 4870.0)], {CPU: 1, NEVER: 1}),
        (
            "elasticflow_raw.csv",
            "elasticflow",
            [("a-2", 0.0, 1, 60.0), ("a-1", 1000.0, 8, 3600.0), ("a-3", 2000.0, 64, 1.0)],
            {},
        ),
        ("elasticflow.csv", "elasticflow", [("b-2", 0.0, 1, 60.0), ("b-1", 1000.0, 8, 3600.0)], {}),
        ("muri.csv", "muri", [("0", 0.0, 1, 2500.0), ("1", 201.5, 8, 600.0)], {}),
        ("tiresias.csv", "tiresias", [("0", 0.0, 1, 160.0), ("1", 30.0, 8, 150.0)], {}),
        (
            "pollux.csv",
            "pollux",
            [("cifar10-0", 0.0, 4, 450.0), ("ncf-1", 60.5, 1, 1800.0), ("imagenet-2", 100.0, 8, 450.0 * 10**2.5)],
            {"no duration in the log, and an application of no known class": 1},
        ),
        (
            "sacct.txt",
            "sacct",
            [
                ("102_4", 0.0, 3, 30.0),
                ("100", 60.0, 16, 93600.0),
                ("105", 360.0, 8, 259200.0),
                ("106", 420.0, 4, 60.0),
                ("107", 540.0, 4, 60.0),  # has a bar in its JobName
            ],
            {
                "a step, whose job has a row of its own": 1,
                CPU: 1,
                NEVER: 2,
            },
        ),
        (
            "pods.json",
            "kubernetes",
            [
                ("research/alone", 0.0, 1, 60.0),
                ("research/llm", 60.0, 16, 3545.0),
                ("research/going", 420.0, 2, 3235.0),
            ],
            {CPU: 1, NEVER: 1},
        ),
        (
            "pbs.txt",
            "pbs",
            [
                ("101", 0.0, 8, 3600.0),
                ("102", 0.0, 2, 200.0),
                ("104[1]", 0.0, 1, 1700.0),
                ("106", 0.0, 4, 1760.0),
                ("102@2", 300.0, 2, 840.0),
                ("103", 500.0, 1, 3060.0),
            ],
            {
                "a record that neither starts nor ends a job": 2,
                "an array as a whole, whose tasks have records of their own": 1,
                "a start whose end has a record of its own": 1,
                CPU: 1,
            },
        ),
        (
            "prometheus.json",
            "prometheus",
            [
                ("research/llm", 0.0, 16, 1815.0),
                ("research/alone", 600.0, 1, 880.0),
                ("research/going", 900.0, 2, 2340.0),
            ],
            {CPU: 1, NEVER: 1},
        ),
        (
            "jobs.json",
            "kubernetes",
            [
                ("research/both", 0.0, 2, 2040.0),
                ("research/good", 600.0, 8, 600.0),
                ("research/bad", 610.0, 2, 30.0),
                ("research/going", 620.0, 2, 1719.0),
            ],
            {"not a job, or one without an id": 1, NEVER: 1},
        ),
    ],
)
def test_reads_our_samples(
    file: str, format_name: str, jobs: list[tuple[object, ...]], skipped: dict[str, int]
) -> None:
    assert find_format(SAMPLES / file) == format_name
    trace = read_trace(SAMPLES / file)
    for found, expected in zip(trace.frame.select(SIZES).rows(), jobs, strict=True):
        assert found == pytest.approx(expected)
    assert trace.skipped == skipped
    assert trace.notes[0].startswith("time zero is ")
    assert [job.id for job in trace.jobs()] == [name for name, *_ in jobs]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("philly.json", "philly.json: job 3 (application_1_0003): start_time: never started"),
        ("seren.csv", "seren.csv:4: end_time: no end in the log: still running"),
        ("helios.csv", "helios.csv:4: start_time: never started"),
        ("pai_task_table.csv", "pai_task_table.csv:4: end_time: no end in the log: still running"),
        ("openb.csv", "openb.csv:5: scheduled_time: never started"),
        ("gavel.trace", "gavel.trace:3: job_type: no duration in the log, and no profile of its model"),
        ("sacct.txt", "sacct.txt:6: Start: never started"),
        ("pods.json", "pods.json: job 4 (research/queued): status.startTime: never started"),
    ],
)
def test_a_strict_reader_names_file_line_and_field(file: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(SAMPLES / file, strict=True)
    assert str(caught.value) == f"{SAMPLES}{os.sep}{message}"


@pytest.mark.parametrize(
    "file", ["kalos.csv", "elasticflow_raw.csv", "elasticflow.csv", "muri.csv", "tiresias.csv"]
)
def test_sound_logs_pass_a_strict_reader(file: str) -> None:
    assert len(read_trace(SAMPLES / file, strict=True)) >= 2


@pytest.mark.parametrize(
    "file", sorted(path.name for path in SAMPLES.iterdir() if path.name != "pai_job_table.csv")
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_was_read_survives_our_own_formats(tmp_path: Path, file: str, suffix: str) -> None:
    trace = read_trace(SAMPLES / file)
    trace.write(tmp_path / f"ours{suffix}")
    assert read_trace(tmp_path / f"ours{suffix}").frame.equals(trace.frame)


def test_a_log_tells_who_when_and_where() -> None:
    columns = ("start_s", "tenant", "user", "status", "cluster", "machines", "limit_s", "gpu_type")
    assert read_trace(SAMPLES / "sacct.txt").frame.select(columns).rows() == [
        (120.0, "gpu", "bob", "CANCELLED", "c1", 1, None, None),  # on two types
        (660.0, "gpu", "ann", "COMPLETED", "c1", 2, 172800.0, "h100"),
        (370.0, "gpu", "ann", "RUNNING", "c1", 1, None, None),
        (420.0, "gpu", "ann", "TIMEOUT", "c1", 1, 60.0, None),
        (600.0, "gpu", "ann", "COMPLETED", "c1", 1, 600.0, None),
    ]
    columns = ("start_s", "tenant", "user", "status", "attempts", "machines")  # type: ignore[assignment]
    assert read_trace(SAMPLES / "philly.json").frame.select(columns).rows() == [
        (10.0, "blue", "bob", "Killed", 2, 1),
        (40.0, "red", "ann", "Pass", 2, 2),
    ]
    frame = read_trace(SAMPLES / "seren.csv").frame
    assert frame.select("start_s", "user", "status", "cluster", "machines").rows()[1] == (
        20.0, "u1", "COMPLETED", "Seren", 1,
    )  # fmt: skip
    frame = read_trace(SAMPLES / "elasticflow.csv").frame
    assert frame.select("model", "iterations", "batch_size", "deadline_s").rows() == [
        (None, 40, 32, 90.0),
        ("vgg16", 900, 64, 5000.0),
    ]


def test_a_pod_that_replaces_another_does_not_add_to_its_job() -> None:
    frame = read_trace(SAMPLES / "pods.json").frame
    assert frame.select("gpus", "machines", "gpu_type", "status").rows()[1] == (16, 2, "H100", "Failed, Succeeded")


def test_gavel_jobs_last_as_long_as_their_profile_says() -> None:
    mine = {
        "resnet50": ModelProfile(name="resnet50", grad_bytes=1e6, iteration_ms=100, batch=64),
        "cyclegan": ModelProfile(name="cyclegan", grad_bytes=1e6, iteration_ms=50, batch=1),
    }
    trace = read_trace(SAMPLES / "gavel.trace", profiles=mine)
    assert trace.frame.select("job_id", "submit_s", "gpus", "duration_s", "model").rows() == [
        ("1", 0.0, 4, 1000 * 0.1 * 128 / 64, "resnet50"),
        ("3", 9.5, 1, 900 * 0.05, "cyclegan"),
    ]
    assert trace.skipped == {"no duration in the log, and no profile of its model": 1}


def test_pai_job_table_alone_is_refused_with_advice() -> None:
    with pytest.raises(InputError, match="has no GPU counts; give its task table"):
        read_trace(SAMPLES / "pai_job_table.csv")


def test_pai_tables_may_have_their_header_line(tmp_path: Path) -> None:
    header = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    path = tmp_path / "with_header.csv"
    path.write_text(header + (SAMPLES / "pai_task_table.csv").read_text(encoding="utf-8"), encoding="utf-8")
    assert read_trace(path).frame.equals(read_trace(SAMPLES / "pai_task_table.csv").frame)


@pytest.mark.parametrize(
    ("field", "value", "gpus"),
    [
        ("AllocTRES", "cpu=8,gres/gpu=8,node=1", 8),
        ("AllocTRES", "cpu=8,gres/gpu:h100=8,node=1", 8),
        ("AllocTRES", "cpu=8,gres/gpu:h100=8,gres/gpu:1080ti=2,node=1", 10),
        ("ReqTRES", "gres/gpu=2", 2),
        ("AllocGRES", "gpu:4", 4),
        ("AllocGRES", "gpu:h100:8", 8),
        ("ReqGRES", "gpu:1080ti:2,craynetwork:1", 2),
        ("ReqGRES", "craynetwork:1", None),
    ],
)
def test_reads_the_gpus_of_slurm_however_they_are_written(
    tmp_path: Path, field: str, value: str, gpus: int | None
) -> None:
    path = tmp_path / "sacct.txt"
    rest = "2024-03-01T08:00:00|2024-03-01T08:00:05|2024-03-01T08:00:09|"
    # With -p, which ends every line with a bar.
    path.write_text(f"Submit|Start|End|JobIDRaw|{field}|\n{rest}1|{value}|\n{rest}2|{value}|\n", encoding="utf-8")
    if gpus is None:
        with pytest.raises(InputError, match="no jobs: no row names GPUs; ask for AllocTRES"):
            read_trace(path)
    else:
        assert read_trace(path, strict=True).frame.select(SIZES).rows() == [
            ("1", 0.0, gpus, 4.0),
            ("2", 0.0, gpus, 4.0),
        ]


def test_slurm_times_may_be_numbers(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text(
        "JobID|ReqTRES|Submit|Start|End\n1|gres/gpu=1|1700000000|1700000060|1700000090\n", encoding="utf-8"
    )
    trace = read_trace(path)
    assert trace.frame.select("start_s", "duration_s").rows() == [(60.0, 30.0)]
    assert "2023-11-14 22:13:20" in trace.notes[0]


def test_says_what_slurm_must_be_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("JobID|Submit|Start|End\n1|a|b|c\n", encoding="utf-8")
    with pytest.raises(InputError, match="has no column for GPUs; ask for sacct -a -D -X -P -o Cluster,JobID,"):
        read_trace(path)


def test_a_wrong_time_is_no_missing_time(tmp_path: Path) -> None:
    path = tmp_path / "helios.csv"
    text = (SAMPLES / "helios.csv").read_text(encoding="utf-8")
    path.write_text(text.replace("2020-04-02 10:05:00", "noon").replace("2020-04-01 10:00:00,2", "2020-13-01,2"))
    with pytest.raises(InputError, match="no jobs"):
        read_trace(path)
    with pytest.raises(InputError, match=r"helios.csv:2: start_time: must be a time, not 'noon'$"):
        read_trace(path, strict=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"jobid": "a", "attempts": [', ":1: not JSON: "),
        (b'[{"jobid": "a", "attempts": ' + b"[" * 100_000, ": nested too deep"),
        (b'[{"jobid": "\xff", "attempts": []}]', ": not UTF-8 text"),
        (b'[{"jobid": ' + b"1" * 5000 + b', "attempts": []}]', ": not JSON that can be read: "),
    ],
)
def test_refuses_broken_json(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}{message}")


def test_refuses_json_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_log, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="so split the file"):
        read_trace(SAMPLES / "philly.json")


def test_half_a_character_in_json_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    entries = json.loads((SAMPLES / "philly.json").read_text(encoding="utf-8"))
    entries[0]["user"] = "\ud800"
    path.write_text(json.dumps(entries), encoding="utf-8")
    assert read_trace(path).frame["user"].to_list() == ["bob", "?"]


def test_a_file_of_no_known_format_is_told_which_there_are(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    assert find_format(path) is None
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value) == f"{path}: not in a known trace format ({', '.join(READERS)})"


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("pai", "gavel", "pbs")])
def test_a_named_format_says_what_it_misses(tmp_path: Path, name: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError) as caught:
        read_trace(path, format=name)
    assert str(caught.value).startswith(str(path))


def test_logged_columns_that_are_no_numbers_are_emptied_and_noted(tmp_path: Path) -> None:
    path = tmp_path / "ours.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,nodes,start_s,vc\na,0,1,1,2,3.5,red\nb,0,1,1,n1-n2,,\n")
    trace = read_trace(path)
    assert trace.frame.select("machines", "start_s", "tenant").rows() == [(2, 3.5, "red"), (None, None, None)]
    assert trace.notes == ("machines: 1 values are no whole numbers and were left empty",)
    assert trace.frame.schema["machines"] == pl.Int32


def test_a_slice_from_zero_moves_every_time() -> None:
    frame = read_trace(SAMPLES / "sacct.txt").slice(skip=1, from_zero=True).frame
    assert frame.select("submit_s", "start_s").rows() == [
        (0.0, 600.0),
        (300.0, 310.0),
        (360.0, 360.0),
        (480.0, 540.0),
    ]


@pytest.mark.parametrize(
    ("file", "jobs", "skipped"),
    [
        ("acme_trace_kalos.native5.csv", 5, 0),
        ("acme_trace_seren.native5.csv", 5, 0),
        ("elasticflow_195job.csv", 195, 0),
        ("elasticflow_philly_103959.head200.csv", 200, 0),
        ("elasticflow_raw_cluster04.head200.csv", 200, 0),
        ("elasticflow_sim_cluster04.head200.csv", 200, 0),
        ("gavel_msr_seed0_103959.head200.trace", 72, 128),
        ("helios_cluster_log.native13.csv", 13, 0),
        ("muri_trace1.head200.csv", 200, 0),
        ("openb_pod_list_default.head200.csv", 178, 22),
        ("pai_task_table.native1.csv", 1, 0),
        ("philly_cluster_job_log.native3.json", 2, 1),
        ("philly_cluster_job_log.rebuilt200.json", 199, 1),
        ("pollux_realistic_workload-1.csv", 160, 0),
        ("pollux_workload-1.csv", 160, 0),
        ("sia_newtrace_workload-1.head200.csv", 200, 0),
        ("tiresias_60_job.csv", 60, 0),
    ],
)
def test_reads_the_real_samples_to_the_last_row(shared: Path, file: str, jobs: int, skipped: int) -> None:
    trace = read_trace(shared / "traces" / "raw_samples" / file)
    assert (len(trace), sum(trace.skipped.values())) == (jobs, skipped)


def test_a_real_kalos_job_lasts_from_start_to_end(shared: Path) -> None:
    ours = read_trace(shared / "traces" / "raw_samples" / "acme_trace_kalos.native5.csv").frame
    table = read_trace(shared / "traces" / "acme_kalos_head800.parquet").frame
    both = ours.join(table, on="job_id", suffix="_table")
    assert both.height == 5
    for column in ("submit_s", "start_s", "gpus", "duration_s"):
        assert both[column].to_list() == both[f"{column}_table"].to_list()


def test_muri_and_openb_agree_with_the_tables_made_of_them(shared: Path) -> None:
    for file, table, columns in (
        ("openb_pod_list_default.head200.csv", "alibaba_openb2023", ("gpus", "duration_s", "start_s")),
        (
            "elasticflow_sim_cluster04.head200.csv",
            "elasticflow_itp",
            ("gpus", "duration_s", "model", "iterations"),
        ),
    ):
        ours = read_trace(shared / "traces" / "raw_samples" / file).frame
        theirs = read_trace(shared / "traces" / f"{table}.parquet", strict=False).frame
        both = ours.join(theirs, on="job_id", suffix="_table")
        assert both.height == ours.height
        for column in columns:
            assert both[column].to_list() == both[f"{column}_table"].to_list()


@pytest.mark.parametrize("name", ["elasticflow_itp", "philly"])
def test_large_tables_are_read_whole(shared: Path, name: str) -> None:
    # How long that takes is measured by `cranny bench traces`.
    trace = read_trace(shared / "traces" / f"{name}.parquet")
    assert len(trace) > 60_000
    assert trace.frame["submit_s"].is_sorted()


def test_sacct_counts_a_row_without_an_id_as_that_and_not_as_a_step(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    line = "|2026-01-05T08:00:00|2026-01-05T08:00:10|2026-01-05T10:00:10|gres/gpu=8"
    path.write_text(f"JobID|Submit|Start|End|AllocTRES\n1{line}\n{line}\n", encoding="utf-8")
    assert list(read_trace(path).skipped) == ["job_id: must not be empty"]
    with pytest.raises(InputError, match="JobID"):
        read_trace(path, strict=True)


@pytest.mark.parametrize(
    ("tres", "gpus", "gpu_type"),
    [
        ("gres/gpu=6,gres/gpu:a100=4,gres/gpu:v100=2", 6, None),
        ("gres/gpu:a100=4,gres/gpu=4", 4, "a100"),
        ("gres/gpu=4", 4, None),
    ],
)
def test_sacct_takes_a_type_of_gpu_only_where_there_is_one(
    tmp_path: Path, tres: str, gpus: int, gpu_type: str | None
) -> None:
    path = tmp_path / "sacct.txt"
    times = "2026-01-05T08:00:00|2026-01-05T08:00:10|2026-01-05T10:00:10"
    path.write_text(f"JobID|Submit|Start|End|AllocTRES\n1|{times}|{tres}\n", encoding="utf-8")
    frame = read_trace(path).frame
    assert frame.select("gpus", "gpu_type").row(0) == (gpus, gpu_type)


@pytest.mark.parametrize(("percent", "gpus"), [(50, 1), (100, 1), (120, 2), (250, 3)])
def test_pai_counts_a_part_of_a_gpu_as_one(tmp_path: Path, percent: int, gpus: int) -> None:
    path = tmp_path / "task.csv"
    path.write_text(f"job,worker,1,Terminated,10,20,600,29,{percent},V100\n", encoding="utf-8")
    assert read_trace(path).frame["gpus"].to_list() == [gpus]


def test_a_kubernetes_job_ends_when_it_says_so_even_if_a_pod_was_evicted(tmp_path: Path) -> None:
    gpu = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]}
    owner = [{"kind": "Job", "name": "train", "controller": True}]
    items: list[dict[str, object]] = [
        {
            "kind": "Job",
            "metadata": {"name": "train", "namespace": "ml", "creationTimestamp": "2026-01-05T08:00:00Z"},
            "spec": {"template": {"spec": gpu}},
            "status": {"startTime": "2026-01-05T08:00:05Z", "completionTime": "2026-01-05T09:00:00Z"},
        },
        {
            "kind": "Pod",
            "metadata": {"name": "train-a", "namespace": "ml", "ownerReferences": owner},
            "spec": gpu,
            "status": {"phase": "Failed", "reason": "Evicted", "startTime": "2026-01-05T08:00:10Z"},
        },
    ]
    path = tmp_path / "jobs.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    frame = read_trace(path).frame
    assert frame["duration_s"].to_list() == [3590.0]
