import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.heterogeneous.drawn import drawn
from tests.reference import has as book

from cranny.model.errors import InputError, PlacementError
from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.one_machine import place_workers
from cranny.policies._shared.heterogeneous.problem import (
    Problem,
    Shares,
    Training,
    equal_s,
    fairness,
    split_samples,
)

JOBS = (Training("ResNet-18", 100_000, 200), Training("VGG-19", 50_000, 200))
EXAMPLE = Problem(JOBS, ("T4", "V100"), [[2, 2]], [[275, 644], [884, 1754]])


@settings(max_examples=examples(100))
@given(st.integers(1, 10**9), st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=40))
def test_a_split_sums_exactly_and_is_off_by_less_than_a_sample(samples: int, rates: list[float]) -> None:
    parts = split_samples(samples, np.array(rates))
    assert parts.sum() == samples
    assert (parts >= 0).all()
    assert np.abs(parts - samples * np.array(rates) / sum(rates)).max() < 1 + 1e-6 * samples


def test_a_split_gives_what_is_left_over_to_those_who_lost_most() -> None:
    assert split_samples(10, np.array([1.0, 1.0, 1.0])).tolist() == [4, 3, 3]
    assert split_samples(100_000, np.array([275.0, 275.0, 644.0])).tolist() == [23032, 23032, 53936]


@pytest.mark.parametrize(
    ("totals", "mean_jct_s"),
    [
        ([[1, 1], [1, 1]], 12_776.8),  # LAS
        ([[2, 1], [0, 1]], 11_225.8),  # {3, 1}
        ([[2, 0], [0, 2]], 19_607.1),  # {2, 2}
        ([[1, 0], [1, 2]], 37_502.1),  # {1, 3}
        ([[0, 2], [2, 0]], 10_592.0),  # the optimum
    ],
)
def test_knows_the_times_of_table_ii(totals: list[list[int]], mean_jct_s: float) -> None:
    shares = Shares(EXAMPLE, place_workers(EXAMPLE, np.array(totals)))
    assert shares.mean_jct_s == pytest.approx(mean_jct_s, abs=0.05)


def two_machines(model_bytes: float = 1.25e9) -> Problem:
    return Problem((Training("a", 1000, 2, model_bytes),), ("T4",), [[2], [2]], [[100]], 100, 10)


def test_a_ring_is_as_fast_as_its_slowest_link() -> None:
    # 10 Gbit: 0.1 s inside, 1 s between machines. Two workers exchange 2 x 1/2, four 2 x 3/4 of the model, twice.
    problem = two_machines()
    inside = Shares(problem, np.array([[[2], [0]]]))
    between = Shares(problem, np.array([[[1], [1]]]))
    everywhere = Shares(problem, np.array([[[2], [2]]]))
    assert inside.mean_jct_s == pytest.approx(10 + 0.2)
    assert between.mean_jct_s == pytest.approx(10 + 2)
    assert everywhere.mean_jct_s == pytest.approx(5 + 3)


def test_one_worker_exchanges_nothing() -> None:
    assert Shares(two_machines(), np.array([[[1], [0]]])).mean_jct_s == pytest.approx(20)


def test_an_equal_split_waits_for_the_slowest_worker() -> None:
    shares = Shares(EXAMPLE, place_workers(EXAMPLE, np.array([[1, 1], [1, 1]])), equal_split=True)
    assert shares.jct_s.tolist() == pytest.approx([100_000 * 200 / 2 / 275, 50_000 * 200 / 2 / 884])
    assert [batch.samples for batch in shares.batches(0)] == [50_000, 50_000]


def test_equal_shares_take_an_s_th_of_the_clusters_throughput() -> None:
    assert equal_s(EXAMPLE).tolist() == pytest.approx([2e7 / (1838 / 2), 1e7 / (5276 / 2)])
    # One job has the whole cluster: four workers on two machines.
    assert equal_s(two_machines()).tolist() == pytest.approx([5 + 3])


