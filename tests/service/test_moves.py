"""Moves of running jobs: recommended to everyone, made for admins, and only of jobs that allow it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.service.conftest import Serve, Site

from cranny.core.constraints import Constraints
from cranny.model.placement import Placement
from cranny.policies.cranny.moves import MoveGain, MoveGroup, ProposedMove
from cranny.service.limits import ConflictError, NotFoundError
from cranny.service.made_moves import make_moves
from cranny.service.movable_jobs import movable_jobs

Scattered = Callable[..., Site]


@pytest.fixture
def scattered(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Scattered:
    """Return what makes a site with job-3 alone on one machine of four GPUs, and job-4 on another."""

    def make(**spec: Any) -> Site:
        site = serve(policy={"name": "best-fit"})
        monkeypatch.setenv("CRANNY_SERVER", site.url)
        monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
        running = site.running
        for gpus in (3, 3):
            running.submit(gpus=gpus)
        for duration_s in (100_000.0, 200_000.0):
            running.submit(gpus=1, **{"duration_s": duration_s, "movable": True, **spec})
        with site.client("root") as root:
            for job_id in ("job-1", "job-2"):
                running.until(job_id, "running")
                root.post(f"/api/v1/jobs/{job_id}/cancel")
                running.until(job_id, "cancelled")
        for job_id in ("job-3", "job-4"):
            running.until(job_id, "running")
        return site

    return make


def test_moves_are_recommended_and_made(scattered: Scattered) -> None:
    site = scattered()
    with site.client("ann") as ann, site.client("root") as root:
        told = ann.get("/api/v1/moves", params={"price_per_gpu_hour": 2.0}).json()
        (group,) = told["groups"]
        (move,) = group["moves"]
        assert (move["job"], move["from"], move["to"]) == ("job-3", {"rack0-machine0": 1}, {"rack0-machine1": 1})
        assert (move["cost_gpu_s"], told["emptied"], told["saved_money_per_hour"]) == (
            60.0,
            ["rack0-machine0"],
            8.0,
        )
        assert group["gain"]["machines_gpu_s"] == pytest.approx(400_000, rel=0.01)
        assert ann.post("/api/v1/moves", json={}).status_code == 403
        assert root.get("/api/v1/jobs/job-3").json()["attempt"] == 1  # nothing was moved so far
        made = root.post("/api/v1/moves", json={}).json()
        assert made["moves"] == 1
        site.running.until("job-3", "running")
        job = root.get("/api/v1/jobs/job-3").json()
        assert (job["attempt"], job["machines"], job["earlier"][0]["outcome"]) == (2, ["rack0-machine1"], "moved")
        assert root.get("/api/v1/moves").json()["groups"] == []
        assert root.post("/api/v1/moves", json={}).json()["moves"] == 0


def test_jobs_that_do_not_allow_it_are_never_moved(scattered: Scattered) -> None:
    site = scattered(movable=False)
    with site.client("root") as root:
        assert root.post("/api/v1/moves", json={"margin": 0}).json()["moves"] == 0
        assert root.get("/api/v1/jobs/job-3").json()["attempt"] == 1


@pytest.mark.parametrize("spec", [{"restart_s": 2e6}, {"time_limit_s": 60}, {"duration_s": 60.0}])
def test_what_a_job_says_decides_whether_it_pays(scattered: Scattered, spec: dict[str, Any]) -> None:
    with scattered(**spec).client("root") as root:
        assert root.get("/api/v1/moves").json()["groups"] == []


def test_machines_that_a_job_excludes_are_not_used(scattered: Scattered) -> None:
    excluded = [f"rack{rack}-machine{machine}" for rack, machine in ((0, 0), (1, 0), (1, 1))]
    site = scattered(constraints={"exclude": excluded[1:]})
    moves = movable_jobs(site.running.service, 1.0)
    assert moves.rules.constraints_of("job-3") == Constraints(0b1100)


def test_a_plan_that_no_longer_fits_is_refused_whole(scattered: Scattered) -> None:
    site = scattered()
    running = site.running
    (group,) = movable_jobs(running.service, 1.0).find()
    (move,) = group.moves

    def make(*moves: ProposedMove) -> None:
        found = [MoveGroup("empty", moves, MoveGain(0.0, 0.0, 0.0, 0.0))]
        running.service.call(lambda now_s: make_moves(running.service.scheduler, found, now_s)).result(60)

    with pytest.raises(ConflictError, match="job-3 has changed meanwhile; no job was moved, retry"):
        make(move._replace(source=Placement((1,))))
    with pytest.raises(NotFoundError):
        make(move._replace(job_id="job-9"))
    running.submit(gpus=3)
    running.submit(gpus=3)  # they fill both machines
    with pytest.raises(ConflictError, match="the cluster has changed meanwhile; no job was moved, retry"):
        make(move)
    assert running.service.scheduler.find("job-3").status == "running"
    assert len(running.service.scheduler.find("job-3").attempts) == 1


def test_another_scheduler_moves_its_jobs_itself(serve: Serve) -> None:
    site = serve(recommend=True)
    with site.client("root") as root:
        for number, machine in ((1, 0), (2, 1)):
            spec = {"command": ["true"], "gpus": 1, "duration_s": 1e5 * number, "movable": True}
            root.post("/api/v1/jobs", json=spec)
            root.post(f"/api/v1/jobs/job-{number}/observed", json={"machines": [machine]})
        assert root.get("/api/v1/moves").json()["moves"] == 1
        refused = root.post("/api/v1/moves", json={})
        assert refused.status_code == 409
        assert refused.json()["detail"] == "the jobs are run by another scheduler: move them there"


def test_the_command_lists_moves_and_makes_them(scattered: Scattered, run: Run) -> None:
    site = scattered()
    listed = run("defrag", "--price-per-gpu-hour", 2)
    assert "job-3" in listed.out
    assert "1 move: gain 111 GPU-hours, restarts cost 0.02" in listed.out
    assert "1 machine would be idle: $8.00 an hour at $2.00 per GPU-hour" in listed.out
    assert listed.out.endswith("cranny defrag --apply makes them\n")
    assert run("defrag", "--json").json["moves"] == 1
    assert run("defrag", "--apply").out.endswith("made\n")
    site.running.until("job-3", "running")
    assert run("defrag").out == "no moves pay now\n"
