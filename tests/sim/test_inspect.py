"""The cluster and its network at one moment of a replay."""

from pathlib import Path

import pytest
from tests.network.steady.test_steady_network import PAIR, Spread, pair

import cranny
from cranny.core.protocol import Policy
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Aggregate, Move, Plan, Start
from cranny.model.profile import ModelProfile
from cranny.network.networks import network
from cranny.network.steady.link_load import Load, job_streams
from cranny.network.steady.steady_network import STREAMS, StreamLog
from cranny.policy_choice import resolve_policy
from cranny.run import simulate
from cranny.sim.replay import view_at
from cranny.traces.generate import generate_trace

CLUSTER = Cluster.fat_tree(4, 4, 4, link_gbps=25.0, oversubscription=2.0, pat_gbps=50.0)


def spread() -> Policy:
    return resolve_policy(Spread(), None, None, 0, network("steady").alone)[1]


def test_a_view_shows_the_jobs_that_run_then() -> None:
    jobs = [pair("a"), pair("b", 100.0, 50.0), pair("c", 300.0)]
    running = {
        at_s: set(view_at(PAIR, spread, jobs, network("steady"), at_s).view.running)
        for at_s in (0.0, 99.0, 100.0, 250.0, 299.0, 300.0, 500.0)
    }
    assert running == {
        0.0: {"a"},
        99.0: {"a"},
        100.0: {"a", "b"},
        250.0: set(),  # both end then
        299.0: set(),
        300.0: {"c"},
        500.0: set(),
    }


@pytest.mark.parametrize("name", ["steady", "isolated", "instant"])
def test_without_a_time_it_is_when_most_bytes_cross(name: str) -> None:
    jobs = [pair("a"), pair("b", 50.0, 10.0), pair("c", 55.0, 10.0), pair("d", 900.0)]
    view = view_at(PAIR, spread, jobs, network(name)).view
    assert view.now_s == 55.0
    assert set(view.running) == {"a", "b", "c"}


def test_jobs_that_wait_are_in_the_view() -> None:
    trace = generate_trace("itp", jobs=200, seed=3, load=2.0, gpus=CLUSTER.gpus)

    def policy() -> Policy:
        return resolve_policy("best-fit", None, None, 0, network("steady").alone)[1]

    assert view_at(CLUSTER, policy, trace.jobs(0), network("steady")).view.waiting


@pytest.mark.parametrize("collective", ["ina", "ring"])
@pytest.mark.parametrize("name", ["random", "tiresias"])
def test_a_result_tells_the_load_that_the_replay_had(name: str, collective: str) -> None:
    trace = generate_trace("itp", jobs=150, seed=3, load=0.9, gpus=CLUSTER.gpus)
    result = simulate(CLUSTER, trace, name, network="steady", collective=collective)

    def policy() -> Policy:
        return resolve_policy(name, None, None, 0, network("steady").alone)[1]

    times = result.timeline["time_s"]
    for at_s in (times[20], times[75], times[149] + 0.5):
        view = view_at(CLUSTER, policy, trace.jobs(0, collective), network("steady"), at_s).view
        known = Load.of(CLUSTER, job_streams(CLUSTER, view.running.values()))
        load = result.load_at(at_s)
        assert load is not None
        assert load.link_gbps.tolist() == pytest.approx(known.link_gbps.tolist(), abs=1e-9)
        assert load.pat_used_gbps.tolist() == pytest.approx(known.pat_used_gbps.tolist(), abs=1e-9)
        assert {job.job_id: job.rate_gbps for job in load.jobs} == pytest.approx(
            {job.job_id: job.rate_gbps for job in known.jobs}
        )
    assert known.jobs


