from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.policies._shared.locality import closest, crossed, level, nearby

RACKS = Cluster.fat_tree(racks=3, machines_per_rack=2, gpus_per_machine=4)
UNEVEN = Cluster.of(
    Switch(
        "top",
        (
            Machine("head", 2),
            Switch(
                "pod", (Switch("r0", (Machine("a", 4), Machine("b", 4)), (9.0, 9.0)), Machine("c", 3)), (9.0, 9.0)
            ),
            Switch("r1", (Machine("d", 2), Machine("e", 4)), (9.0, 9.0)),
        ),
        (9.0, 9.0, 9.0),
    )
)


def test_workers_go_to_the_tightest_machine() -> None:
    assert closest(2, [4, 4, 3, 2, 4, 1], RACKS) == (3, 3)
    assert nearby(2, [4, 4, 3, 2, 4, 1], RACKS) == (3, 3)


def test_workers_go_to_the_tightest_rack_if_no_machine_holds_them() -> None:
    assert closest(5, [4, 4, 3, 2, 4, 1], RACKS) == (2, 2, 2, 3, 3)
    assert nearby(5, [4, 4, 3, 2, 4, 1], RACKS) == (2, 2, 2, 3, 3)


def test_workers_of_several_racks_fill_the_roomiest_and_end_on_the_tightest_machine() -> None:
    assert closest(9, [4, 4, 3, 2, 4, 1], RACKS) == (0, 0, 0, 0, 1, 1, 1, 1, 5)


def test_nearby_looks_no_closer_than_the_rack() -> None:
    assert nearby(9, [1, 4, 3, 2, 4, 1], RACKS) == (0, 1, 1, 1, 1, 2, 2, 2, 3)


def test_ties_are_drawn_among_all_places_that_are_equal() -> None:
    ties = np.random.default_rng(0)
    assert {nearby(2, [4, 4, 3, 2, 4, 1], RACKS, ties) for _ in range(99)} == {(m, m) for m in range(5)}
    drawn = {nearby(9, [4, 4, 3, 2, 4, 1], RACKS, ties) for _ in range(99)}
    assert len(drawn) > 9
    assert all(found is not None and level(found, RACKS) == 2 for found in drawn)


def test_too_few_gpus_are_no_place() -> None:
    assert closest(19, [4, 4, 3, 2, 4, 1], RACKS) is None
    assert nearby(19, [4, 4, 3, 2, 4, 1], RACKS) is None


def test_workers_cross_the_links_that_have_some_on_either_side() -> None:
    assert crossed((0, 0), RACKS) == ()
    assert set(crossed((0, 1), RACKS)) == {0, 1}
    assert set(crossed((0, 1, 2), RACKS)) == {0, 1, 2, 6, 7}


def test_workers_are_on_one_machine_in_one_rack_or_in_several() -> None:
    assert [level(machines, RACKS) for machines in ((0, 0), (0, 1), (0, 2))] == [0, 1, 2]


def test_a_machine_is_closer_than_any_switch() -> None:
    # The machine right below the root has more room than the switch; it still keeps all workers together.
    assert closest(3, [4, 1, 2, 0, 0, 0], UNEVEN) == (0, 0, 0)


@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.integers(1, 20), st.sampled_from([RACKS, UNEVEN]))
def test_places_are_free_and_as_close_as_one_machine_or_rack_allows(
    free: list[int], gpus: int, cluster: Cluster
) -> None:
    for find in (closest, nearby, partial(nearby, ties=np.random.default_rng(gpus))):
        found = find(gpus, free, cluster)
        assert (found is None) == (sum(free) < gpus)
        if found is None:
            continue
        assert len(found) == gpus
        assert all(found.count(machine) <= free[machine] for machine in found)
        racks = [sum(free[slice(*span)]) for span in cluster.rack_spans]
        possible = 0 if max(free) >= gpus else 1 if max(racks) >= gpus else 2
        if cluster is RACKS:
            assert level(found, cluster) == possible
        else:
            assert (level(found, cluster) == 0) == (possible == 0)
