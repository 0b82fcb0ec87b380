import math

import numpy as np
import pytest
from tests.reference.table3 import optimum

from cranny.core.state import ClusterState
from cranny.exact.max_min import comm_s
from cranny.exact.netpack import NetPackOptimum, Table3
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import CrannyError, InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile

UNIT = ModelProfile("unit", grad_bytes=1e9, iteration_ms=80.0)  # 8 Gbit: 80 ms at 100 Gbps
PATS_GBPS = (None, 20.0, 50.0, 1000.0)
LIGHT = ModelProfile("light", grad_bytes=0.25e9, iteration_ms=80.0)


def job(gpus: int, name: str = "a", model: ModelProfile = UNIT) -> Job:
    return Job(name, gpus, model, "ina")


def solve(cluster: Cluster, *jobs: Job, printed: bool = False) -> NetPackOptimum:
    found = Table3(printed=printed).solve(jobs, ClusterState(cluster).snapshot())
    assert found is not None
    assert found.proven
    return found


def random_case(rng: np.random.Generator, most_free: int = 6) -> tuple[ClusterState, list[Job]]:
    """Return racks with links and switches of all sizes and few free GPUs, and two jobs."""
    while True:
        racks, per_rack = ((1, 3), (2, 2), (2, 1), (1, 4), (3, 1))[rng.integers(5)]
        switches = []
        for rack in range(racks):
            machines = tuple(Machine(f"r{rack}m{i}", 3) for i in range(per_rack))
            links = tuple(rng.choice([40.0, 100.0], size=per_rack).tolist())
            switches.append(Switch(f"r{rack}", machines, links, PATS_GBPS[rng.integers(4)]))
        uplinks = tuple(rng.choice([30.0, 1000.0], size=racks).tolist())
        state = ClusterState(Cluster.of(Switch("core", tuple(switches), uplinks)))
        for machine in range(racks * per_rack):
            taken = int(rng.integers(0, 3))
            if taken:
                state.place(Job(f"on-{machine}", taken), Placement((machine,) * taken))
        jobs = [job(int(rng.integers(2, 5)), name, (UNIT, LIGHT)[rng.integers(2)]) for name in "ab"]
        if state.free.sum() <= most_free:
            return state, jobs


def random_placements(rng: np.random.Generator, state: ClusterState, jobs: list[Job]) -> list[Placement]:
    seats = rng.permutation(np.repeat(np.arange(len(state.free)), state.free)).tolist()
    placements = []
    for each in jobs:
        machines, seats = sorted(seats[: each.gpus]), seats[each.gpus :]
        server = int(rng.integers(len(state.free)))
        placements.append(Placement(machines, server=server, aggregate=bool(rng.random() < 0.7)))
    return placements


def test_a_job_on_one_machine_has_no_server_and_costs_nothing() -> None:
    found = solve(Cluster.fat_tree(2, 2, 4), job(4), job(4, "b"))
    assert found.comm_s == 0.0
    assert found.rate_gbps == (math.inf, math.inf)
    assert [len(placement.counts) for placement in found.placements] == [1, 1]
    assert [placement.server for placement in found.placements] == [None, None]


@pytest.mark.parametrize(
    ("pat_gbps", "rate_gbps", "merged_gbps"),
    [(None, 50.0, 0.0), (50.0, 75.0, 50.0), (100.0, 100.0, 100.0), (1000.0, 100.0, 100.0)],
)
def test_a_job_on_three_machines_gets_what_its_switch_lets_it(
    pat_gbps: float | None, rate_gbps: float, merged_gbps: float
) -> None:
    # The server is beside a worker, and two others send to it: a + 2 b <= 100, a <= PAT.
    found = solve(Cluster.fat_tree(1, 3, 1, pat_gbps=pat_gbps), job(3))
    assert found.rate_gbps == pytest.approx((rate_gbps,))
    assert found.merged_gbps == pytest.approx((merged_gbps,))
    assert found.comm_s == pytest.approx(8.0 / rate_gbps)
    assert found.placements[0].aggregate == (pat_gbps is not None)


def test_as_printed_a_worker_beside_its_server_sends_over_the_link() -> None:
    cluster = Cluster.fat_tree(1, 2, 1)
    assert solve(cluster, job(2)).rate_gbps == pytest.approx((100.0,))
    assert solve(cluster, job(2), printed=True).rate_gbps == pytest.approx((100.0 / 3.0,))  # v + 2 v


def test_as_printed_a_switch_may_aggregate_for_a_job_that_is_elsewhere() -> None:
    racks = (
        Switch("r0", tuple(Machine(f"a{i}", 1) for i in range(3)), (100.0,) * 3, None),
        Switch("r1", (Machine("b", 1),), (1.0,), 1000.0),
    )
    cluster = Cluster.of(Switch("core", racks, (1000.0, 1000.0)))
    state = ClusterState(cluster)
    state.place(Job("other", 1), Placement((3,)))
    ours, theirs = (Table3(printed=printed).solve([job(3)], state.snapshot()) for printed in (False, True))
    assert ours is not None
    assert theirs is not None
    assert ours.merged_gbps == pytest.approx((0.0,))
    assert theirs.merged_gbps[0] > 1.0


