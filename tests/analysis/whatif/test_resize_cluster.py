import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.analysis.whatif.resized_cluster import resized
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError

LAB = Cluster.of(
    Switch(
        "lab",
        (
            Switch(
                "r0", (Machine("a", 8, "h100"), Machine("b", 8, "h100"), Machine("c", 4)), (100.0, 100.0, 25.0)
            ),
            Switch("r1", (Machine("d", 2),), (10.0,), pat_gbps=5.0),
        ),
        (400.0, 40.0),
    )
)


def per_rack(cluster: Cluster) -> list[int]:
    return sorted(Counter(cluster.rack_of).values())


def test_machines_go_from_the_fullest_rack() -> None:
    assert [machine.name for machine in resized(LAB, -1).machines] == ["a", "b", "d"]
    assert [machine.name for machine in resized(LAB, -2).machines] == ["a", "d"]


def test_a_rack_without_machines_is_gone() -> None:
    one = resized(LAB, -3)
    assert len(one.machines) == 1
    assert len(one.rack_names) == 1


def test_new_machines_are_like_the_last_of_their_rack() -> None:
    more = resized(LAB, 3)
    assert [(machine.name, machine.gpus) for machine in more.machines if "more" in machine.name] == [
        ("c-more1", 4),
        ("c-more2", 4),
        ("d-more1", 2),
    ]
    new = more.node_names.index("c-more1")
    assert more.uplink_gbps[new] == 25.0
    assert more.rack_names == LAB.rack_names


def test_the_rest_of_the_tree_stays_as_it_is() -> None:
    same = resized(resized(LAB, 2), 0)
    for name in ("r0", "r1"):
        old, new = LAB.node_names.index(name), same.node_names.index(name)
        assert same.uplink_gbps[new] == LAB.uplink_gbps[old]
        assert same.pat_gbps[new] == LAB.pat_gbps[old]
    assert resized(LAB, 0) is LAB


def test_partitions_lose_and_gain_machines_with_the_cluster() -> None:
    parted = dataclasses.replace(LAB, partitions={"old": (1, 2), "new": (3,), "both": (2, 3)})

    def named(cluster: Cluster) -> dict[str, list[str]]:
        return {name: [cluster.node_names[i] for i in own] for name, own in cluster.partitions.items()}

    assert named(resized(parted, -2)) == {"old": [], "new": ["d"], "both": ["d"]}
    assert named(resized(parted, 2)) == {
        "old": ["b", "c", "c-more1"],
        "new": ["d", "d-more1"],
        "both": ["c", "c-more1", "d", "d-more1"],
    }


def test_the_last_machine_cannot_go() -> None:
    with pytest.raises(InputError, match="cannot remove 4 of 4 machines"):
        resized(LAB, -4)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(-29, 20))
def test_racks_stay_even(racks: int, machines: int, change: int) -> None:
    cluster = Cluster.fat_tree(racks, machines, 4)
    if change <= -racks * machines:
        return
    made = resized(cluster, change)
    assert len(made.machines) == racks * machines + change
    counts = per_rack(made)
    if len(counts) == racks:
        assert counts[-1] - counts[0] <= 1
    else:  # some have none left
        assert counts[-1] == 1


@given(st.integers(1, 11))
def test_removing_more_keeps_removing_the_same(count: int) -> None:
    cluster = Cluster.fat_tree(3, 4, 8)
    names = {machine.name for machine in resized(cluster, -count).machines}
    assert names <= {machine.name for machine in resized(cluster, 1 - count).machines}
