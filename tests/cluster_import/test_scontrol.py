import dataclasses
import json
import re
from pathlib import Path

import pytest

from cranny.cluster_import.gres import read_gres
from cranny.cluster_import.imported import ImportedCluster
from cranny.cluster_import.scontrol import read_scontrol
from cranny.cluster_import.slurm_topology import read_topology
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from tests.cluster_import.samples import TOPOLOGY, node


def written(folder: Path, text: str, name: str = "nodes.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def same_as_its_file(found: ImportedCluster, folder: Path) -> None:
    again = Cluster.from_file(written(folder, found.yaml(), "made.yaml"))
    for each in dataclasses.fields(Cluster):
        assert again.__dict__[each.name] == found.cluster.__dict__[each.name], each.name


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("(null)", {}, {}),
        ("gpu:8", {"": 8}, {}),
        ("gpu:a100:8(S:0-1)", {"a100": 8}, {}),
        ("gpu:a100:8(S:0,2),nic:2", {"a100": 8}, {}),
        ("gpu:a100:4,gpu:v100:2", {"a100": 4, "v100": 2}, {}),
        ("gpu:a100:2(S:0),gpu:a100:2(S:1)", {"a100": 4}, {}),
        ("gpu:1g.5gb:7", {}, {"1g.5gb": 7}),
        ("gpu:a100:3(S:0),gpu:a100_3g.20gb:2(S:1)", {"a100": 3}, {"a100_3g.20gb": 2}),
        ("gpu:tesla:no_consume:2", {"tesla": 2}, {}),
        ("gpu:a100", {"a100": 1}, {}),
        ("gpu:0", {}, {}),
        ("shard:16,gpu:a10:4", {"a10": 4}, {}),
    ],
)
def test_known_gres(text: str, whole: dict[str, int], parts: dict[str, int]) -> None:
    found = read_gres(text)
    assert (found.whole, found.parts, found.shared) == (whole, parts, "shard" in text)


def test_nodes_with_their_types_partitions_and_states(tmp_path: Path) -> None:
    text = (
        node("n1", "gpu:a100:8(S:0-1)", partitions="gpu,debug", tres=",gres/gpu=8,gres/gpu:a100=8")
        + node("n2", "gpu:a100:8(S:0-1)", "DOWN*+DRAIN")
        + node("n3", "gpu:v100:4", "MIXED+PLANNED", "old")
        + node("n4", "(null)", tres=",gres/gpu=2")
        + node("cpu1", "(null)")
    )
    found = read_scontrol(written(tmp_path, text))
    assert [(each.name, each.gpus, each.gpu_type) for each in found.cluster.machines] == [
        ("n1", 8, "a100"),
        ("n2", 8, "a100"),
        ("n3", 4, "v100"),
        ("n4", 2, ""),
    ]
    assert found.cluster.partitions == {"gpu": (0, 1, 3), "debug": (0,), "old": (2,)}
    notes = "\n".join(found.notes)
    assert "1 machine not available when this was printed, kept in the cluster: n2." in notes
    assert "1 machine without GPUs, skipped: cpu1." in notes
    assert "No topology was given" in notes
    assert "{name: n2, gpus: 8, gpu_type: a100}                       # DOWN*+DRAIN" in found.yaml()
    assert re.search(r"^link_gbps: 100 +# assumed", found.yaml(), re.MULTILINE)
    same_as_its_file(found, tmp_path)


def test_one_line_a_node(tmp_path: Path) -> None:
    lines = [" ".join(node(name, "gpu:a100:8").split()) for name in ("n1", "n2")]
    found = read_scontrol(written(tmp_path, "\n".join(lines)))
    assert [(each.name, each.gpus) for each in found.cluster.machines] == [("n1", 8), ("n2", 8)]


def test_below_the_switches_of_the_topology(tmp_path: Path) -> None:
    text = (
        "".join(node(f"n{i}", "gpu:a100:8") for i in range(1, 4))
        + node("n9", "gpu:a100:8")
        + node("cpu1", "(null)")
    )
    tree = read_topology(written(tmp_path, TOPOLOGY, "topology.txt"))
    found = read_scontrol(written(tmp_path, text), tree, link_gbps=200.0)
    cluster = found.cluster
    racks = [cluster.rack_names[rack] for rack in cluster.rack_of]
    by_name = dict(zip([each.name for each in cluster.machines], racks, strict=True))
    assert by_name == {"n9": "nodes", "n1": "rack1", "n2": "rack1", "n3": "rack2"}
    gbps = dict(zip(cluster.node_names, cluster.uplink_gbps, strict=True))
    assert (gbps["n1"], gbps["rack1"], gbps["rack2"]) == (200.0, 400.0, 200.0)
    notes = "\n".join(found.notes)
    assert "1 machine not in the topology, put below the topmost switch: n9." in notes
    assert "2 nodes of the topology without GPUs or not described" in notes
    assert "LinkSpeed=40 in Slurm" in found.yaml()
    same_as_its_file(found, tmp_path)


