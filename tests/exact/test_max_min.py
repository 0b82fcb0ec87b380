from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.reference.table3 import spreads

from cranny.core.state import ClusterState
from cranny.exact.max_min import best, comm_s
from cranny.exact.netpack import Table3
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement

MODELS = ("vgg16", "resnet50")


def random_case(rng: np.random.Generator) -> tuple[ClusterState, list[Job]]:
    pat_gbps = (None, 50.0, 1000.0)[rng.integers(3)]
    racks, per_rack = ((1, 3), (3, 1))[rng.integers(2)]
    over = float(rng.choice([1.0, 4.0]))
    state = ClusterState(Cluster.fat_tree(racks, per_rack, 3, oversubscription=over, pat_gbps=pat_gbps))
    for machine in range(3):
        state.place(Job(f"on-{machine}", 1), Placement((machine,)))
    return state, [Job(name, int(rng.integers(2, 4)), MODELS[rng.integers(2)], "ina") for name in "ab"]


def by_trying_everything(jobs: list[Job], state: ClusterState) -> float | None:
    """Place all jobs in every way, with every server, and aggregation on and off."""
    free = state.free.tolist()
    options = [
        [
            Placement(np.repeat(np.arange(len(free)), spread).tolist(), server=server, aggregate=aggregate)
            for spread, server, aggregate in product(spreads(job.gpus, free), range(len(free)), (True, False))
        ]
        for job in jobs
    ]
    costs = [
        comm_s(state.cluster, jobs, placements)
        for placements in product(*options)
        if all(sum(p.counts[machine] for p in placements) <= most for machine, most in enumerate(free))
    ]
    return min(costs, default=None)


def test_agrees_with_trying_everything() -> None:
    rng = np.random.default_rng(0)
    sent = 0
    for _ in range(4):
        state, jobs = random_case(rng)
        found = best(jobs, state.snapshot())
        least = by_trying_everything(jobs, state)
        assert found is not None
        assert found.comm_s == pytest.approx(least, rel=1e-9)
        assert comm_s(state.cluster, jobs, found.placements) == pytest.approx(found.comm_s, rel=1e-9)
        sent += found.comm_s > 0.0
        table = Table3().solve(jobs, state.snapshot())
        assert table is not None
        assert table.comm_s <= found.comm_s * (1 + 1e-6)
        for job, placement in zip(jobs, found.placements, strict=True):
            state.place(job, placement)
    assert sent >= 1


def test_jobs_on_one_machine_each_cost_nothing() -> None:
    found = best([Job("a", 2, collective="ina"), Job("b", 2, collective="ina")], state_of(2, 2).snapshot())
    assert found is not None
    assert (found.comm_s, found.tried) == (0.0, 1)


def test_returns_none_for_jobs_that_do_not_fit_together() -> None:
    assert best([Job("a", 3, collective="ina"), Job("b", 2, collective="ina")], state_of(2, 2).snapshot()) is None


@pytest.mark.parametrize("field", [{"gpu_type": "B"}, {"speeds": {"B": 2.0}}])
def test_keeps_to_the_gpus_that_can_run_a_job(field: dict[str, Any]) -> None:
    machines = (Machine("a", 4, "A"), Machine("b0", 2, "B"), Machine("b1", 2, "B"))
    view = ClusterState(Cluster.of(Switch("top", machines, (100.0,) * 3))).snapshot()
    found = best([Job("a", 4, collective="ina", **field)], view)
    assert found is not None
    assert found.placements[0].counts == {1: 2, 2: 2}


def test_refuses_too_many_placements() -> None:
    with pytest.raises(CrannyError, match="4 jobs on 5 machines have too many placements"):
        best([Job(name, 3, collective="ina") for name in "abcd"], state_of(5, 3).snapshot())


def state_of(machines: int, gpus: int) -> ClusterState:
    return ClusterState(Cluster.single_rack(machines, gpus))
