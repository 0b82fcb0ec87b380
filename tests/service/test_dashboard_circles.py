"""Circles of jobs that share links, for the page of a job."""

import pytest
from tests.service.conftest import Serve

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.service.serialize import shared_circles


@pytest.fixture
def state() -> ClusterState:
    made = ClusterState(Cluster.fat_tree(racks=1, machines_per_rack=3, gpus_per_machine=4, link_gbps=50))
    for name, machines in (("a", (0, 0, 1, 1)), ("b", (1, 1, 2, 2))):
        made.place(Job(id=name, gpus=4, model="vgg16", collective="ring"), Placement(machines=machines))
    return made


def test_only_the_link_that_two_jobs_share_has_circles(state: ClusterState) -> None:
    (link,) = shared_circles("a", state.snapshot())
    assert (link["name"], link["gbps"]) == ("uplink of rack0-machine1", 50.0)
    assert [ring["job"] for ring in link["jobs"]] == ["a", "b"]
    for ring in link["jobs"]:
        assert all(0 <= start < end <= ring["iteration_s"] for start, end, _ in ring["arcs"])


def test_equal_jobs_that_always_send_together_score_less_by_the_share_of_time_they_send(
    state: ClusterState,
) -> None:
    (link,) = shared_circles("a", state.snapshot())
    ring = link["jobs"][0]
    # Each asks for the whole link while it sends: together they ask for one capacity too much all that time.
    assert all(gbps == pytest.approx(50.0) for _, _, gbps in ring["arcs"])
    sends = sum(end - start for start, end, _ in ring["arcs"]) / ring["iteration_s"]
    assert link["score"] == pytest.approx(1 - sends)


def test_a_job_that_shares_nothing_has_no_circles(state: ClusterState) -> None:
    state.release("b")
    assert shared_circles("a", state.snapshot()) == []


def test_a_link_of_very_many_jobs_has_no_circles(state: ClusterState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.service.serialize.MAX_RINGS", 1)
    assert shared_circles("a", state.snapshot()) == []


@pytest.mark.parametrize("policy", ["cranny", "best-fit", "titan+cassini"])
def test_neighbours_that_keep_no_pace_have_circles_too(serve: Serve, policy: str) -> None:
    cluster = Cluster.fat_tree(racks=1, machines_per_rack=3, gpus_per_machine=4)
    options = {"shift": False} if policy == "cranny" else {}
    site = serve(cluster=cluster, policy={"name": policy, "options": options})
    for _ in range(2):  # each needs two of the three machines
        site.running.until(site.running.submit(gpus=6, model="vgg16"), "running")
    with site.client() as client:
        (link,) = client.get("/api/v1/jobs/job-1/traffic").json()["circles"]
    assert {ring["job"] for ring in link["jobs"]} == {"job-1", "job-2"}
    if policy != "titan+cassini":
        assert {(ring["asked_s"], ring["shift_s"]) for ring in link["jobs"]} == {(None, 0.0)}
