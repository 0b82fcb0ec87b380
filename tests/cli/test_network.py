"""`cranny network`, and the options for switch memory and the policy's period."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run

CROSSING = ("--cluster", "2x2x2", "--policy", "random", "--collective", "ina", "--pat-gbps", 100)


@pytest.fixture
def crossing(tmp_path: Path) -> Path:
    """Return a trace of jobs that need two machines at least."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "job_id,submit_s,gpus,duration_s,model\na,0,3,100,vgg16\nb,10,3,100,vgg16\nc,5000,3,100,vgg16\n",
        encoding="utf-8",
    )
    return path


def test_the_default_moment_is_when_most_bytes_cross(run: Run, crossing: Path) -> None:
    told = run("network", crossing, *CROSSING, "--json").json
    assert told["at_s"] == 10.0
    assert told["running"] == 2
    assert {job["job"] for job in told["jobs"]} == {"a", "b"}


def test_json_has_every_link_and_switch(run: Run, crossing: Path) -> None:
    told = run("network", crossing, *CROSSING, "--at", 5050, "--json").json
    assert told["at_s"] == 5050.0
    assert [job["job"] for job in told["jobs"]] == ["c"]
    assert len(told["links"]) == 6
    assert [switch["pat_gbps"] for switch in told["switches"]] == [100.0, 100.0]
    assert any(link["carried_gbps"] > 0 and link["jobs"] == 1 for link in told["links"])
    assert {link["rack"] for link in told["links"]} == {"rack0", "rack1"}
    assert {link["holds_back"] for link in told["links"]} == {0}  # the job is alone


def test_people_see_racks_and_what_holds_jobs_back(run: Run, crossing: Path) -> None:
    text = run("network", crossing, *CROSSING).out
    assert text.startswith("random on jobs at 10 s: 2 jobs run, 0 wait\n")
    assert "rack0" in text
    assert "rack1" in text
    assert "2 running jobs use links" in text


def test_a_moment_before_or_after_everything_is_empty(run: Run, crossing: Path) -> None:
    assert "No running job uses a link." in run("network", crossing, *CROSSING, "--at", 1e9).out


def test_a_trace_of_which_nothing_can_run_is_refused_as_by_simulate(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "big.csv"
    file.write_text("job_id,submit_s,gpus,duration_s\na,0,1000,10\n", encoding="utf-8")
    ran = run("network", file, "--cluster", "1x2x4")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "cranny: no job of big can run: job 'a' needs 1,000 GPUs, the cluster has 8\n"
    assert run("simulate", file, "--cluster", "1x2x4").err == ran.err


def test_reports_skipped_jobs(run: Run, trace_file: Path) -> None:
    words = ("network", trace_file, "--cluster", "1x2x4", "--at", 50)
    assert "1 job skipped, such as huge: needs 99 GPUs, the cluster has 8\n" in run(*words).out
    assert run(*words, "--json").json["skipped"] == 1
    assert "skipped" not in run(*words[:-1], 30).out  # it comes at 40 s


def test_one_job_runs_and_one_waits(run: Run, trace_file: Path) -> None:
    assert " at 15 s: 1 job runs, 1 waits\n" in run("network", trace_file, "--cluster", "1x2x4", "--at", 15).out


@pytest.mark.parametrize("command", ["simulate", "network"])
def test_rounds_too_short_to_simulate_are_refused(run: Run, trace_file: Path, command: str) -> None:
    ran = run(command, trace_file, "--cluster", "1x2x4", "--policy", "gavel", "--period", 0.001)
    assert ran.code == 2
    assert ran.err == "cranny: --period: must be 0, or at least 10 s for gavel, not 0.001\n"
    assert run(command, trace_file, "--cluster", "1x2x4", "--policy", "gavel", "--period", 10).code == 0
    assert run(command, trace_file, "--cluster", "1x2x4", "--policy", "titan", "--period", 0.7).code == 0


@pytest.mark.parametrize("network", ["steady", "isolated", "instant"])
def test_any_network_model_can_move_the_clock(run: Run, crossing: Path, network: str) -> None:
    assert run("network", crossing, *CROSSING, "--network", network, "--json").json["network"] == network


def test_the_page_holds_the_map(run: Run, crossing: Path, tmp_path: Path) -> None:
    page = tmp_path / "deep" / "net.html"
    assert f"report: {page}" in run("network", crossing, *CROSSING, "--report", page).out
    text = page.read_text(encoding="utf-8")
    assert "The network at 10 s" in text
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="heat"' in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--at", -1), "--at: must be a number of seconds"),
        (("--pat-gbps", 0), "--pat-gbps: must be a positive number"),
        (("--period", -5), "--period: must be a number, zero or more"),
        (("--network", "stedy"), "unknown network model 'stedy'; did you mean 'steady'?"),
        (("--policy", "randm"), "unknown policy 'randm'"),
        (("--report", "."), "--report: .: is a folder, not a file"),
    ],
)
def test_wrong_words_get_one_clear_line(run: Run, crossing: Path, words: tuple[object, ...], says: str) -> None:
    ended = run("network", crossing, "--cluster", "2x2x2", *words)
    assert ended.code == 2
    assert says in ended.err
    assert ended.err.count("\n") == 1


def test_a_report_shows_the_network_of_runs_that_share_links(run: Run, crossing: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for network, there in (("steady", True), ("isolated", False)):
        words = ("--network", network, "--report", page, "--map-at", 50)
        assert run("simulate", crossing, *CROSSING, *words).code == 0
        text = page.read_text(encoding="utf-8")
        assert ('<section id="network"' in text) is there
        assert (
            "<dt>its links</dt><dd>100 Gbps for each machine, switches oversubscribed 1:1, PAT 100 Gbps</dd>"
            in text
        )
    assert run("compare", crossing, *CROSSING[:2], "--policies", "random,best-fit", "--processes", 1,
               "--network", "steady", "--collective", "ina", "--report", page).code == 0  # fmt: skip
    assert page.read_text(encoding="utf-8").count('class="heat"') == 2


def test_switch_memory_makes_a_job_on_many_machines_faster(run: Run, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job_id,submit_s,gpus,duration_s,model\na,0,8,100,vgg16\n", encoding="utf-8")
    words = ("simulate", jobs, "--cluster", "1x8x1", "--collective", "ina", "--policy", "best-fit", "--json")
    plain = run(*words).json["summary"]["mean_jct_s"]
    assert run(*words, "--pat-gbps", 1000).json["summary"]["mean_jct_s"] < plain


def test_a_period_makes_jobs_wait_for_the_next_decision(run: Run, trace_file: Path) -> None:
    words = (trace_file, "--cluster", "1x2x4", "--policy", "best-fit")
    assert run("simulate", *words, "--period", 60, "--json").json["settings"]["period_s"] == 60.0
    told = run(
        "compare", *words[:3], "--policies", "best-fit,titan", "--period", 60, "--processes", 1, "--json"
    ).json
    assert [each["settings"]["period_s"] for each in told] == [60.0, 60.0]
    assert run("explain", trace_file, "a", *words[1:], "--period", 60, "--json").json["start_s"] == 60.0
    assert run("explain", trace_file, "a", *words[1:], "--json").json["start_s"] == 0.0
    assert run("simulate", *words, "--period", -1).code == 2


def test_place_knows_switch_memory(run: Run) -> None:
    assert run("place", "--gpus", 2, "--cluster", "1x2x2", "--pat-gbps", 100).code == 0
    assert "--pat-gbps: must be" in run("place", "--gpus", 2, "--cluster", "1x2x2", "--pat-gbps", -1).err
