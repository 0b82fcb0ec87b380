import numpy as np
import pytest

from cranny.model.errors import InputError
from cranny.model.placement import Placement


def test_keeps_the_machine_of_each_rank() -> None:
    placement = Placement(machines=(1, 2, 1, 2), spare=(2, 3))
    assert placement.machines == (1, 2, 1, 2)
    assert placement.counts == {1: 2, 2: 3, 3: 1}


def test_whole_numbers_of_other_kinds_become_plain_ones() -> None:
    for given in ([1, 70], np.array([1, 70]), (np.int64(1), np.int32(70))):
        placement = Placement(machines=given, spare=[np.int8(3)])  # type: ignore[arg-type, list-item]
        assert placement == Placement((1, 70), (3,))
        assert {type(machine) for machine in placement.machines + placement.spare} == {int}


@pytest.mark.parametrize("machines", [(), []])
def test_needs_a_rank(machines: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least one rank"):
        Placement(machines)


@pytest.mark.parametrize("machines", [5, "12", (1.5,), [None], (-1.0,), [-1]])
def test_refuses_what_is_no_machine(machines: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="machines must be whole numbers from 0 up"):
        Placement(machines)


def test_names_a_gpu_for_each_rank_and_spare() -> None:
    assert Placement((0, 0), (1,), gpus=[3, 1, 0]).gpus == (3, 1, 0)
    with pytest.raises(InputError, match="one for each rank and spare"):
        Placement((0, 0), (1,), gpus=(0, 1))
    with pytest.raises(InputError, match="gpus must be whole numbers from 0 up"):
        Placement((0,), gpus=(-1,))


def test_says_when_it_was_made_by_hand() -> None:
    placement = Placement((4, 2, 4))
    assert placement.explain() == "placed by hand on machines 4, 2"
    assert placement.facts == {"machines": [4, 2, 4], "placed_by": "hand"}
