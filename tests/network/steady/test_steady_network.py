"""The network model `steady`: closed forms, and what must hold whatever happens."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.snapshot import Snapshot
from cranny.core.state import ClusterState
from cranny.core.traffic import communication, isolated
from cranny.model.cluster import Cluster
from cranny.model.collective import COLLECTIVES
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.network.steady.steady_network import Steady
from cranny.run import Result, simulate
from cranny.traces.generate import generate_trace

# 1 GB of gradients: over a link of 100 Gbps, a ring of two moves them in 0.08 s, as long as it computes.
MODEL = ModelProfile("even", grad_bytes=1e9, iteration_ms=80.0)
PAIR = Cluster.single_rack(machines=2, gpus_per_machine=8)


class Spread:
    """Deals ranks out to machines in turn."""

    def __init__(self, machines: Sequence[int] = (0, 1)) -> None:
        self.machines = machines

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Place the job, whatever is free."""
        return view.placement(job, tuple(self.machines[rank % len(self.machines)] for rank in range(job.gpus)))

    def why_wait(self, job: Job, view: Snapshot) -> str:  # noqa: ARG002
        """Never wait."""
        return ""


def pair(name: str, submit_s: float = 0.0, duration_s: float = 100.0) -> Job:
    return Job(name, 2, model=MODEL, collective="ring", submit_s=submit_s, duration_s=duration_s)


def finishes(result: Result) -> dict[str, float]:
    return dict(result.jobs.select("job_id", "finish_s").iter_rows())


@pytest.mark.parametrize("jobs", [1, 2, 3, 5])
def test_k_jobs_on_one_link_get_a_kth_of_it_each(jobs: int) -> None:
    result = simulate(PAIR, [pair(f"job-{number}") for number in range(jobs)], Spread(), network="steady")
    # Computing takes as long as before, communicating k times as long.
    assert finishes(result) == pytest.approx({f"job-{number}": 100.0 * (1 + jobs) for number in range(jobs)})


def test_a_job_slows_down_when_another_comes_and_speeds_up_when_it_ends() -> None:
    # From 100 to 250 both take 3 s for a second of work: b then has done its 50, and a the 50 that were left.
    result = simulate(PAIR, [pair("a"), pair("b", 100.0, 50.0)], Spread(), network="steady")
    assert finishes(result) == pytest.approx({"a": 250.0, "b": 250.0})
    longer = simulate(PAIR, [pair("a", duration_s=200.0), pair("b", 100.0, 50.0)], Spread(), network="steady")
    assert finishes(longer) == pytest.approx({"a": 250.0 + 2 * 100.0, "b": 250.0})


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_a_job_alone_runs_as_with_the_isolated_network(collective: str, gpus: int) -> None:
    cluster = Cluster.fat_tree(2, 2, 4, link_gbps=25.0, oversubscription=4.0)
    job = Job("a", gpus, model="vgg16", collective=collective, duration_s=1000.0)
    both = [simulate(cluster, [job], Spread((0, 1, 2)), network=name) for name in ("steady", "isolated")]
    assert finishes(both[0]) == pytest.approx(finishes(both[1]), rel=1e-12)
    assert communication(cluster, job, (0,) * gpus).comm_s == 0


def test_jobs_apart_do_not_notice_each_other() -> None:
    cluster = Cluster.single_rack(machines=4, gpus_per_machine=4)

    class Apart(Spread):
        """Puts the second job on other machines than the first."""

        def place(self, job: Job, view: Snapshot) -> Placement | None:
            self.machines = (0, 1) if job.id == "a" else (2, 3)
            return super().place(job, view)

    result = simulate(cluster, [pair("a"), pair("b")], Apart(), network="steady")
    assert finishes(result) == pytest.approx({"a": 200.0, "b": 200.0})


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000))
def test_sharing_never_makes_a_job_faster_than_alone(seed: int) -> None:
    cluster = Cluster.fat_tree(4, 4, 4, link_gbps=25.0, oversubscription=2.0)
    rng = np.random.default_rng(seed)
    state, network = ClusterState(cluster), Steady(cluster)
    slowdown: dict[str, float] = {}
    alone: dict[str, float] = {}
    for number in range(12):
        free = [machine for machine, gpus in enumerate(state.free.tolist()) for _ in range(gpus)]
        machines = rng.permutation(free)[: rng.integers(1, 6)].tolist()
        collective = COLLECTIVES[rng.integers(len(COLLECTIVES))]
        job = Job(f"job-{number}", len(machines), model="vgg16", collective=collective)
        state.place(job, Placement(machines))
        running = state.find(job.id)
        alone[job.id] = isolated(job, running.communication)
        slowdown |= dict(network.start(running))
        assert all(slowdown[name] >= alone[name] * (1 - 1e-9) for name in slowdown)
    for name in list(slowdown)[:-1]:
        slowdown |= dict(network.end(name))
    last = f"job-{number}"
    assert slowdown[last] == pytest.approx(alone[last], rel=1e-9)


@pytest.mark.parametrize("policy", ["titan", "fragments-first", "tiresias"])
def test_runs_repeat(policy: str) -> None:
    cluster = Cluster.fat_tree(4, 4, 4, link_gbps=25.0, oversubscription=2.0)
    trace = generate_trace("itp", jobs=400, seed=3, load=0.9, gpus=cluster.gpus)
    first, again = (simulate(cluster, trace, policy, network="steady") for _ in range(2))
    assert first.jobs.equals(again.jobs)
    assert first.timeline.equals(again.timeline)
    assert first.summary["mean_comm_slowdown"] > 1.0
