import math
from typing import Any

import pytest

from cranny.model.cluster import Cluster, Machine, Switch, mask_of
from cranny.model.errors import InputError
from cranny.model.topology_spec import MAX_LEVELS, MAX_MACHINES


def test_a_fat_tree_lays_out_machines_then_racks_then_the_core() -> None:
    cluster = Cluster.fat_tree(racks=2, machines_per_rack=3, gpus_per_machine=4)
    assert len(cluster.machines) == 6
    assert cluster.gpus == 24
    assert cluster.parent == (6, 6, 6, 7, 7, 7, 8, 8, 8)
    assert cluster.root == 8
    assert cluster.spans == ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (0, 3), (3, 6), (0, 6))
    assert cluster.node_names[5:] == ("rack1-machine2", "rack0", "rack1", "core")


def test_a_rack_uplink_carries_what_its_machines_send() -> None:
    cluster = Cluster.fat_tree(racks=2, machines_per_rack=4, gpus_per_machine=8, link_gbps=100)
    assert cluster.uplink_gbps == (100.0,) * 8 + (400.0, 400.0, math.inf)


def test_links_are_described_in_one_line() -> None:
    even = Cluster.fat_tree(16, 16, 4, oversubscription=4, pat_gbps=1000)
    assert even.describe_links() == "100 Gbps for each machine, switches oversubscribed 4:1, PAT 1,000 Gbps"
    rack = Switch("rack", (Machine("a", 1), Machine("b", 1)), (25.0, 100.0), pat_gbps=40.0)
    other = Switch("other", (Machine("c", 1), Machine("d", 1)), (100.0, 100.0), pat_gbps=80.0)
    mixed = Cluster.of(Switch("top", (rack, other), (125.0, 80.0)))
    told = "25 to 100 Gbps for each machine, switches oversubscribed 1 to 2.5:1, PAT 40 to 80 Gbps"
    assert mixed.describe_links() == told
    flat = Cluster.of(Switch("top", (Machine("a", 1), Machine("b", 1)), (10.0, 10.0)))
    assert flat.describe_links() == "10 Gbps for each machine"


def test_partitions_are_kept_by_the_indices_of_their_machines() -> None:
    tree = Switch("top", (Machine("a", 1), Machine("b", 2), Machine("c", 2)), (1.0, 1.0, 1.0))
    cluster = Cluster.of(tree, {"gpu": ["c", "a", "c"], "none": []})
    assert cluster.partitions == {"gpu": (0, 2), "none": ()}
    assert Cluster.of(tree).partitions == {}
    with pytest.raises(InputError, match=r"partition 'gpu': unknown machine 'd'; known: a, b, c"):
        Cluster.of(tree, {"gpu": ["d"]})


def test_oversubscription_narrows_the_rack_uplinks() -> None:
    cluster = Cluster.fat_tree(2, 4, 8, link_gbps=100, oversubscription=8)
    assert cluster.uplink_gbps[8:10] == (50.0, 50.0)


def test_pods_are_oversubscribed_once_more() -> None:
    cluster = Cluster.fat_tree(3, 2, 1, link_gbps=100, oversubscription=2, racks_per_pod=2)
    names = dict(zip(cluster.node_names, cluster.uplink_gbps, strict=True))
    assert names["rack0"] == names["rack1"] == names["rack2"] == 100.0
    assert names["pod0"] == 100.0  # two racks of 100, halved
    assert names["pod1"] == 50.0  # the last pod has one rack only
    assert cluster.rack_of == (0, 0, 1, 1, 2, 2)


def test_paths_lead_up_to_below_the_root() -> None:
    cluster = Cluster.fat_tree(4, 2, 1, racks_per_pod=2)
    named = [[cluster.node_names[link] for link in path] for path in cluster.paths]
    assert named[0] == ["rack0-machine0", "rack0", "pod0"]
    assert named[7] == ["rack3-machine1", "rack3", "pod1"]


def test_in_a_single_rack_a_path_is_one_link() -> None:
    cluster = Cluster.single_rack(3, 8)
    assert cluster.paths == ((0, 3), (1, 3), (2, 3))
    assert cluster.rack_of == (0, 0, 0)
    assert cluster.rack_names == ("rack0",)


