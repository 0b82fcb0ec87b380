"""GPUs as Kubernetes names them: resources that pods ask for, and labels of nodes.

A MIG instance (`nvidia.com/mig-1g.5gb`) is a part of a GPU, by its compute slices. So is a GPU of a node whose
label names a MIG profile, or says that each GPU stands for several (`nvidia.com/gpu.replicas`). A resource that is
shared by name (`nvidia.com/gpu.shared`) is half a GPU where no label says more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cranny.traces.gpu_types import part_of_gpu, without_part
from cranny.traces.readers.json_log import mapping, number, objects, text

GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu
SHARED = "/gpu.shared"
MIG = "/mig-"
TYPES = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.nvidia.com/class",
    "cloud.google.com/gke-accelerator",
)
REPLICAS = "nvidia.com/gpu.replicas"
LEAST_REPLICAS = 2.0  # of a GPU that is shared at all

NodeLabels = dict[str, Mapping[str, Any]]  # by the node's name


class Gpus(NamedTuple):
    """What a pod asks for."""

    asked: float  # GPUs, or parts of them
    whole: float  # how many GPUs that makes


def node_labels(node: dict[str, Any]) -> NodeLabels:
    """Return the labels of a node, if it has a name."""
    metadata = mapping(node.get("metadata"))
    name = text(metadata.get("name"))
    return {} if name is None else {name: mapping(metadata.get("labels"))}


def asked_gpus(spec: dict[str, Any], labels: Mapping[str, Any]) -> Gpus:
    """Add up the GPUs of a pod's containers; a limit without a request stands for both."""
    total = whole = 0.0
    for container in objects(spec.get("containers")):
        resources = mapping(container.get("resources"))
        asked = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
        for name, given in asked.items():
            if name.endswith((GPU, SHARED)) or MIG in name:
                count = number(given) or 0.0
                total += count
                whole += count * _part(name, labels)
    return Gpus(total, whole)


def _part(resource: str, labels: Mapping[str, Any]) -> float:
    """Return which part of a GPU one of a resource is."""
    if MIG in resource:
        return part_of_gpu(resource) or 1.0
    profile = part_of_gpu(text(labels.get(TYPES[0])) or "")
    replicas = number(labels.get(REPLICAS)) or 1.0
    if resource.endswith(SHARED):
        replicas = max(replicas, LEAST_REPLICAS)
    return (profile or 1.0) / (replicas if replicas >= 1.0 else 1.0)


def gpu_type(spec: dict[str, Any], machines: Sequence[str | None], nodes: NodeLabels) -> str | None:
    """Return the type that a pod selects, else that of the machines it ran on, if it is one."""
    chosen = _type(mapping(spec.get("nodeSelector")))
    if chosen is not None:
        return chosen
    types = {_type(nodes.get(machine or "", {})) for machine in machines}
    return types.pop() if len(types) == 1 else None


def _type(labels: Mapping[str, Any]) -> str | None:
    named = (text(labels[name]) for name in TYPES if name in labels)
    return next((without_part(name) or None for name in named if name), None)
