from pathlib import Path

import pytest

from cranny.cluster_import.kubernetes_nodes import read_kubernetes_nodes
from cranny.model.errors import InputError
from tests.cluster_import.samples import kube_list, kube_node

GPUS = {"nvidia.com/gpu": "8"}
A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"


def written(folder: Path, text: str) -> Path:
    path = folder / "nodes.json"
    path.write_text(text, encoding="utf-8")
    return path


def test_zones_racks_types_and_states(tmp_path: Path) -> None:
    nodes = [
        kube_node("a", GPUS, {**A100, ZONE: "z1", RACK: "r1"}),
        kube_node("b", GPUS, {**A100, ZONE: "z1", RACK: "r2"}, unschedulable=True),
        kube_node("c", {"amd.com/gpu": "4"}, {ZONE: "z2", RACK: "r1"}, ready="Unknown"),
        kube_node("d", GPUS, {**A100, ZONE: "z2"}),
        kube_node("cpu", {}),
    ]
    found = read_kubernetes_nodes(written(tmp_path, kube_list(nodes)))
    cluster = found.cluster
    rack_of = {
        each.name: cluster.rack_names[rack] for each, rack in zip(cluster.machines, cluster.rack_of, strict=True)
    }
    assert rack_of == {"a": "z1-r1", "b": "z1-r2", "c": "z2-r1", "d": "z2"}
    assert {each.name: (each.gpus, each.gpu_type) for each in cluster.machines} == {
        "a": (8, "NVIDIA-A100-SXM4-80GB"),
        "b": (8, "NVIDIA-A100-SXM4-80GB"),
        "c": (4, ""),
        "d": (8, "NVIDIA-A100-SXM4-80GB"),
    }
    assert found.remarks["b"] == "unschedulable (cordoned)"
    assert found.remarks["c"] == "not ready"
    notes = "\n".join(found.notes)
    assert "2 machines not available when this was printed, kept in the cluster: b,c." in notes
    assert "1 machine without a label of their rack (see --rack-label): d." in notes


def test_racks_by_a_label_of_ones_own(tmp_path: Path) -> None:
    nodes = [kube_node(name, GPUS, {"example.com/row": row}) for name, row in (("a", "x"), ("b", "y"), ("c", "x"))]
    path = written(tmp_path, kube_list(nodes))
    assert read_kubernetes_nodes(path).cluster.rack_names == ("nodes",)
    assert read_kubernetes_nodes(path, ["example.com/row"]).cluster.rack_names == ("x", "y")


def test_mig_and_gpus_shared_by_turns(tmp_path: Path) -> None:
    shared = {"nvidia.com/gpu.product": "Tesla-T4-SHARED", "nvidia.com/gpu.replicas": "4"}
    nodes = [
        kube_node("mig", {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "7"}, A100),
        kube_node("turns", {"nvidia.com/gpu": "8"}, shared),
    ]
    path = written(tmp_path, kube_list(nodes))
    found = read_kubernetes_nodes(path)
    assert [(each.name, each.gpus, each.gpu_type) for each in found.cluster.machines] == [("turns", 2, "Tesla-T4")]
    assert any("with MIG instances, skipped" in note for note in found.notes)
    counted = read_kubernetes_nodes(path, count_parts=True)
    assert [each.gpus for each in counted.cluster.machines] == [7, 2]


def test_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no nodes; give what `kubectl get nodes -o json` prints"):
        read_kubernetes_nodes(written(tmp_path, '{"kind": "PodList", "items": [{"metadata": {}}]}'))
    with pytest.raises(InputError, match=r"nodes.json:2: not JSON"):
        read_kubernetes_nodes(written(tmp_path, '{\n"kind"'))
    with pytest.raises(InputError, match=r"node 1 \(a\): nvidia.com/gpu: must be a whole number, not 'many'"):
        read_kubernetes_nodes(written(tmp_path, kube_list([kube_node("a", {"nvidia.com/gpu": "many"})])))
