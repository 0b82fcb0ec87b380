import pytest

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile

UNIT = ModelProfile(name="unit", grad_bytes=1e6, iteration_ms=100)


def fig_1() -> ClusterState:
    """Four machines of 4 GPUs with 4, 3, 2 and 1 of them free."""
    state = ClusterState(Cluster.single_rack(4, 4))
    for machine, taken in ((1, 1), (2, 2), (3, 3)):
        state.place(Job(id=f"on-{machine}", gpus=taken), Placement((machine,) * taken))
    return state


def test_facts_compare_a_placement_with_what_was_possible() -> None:
    job = Job(id="a", gpus=4, model=UNIT, collective="halving-doubling")
    placement = fig_1().snapshot().placement(job, (1, 2, 1, 2), note="because")
    assert placement.facts == {
        "gpus": 4,
        "ranks_on": {"rack0-machine1": [0, 2], "rack0-machine2": [1, 3]},
        "idle_machines_opened": 0,
        "idle_machines_minimum": 0,
        "machines_used": 2,
        "machines_minimum": 2,
        "spare_gpus": 0,
        "cross_machine_bytes": 1e6,
        "cross_machine_bytes_bound": 1e6,
        "note": "because",
    }


def test_an_idle_machine_that_need_not_be_opened_shows() -> None:
    facts = fig_1().snapshot().placement(Job(id="a", gpus=4, model=UNIT), (0, 0, 0, 0)).facts
    assert (facts["idle_machines_opened"], facts["idle_machines_minimum"]) == (1, 0)
    assert (facts["machines_used"], facts["machines_minimum"]) == (1, 1)
    assert facts["cross_machine_bytes"] == facts["cross_machine_bytes_bound"] == 0.0


def test_the_text_reads_like_the_facts() -> None:
    job = Job(id="a", gpus=4, model=UNIT, collective="halving-doubling")
    text = fig_1().snapshot().placement(job, (1, 1, 1, 3), spare=(2,), note="for a reason").explain()
    where = "rack0-machine1: ranks 0-2; rack0-machine3: rank 3; rack0-machine2: spare GPUs"
    assert text == "\n".join(
        [
            f"job a: 4 workers on 3 machines ({where})",
            "idle machines opened: 0 (minimum 0)",
            "machines used: 3 (minimum 2 with at most 0 idle opened)",
            "cross-machine traffic: 1.5 MB an iteration (no map onto 2 machines can be below 1.0 MB)",
            "spare GPUs held: 1",
            "for a reason",
        ]
    )


def test_the_fewest_machines_may_leave_idle_ones_closed() -> None:
    machines = (Machine("old", 1), Machine("big", 8), Machine("tiny", 1))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    state.place(Job(id="x", gpus=1), Placement((1,)))
    facts = state.snapshot().placement(Job(id="a", gpus=7), (0, 1, 1, 1, 1, 1, 1)).facts
    assert (facts["machines_used"], facts["machines_minimum"]) == (2, 1)


@pytest.mark.parametrize("machines", [(0, 1) * 4, (0, 0, 1, 1) * 2, (0,) * 4 + (1,) * 4])
def test_the_bound_holds_for_jobs_with_tensor_and_pipeline_parallelism(machines: tuple[int, ...]) -> None:
    view = ClusterState(Cluster.single_rack(2, 8)).snapshot()
    for tp, pp in ((2, 1), (4, 1), (2, 2), (1, 4), (8, 1)):
        job = Job(id="a", gpus=8, model="gpt2", tp=tp, pp=pp)
        facts = view.placement(job, machines).facts
        assert facts["cross_machine_bytes_bound"] <= facts["cross_machine_bytes"] + 1  # type: ignore[operator]


def test_only_gpus_of_the_wanted_type_count_as_free() -> None:
    machines = (Machine("a", 4, "t4"), Machine("b", 4, "h200"), Machine("c", 4, "h200"))
    state = ClusterState(Cluster.of(Switch("rack", machines, (100.0,) * 3)))
    state.place(Job(id="x", gpus=2), Placement((0, 0)))
    job = Job(id="y", gpus=2, gpu_type="h200")
    assert state.snapshot().placement(job, (1, 1)).facts["idle_machines_minimum"] == 1
