"""`cranny defrag` on a log."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run

WHERE = ("--cluster", "1x2x4", "--policy", "best-fit")


@pytest.fixture
def scattered(tmp_path: Path) -> Path:
    """Return a trace that leaves two long jobs of one GPU on a machine each."""
    path = tmp_path / "jobs.csv"
    rows = ["a,0,3,10", "b,0,3,10", "c,1,1,40000", "d,2,1,50000"]
    path.write_text("job_id,submit_s,gpus,duration_s\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_lists_moves_with_gain_and_cost(run: Run, scattered: Path) -> None:
    shown = run("defrag", scattered, *WHERE, "--at", 100, "--movable", "all", "--price-per-gpu-hour", 2).out
    assert shown.startswith("best-fit on jobs at 100 s: 2 jobs run on 2 machines, 0 wait\n")
    assert "rack0-machine0" in shown
    assert "1 move: gain 44 GPU-hours, restarts cost 0.02" in shown
    assert "1 machine would be idle: $8.00 an hour at $2.00 per GPU-hour" in shown


def test_json_has_every_term(run: Run, scattered: Path) -> None:
    told = run("defrag", scattered, *WHERE, "--at", 100, "--movable", "all", "--json").json
    (group,) = told["groups"]
    assert group["gain"]["machines_gpu_s"] == 4 * (40_001 - 100)
    assert (group["cost_gpu_s"], group["purpose"], told["emptied"]) == (60.0, "empty", ["rack0-machine0"])
    assert (told["running"], told["movable"], told["used_machines"]) == (2, 2, 2)


def test_jobs_that_say_nothing_do_not_move(run: Run, scattered: Path) -> None:
    shown = run("defrag", scattered, *WHERE, "--at", 100).out
    assert "no running job states that it may move (restart_s); --movable all lets every job" in shown
    assert shown.endswith("no moves pay now\n")


def test_jobs_that_state_their_restart_move(run: Run, scattered: Path) -> None:
    lines = scattered.read_text(encoding="utf-8").splitlines()
    restarts = ["restart_s", "", "", "30", ""]
    rows = [f"{line},{restart}" for line, restart in zip(lines, restarts, strict=True)]
    scattered.write_text("\n".join(rows) + "\n", encoding="utf-8")
    told = run("defrag", scattered, *WHERE, "--at", 100, "--json").json
    assert [move["job"] for group in told["groups"] for move in group["moves"]] == ["c"]
    assert told["cost_gpu_s"] == 30.0


@pytest.mark.parametrize("durations", ["stated", "learned"])
def test_a_whole_log_with_and_without_moves(run: Run, scattered: Path, durations: str) -> None:
    words = ("defrag", scattered, *WHERE, "--every", 3600, "--movable", "all", "--durations", durations)
    told = run(*words, "--json").json
    assert told["without"]["machine_hours"] == pytest.approx((40_001 + 50_002) / 3600)
    assert told["with"]["moves"] == 1
    assert told["saved_machine_hours"] == pytest.approx((40_001 - 3600) / 3600, abs=0.1)
    shown = run(*words).out
    assert "saved: 10 machine-hours (40.4%), $40 at $1.00 per GPU-hour" in shown


@pytest.mark.parametrize(("settings", "without"), [((), 0), (("--set", "move_every_s=7200"), 1)])
def test_the_policy_moves_nothing_itself_unless_asked_to(
    run: Run, scattered: Path, settings: tuple[str, ...], without: int
) -> None:
    words = ("defrag", scattered, "--cluster", "1x2x4", "--policy", "cranny", "--every", 3600, "--movable", "all")
    told = run(*words, *settings, "--json").json
    assert (told["without"]["moves"], told["with"]["moves"]) == (without, 1)


def test_a_log_cannot_be_changed(run: Run, scattered: Path) -> None:
    ran = run("defrag", scattered, "--apply")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "cranny: --apply: jobs of a trace do not move; leave it out to move those of a server\n"
