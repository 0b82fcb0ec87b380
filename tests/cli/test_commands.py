"""What every command does when all is well."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.conftest import Run

from benchmarks import importing
from cranny.cli import app
from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES
from cranny.policies import DEFAULT_POLICY, WHAT_IF
from cranny.repro.has import results as has_results
from cranny.repro.titan import testbed
from cranny.service.limits import Limits
from cranny.service.log_file import backup
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore
from cranny.version import VERSION


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command, those of groups too."""
    group = typer.main.get_command(app.commands()) if group is None else group
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = list(commands())
# Those that serve or ask a server are tried in tests/service.
SERVING = {
    "serve",
    "submit",
    "jobs",
    "watch",
    "logs",
    "cancel",
    "plan",
    "nodes",
    "profiles",
    "drain",
    "resume",
    "policy",
    "token",
    "hosts",
    "fence",
    "audit",
}
ALONE = [path for path in COMMANDS if path[0] not in SERVING | {"doctor"}]  # which needs a cluster manager
SMALL = ("--cluster", "1x2x4")


def test_the_commands_of_the_design_are_there() -> None:
    promised = {
        "demo",
        "simulate",
        "compare",
        "what-if",
        "place",
        "explain",
        "policies",
        "sweep",
        "bench",
        "network",
        "interleave",
        "profile",
    } | SERVING - {"policy", "token"}
    assert {" ".join(path) for path in COMMANDS} >= promised | {"traces generate", "traces inspect"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_shows_an_example(run: Run, path: tuple[str, ...], flag: str) -> None:
    shown = run(*path, flag)
    assert shown.code == 0
    text = re.sub(r"[\s│]+", " ", shown.out)
    assert f"Example: cranny {' '.join(path)}" in text
    assert "--json" in text
    assert not shown.err


def test_the_command_alone_shows_its_help(run: Run) -> None:
    shown = run()
    assert "simulate" in shown.out + shown.err
    assert "Usage" in shown.out + shown.err


def test_prints_its_version(run: Run) -> None:
    assert run("--version").out == f"cranny {VERSION}\n"


# What several commands report is computed once.
TESTBEDS = cache(testbed.run_testbeds)
HAS = cache(has_results.run_experiments)


@pytest.fixture
def json_words(tmp_path: Path, trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[object]]:
    """Return for each command the words of a small example, `--json` left out."""
    monkeypatch.setattr(importing, "RUNS", 1)
    monkeypatch.setattr(testbed, "run_testbeds", TESTBEDS)
    monkeypatch.setattr(has_results, "run_experiments", lambda fits, *_, **__: HAS(fits, 1, quick=True))
    script = tmp_path / "train.py"
    script.write_text(
        "from cranny.agent.job import JobAgent\n"
        "with JobAgent(gradient_bytes=4) as job:\n"
        "    [job.step() for _ in range(9)]\n"
    )
    small_sweep = tmp_path / "sweep.yaml"
    log_with_machines = tmp_path / "sacct.txt"
    log_with_machines.write_text(
        "JobID|Submit|Start|End|NodeList|AllocTRES\n"
        "1|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T09:00:00|n[1-2]|gres/gpu=8\n"
    )
    small_sweep.write_text("traces: [philly]\njobs: 20\nclusters: [1x2x4]\npolicies: [best-fit]\n")
    database = tmp_path / "log.db"
    with closing(EventStore(str(database))) as store:
        store.acquire()
        scheduler = Scheduler(Cluster.single_rack(1, 4), "run", Limits())
        scheduler.open(0.0)
        store.append(scheduler.rows)
        backup(store, tmp_path / "kept.jsonl.gz")
    log_words: list[object] = ["--database", database, "--folder", tmp_path]
    return {
        "log verify": log_words,
        "log jobs": [tmp_path / "jobs.txt", *log_words],
        "log archive": log_words,
        "log backup": [tmp_path / "backup.jsonl.gz", *log_words],
        "log restore": [tmp_path / "kept.jsonl.gz", "--database", tmp_path / "restored.db"],
        "demo": ["--jobs", 30, *SMALL, "--policies", "titan", "--out", tmp_path / "out"],
        "simulate": [trace_file, *SMALL],
        "compare": [trace_file, *SMALL, "--policies", "titan,best-fit", "--processes", 1],
        "what-if": [trace_file, *SMALL, "--policies", "titan,best-fit", "--processes", 1],
        "cluster import": ["--log", log_with_machines],
        "cluster show": ["1x2x4"],
        "topology show": ["2x2x4"],
        "topology lint": ["2x2x4"],
        "place": ["--gpus", 4, "--cluster", "1x4x4", "--free", "4,3,2,1", "--policy", "all"],
        "explain": [trace_file, "b", *SMALL],
        "network": [trace_file, *SMALL, "--policy", "random"],
        "defrag": [trace_file, *SMALL, "--at", 0],
        "advise": ["philly", "--jobs", 60, *SMALL, "--policies", "titan,best-fit", "--processes", 1],
        "interleave": [Path(__file__).parents[2] / "docs" / "examples" / "interleave.yaml"],
        "policies": [],
        "traces generate": ["philly", tmp_path / "made.parquet", "--jobs", 20],
        "traces presets": [],
        "traces list": [tmp_path],
        "traces inspect": [trace_file],
        "traces convert": [trace_file, tmp_path / "converted.parquet"],
        "traces slice": [trace_file, tmp_path / "some.csv", "--count", 2],
        "sweep": [small_sweep, "--processes", 1, "--out", tmp_path / "sweep"],
        "repro titan": ["--experiments", "5", "--out", tmp_path / "repro"],
        "repro cassini": ["--figures", "5", "--out", tmp_path / "repro"],
        "repro netpack": ["--figures", "15", "--out", tmp_path / "repro"],
        "repro has": ["--quick", "--fits", "1", "--processes", "1", "--out", tmp_path / "repro"],
        "repro all": ["--papers", "has", "--quick", "--seeds", 1, "--processes", 1, "--out", tmp_path / "all"],
        "conformance": [],
        "profile": ["--out", tmp_path / "profile.json", sys.executable, script],
        "bench": ["import"],
    }


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("path", ALONE, ids=" ".join)
def test_json_is_json_and_nothing_else_is_printed(
    run: Run, path: tuple[str, ...], json_words: dict[str, list[object]]
) -> None:
    shown = run(*path, *json_words[" ".join(path)], "--json")
    assert shown.code == 0, shown.err
    assert shown.json
    assert not shown.err


@pytest.mark.usefixtures("blank_pictures")
@pytest.mark.parametrize("path", ALONE, ids=" ".join)
def test_without_json_it_prints_for_people(
    run: Run, path: tuple[str, ...], json_words: dict[str, list[object]]
) -> None:
    shown = run(*path, *json_words[" ".join(path)])
    assert shown.code == 0, shown.err
    assert shown.out.strip()
    assert not shown.out.startswith(("{", "["))


def test_simulate_reports_the_jobs_it_skipped(run: Run, trace_file: Path) -> None:
    shown = run("simulate", trace_file, *SMALL)
    assert "cranny: 1 job skipped, such as huge: needs 99 GPUs, the cluster has 8" in shown.out


def test_simulate_prints_summary_and_settings_as_json(run: Run, trace_file: Path) -> None:
    told = run("simulate", trace_file, *SMALL, "--policy", "best-fit", "--seed", 3, "--json").json
    assert told["settings"]["policy"] == "best-fit"
    assert told["settings"]["seed"] == 3
    assert told["settings"]["command"].startswith("cranny simulate")
    assert told["summary"]["jobs_done"] == 4
    assert told["summary"]["jobs_skipped"] == 1


def test_the_same_command_prints_the_same_bytes(run: Run, trace_file: Path) -> None:
    words = ("simulate", trace_file, *SMALL, "--policy", "random", "--seed", 1, "--json")
    assert run(*words).out == run(*words).out


def test_simulate_saves_a_result_and_writes_a_page(run: Run, trace_file: Path, tmp_path: Path) -> None:
    import cranny

    page, folder = tmp_path / "new" / "page.html", tmp_path / "deep" / "saved"
    shown = run("simulate", trace_file, *SMALL, "--save", folder, "--report", page, "--map-at", 50)
    assert shown.code == 0
    assert f"report: {page}" in shown.out
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert cranny.Result.load(folder).summary["jobs_done"] == 4


def test_compare_marks_the_best_of_each_column(run: Run, trace_file: Path) -> None:
    words = ("--policies", "titan, best-fit,titan", "--collective", "halving-doubling", "--processes", 1)
    shown = run("compare", trace_file, *SMALL, *words)
    rows = [line for line in shown.out.splitlines() if line.split()[:1] in (["titan"], ["best-fit"])]
    assert len(rows) == 2  # a name that is given twice counts once
    assert any("*" in row for row in rows)
    assert "* best of its metric" in shown.out


def test_compare_prints_a_list_as_json(run: Run, trace_file: Path) -> None:
    told = run("compare", trace_file, *SMALL, "--policies", "titan,best-fit", "--processes", 1, "--json").json
    assert [each["settings"]["policy"] for each in told] == ["titan", "best-fit"]


def test_compare_passes_an_option_to_the_policies_that_know_it(run: Run, trace_file: Path) -> None:
    words = ("compare", trace_file, *SMALL, "--policies", "titan,optimus-lb,hived", "--processes", 1)
    told = run(*words, "--set", "elastic=4", "--set", "search_nodes=10", "--json").json
    given = {each["settings"]["policy"]: each["settings"]["options"] for each in told}
    assert given == {"titan": {"search_nodes": 10}, "optimus-lb": {"elastic": 4}, "hived": {}}
    ran = run(*words, "--set", "elastc=4")
    assert (ran.code, ran.out) == (2, "")
    assert "none of the policies has an option 'elastc'; known: between_gbps, elastic, " in ran.err
    assert "rng" not in ran.err
    assert "optimus-lb: elastic must be a number" in run(*words, "--set", "elastic=nan").err
    assert "has an option 'x'; they have none" in run(*words[:4], "--policies", "best-fit", "--set", "x=1").err


def test_the_help_names_the_collectives(run: Run) -> None:
    told = run("simulate", "--help").out
    assert all(name in told for name in COLLECTIVES)


def test_a_note_about_gpus_without_a_type_says_gpus(run: Run, trace_file: Path) -> None:
    assert (
        "share by gavel: 6 GPUs in this round" in run("explain", trace_file, "a", *SMALL, "--policy", "gavel").out
    )


def test_explain_knows_the_period_of_a_policy_of_rounds(run: Run, trace_file: Path) -> None:
    words = (trace_file, *SMALL, "--policy", "gavel", "--json")
    assert run("explain", *words[:1], "b", *words[1:]).json["start_s"] % 360 == 0


def test_place_shows_the_papers_example(run: Run) -> None:
    free = ("--cluster", "1x4x4", "--free", "4,3,2,1")
    words = ("place", "--gpus", 4, *free, "--model", "vgg16", "--collective", "halving-doubling")
    told = {each["policy"]: each for each in run(*words, "--policy", "all", "--json").json}
    assert told["titan"]["machines"] == [1, 2, 1, 2]
    assert told["consolidate-idle"]["machines"] == [0, 0, 0, 0]
    assert told["fragments-first"]["machines"] == [1, 1, 1, 3]
    shown = run(*words, "--policy", "titan")
    assert ": 4 workers on 2 machines (rack0-machine1: ranks 0, 2; rack0-machine2: ranks 1, 3)" in shown.out


def test_place_says_why_a_job_must_wait(run: Run) -> None:
    words = ("place", "--gpus", 16, "--cluster", "1x2x8", "--free", "8,6")
    assert run(*words).out == "job must wait: needs 16 GPUs, 14 free\n"
    told = run(*words, "--json").json
    assert told["machines"] is None
    assert told["text"] == "job must wait: needs 16 GPUs, 14 free"


def test_explain_tells_the_story_of_a_job(run: Run, trace_file: Path) -> None:
    lines = run("explain", trace_file, "b", *SMALL, "--policy", "best-fit").out.splitlines()
    assert lines[:2] == [
        "best-fit: job b was submitted at 10 s",
        "from 10 s it waited: needs 4 GPUs, 2 free",
    ]
    told = run("explain", trace_file, "b", *SMALL, "--policy", "best-fit", "--json").json
    assert told["waits"][0]["since_s"] == 10.0
    assert told["placement"]["gpus"] == 4


def test_policies_lists_them_all(run: Run) -> None:
    from cranny.policies import TABLE

    assert set(run("policies", "--json").json["policies"]) == set(TABLE)
    assert all(name in run("policies").out for name in TABLE)


def test_commands_have_one_default_policy_and_comparisons_show_it_first() -> None:
    known: Any = typer.main.get_command(app.commands())
    defaults = {
        name: option.default.split(",")[0]
        for name, command in known.commands.items()
        for option in command.params
        if option.name in {"policy", "policies"} and option.default  # others know theirs when they run
    }
    named = ("simulate", "place", "explain", "network", "defrag", "demo", "compare")
    assert defaults == dict.fromkeys(named, DEFAULT_POLICY)
    assert WHAT_IF[0] == DEFAULT_POLICY == "cranny"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_generated_trace_can_be_inspected_and_replayed(run: Run, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"made.{ending}"
    words = ("traces", "generate", "itp", file, "--jobs", 40, "--load", 0.5, "--gpus", 8, "--max-gpus", 4)
    assert run(*words).code == 0
    assert run("traces", "inspect", file, "--json").json["jobs"] == 40
    assert run("simulate", file, *SMALL, "--json").json["summary"]["jobs_done"] == 40


def test_a_cluster_may_come_from_a_file(run: Run, tmp_path: Path, trace_file: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("name: lab\nmachines: [{gpus: 8, count: 2}, {gpus: 4}]\n", encoding="utf-8")
    told = run("simulate", trace_file, "--cluster", file, "--json").json
    assert "20 GPUs" in told["settings"]["cluster"]


def test_names_with_brackets_are_printed_as_they_are(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "[red]x.csv"
    rows = "job_id,submit_s,gpus,duration_s\n[/bold],0,999,10\nb,1,2,30\n"
    file.write_text(rows, encoding="utf-8")
    assert "such as [/bold]: needs 999 GPUs" in run("simulate", file, *SMALL).out
    assert "[red]x: 2 jobs" in run("traces", "inspect", file).out
    assert "job [/bold] was submitted" in run("explain", file, "[/bold]", *SMALL).out


def test_demo_writes_a_page_and_a_picture(run: Run, tmp_path: Path) -> None:
    shown = run("demo", "--jobs", 30, *SMALL, "--policies", "titan", "--out", tmp_path / "out")
    assert shown.code == 0
    assert (tmp_path / "out" / "demo.html").is_file()
    assert (tmp_path / "out" / "demo.svg").is_file()
    assert str(tmp_path / "out" / "demo.html") in shown.out.replace("\n", "")


# -- as a program of its own ----------------------------------------------------------------------------------


def cranny(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cranny.cli", *map(str, words)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
        timeout=300,  # only ends a hang
    )


def test_runs_as_a_program() -> None:
    done = cranny("place", "--gpus", 2, "--cluster", "1x1x4")
    assert done.returncode == 0
    assert "2 workers on 1 machine" in done.stdout
    assert not done.stderr


def test_fails_as_a_program_in_one_line() -> None:
    done = cranny("simulate", "philly", "--policy", "titn")
    assert done.returncode == 2
    assert done.stderr == "cranny: unknown policy 'titn'; did you mean 'titan'?\n"
    assert not done.stdout


def test_compare_runs_in_processes(tmp_path: Path, trace_file: Path) -> None:
    page = tmp_path / "page.html"
    names = "titan,best-fit,fragments-first"
    done = cranny("compare", trace_file, *SMALL, "--policies", names, "--processes", 2, "--report", page)
    assert done.returncode == 0, done.stderr
    assert "best of its metric" in done.stdout
    assert page.is_file()


def test_says_nothing_when_the_reader_has_seen_enough() -> None:
    command = f"{sys.executable} -m cranny.cli policies | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert not done.stderr


def test_a_usage_error_exits_with_two(run: Run) -> None:
    shown = run("place", "--no-such-option")
    assert shown.code == 2
    assert shown.err.startswith("cranny: unknown option '--no-such-option'; known: ")


def test_simulate_reads_a_format_by_name_and_leaves_out_rows_if_told_to(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "jobs.csv"
    log.write_text("job_id,submit_s,gpus,duration_s\na,0,1,5\nb,0,-1,5\n", encoding="utf-8")
    assert run("simulate", log, *SMALL).code == 2
    shown = run("simulate", log, *SMALL, "--no-strict")
    assert "rows of the trace skipped: 1 row: gpus: must be a whole number" in shown.out
    assert run("simulate", log, *SMALL, "--no-strict", "--json").json["settings"]["trace_skipped"]
    wrong = run("explain", log, "a", *SMALL, "--format", "sacct")
    assert wrong.code == 2
    assert "GPUs" in wrong.err or "ids" in wrong.err
