"""What is implausible about trees of switches."""

import pytest

from cranny.cluster_import.topology_lint import lint_cluster
from cranny.model.cluster import Cluster, Machine, Switch


def machines(*names: str, gpus: int = 8) -> tuple[Machine, ...]:
    return tuple(Machine(name, gpus, "h100") for name in names)


def rack(name: str, *names: str, gbps: float = 100.0, gpus: int = 8) -> Switch:
    return Switch(name, machines(*names, gpus=gpus), (gbps,) * len(names))


def top(*below: Switch | Machine, gbps: tuple[float, ...] | None = None) -> Cluster:
    sums = tuple(sum(each.uplinks_gbps) if isinstance(each, Switch) else 100.0 for each in below)
    return Cluster.of(Switch("top", below, gbps or sums))


def problems(cluster: Cluster) -> list[tuple[str, str, str]]:
    return [(each.level, each.where, each.problem) for each in lint_cluster(cluster)]


A, B = rack("a", "a1", "a2", "a3", "a4"), rack("b", "b1", "b2", "b3", "b4")


@pytest.mark.parametrize("cluster", [Cluster.fat_tree(8, 8, 8, oversubscription=4.0), Cluster.single_rack(1, 8)])
def test_ordinary_clusters_are_plausible(cluster: Cluster) -> None:
    assert problems(cluster) == []


def test_a_machine_below_no_rack() -> None:
    text = "below no rack while others are: are they missing in the topology?"
    assert problems(top(A, B, *machines("c1"))) == [("error", "c1", text)]


def test_a_rack_that_is_far_smaller_than_others() -> None:
    found = problems(top(A, B, rack("c", "c1")))
    assert found == [("warning", "c", "has 1 machine; racks here have 4 as a rule")]


def test_a_machine_with_another_link() -> None:
    odd = Switch("c", machines("c1", "c2", "c3", "c4"), (100.0, 100.0, 10.0, 100.0))
    assert problems(top(A, odd)) == [("warning", "c3", "has a link of 10 Gbps; others in c have 100")]


@pytest.mark.parametrize(
    ("gbps", "text"),
    [
        (10.0, "its uplink of 10 Gbps is slower than a link below, 100 Gbps"),
        (4000.0, "its uplink of 4000 Gbps is faster than all links below, 400 Gbps"),
    ],
)
def test_an_uplink_that_cannot_be(gbps: float, text: str) -> None:
    assert problems(top(A, B, gbps=(400.0, gbps))) == [("warning", "b", text)]


def test_an_uplink_for_far_too_many() -> None:
    many = rack("c", *(f"c{number}" for number in range(40)))
    found = problems(top(many, rack("d", *(f"d{number}" for number in range(40))), gbps=(200.0, 4000.0)))
    assert found == [("warning", "c", "its uplink is oversubscribed 20:1")]


def test_a_switch_with_one_switch_below() -> None:
    pod = Switch("pod", (A,), (400.0,))
    assert problems(top(pod, B, gbps=(400.0, 400.0))) == [("warning", "pod", "has nothing below but a")]


def test_a_machine_with_a_gpu_less() -> None:
    seven = rack("c", "c1", gpus=7)
    mixed = Switch("c", (*machines("c2", "c3", "c4"), *seven.children), (100.0,) * 4)
    text = "has 7 h100 GPUs; 11 other machines have 8: is one broken?"
    assert problems(top(A, B, mixed)) == [("warning", "c1", text)]
