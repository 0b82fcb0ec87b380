"""Circles of placed jobs: what they send in all, when, and the shapes of Fig. 1."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.traffic import communication
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.network.interleave.demand import circles

CLUSTER = Cluster.fat_tree(2, 4, 2, link_gbps=50.0, oversubscription=2.0)
MODELS = ("vgg16", "resnet50", "bert-base", "gpt2", "dlrm")


def job(
    gpus: int = 4, model: str | ModelProfile = "vgg16", collective: str = "ring", tp: int = 1, pp: int = 1
) -> Job:
    return Job(id="a", gpus=gpus, model=model, collective=collective, tp=tp, pp=pp)


def test_a_job_within_one_machine_has_no_circle() -> None:
    assert circles(CLUSTER, job(gpus=2), (3, 3)) == {}


def test_without_buckets_gradients_follow_the_backward_pass() -> None:
    profile = ModelProfile(
        name="plain", grad_bytes=625e6, iteration_ms=100.0, forward_ms=30.0, backward_ms=60.0, optimizer_ms=10.0
    )
    found = circles(CLUSTER, job(gpus=2, model=profile), (0, 1))[0]
    # A ring of two moves K in either direction, 5 gigabits at 50 Gbps.
    assert len(found.arcs) == 1
    assert found.arcs[0] == pytest.approx((0.090, 0.190, 50.0))
    assert found.iteration_s == pytest.approx(0.200)


def test_buckets_hide_behind_the_backward_pass() -> None:
    profile = ModelProfile(
        name="buckets",
        grad_bytes=625e6,
        iteration_ms=100.0,
        forward_ms=30.0,
        backward_ms=60.0,
        optimizer_ms=10.0,
        gradient_buckets=((40.0, 125_000_000), (90.0, 500_000_000)),
    )
    found = circles(CLUSTER, job(gpus=2, model=profile), (0, 1))[0]
    assert [arc[:2] for arc in found.arcs] == [pytest.approx((0.040, 0.060)), pytest.approx((0.090, 0.170))]
    assert found.iteration_s == pytest.approx(0.180)


def test_a_profile_without_passes_computes_first_and_sends_then() -> None:
    profile = ModelProfile(name="bare", grad_bytes=625e6, iteration_ms=100.0)
    found = circles(CLUSTER, job(gpus=2, model=profile), (0, 1))[0]
    assert found.arcs[0][:2] == pytest.approx((0.100, 0.200))


def test_data_parallel_jobs_are_silent_in_the_forward_pass() -> None:
    found = circles(CLUSTER, job(), (0, 1, 2, 3))[0]
    assert found.arcs[0][0] >= job().profile.forward_ms / 1e3
    assert found.demand(0.0) == 0.0


def test_a_pipeline_has_a_peak_after_each_minibatch_of_either_pass() -> None:
    found = circles(CLUSTER, job(gpus=2, model="gpt2", pp=2), (0, 1), minibatches=3)[0]
    assert len(found.arcs) == 6
    assert len(circles(CLUSTER, job(gpus=2, model="gpt2", pp=2), (0, 1), minibatches=5)[0].arcs) == 10


def test_tensor_parallel_jobs_send_all_the_time_but_for_a_short_rest() -> None:
    found = circles(CLUSTER, job(gpus=2, model="gpt2", tp=2), (0, 1))[0]
    assert found.arcs[0][0] == 0.0
    assert 0.0 < found.down_s < 0.05 * found.iteration_s
    assert found.down_s == pytest.approx(
        job(model="gpt2").profile.iteration_s
        - (job(model="gpt2").profile.forward_ms + job(model="gpt2").profile.backward_ms) / 1e3
    )


def test_a_hybrid_job_has_phases_of_different_demand() -> None:
    found = circles(CLUSTER, job(gpus=8, model="gpt2", tp=2, pp=2), tuple(range(8)))[0]
    assert len({round(gbps, 3) for _, _, gbps in found.arcs}) >= 3
    assert len(found.arcs) >= 6


def test_a_hybrid_job_takes_as_long_as_the_isolated_network_says() -> None:
    hybrid = job(gpus=8, model="gpt2", tp=2, pp=2)
    for machines in (tuple(range(8)), (0, 0, 1, 1, 4, 4, 5, 5)):
        found = circles(CLUSTER, hybrid, machines)
        comm_s = communication(CLUSTER, hybrid, machines).comm_s
        for circle in found.values():
            assert circle.iteration_s == pytest.approx(hybrid.profile.iteration_s + comm_s)


def test_a_pipeline_of_no_minibatches_is_refused() -> None:
    with pytest.raises(InputError, match="minibatches must be a whole number"):
        circles(CLUSTER, job(gpus=2, model="gpt2", pp=2), (0, 1), minibatches=0)


@settings(max_examples=examples(50))
@given(
    st.sampled_from(MODELS),
    st.sampled_from(["ring", "halving-doubling", "tree", "ina"]),
    st.lists(st.integers(0, 7), min_size=2, max_size=6),
)
def test_circles_hold_what_one_iteration_moves_and_never_more_than_a_link_can(
    model: str, collective: str, machines: list[int]
) -> None:
    each = job(len(machines), model, collective)
    found = circles(CLUSTER, each, machines)
    sent = communication(CLUSTER, each, tuple(machines))
    assert set(found) == set(sent.link_gbps)
    for link, circle in found.items():
        moved = sent.link_gbps[link] * (each.profile.iteration_s + sent.comm_s)
        assert circle.gigabits == pytest.approx(moved)
        assert circle.peak_gbps <= CLUSTER.uplink_gbps[link] * (1 + 1e-9)
        slack = max((ready for ready, _ in each.profile.gradient_buckets), default=0.0) / 1e3
        assert circle.iteration_s <= max(each.profile.iteration_s, slack) + sent.comm_s + 0.01
        assert circle.iteration_s >= each.profile.iteration_s * (1 - 1e-9)
