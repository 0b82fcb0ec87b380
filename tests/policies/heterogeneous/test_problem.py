import numpy as np
import pytest

from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.problem import Problem, Training

A, B = Training("a", 100, 2), Training("b", 50, 1)


def problem(workers: list[list[int]], throughput: list[list[float | None]]) -> Problem:
    return Problem((A, B), ("T4", "V100"), workers, throughput)


def test_refuses_more_jobs_than_workers_and_names_the_job_that_gets_none() -> None:
    with pytest.raises(InputError, match=r"2 jobs cannot share 1 worker: none is left for 'b'"):
        problem([[1, 0]], [[1.0, 2.0], [1.0, 2.0]])


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf")])
def test_refuses_a_throughput_that_is_none(rate: float) -> None:
    with pytest.raises(InputError, match="job 'b': throughput on V100 must be above 0"):
        problem([[1, 1]], [[1.0, 2.0], [1.0, rate]])


@pytest.mark.parametrize("row", [[1.0], [1.0, float("nan")]])
def test_refuses_a_missing_throughput(row: list[float | None]) -> None:
    with pytest.raises(InputError, match="job 'b' has no throughput on V100"):
        problem([[1, 1]], [[1.0, 2.0], row])


def test_refuses_a_job_without_throughputs() -> None:
    with pytest.raises(InputError, match="job 'b' has no throughputs"):
        problem([[1, 1]], [[1.0, 2.0]])


def test_refuses_a_job_that_no_type_can_run() -> None:
    with pytest.raises(InputError, match=r"no GPU type \(T4, V100\) can run job 'b'"):
        problem([[1, 1]], [[1.0, 2.0], [None, None]])


def test_refuses_a_job_that_no_type_of_the_cluster_can_run() -> None:
    with pytest.raises(InputError, match=r"no GPU type of the cluster \(T4\) can run job 'b'"):
        problem([[3, 0]], [[1.0, 2.0], [None, 2.0]])


def test_refuses_two_jobs_that_need_the_same_worker() -> None:
    with pytest.raises(InputError, match="job 'b' gets no worker: it runs on V100 only"):
        problem([[3, 1]], [[None, 2.0], [None, 2.0]])


def test_finds_a_worker_for_every_job_if_an_earlier_one_must_move() -> None:
    found = problem([[1, 1]], [[1.0, 2.0], [1.0, None]])
    assert found.first.tolist() == [1, 0]


def test_refuses_two_jobs_of_one_name() -> None:
    with pytest.raises(InputError, match="job 'a' occurs twice"):
        Problem((A, A), ("T4",), [[2]], [[1.0], [1.0]])


def test_refuses_machines_with_other_types() -> None:
    with pytest.raises(InputError, match="machine 1: workers of 1 types, but there are 2 types"):
        problem([[1, 1], [1]], [[1.0, 2.0], [1.0, 2.0]])


def test_refuses_a_number_of_workers_that_is_not_whole() -> None:
    with pytest.raises(InputError, match="machine 0: T4 must be a whole number"):
        problem([[-1, 1]], [[1.0, 2.0], [1.0, 2.0]])


@pytest.mark.parametrize("field", ["samples", "epochs", "weight", "deadline_s", "exchanges_per_epoch"])
def test_refuses_a_job_with_nothing_to_do(field: str) -> None:
    with pytest.raises(InputError, match=f"job 'x': {field} must be"):
        Training(**{"name": "x", "samples": 1, "epochs": 1, field: 0})  # type: ignore[arg-type]


def test_takes_arrays_and_makes_them_read_only() -> None:
    found = Problem((A, B), ("T4", "V100"), np.array([[2, 2]]), np.array([[1.0, 2.0], [3.0, 4.0]]))  # type: ignore[arg-type]
    assert found.size == 4
    assert found.totals.tolist() == [2, 2]
    with pytest.raises(ValueError, match="read-only"):
        found.rates[0, 0] = 5
