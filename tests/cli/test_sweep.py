"""`cranny sweep` as people type it."""

import os
import signal
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.test_interrupt import started


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    """Return a sweep of four cells."""
    path = tmp_path / "study.yaml"
    path.write_text(
        "traces: [philly]\njobs: 20\nclusters: [1x2x4]\npolicies: [best-fit, random]\nseeds: 2\n", encoding="utf-8"
    )
    return path


def test_prints_means_over_the_seeds(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    shown = run("sweep", sweep_file, "--out", tmp_path / "out", "--processes", 1)
    assert (shown.code, shown.err) == (0, "")
    assert "trace philly, cluster 1x2x4, load 0.8\n" in shown.out
    assert "4 cells: 4 run\n" in shown.out
    assert "±" in next(line for line in shown.out.splitlines() if line.startswith("best-fit"))
    assert f"table: {tmp_path / 'out' / 'table.parquet'}\n" in shown.out
    assert (tmp_path / "out" / "table.csv").exists()


def test_takes_over_what_is_finished(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    words = ("sweep", sweep_file, "--out", tmp_path / "out", "--processes", 1)
    run(*words)
    assert "4 cells: 0 run, 4 taken over\n" in run(*words).out
    assert "4 cells: 4 run\n" in run(*words, "--again").out


def test_results_go_to_a_folder_of_the_sweeps_name(
    run: Run, sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("sweep", sweep_file, "--processes", 1)
    assert (tmp_path / "out" / "study" / "table.parquet").exists()


def test_json_has_groups_and_counts(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    told = run("sweep", sweep_file, "--out", tmp_path / "out", "--processes", 1, "--json").json
    assert (told["cells"], told["run"], told["taken_over"], told["failed"]) == (4, 4, 0, 0)
    assert [group["axes"]["policy"] for group in told["groups"]] == ["best-fit", "random"]
    assert told["groups"][0]["measures"]["mean_jct_s"]["half"] > 0


def test_lists_without_running(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    words = ("sweep", sweep_file, "--out", tmp_path / "out")
    listed = run(*words, "--list")
    assert listed.out.count("policy best-fit") == 2
    assert "4 cells, 0 finished in " in listed.out
    assert not (tmp_path / "out").exists()
    run(*words, "--processes", 1)
    told = run(*words, "--list", "--json").json
    assert [cell["finished"] for cell in told] == [True] * 4
    assert len({cell["key"] for cell in told}) == 4


def test_a_failed_cell_is_told_and_ends_with_one(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    (tmp_path / "large.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,99,100\n", encoding="utf-8")
    text = sweep_file.read_text(encoding="utf-8")
    sweep_file.write_text(text.replace("[philly]", "[philly, large.csv]"), encoding="utf-8")
    words = ("sweep", sweep_file, "--out", tmp_path / "out", "--processes", 1)
    shown = run(*words)
    assert shown.code == 1
    first = (
        "failed: trace large.csv, cluster 1x2x4, load as logged, policy best-fit, seed 0: no job of large can run"
    )
    assert shown.err.startswith(first)
    assert shown.err.count("\n") == 4
    assert "8 cells: 8 run, 4 failed\n" in shown.out
    assert "best-fit, 2 of 2 failed" in shown.out
    told = run(*words, "--json")
    assert told.code == 1
    assert told.json["failed"] == len(told.json["failures"]) == 4


def test_refuses_bad_input_in_one_line(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    both = run("sweep", sweep_file, "--processes", 2, "--ray", "auto")
    assert (both.code, both.out) == (2, "")
    assert both.err == "cranny: --processes is for this machine; with --ray the Ray cluster decides\n"
    missing = run("sweep", tmp_path / "none.yaml")
    assert (missing.code, missing.err) == (2, f"cranny: {tmp_path / 'none.yaml'}: there is no such file\n")
    blocked = run("sweep", sweep_file, "--out", sweep_file)
    assert (blocked.code, "is a file, not a folder" in blocked.err) == (2, True)


def gone(group: int) -> bool:
    """Say whether all processes of a group have ended, which may take them a moment."""
    for _ in range(500):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def test_ctrl_c_leaves_finished_cells_and_no_process(run: Run, sweep_file: Path, tmp_path: Path) -> None:
    text = (
        sweep_file.read_text(encoding="utf-8").replace("jobs: 20", "jobs: 200").replace("seeds: 2", "seeds: 2000")
    )
    sweep_file.write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    words = ["sweep", str(sweep_file), "--out", str(out), "--processes", "2"]
    with started("-m", "cranny.cli", *words) as sweep:
        until = time.monotonic() + 300
        while len(list(out.glob("cells/*.json"))) < 5 and time.monotonic() < until:
            time.sleep(0.02)
        os.killpg(sweep.pid, signal.SIGINT)
        told = sweep.communicate(timeout=300)
    assert sweep.returncode == 130
    assert told == ("", f"cranny: interrupted; finished cells are kept in {out}\n")
    assert gone(sweep.pid)
    kept = len(list(out.glob("cells/*.json")))
    assert f"4,000 cells, {kept:,} finished in " in run("sweep", sweep_file, "--out", out, "--list").out