def test_a_tree_may_mix_machines_and_switches() -> None:
    rack = Switch("r", (Machine("b", 2, "t4"), Machine("c", 8)), (10.0, 20.0), pat_gbps=40.0)
    cluster = Cluster.of(Switch("top", (Machine("a", 4), rack, Machine("d", 1)), (1.0, 2.0, 3.0)))
    assert [machine.name for machine in cluster.machines] == ["a", "b", "c", "d"]
    assert cluster.uplink_gbps == (1.0, 10.0, 20.0, 3.0, 2.0, math.inf)
    assert cluster.parent == (5, 4, 4, 5, 5, 5)
    assert cluster.spans[4:] == ((1, 3), (0, 4))
    assert cluster.rack_of == (0, 1, 1, 0)
    assert cluster.rack_names == ("top", "r")
    assert cluster.pat_gbps == (None, None, None, None, 40.0, None)
    assert cluster.share_unit == 8


def test_links_and_clusters_describe_themselves() -> None:
    rack = Switch("r", (Machine("a", 2, "t4"), Machine("b", 8)), (1.0, 1.0))
    cluster = Cluster.of(Switch("lab", (rack,), (1.0,)))
    assert cluster.link_name(0) == "uplink of machine a"
    assert cluster.link_name(2) == "uplink of switch r"
    assert cluster.describe() == "lab: 1 rack, 1 machine x 2 GPUs (t4), 1 machine x 8 GPUs, 10 GPUs"


def test_a_set_of_machines_has_their_bits() -> None:
    assert mask_of([0, 3, 70]) == 1 + 8 + (1 << 70)
    assert mask_of([]) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((0, 8, 8), "racks must be a whole number from 1"),
        ((1, 1.5, 8), "machines_per_rack must be a whole number"),
        ((1, 1, 65), "gpus_per_machine must be a whole number from 1 to 64, not 65"),
        ((1, 1, True), "gpus_per_machine must be a whole number"),
        ((1, 1, 8, 0), "link_gbps must be a positive number, not 0"),
        ((1, 1, 8, math.nan), "link_gbps must be a positive number, not nan"),
        ((1, 1, 8, math.inf), "link_gbps must be a positive number, not inf"),
        ((1, 1, 8, "100"), "link_gbps must be a positive number, not '100'"),
        ((1, 1, 8, 10**400), "link_gbps must be a positive number"),
        ((1, 1, 8, 100, -1), "oversubscription must be a positive number, not -1"),
        ((2, 1, 8, 100, 1, 3), "racks_per_pod must be a whole number from 1 to 2, not 3"),
        ((1001, 1000, 8), f"more than {MAX_MACHINES} machines"),
    ],
)
def test_a_fat_tree_refuses_nonsense(arguments: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        Cluster.fat_tree(*arguments)


def test_refuses_a_cluster_without_machines() -> None:
    with pytest.raises(InputError, match="cluster 'top' has no machines"):
        Cluster.of(Switch("top", (Switch("r", (), ()),), (1.0,)))


def test_refuses_two_machines_of_one_name() -> None:
    with pytest.raises(InputError, match="two machines are called 'a'"):
        Cluster.of(Switch("top", (Machine("a", 1), Machine("a", 2)), (1.0, 1.0)))


def test_refuses_a_switch_with_an_uplink_too_few() -> None:
    with pytest.raises(InputError, match="switch 'top' has 1 uplinks for 2 children"):
        Switch("top", (Machine("a", 1), Machine("b", 2)), (1.0,))


@pytest.mark.parametrize("gbps", [0.0, -1.0, math.nan, math.inf])
def test_refuses_an_uplink_that_carries_nothing_or_anything(gbps: float) -> None:
    with pytest.raises(InputError, match="uplink of 'a': Gbps must be a positive number"):
        Switch("top", (Machine("a", 1),), (gbps,))
    with pytest.raises(InputError, match="pat_gbps must be a positive number"):
        Switch("top", (Machine("a", 1),), (1.0,), pat_gbps=gbps)


def test_refuses_a_machine_without_name_or_with_odd_types() -> None:
    with pytest.raises(InputError, match="name must be a non-empty string, not ''"):
        Machine("", 1)
    with pytest.raises(InputError, match="gpu_type must be a string, not 5"):
        Machine("a", 1, 5)  # type: ignore[arg-type]


def test_refuses_a_tree_too_deep() -> None:
    tree: Switch = Switch("leaf", (Machine("a", 1),), (1.0,))
    for level in range(MAX_LEVELS - 1):
        tree = Switch(f"s{level}", (tree,), (1.0,))
    assert len(Cluster.of(tree).paths[0]) == MAX_LEVELS
    with pytest.raises(InputError, match="more than 32 levels of switches"):
        Cluster.of(Switch("one more", (tree,), (1.0,)))


def test_refuses_more_machines_than_it_can_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.model.cluster.MAX_MACHINES", 1)
    with pytest.raises(InputError, match="cluster 'top' has more than 1 machines"):
        Cluster.of(Switch("top", (Machine("a", 1), Machine("b", 2)), (1.0, 1.0)))
