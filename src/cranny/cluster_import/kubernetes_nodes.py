"""Machines from `kubectl get nodes -o json`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cranny.cluster_import.imported import TOP, FoundMachine, FoundSwitch, ImportedCluster, about, assemble
from cranny.model.errors import InputError
from cranny.traces.readers.json_log import load, mapping, number, objects, text

GPU_TYPE_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator")
REPLICAS_LABEL = "nvidia.com/gpu.replicas"  # of each GPU, where it is shared by turns
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
# Labels of racks, or of what is nearest to one, of several clouds and tools; the first that a node has counts.
RACK_LABELS = (
    "topology.kubernetes.io/rack",
    "fabric.topograph.run/tier-0",
    "network.topology.nvidia.com/leaf",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
    "oci.oraclecloud.com/host.rack_id",
    "cloud.provider.com/topology-rack",
)
_GPU = re.compile(r"[a-z0-9.-]+/gpu(\.shared)?")
_MIG = re.compile(r"[a-z0-9.-]+/mig-(.+)")


class _Spot(NamedTuple):
    """Where a node stands; empty where no label says."""

    zone: str
    rack: str


def read_kubernetes_nodes(
    path: Path,
    rack_labels: Sequence[str] = (),
    *,
    count_parts: bool = False,
    link_gbps: float = 100.0,
) -> ImportedCluster:
    """Read the nodes of a file; `rack_labels` are looked for in place of `RACK_LABELS`, if there are any.

    MIG instances are skipped unless `count_parts` counts each as a GPU. Nodes without GPUs are skipped.
    """
    document = mapping(load(path))
    items = objects(document.get("items", [document]))
    nodes = [each for each in items if (each.get("kind") or str(document.get("kind"))[:-4]) == "Node"]
    if not nodes:
        raise InputError(f"{path}: has no nodes; give what `kubectl get nodes -o json` prints")
    machines: list[FoundMachine] = []
    spots: dict[str, _Spot] = {}
    without, closed, parted, shared = [], [], [], []
    for place, node in enumerate(nodes, 1):
        meta = mapping(node.get("metadata"))
        name, labels = text(meta.get("name")), mapping(meta.get("labels"))
        if name is None:
            raise InputError(f"{path}: node {place}: metadata.name: is missing")
        gpus, parts = _allocatable(f"{path}: node {place} ({name})", node)
        replicas = int(number(labels.get(REPLICAS_LABEL)) or 1) if gpus else 1
        if replicas > 1:
            shared.append(name)
            gpus = -(-gpus // replicas)
        parted += [name] if parts else []
        if parts and count_parts:
            gpus += sum(parts.values())
        if not gpus:
            without += [] if parts else [name]
            continue
        remark = _unavailable(node)
        closed += [name] if remark else []
        spots[name] = _Spot(_label(labels, ZONE_LABELS), _label(labels, rack_labels or RACK_LABELS))
        machines.append(FoundMachine(name, gpus, _type(labels), remark=remark))
    lost = [name for name, spot in spots.items() if not spot.rack]
    counted_as = "each counted as a GPU" if count_parts else "skipped (--count-parts counts each as a GPU)"
    notes = [
        *about(closed, "not available when this was printed, kept in the cluster"),
        *about(parted, f"with MIG instances, {counted_as}"),
        *about(shared, "whose GPUs are shared by turns, counted as the GPUs there are"),
        *about(without, "without GPUs, skipped"),
        *about(lost, "without a label of their rack (see --rack-label)"),
    ]
    return assemble(path.stem, f"kubectl ({path.name})", machines, _tree(spots), notes, link_gbps)


def _allocatable(spot: str, node: Mapping[str, Any]) -> tuple[int, dict[str, int]]:
    """Return the GPUs of a node, and its MIG instances by profile."""
    gpus = 0
    parts: dict[str, int] = {}
    status = mapping(node.get("status"))
    for resource, amount in mapping(status.get("allocatable") or status.get("capacity")).items():
        mig = _MIG.fullmatch(resource)
        if mig is None and _GPU.fullmatch(resource) is None:
            continue
        count = number(amount)
        if count is None or not (0 <= count < 1e6 and count == int(count)):
            raise InputError(f"{spot}: {resource}: must be a whole number, not {str(amount)[:40]!r}")
        if mig is not None:
            parts |= {mig[1]: int(count)} if count else {}
        else:
            gpus += int(count)
    return gpus, parts


def _label(labels: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of some labels that a node has."""
    return next((value for name in names if (value := text(labels.get(name)))), "")


def _type(labels: Mapping[str, Any]) -> str:
    """Return the type of a node's GPUs as its labels name it."""
    return re.sub(r"-(SHARED|MIG-.*)$", "", _label(labels, GPU_TYPE_LABELS))


def _unavailable(node: Mapping[str, Any]) -> str:
    """Say why no pod can start on a node; nothing if one can."""
    reasons = []
    if mapping(node.get("spec")).get("unschedulable") is True:
        reasons.append("unschedulable (cordoned)")
    conditions = objects(mapping(node.get("status")).get("conditions"))
    if any(each.get("type") == "Ready" and each.get("status") != "True" for each in conditions):
        reasons.append("not ready")
    return ", ".join(reasons)


def _tree(spots: Mapping[str, _Spot]) -> FoundSwitch:
    """Return zones, if there are several, with racks and machines below them."""
    zones = list(dict.fromkeys(spot.zone for spot in spots.values()))

    def zone(name: str, switch: str) -> FoundSwitch:
        racks: dict[str, list[str]] = {}
        for machine, spot in spots.items():
            if spot.zone == name or len(zones) == 1:
                racks.setdefault(spot.rack, []).append(machine)
        # A rack's name may occur in several zones.
        prefix = f"{switch}-" if switch != TOP else ""
        below = tuple(FoundSwitch(f"{prefix}{rack}", tuple(own)) for rack, own in racks.items() if rack)
        return FoundSwitch(switch, tuple(racks.get("", ())), below)

    if len(zones) == 1:
        return zone(zones[0], TOP)
    named = tuple(zone(name, name) for name in zones if name)
    return FoundSwitch(TOP, tuple(machine for machine, spot in spots.items() if not spot.zone), named)
