"""Bad input gets one line on standard error and exit code 2, never a traceback."""

import os
from pathlib import Path

import pytest
from tests.cli.conftest import Ran, Run

SMALL = ("--cluster", "1x2x4")
HEADER = "job_id,submit_s,gpus,duration_s"


def refused(ran: Ran, *parts: str, code: int = 2) -> None:
    """See that a command ended with one line that holds these parts."""
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("cranny: ")
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err


# -- names ----------------------------------------------------------------------------------------------------


def test_unknown_policy(run: Run, trace_file: Path) -> None:
    wanted = "unknown policy 'titn'; did you mean 'titan'?"
    refused(run("simulate", trace_file, "--policy", "titn"), wanted)
    refused(run("compare", trace_file, "--policies", "best-fit,titn"), wanted)
    refused(run("place", "--gpus", 2, "--policy", "titn"), wanted)
    refused(run("explain", trace_file, "a", "--policy", "titn"), wanted)
    refused(run("demo", "--policies", "titn"), wanted)


def test_no_policy_at_all(run: Run, trace_file: Path) -> None:
    refused(run("compare", trace_file, "--policies", " , "), "no policy was given")


def test_one_policy_where_one_is_wanted(run: Run, trace_file: Path) -> None:
    refused(run("simulate", trace_file, "--policy", "titan,best-fit"), "unknown policy 'titan,best-fit'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--order", "fifi"], "unknown queue order 'fifi'; did you mean 'fifo'?"),
        (["--network", "isolate"], "unknown network model 'isolate'; did you mean 'isolated'?"),
        (["--collective", "rung"], "unknown collective 'rung'; did you mean 'ring'?"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "compare", "explain"])
def test_unknown_names(run: Run, trace_file: Path, command: str, words: list[str], message: str) -> None:
    job = ["a"] if command == "explain" else []
    serial = ["--processes", "1"] if command == "compare" else []
    refused(run(command, trace_file, *job, *SMALL, *serial, *words), message)


def test_unknown_model(run: Run, tmp_path: Path) -> None:
    refused(run("place", "--gpus", 2, "--model", "vgg17"), "unknown model 'vgg17'; did you mean 'vgg1")
    file = tmp_path / "jobs.csv"
    file.write_text(f"{HEADER},model\na,0,1,5,vgg16\nb,0,1,5,resnet5\n", encoding="utf-8")
    refused(run("simulate", file), f"{file}:3: model: unknown model 'resnet5'; did you mean 'resnet50'?")


def test_unknown_preset_and_trace(run: Run, tmp_path: Path) -> None:
    refused(run("traces", "generate", "phily", tmp_path / "x.csv"), "unknown preset 'phily'", "'philly'")
    refused(run("simulate", "phily"), "unknown trace file or preset 'phily'; did you mean 'philly'?")


def test_unknown_job(run: Run, trace_file: Path) -> None:
    refused(
        run("explain", trace_file, "zzz", *SMALL),
        "there is no job 'zzz' in jobs; the first is 'a', the last 'huge'",
    )
    ran = run("explain", "itp", "itp-9", *SMALL, "--jobs", 20)
    refused(ran, "there is no job 'itp-9' in itp; the first is 'itp-000001', the last 'itp-000020'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "phase_budget_s"], "--set: must be NAME=VALUE, not 'phase_budget_s'"),
        (["--set", "=1"], "--set: must be NAME=VALUE"),
        (["--set", "no_such_option=1"], "policy 'cranny': "),
        (["--policy", "titan", "--set", "no_such_option=1"], "policy 'titan': "),
        (["--set", "patience=-1"], "cranny: patience must be "),
        (["--policy", "titan", "--set", "phase_budget_s=-1"], "phase_budget_s must be a positive number, not -1"),
        (
            ["--policy", "titan", "--set", "phase_budget_s=NaN"],
            "phase_budget_s must be a positive number, not nan",
        ),
        (["--policy", "titan", "--set", "phase_budget_s=soon"], "phase_budget_s must be a positive number"),
        (
            ["--policy", "tiresias", "--set", "skew_limit=-1"],
            "tiresias: skew_limit must be a number, zero or more",
        ),
        (["--policy", "hived", "--set", "vcs=1"], "hived: vcs must be "),
        (
            ["--policy", "hived", "--set", 'vcs={"red": 2}'],
            "hived: the share of 'red' must be a number from 0 to 1",
        ),
        (["--policy", "best-fit", "--set", "x=1"], "policy 'best-fit': "),
    ],
)
def test_bad_options_of_a_policy(run: Run, trace_file: Path, words: list[str], message: str) -> None:
    refused(run("simulate", trace_file, *SMALL, *words), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "models.json: there is no such file"),
        ("", "not JSON"),
        ("[]", "models: expected an object"),
        ('{"models": {"x": {"measured": [{"grad_bytes": -1, "iteration_ms": 1}]}}}', "grad_bytes must be"),
        ('{"models": {"x": {"measured": [{"grad_bytes": NaN, "iteration_ms": 1}]}}}', "grad_bytes must be"),
    ],
)
def test_bad_files_of_profiles(
    run: Run, tmp_path: Path, trace_file: Path, content: str | None, message: str
) -> None:
    file = tmp_path / "models.json"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    refused(run("simulate", trace_file, *SMALL, "--profiles", file), str(file), message)
    refused(run("simulate", trace_file, *SMALL, "--profiles", tmp_path), "cannot be read: Is a directory")