def test_fairness_is_one_for_equal_shares_and_an_s_th_if_one_job_waits_for_ever() -> None:
    equal = equal_s(EXAMPLE)
    assert fairness(equal, equal) == pytest.approx(1)
    assert fairness(equal * np.array([1e9, 1]), equal) == pytest.approx(0.5)
    assert Shares(EXAMPLE, place_workers(EXAMPLE, np.array([[1, 1], [1, 1]]))).fairness == pytest.approx(1)


def test_batches_name_machine_and_type_of_each_worker() -> None:
    shares = Shares(EXAMPLE, place_workers(EXAMPLE, np.array([[2, 1], [0, 1]])))
    found = [(batch.machine, batch.gpu_type, batch.samples) for batch in shares.batches(0)]
    assert found == [(0, "T4", 23032), (0, "T4", 23032), (0, "V100", 53936)]


def test_jobs_that_fit_into_a_machine_get_one() -> None:
    jobs = (Training("small", 1000, 1, 1e6), Training("large", 1000, 1, 1e9))
    problem = Problem(jobs, ("T4",), [[3], [2]], [[1], [1]], 300, 10)
    assert place_workers(problem, np.array([[2], [3]]))[:, :, 0].tolist() == [[0, 2], [3, 0]]


def test_a_job_makes_room_on_a_machine_if_that_saves_more() -> None:
    # "most" saves most, and would fill the second machine most tightly; but then "last" fits nowhere.
    jobs = tuple(Training(name, 1000, 1, size) for name, size in (("most", 3e9), ("next", 2e9), ("last", 1e9)))
    problem = Problem(jobs, ("T4",), [[4], [3]], [[1], [1], [1]], 300, 10)
    assert place_workers(problem, np.array([[2], [3], [2]]))[:, :, 0].tolist() == [[2, 0], [0, 3], [2, 0]]


def test_machines_are_those_with_the_least_exchange() -> None:
    rng = np.random.default_rng(0)
    for _ in range(150):
        problem = drawn(rng, int(rng.integers(2, 6)), int(rng.integers(1, 3)), int(rng.integers(2, 4)), 4)
        totals = np.zeros(problem.rates.shape, dtype=np.int64)
        totals[np.arange(len(totals)), problem.first] = 1
        for kind, count in enumerate((problem.totals - totals.sum(axis=0)).tolist()):
            totals[:, kind] += rng.multinomial(count, np.ones(len(totals)) / len(totals))
        shares = Shares(problem, place_workers(problem, totals))
        assert shares.jct_s.sum() == pytest.approx(book.least_s(problem, totals))


def test_refuses_shares_that_the_cluster_does_not_have() -> None:
    with pytest.raises(PlacementError, match="more workers than the cluster has"):
        Shares(EXAMPLE, np.array([[[2, 2]], [[1, 0]]]))
    with pytest.raises(PlacementError, match="job 'VGG-19' has no worker"):
        Shares(EXAMPLE, np.array([[[2, 2]], [[0, 0]]]))


def test_refuses_a_worker_that_cannot_run_its_job() -> None:
    problem = Problem(JOBS, ("T4", "V100"), [[2, 2]], [[275, 644], [None, 1754]])
    with pytest.raises(PlacementError, match="job 'VGG-19' has a worker that cannot run it"):
        Shares(problem, np.array([[[1, 1]], [[1, 1]]]))


def test_estimates_begin_with_a_probe_and_follow_reports() -> None:
    known, job = JobEstimates(), Job("a", 1)
    known.report("a", "T4", 100)
    known.report("a", "T4", 200)
    assert known.speeds(job, ["T4"]) == [pytest.approx(130)]
    for _ in range(30):
        known.report("a", "T4", 200)
    assert known.speeds(job, ["T4"]) == [pytest.approx(200, rel=1e-3)]


def test_estimates_refuse_a_report_of_nothing() -> None:
    with pytest.raises(InputError, match="job 'a' on T4: samples must be a positive number"):
        JobEstimates().report("a", "T4", 0)
