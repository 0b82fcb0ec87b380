import pytest

from cranny.network.interleave.compatibility import compatibility
from cranny.network.interleave.demand import circles
from cranny.network.networks import RECORDED_PHASES
from cranny.network.phases.iteration_log import IterationStats
from cranny.repro.cassini import setups as setup
from cranny.repro.cassini.link_shapes import BATCH, snapshot_circles
from cranny.run import simulate


def test_the_testbed_is_as_oversubscribed_as_the_papers() -> None:
    cluster = setup.testbed()
    assert (len(cluster.machines), cluster.gpus, len(cluster.rack_names)) == (24, 24, 12)
    assert set(cluster.uplink_gbps[: cluster.root]) == {50.0}  # two servers share what one could use


def test_communication_takes_about_as_long_as_in_table_2() -> None:
    for model, batch, paper_ms in (("vgg16", 1400, 148.0), ("vgg19", 1400, 168.0), ("wideresnet101", 800, 138.0)):
        job = setup.job("a", model, batch, 6, 100)
        up_s = next(iter(circles(setup.testbed(), job, tuple(range(6))).values())).up_s
        assert abs(up_s * 1e3 / paper_ms - 1.0) < 0.1


def test_traces_have_the_models_workers_and_iterations_of_the_paper() -> None:
    for jobs in (setup.dynamic(3, sets=2), setup.poisson(3, jobs=60)):
        assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
        for job in jobs:
            assert 1 <= job.gpus <= 12
            assert job.duration_s is not None
            assert 200 <= round(job.duration_s / job.profile.iteration_s) <= 1000
    later = [job.model for job in setup.dynamic(0) if job.submit_s > 0]
    assert later[:2] == ["dlrm", "resnet50"]
    assert setup.dynamic(1) == setup.dynamic(1)
    assert setup.dynamic(1) != setup.dynamic(2)


def test_poisson_jobs_come_at_the_load() -> None:
    loads = []
    for seed in range(4):
        jobs = setup.poisson(seed, jobs=400)
        loads.append(sum(job.gpus * setup.alone_s(job) for job in jobs) / (setup.GPUS * jobs[-1].submit_s))
    assert all(0.7 < load < 1.1 for load in loads)
    assert max(loads) - min(loads) > 0.05


def test_two_roberta_score_what_the_factor_of_language_models_claims() -> None:
    assert compatibility(snapshot_circles(4, BATCH), setup.LINK_GBPS).score == pytest.approx(0.8, abs=0.005)


def test_dlrm_sends_vectors_from_all_to_all_and_its_dense_part_round_a_ring() -> None:
    job = setup.job("a", "dlrm", 1024, 6, 100)
    assert job.profile.exchanged_bytes == 2 * 1024 * 26 * 128 * 4
    assert job.profile.grad_bytes == pytest.approx(8e6, rel=0.1)  # two MLPs
    circle = circles(setup.testbed(), job, tuple(range(6)))[0]
    assert len(circle.arcs) == 3  # in the forward pass, in the backward pass, and the gradients of the rest
    exchange, _, ring = circle.arcs
    sent = job.profile.exchanged_bytes / 2 * 5 / 6 * 8 / 1e9  # half of it, to five of six
    assert (exchange[1] - exchange[0]) * exchange[2] == pytest.approx(sent)
    assert (ring[1] - ring[0]) * ring[2] == pytest.approx(job.profile.grad_bytes * 2 * 5 / 6 * 8 / 1e9)
    replicated = setup.job("b", "dlrm", 1024, 6, 100, replicated=True)
    assert replicated.profile.exchanged_bytes == 0.0
    assert replicated.profile.grad_bytes == pytest.approx(1.34e9, rel=0.01)


@pytest.mark.parametrize(("model", "batch"), [("gpt1", 56), ("gpt2", 56)])
def test_gpt_circles_have_something_to_interleave(model: str, batch: int) -> None:
    job = setup.job("a", model, batch, 8, 100)
    circle = circles(setup.testbed(), job, tuple(range(8)))[0]
    assert 0.2 < circle.up_s / circle.iteration_s < 0.6
    start_s, end_s, gbps = circle.arcs[-1]  # the embeddings that the first stage shares with the last
    assert (end_s - start_s) * gbps == pytest.approx(job.profile.tied_bytes * 8 / 1e9)


def test_cassini_improves_themis_on_the_dynamic_trace() -> None:
    found = {
        name: [
            IterationStats(
                simulate(setup.testbed(), setup.dynamic(seed, sets=2), name, RECORDED_PHASES, seed).intervals
            )
            for seed in range(1, 7)
        ]
        for name in ("themis", "themis+cassini")
    }
    mean = {name: sum(each.mean_s for each in runs) for name, runs in found.items()}
    above = {name: sum(each.above_gbit for each in runs) for name, runs in found.items()}
    assert mean["themis+cassini"] < mean["themis"]
    assert above["themis+cassini"] < above["themis"] / 1.2