def test_several_types_on_a_node_are_machines_of_their_own_in_one_rack(tmp_path: Path) -> None:
    tree = read_topology(written(tmp_path, TOPOLOGY, "topology.txt"))
    text = node("n1", "gpu:v100:2,gpu:a100:4") + node("n3", "gpu:a100:8")
    found = read_scontrol(written(tmp_path, text), tree)
    named = [(each.name, each.gpus, each.gpu_type) for each in found.cluster.machines]
    assert named == [("n1", 4, "a100"), ("n1-v100", 2, "v100"), ("n3", 8, "a100")]
    assert found.cluster.rack_of == (0, 0, 1)
    assert "with GPUs of several types, divided into a machine for each type: n1." in "\n".join(found.notes)
    assert "the same machine as n1" in found.yaml()
    same_as_its_file(found, tmp_path)


def test_mig_instances_count_only_when_asked(tmp_path: Path) -> None:
    path = written(tmp_path, node("n1", "gpu:a100:6,gpu:1g.5gb:14") + node("n2", "gpu:1g.5gb:7"))
    found = read_scontrol(path)
    assert [(each.name, each.gpus) for each in found.cluster.machines] == [("n1", 6)]
    assert "2 machines with MIG instances, skipped (--count-parts counts each as a GPU): n[1-2]." in found.notes
    counted = read_scontrol(path, count_parts=True)
    assert {each.name: each.gpus for each in counted.cluster.machines} == {"n1": 14, "n1-a100": 6, "n2": 7}


@pytest.mark.parametrize("newer", [False, True])
def test_json_of_old_and_new_versions(tmp_path: Path, *, newer: bool) -> None:
    state: dict[str, object] = {"state": "down", "state_flags": ["DRAIN"]}
    if newer:
        state = {"state": ["DOWN", "DRAIN"]}
    rows = [
        {"name": "n1", "gres": "gpu:h100:8(S:0-1)", "partitions": ["main"], "tres": "cpu=16,gres/gpu=8", **state},
        {"name": "n2", "gres": "gpu:h100:8", "partitions": [], "tres": "", "state": ["IDLE"] if newer else "idle"},
    ]
    found = read_scontrol(written(tmp_path, json.dumps({"meta": {}, "nodes": rows, "errors": []}), "nodes.json"))
    assert [(each.name, each.gpus, each.gpu_type) for each in found.cluster.machines] == [
        ("n1", 8, "h100"),
        ("n2", 8, "h100"),
    ]
    assert found.cluster.partitions == {"main": (0,)}
    assert found.remarks["n1"] == "DOWN+DRAIN"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "nodes.txt: no line begins with NodeName="),
        ("NodeName=a Gres=gpu:1 State=IDLE\nNodeName=b Arch=x", "nodes.txt:2: node b: has no Gres= and State="),
        ("\nNodeName=a Gres=gpu:(1 State=IDLE", "nodes.txt:2: node a: Gres='gpu:(1' cannot be read from"),
        (
            "NodeName=a Gres=(null) State=IDLE",
            "no machine with GPUs was found (1 machine without GPUs, skipped: a)",
        ),
        ("NodeName=a Gres=gpu:1 State=X\nNodeName=a Gres=gpu:1 State=X", "machine 'a' is described twice"),
        ("NodeName=a Gres=gpu:99 State=X", "machine 'a' has 99 GPUs; a machine has at most 64"),
    ],
)
def test_says_what_is_wrong_with_nodes(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)) as raised:
        read_scontrol(written(tmp_path, text))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no switches"),
        ("slurm_load_topo error: No topology information available", "1: must begin with SwitchName="),
        ("BlockName=b1 Nodes=n[1-4]", "1: topology/block is not read"),
        ("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2", "2: node n2 is below a (line 1) and below b"),
        ("SwitchName=a Nodes=n[1-", "1: host list 'n[1-': cannot be read"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", "2: switch a is described twice, first on line 1"),
        ("SwitchName=s Switches=a", "1: switch s has a switch a that is not there"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "the switches form a circle"),
        (
            "SwitchName=a Nodes=n1\nSwitchName=s Switches=a\nSwitchName=t Switches=a",
            "3: switch a is below s (line 2) and below t",
        ),
    ],
)
def test_says_what_is_wrong_with_a_topology(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        read_topology(written(tmp_path, text, "topology.txt"))


def test_several_topmost_switches_get_one_above_them(tmp_path: Path) -> None:
    tree = read_topology(written(tmp_path, "# two islands\nSwitchName=core Nodes=a1\nSwitchName=b Nodes=b1", "t"))
    assert tree.name == "core-top"
    assert [switch.name for switch in tree.switches] == ["core", "b"]
