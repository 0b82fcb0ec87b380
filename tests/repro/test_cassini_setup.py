from cranny.network.interleave.demand import circles
from cranny.network.networks import RECORDED_PHASES
from cranny.network.phases.iteration_log import IterationStats
from cranny.repro.cassini import setups as setup
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
    for jobs in (setup.dynamic(3, sets=2, elastic=True), setup.poisson(3, jobs=60)):
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
    jobs = setup.poisson(0, jobs=400, load=0.8)
    gpu_s = sum(job.gpus * setup.alone_s(job) for job in jobs)
    assert 0.7 < gpu_s / (setup.GPUS * jobs[-1].submit_s) < 0.9


def test_cassini_improves_themis_on_the_dynamic_trace() -> None:
    # Three seeds; docs/understand/cassini.md has ten.
    found = {
        name: [
            IterationStats(
                simulate(setup.testbed(), setup.dynamic(seed, sets=2), name, RECORDED_PHASES, seed).intervals
            )
            for seed in range(3)
        ]
        for name in ("themis", "themis+cassini")
    }
    mean = {name: sum(each.mean_s for each in runs) for name, runs in found.items()}
    above = {name: sum(each.above_gbit for each in runs) for name, runs in found.items()}
    assert mean["themis+cassini"] < mean["themis"]
    assert above["themis+cassini"] < above["themis"] / 3