class Mover:
    """Starts every job on the first two machines, and moves those that run there to the next two."""

    def key(self, waiting: Waiting) -> float:
        """Keep the order of submission."""
        return waiting.job.submit_s

    def plan(self, view: Snapshot) -> Plan:
        """Make room, then start the first that waits."""
        moves = [Move(job_id, Placement((2, 3))) for job_id in view.running if view.waiting]
        starts = [Start(waiting.job, Placement((0, 1))) for waiting in view.waiting[:1]]
        return Plan(view.version, (*moves, *starts))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002
        """Never wait."""
        return ""


def test_a_job_that_was_moved_streams_where_it_is() -> None:
    cluster = Cluster.single_rack(machines=4, gpus_per_machine=1)
    result = simulate(cluster, [pair("a"), pair("b", 50.0)], Mover(), network="steady")
    before, after = result.load_at(20.0), result.load_at(60.0)
    assert before is not None
    assert after is not None
    assert {job.job_id: job.links for job in before.jobs} == {"a": (0, 1)}
    assert {job.job_id: job.links for job in after.jobs} == {"a": (2, 3), "b": (0, 1)}


class LateAggregation(Mover):
    """Starts a job without aggregation, and lets the switch aggregate when another job comes."""

    def plan(self, view: Snapshot) -> Plan:
        """Start jobs on the first machines, with a server on the last."""
        apart = Placement((0, 1, 2), server=3, aggregate=False)
        changed = [
            Aggregate(job_id, apart.aggregated((0,), None))
            for job_id, running in view.running.items()
            if view.waiting and not running.placement.aggregate
        ]
        starts = [Start(each.job, apart if each.job.gpus == 3 else Placement((4,))) for each in view.waiting]
        return Plan(view.version, (*changed, *starts))


@pytest.mark.parametrize("name", ["steady", "isolated", "phases"])
def test_a_job_for_which_a_switch_aggregates_from_some_time_on_is_faster_from_then_on(name: str) -> None:
    # 80 ms of computing and 8 Gbit: 80 ms at 100 Gbps, or 240 ms with three streams on the server's link. So half
    # of 100 s of computing takes 200 s, the other half 100 s.
    unit = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0)
    jobs = [
        Job("a", 3, unit, "ina", duration_s=100.0),
        Job("b", 1, unit, "ina", submit_s=200.0, duration_s=1.0),
    ]
    cluster = Cluster.fat_tree(1, 5, 1, pat_gbps=1000.0)
    result = simulate(cluster, jobs, LateAggregation(), network=name)
    took_s = dict(zip(result.jobs["job_id"], result.jobs["jct_s"], strict=True))
    if name != "phases":  # where communication overlaps the backward pass
        assert took_s["a"] == pytest.approx(300.0)
    assert took_s["a"] < simulate(cluster, jobs[:1], LateAggregation(), network=name).jobs["jct_s"][0]
    if name == "steady":
        before, after = result.load_at(100.0), result.load_at(250.0)
        assert before is not None
        assert after is not None
        assert [job.rate_gbps for job in before.jobs] == pytest.approx([100 / 3])
        assert [job.rate_gbps for job in after.jobs] == [100.0]
        assert (before.pat_used_gbps.tolist(), after.pat_used_gbps.tolist()) == ([0.0], [100.0])


def test_a_saved_result_keeps_what_jobs_streamed(tmp_path: Path) -> None:
    result = simulate(PAIR, [pair("a"), pair("b", 100.0, 50.0)], Spread(), network="steady")
    load = cranny.Result.load(result.save(tmp_path)).load_at(150.0)
    assert load is not None
    assert [(job.job_id, job.rate_gbps) for job in load.jobs] == [("a", 50.0), ("b", 50.0)]


@pytest.mark.parametrize("name", ["isolated", "instant"])
def test_a_network_that_no_jobs_share_has_no_load_to_tell(name: str, tmp_path: Path) -> None:
    result = simulate(PAIR, [pair("a")], Spread(), network=name)
    assert result.load_at(50.0) is None
    assert cranny.Result.load(result.save(tmp_path)).load_at(50.0) is None


def test_streams_of_no_job_are_an_empty_frame() -> None:
    assert dict(StreamLog().frame().schema) == STREAMS