def test_two_jobs_that_must_share_links_get_rates_by_their_sizes() -> None:
    # Two machines of two GPUs, each job on both; server beside a worker, so both links carry both jobs.
    state = ClusterState(Cluster.fat_tree(1, 2, 3))
    jobs = [job(2, "a", UNIT), job(2, "b", LIGHT)]
    across = [Placement((0, 1), server=0), Placement((0, 1), server=1)]
    found = Table3().solve(jobs, state.snapshot(), across)
    assert found is not None
    # d/v is least in sum where v goes with the root of d: 2 to 1.
    assert found.rate_gbps == pytest.approx((200.0 / 3.0, 100.0 / 3.0), rel=1e-3)
    assert found.comm_s == pytest.approx((8.0 / 200.0 + 2.0 / 100.0) * 3.0, rel=1e-6)
    assert comm_s(state.cluster, jobs, across) == pytest.approx(8.0 / 50.0 + 2.0 / 50.0)  # max-min: half each


@pytest.mark.parametrize(("printed", "cases"), [(False, 8), (True, 4)])
def test_agrees_with_trying_everything(cases: int, *, printed: bool) -> None:
    rng = np.random.default_rng(4)
    costs = []
    for _ in range(cases):
        state, jobs = random_case(rng)
        best = optimum(state.cluster, state.free.tolist(), jobs, printed=printed)
        found = Table3(printed=printed).solve(jobs, state.snapshot())
        assert (found is None) == (best is None)
        if found is not None and best is not None:
            assert found.proven
            assert found.comm_s == pytest.approx(best, rel=2e-6, abs=1e-12)
            assert found.bound_s <= found.comm_s
            costs.append(best)
    assert sum(cost > 0.0 for cost in costs) >= cases // 4  # some of them had to send


def test_finds_the_silent_placement_that_another_solver_called_impossible() -> None:
    racks = (
        Switch("r0", (Machine("a", 1), Machine("b", 1)), (40.0, 40.0), 20.0),
        Switch("r1", (Machine("c", 3), Machine("d", 3)), (40.0, 40.0), 1000.0),
    )
    assert solve(Cluster.of(Switch("core", racks, (1000.0, 1000.0))), job(3), job(2, "b")).comm_s == 0.0


def test_no_placement_is_better_with_shared_rates_than_with_those_of_the_table() -> None:
    rng = np.random.default_rng(6)
    compared = 0
    while compared < 10:
        state, jobs = random_case(rng, most_free=12)
        if state.free.sum() < sum(each.gpus for each in jobs):
            continue
        placements = random_placements(rng, state, jobs)
        shared_s = comm_s(state.cluster, jobs, placements)
        held = Table3().solve(jobs, state.snapshot(), placements)
        best = Table3().solve(jobs, state.snapshot())
        assert held is not None
        assert best is not None
        assert best.comm_s * (1 - 1e-6) <= held.comm_s <= shared_s * (1 + 1e-6)
        compared += shared_s > 0.0


def test_placements_hold_the_gpus_that_jobs_ask_for() -> None:
    state, jobs = ClusterState(Cluster.fat_tree(2, 2, 2, pat_gbps=50.0)), [job(3), job(3, "b", LIGHT)]
    found = Table3().solve(jobs, state.snapshot())
    assert found is not None
    for each, placement in zip(jobs, found.placements, strict=True):
        state.place(each, placement)
    assert state.free.sum() == 2


def test_proves_the_optimum_of_four_jobs_on_nine_machines() -> None:
    found = solve(Cluster.fat_tree(3, 3, 2), job(5), job(6, "b"), job(2, "c"), job(2, "d"))
    assert found.rate_gbps == pytest.approx((50.0, 50.0, math.inf, math.inf))


def test_returns_none_for_jobs_that_do_not_fit_together() -> None:
    assert Table3().solve([job(3), job(2, "b")], ClusterState(Cluster.fat_tree(1, 2, 2)).snapshot()) is None


def test_keeps_to_the_type_of_gpu_that_a_job_names() -> None:
    view = ClusterState(Cluster.fat_tree(1, 2, 2, gpu_type="A100")).snapshot()
    assert Table3().solve([Job("a", 2, UNIT, "ina", gpu_type="H100")], view) is None
    assert Table3().solve([Job("a", 2, UNIT, "ina", gpu_type="A100")], view) is not None


def test_refuses_what_is_too_large_or_not_in_the_table() -> None:
    view = ClusterState(Cluster.fat_tree(1, 4, 1)).snapshot()
    with pytest.raises(CrannyError, match="2 jobs on 4 machines"):
        Table3(max_jobs=1).solve([job(1), job(1, "b")], view)
    with pytest.raises(CrannyError, match="max_machines"):
        Table3(max_machines=3).solve([job(1)], view)
    with pytest.raises(CrannyError, match="job 'a' has no parameter server: its collective is 'ring'"):
        Table3().solve([Job("a", 2, UNIT, "ring")], view)
    with pytest.raises(InputError, match="time_limit_s"):
        Table3(time_limit_s=0.0)
    state = ClusterState(Cluster.fat_tree(1, 4, 1))
    state.place(job(2, "b"), Placement((0, 1)))
    with pytest.raises(CrannyError, match="job 'b' uses links already"):
        Table3().solve([job(2)], state.snapshot())


def test_says_so_when_time_runs_out() -> None:
    view = ClusterState(Cluster.fat_tree(4, 3, 2, pat_gbps=50.0)).snapshot()
    jobs = [job(6), job(5, "b", LIGHT), job(6, "c"), job(3, "d")]
    with pytest.raises(CrannyError, match="raise time_limit_s"):
        Table3(time_limit_s=0.001).solve(jobs, view)
