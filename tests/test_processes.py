import os

import pytest

from cranny.model.errors import InputError
from cranny.processes import run_each


def double(number: int, plus: int) -> int:
    if number < 0:
        raise InputError("no negative numbers")
    return 2 * number + plus


def process_id(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_calls(processes: int) -> None:
    heard: list[int] = []
    assert run_each(double, [(3, 1), (1, 0), (2, 5)], processes, heard.append) == [7, 2, 9]
    assert heard == [1, 2, 3]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_call_raises_is_raised(processes: int) -> None:
    with pytest.raises(InputError, match="no negative numbers"):
        run_each(double, [(1, 0), (-1, 0)], processes)


def test_a_process_makes_way_for_a_new_one_if_it_should() -> None:
    found = run_each(process_id, [(0,), (1,), (2,), (3,)], 2, calls_per_process=1)
    assert len(set(found)) == 4
    assert os.getpid() not in found


def test_no_calls_are_no_results() -> None:
    assert run_each(double, [], 2) == []
