from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import packing

from cranny.core.packing import fewest, largest_first, machines_when_empty
from cranny.core.snapshot import ALL
from cranny.model.cluster import Cluster, Machine, Switch

SIZES = st.lists(st.integers(1, 8), max_size=5)


def counted(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes.count(size) for size in range(9))


@given(st.integers(1, 40), SIZES, SIZES)
def test_the_closed_form_agrees_with_trying_everything(gpus: int, in_use: list[int], idle: list[int]) -> None:
    found = fewest(gpus, counted(in_use), counted(idle))
    best = packing.fewest(gpus, in_use, idle)
    if found is None:
        assert best is None
        return
    assert (found.idle, found.machines) == best
    assert len(found.sizes) == found.machines
    assert sum(found.sizes) >= gpus
    opened, others = list(found.sizes[: found.idle]), list(found.sizes[found.idle :])
    assert opened == sorted(opened, reverse=True)
    assert others == sorted(others, reverse=True)
    assert all(opened.count(size) <= idle.count(size) for size in opened)
    assert all(others.count(size) <= in_use.count(size) for size in others)


@given(st.integers(1, 60), SIZES, st.integers(0, 6))
def test_equal_idle_machines_follow_the_papers_formula(gpus: int, in_use: list[int], idle: int) -> None:
    found = fewest(gpus, counted(in_use), counted([8] * idle))
    needed = max(0, -(-(gpus - sum(in_use)) // 8))
    assert (found.idle if found else None) == (needed if needed <= idle else None)


def test_titan_starts_16_workers_where_consolidation_waits() -> None:
    found = fewest(16, counted([4, 4]), counted([8]))  # three machines of 8, two of them half taken
    assert found is not None
    assert found == (1, 3, (8, 4, 4))


def test_many_free_gpus_do_not_open_idle_machines() -> None:
    assert fewest(4, counted([3, 2, 1]), counted([4])) == (0, 2, (3, 2))


def test_the_largest_are_taken_first() -> None:
    assert largest_first(10, counted([1, 8, 4, 4])) == [8, 4]
    assert largest_first(0, counted([1])) == []
    assert largest_first(99, counted([1, 2])) == [2, 1]


@pytest.mark.parametrize("gpus", [9, 100])
def test_says_when_a_job_does_not_fit(gpus: int) -> None:
    assert fewest(gpus, counted([4]), counted([4])) is None


def test_an_empty_cluster_has_only_the_machines_that_suit_a_job() -> None:
    machines = (Machine("large", 8, "A"), Machine("b0", 2, "B"), Machine("b1", 2, "B"), Machine("c", 4, "C"))
    cluster = Cluster.of(Switch("top", machines, (100.0,) * 4))
    assert [machines_when_empty(gpus, cluster, ALL) for gpus in (1, 8, 9, 16)] == [1, 1, 2, 4]
    assert [machines_when_empty(gpus, cluster, 0b0110) for gpus in (1, 3, 4)] == [1, 2, 2]
    assert [machines_when_empty(gpus, cluster, 0b1110) for gpus in (4, 6, 8)] == [1, 2, 3]