# -- clusters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("0x2x4", "--cluster: racks must be a whole number from 1"),
        ("2x0x4", "machines_per_rack must be a whole number from 1"),
        ("2x2x0", "gpus_per_machine must be a whole number from 1"),
        ("2x2x65", "gpus_per_machine must be a whole number from 1 to 64, not 65"),
        ("999999x999999x8", "more than 1000000 machines"),
        ("9999999x1x8", "racks must be a whole number"),
        ("2x2", "--cluster: must be a file or RACKSxMACHINESxGPUS, such as 8x8x8, not '2x2'"),
        ("1x-2x4", "--cluster: must be a file or RACKSxMACHINESxGPUS"),
        ("-2x2x2", "--cluster: must be a file or RACKSxMACHINESxGPUS"),
        ("2x2.5x2", "--cluster: must be a file or RACKSxMACHINESxGPUS"),
        ("2x2xnan", "--cluster: must be a file or RACKSxMACHINESxGPUS"),
        ("", "--cluster: must be a file or RACKSxMACHINESxGPUS"),
    ],
)
def test_bad_shapes_of_a_cluster(run: Run, shape: str, message: str) -> None:
    refused(run("place", "--gpus", 1, f"--cluster={shape}"), message)


@pytest.mark.parametrize("value", ["nan", "-1", "0", "inf"])
@pytest.mark.parametrize("option", ["--link-gbps", "--oversubscription"])
def test_bad_numbers_for_links(run: Run, option: str, value: str) -> None:
    refused(run("place", "--gpus", 1, *SMALL, f"{option}={value}"), f"{option}: must be a positive number")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("machines: [{gpus: 4\n", "cannot be read as YAML or JSON"),
        ("a: b: c\n", "cannot be read as YAML or JSON"),
        ("\tmachines: 1\n", "cannot be read as YAML or JSON"),
        ("machines: [{gpus: -4}]\n", "machines[0].gpus: must be a whole number from 1 to 64, not -4"),
        ("machines: [{gpus: .nan}]\n", "machines[0].gpus: must be a whole number"),
        ("machines: [{gpus: 4, uplink_gbps: -1}]\n", "must be a positive number"),
        ("link_gbps: .nan\nmachines: [{gpus: 4}]\n", "link_gbps: must be a positive number"),
        ("machine: [{gpus: 4}]\n", "unknown field 'machine'; did you mean 'machines'?"),
        ("- 1\n", ""),
        ("", "is empty"),
        ("name: x\n", "has no machines"),
    ],
)
def test_malformed_cluster_files(run: Run, tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(text, encoding="utf-8")
    refused(run("place", "--gpus", 1, "--cluster", file), str(file), message)


def test_clusters_that_are_no_files(run: Run, tmp_path: Path) -> None:
    refused(run("place", "--gpus", 1, "--cluster", tmp_path), "is a folder, not a file")
    refused(run("place", "--gpus", 1, "--cluster", tmp_path / "x.yaml"), "there is no such file")
    binary = tmp_path / "lab.bin"
    binary.write_bytes(bytes(range(256)))
    refused(run("place", "--gpus", 1, "--cluster", binary), str(binary))


@pytest.mark.parametrize(
    ("free", "message"),
    [
        ("1,2,3", "names 3 machines, the cluster has 2"),
        ("1,5", "machine 1: must be from 0 to 4, not '5'"),
        ("1,-1", "not '-1'"),
        ("1,²", "not '²'"),
        ("1,", "not ''"),
        ("1,nan", "not 'nan'"),
        ("1," + "9" * 5000, "must be from 0 to 4"),
    ],
)
def test_bad_lists_of_free_gpus(run: Run, free: str, message: str) -> None:
    refused(run("place", "--gpus", 1, *SMALL, f"--free={free}"), "--free: ", message)


# -- jobs -----------------------------------------------------------------------------------------------------


def test_a_job_larger_than_the_cluster(run: Run, tmp_path: Path) -> None:
    refused(run("place", "--gpus", 9, *SMALL), "--gpus: the job needs 9 GPUs, the cluster has 8")
    file = tmp_path / "jobs.csv"
    file.write_text(f"{HEADER}\na,0,9,5\nb,0,99,5\n", encoding="utf-8")
    message = "no job of jobs can run: job 'a' needs 9 GPUs, the cluster has 8"
    refused(run("simulate", file, *SMALL), message)
    refused(run("compare", file, *SMALL, "--policies", "titan,best-fit", "--processes", 1), message)
    refused(run("compare", file, *SMALL, "--policies", "titan,best-fit", "--processes", 2), message)


@pytest.mark.parametrize("gpus", ["0", "-1", "1000001"])
def test_a_number_of_gpus_that_no_job_has(run: Run, gpus: str) -> None:
    refused(run("place", f"--gpus={gpus}", *SMALL), "--gpus: must be a whole number from 1 to 1000000")


@pytest.mark.parametrize("words", [["--gpus=nan"], ["--gpus=1.5"], ["--gpus=x"], []])
def test_words_where_numbers_are_wanted(run: Run, words: list[str]) -> None:
    ran = run("place", *words, *SMALL)
    assert ran.code == 2
    assert "--gpus" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("b,0,-1,5", "gpus: must be a whole number from 1 to 1000000, or 0 for CPU-only, not '-1'"),
        ("b,0,nan,5", "gpus: "),
        ("b,0,1.5,5", "gpus: "),
        ("b,0,1000001,5", "gpus: "),
        ("b,0,,5", "gpus: "),
        ("b,0,1,-5", "duration_s: must be a number of seconds, zero or more, not '-5'"),
        ("b,0,1,nan", "duration_s: "),
        ("b,0,1,inf", "duration_s: "),
        ("b,0,1,soon", "duration_s: "),
        ("b,-1,1,5", "submit_s: must be a number of seconds, zero or more, not '-1'"),
        ("b,NaN,1,5", "submit_s: "),
        ("a,0,1,5", "job_id: must be unique, but 'a' is also in line 2"),
        (",0,1,5", "job_id: "),
    ],
)
@pytest.mark.parametrize("command", [["simulate"], ["traces", "inspect"]], ids=" ".join)
def test_rows_that_cannot_be_used(run: Run, tmp_path: Path, command: list[str], row: str, field: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"{HEADER}\na,0,1,5\n{row}\n", encoding="utf-8")
    refused(run(*command, file), f"{file}:3: {field}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (HEADER.encode() + b"\n", "no jobs"),
        (b"job_id,submit_s,gpus\na,0,1\n", "missing column duration_s"),
        (b"PAR1 and then nothing", "Parquet"),
        (bytes(range(128, 256)), ""),
        (HEADER.encode() + b"\na,0,1,5,6,7\n", ""),
        (b"{}", "not in a known trace format"),
    ],
)
def test_files_that_are_no_traces(run: Run, tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_bytes(content)
    for command in (["simulate"], ["compare"], ["traces", "inspect"]):
        refused(run(*command, file), str(file), message)
    refused(run("explain", file, "a"), str(file), message)


def test_files_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    refused(run("simulate", tmp_path / "nowhere.csv"), "nowhere.csv: there is no such file")
    refused(run("traces", "inspect", tmp_path / "nowhere"), "nowhere: there is no such file")
    refused(run("simulate", tmp_path), "is a folder, not a trace")
    refused(run("traces", "inspect", tmp_path), "is a folder, not a trace")
    locked = tmp_path / "locked.csv"
    locked.write_text(f"{HEADER}\na,0,1,5\n", encoding="utf-8")
    locked.chmod(0)
    if os.geteuid():  # nothing is locked for root
        refused(run("simulate", locked), "locked.csv: cannot be read: Permission denied")
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    refused(run("traces", "inspect", loop), "loop.csv")


# -- numbers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_bad_loads(run: Run, tmp_path: Path, value: str) -> None:
    refused(run("simulate", "philly", *SMALL, f"--load={value}"), "--load: must be a positive number")
    words = ("traces", "generate", "philly", tmp_path / "x.csv", "--gpus", 8)
    refused(run(*words, f"--load={value}"), "--load: must be a positive number")


def test_a_load_of_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    refused(run("traces", "generate", "philly", file, "--load", 0.5), "--load: needs --gpus")
    refused(run("traces", "generate", "philly", file, "--max-gpus=0"), "--max-gpus: must be a whole number from 1")
    refused(run("traces", "generate", "philly", file, "--gpus=0"), "--gpus: must be a whole number from 1")


@pytest.mark.parametrize("value", ["0", "-5", "100000001"])
def test_bad_numbers_of_jobs(run: Run, tmp_path: Path, value: str) -> None:
    refused(run("simulate", "philly", *SMALL, f"--jobs={value}"), "--jobs: must be a whole number from 1")
    refused(run("traces", "generate", "philly", tmp_path / "x.csv", f"--jobs={value}"), "--jobs: must be")


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_bad_prices(run: Run, trace_file: Path, value: str) -> None:
    words = (trace_file, *SMALL, f"--price-per-gpu-hour={value}")
    refused(run("simulate", *words), "--price-per-gpu-hour: must be a number, zero or more")
    refused(run("compare", *words, "--processes", 1), "--price-per-gpu-hour: must be a number, zero or more")


@pytest.mark.parametrize("value", ["-1", str(2**63)])
def test_bad_seeds(run: Run, trace_file: Path, value: str) -> None:
    refused(run("simulate", trace_file, *SMALL, f"--seed={value}"), "--seed: must be a whole number from 0")
    refused(run("simulate", "philly", *SMALL, f"--seed={value}"), "--seed: must be a whole number from 0")
    words = ("place", "--gpus", 2, *SMALL, "--policy", "random")
    refused(run(*words, f"--seed={value}"), "--seed: must be a whole number from 0")


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
def test_bad_times_of_the_map(run: Run, trace_file: Path, tmp_path: Path, value: str) -> None:
    page = tmp_path / "page.html"
    words = (trace_file, *SMALL, "--report", page, f"--map-at={value}")
    refused(run("simulate", *words), "--map-at: must be a number of seconds, zero or more")
    assert not page.exists()


@pytest.mark.parametrize("value", ["0", "-3"])
def test_bad_numbers_of_processes(run: Run, trace_file: Path, value: str) -> None:
    ran = run("compare", trace_file, *SMALL, f"--processes={value}")
    assert ran.code == 2
    assert "--processes" in ran.err


# -- where results go -----------------------------------------------------------------------------------------


def test_pages_that_cannot_be_written(run: Run, trace_file: Path, tmp_path: Path) -> None:
    for command in ("simulate", "compare"):
        serial = ["--processes", 1] if command == "compare" else []
        words = (command, trace_file, *SMALL, *serial)
        refused(run(*words, "--report", tmp_path), f"--report: {tmp_path}: is a folder, not a file")
        below_a_file = trace_file / "page.html"
        refused(run(*words, "--report", below_a_file), f"--report: {trace_file}: is a file, not a folder")
        ran = run(*words, "--report", "/proc/no/page.html")
        refused(ran, "/proc/no", code=1)


def test_folders_that_cannot_be_written(run: Run, trace_file: Path) -> None:
    refused(run("simulate", trace_file, *SMALL, "--save", trace_file), "is a file, not a folder")
    refused(run("simulate", trace_file, *SMALL, "--save", "/proc/no"), "/proc/no", code=1)
    refused(run("demo", "--jobs", 5, *SMALL, "--out", trace_file), f"--out: {trace_file}: is a file")


def test_a_saved_result_that_cannot_be_written(run: Run, trace_file: Path, tmp_path: Path) -> None:
    (tmp_path / "saved" / "jobs.parquet").mkdir(parents=True)
    ran = run("simulate", trace_file, *SMALL, "--save", tmp_path / "saved")
    refused(ran, "jobs.parquet", code=ran.code)
    assert ran.code in (1, 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.txt", "must end in .csv or .parquet"),
        ("no/such/folder/x.csv", "cannot be written"),
        ("no/such/folder/x.parquet", "cannot be written"),
        ("folder.csv", "cannot be written"),
    ],
)
def test_traces_that_cannot_be_written(run: Run, tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.csv").mkdir()
    refused(run("traces", "generate", "philly", tmp_path / name, "--jobs", 5), name, message)


# -- benches --------------------------------------------------------------------------------------------------


def test_unknown_bench_case(run: Run) -> None:
    refused(run("bench", "decid"), "unknown bench case 'decid'; did you mean 'decide'?")
    refused(run("bench", "import", "titan"), "unknown bench case 'titan'; did you mean 'titan-quality'?")
