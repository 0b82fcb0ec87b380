"""Clusters as plain values of JSON, which give back exactly the same cluster; for saved results and event logs."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from cranny.model.cluster import Cluster
from cranny.model.topology_spec import Machine

_TUPLES = ("parent", "node_names", "pat_gbps")


def cluster_values(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as values of JSON."""
    return {
        "name": cluster.name,
        "machines": [_machine_values(machine) for machine in cluster.machines],
        "parent": cluster.parent,
        "uplink_gbps": cluster.uplink_gbps[:-1],  # the root's is infinite, which JSON has not
        "node_names": cluster.node_names,
        "spans": cluster.spans,
        "pat_gbps": cluster.pat_gbps,
        "partitions": cluster.partitions,
    }


def cluster_of_values(values: Mapping[str, Any]) -> Cluster:
    """Return the cluster that values describe, unchecked: they come from a file of ours."""
    return Cluster(
        name=values["name"],
        machines=tuple(_machine(*machine) for machine in values["machines"]),
        uplink_gbps=(*values["uplink_gbps"], math.inf),
        spans=tuple((first, past) for first, past in values["spans"]),
        **{name: tuple(values[name]) for name in _TUPLES},
        # Results saved before version 0.3 have none.
        partitions={name: tuple(own) for name, own in values.get("partitions", {}).items()},
    )


def cluster_digest(cluster: Cluster) -> str:
    """Return a digest of machines and tree that is the same for the same cluster in every version."""
    machines = [
        f"Machine(name={each.name!r}, gpus={each.gpus!r}, gpu_type={each.gpu_type!r})" for each in cluster.machines
    ]
    inside = f"({machines[0]},)" if len(machines) == 1 else f"({', '.join(machines)})"
    return hashlib.sha256(f"({inside}, {cluster.parent!r})".encode()).hexdigest()


def _machine_values(machine: Machine) -> list[Any]:
    """Return a machine as values: its resources and features only if it has any."""
    plain: list[Any] = [machine.name, machine.gpus, machine.gpu_type]
    if machine.resources or machine.features:
        plain += [dict(machine.resources), sorted(machine.features)]
    return plain


def _machine(name: str, gpus: int, gpu_type: str, resources: Any = (), features: Any = ()) -> Machine:
    return Machine(name, gpus, gpu_type, dict(resources), frozenset(features))
