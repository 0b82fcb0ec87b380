"""`cranny advise`: which policy would suit a job log."""

from pathlib import Path

from tests.cli.conftest import Run

from cranny.traces.generate import generate_trace

FEW = ("--policies", "best-fit,titan", "--processes", 1)


def test_people_read_the_log_the_table_the_verdict_and_the_reasons(run: Run) -> None:
    shown = run("advise", "philly", "--jobs", 150, "--cluster", "2x2x8", "--oversubscription", 4, *FEW)
    assert shown.code == 0, shown.err
    for title in ("The log", "Policies on this log", "Which policy", "Why", "What it costs"):
        assert title in shown.out
    assert "150 jobs, " in shown.out
    assert "switches oversubscribed 4:1" in shown.out


def test_a_log_without_a_cluster_gets_one_that_it_loads(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    generate_trace("philly", jobs=400, seed=0, load=0.8, gpus=64).frame.write_parquet(log)
    shown = run("advise", log, *FEW, "--sample", 200, "--by", "mean_jct_s", "--json")
    assert "no --cluster given" in shown.err
    told = shown.json
    assert told["jobs_in_log"] == 400
    assert told["workload"]["jobs"] == 200 + told["jobs_running_before"]
    assert told["by"] == ["mean_jct_s"]
    assert {each["policy"] for each in told["policies"]} == {"best-fit", "titan"}
    assert told["network"] == "steady"


def test_what_is_wrong_is_said_in_one_line(run: Run, tmp_path: Path) -> None:
    assert "--by: unknown metric" in run("advise", "itp", "--by", "beauty").err
    assert "unknown policy" in run("advise", "itp", "--policies", "best").err
    assert "--sample: must be a whole number" in run("advise", "itp", "--sample", -1).err
    assert run("advise", tmp_path / "none.csv").code != 0
