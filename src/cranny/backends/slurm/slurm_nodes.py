"""Nodes as `sinfo --json` (22.05) or `scontrol show nodes --json` has them, and the switches above them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_values import count, objects, setting, states, text, words
from cranny.cluster_import.gres import read_gres
from cranny.cluster_import.imported import FoundMachine, FoundSwitch, assemble, in_order
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.topology_spec import Machine

LINK_GBPS = 100.0
ABSENT = frozenset({"FUTURE"})
FAILED = frozenset({"DOWN", "ERROR", "FAIL", "FAILING", "INVALID", "INVALID_REG"})
CLOSED = frozenset(
    {
        *("DRAIN", "DRAINING", "DRAINED", "MAINT", "MAINTENANCE", "NOT_RESPONDING", "NO_RESPOND", "UNKNOWN"),
        *("POWERING_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "BLOCKED"),
    }
)
POWERED = ("POWER", "CLOUD")  # states of a node that Slurm starts when a job needs it


class SlurmNode(NamedTuple):
    """A node with GPUs."""

    machine: Machine
    states: frozenset[str]
    reason: str
    partitions: tuple[str, ...]
    address: str
    gpus_out: int  # GPUs that are drained
    registered: bool  # slurmctld knows from its slurmd which GPUs it has

    @property
    def failed(self) -> str:
        """Why nothing runs there any more; empty if something may."""
        return self._why(FAILED)

    @property
    def unavailable(self) -> str:
        """Why it takes no new jobs; empty if it does.

        After a restart slurmctld starts jobs on nodes that have some, before it knows their GPUs: without any.
        """
        return self._why(CLOSED) or ("" if self.registered else "not registered in Slurm yet")

    def _why(self, which: frozenset[str]) -> str:
        found = ", ".join(sorted(self.states & which)).lower().replace("_", " ")
        return (
            f"{found} in Slurm: {self.reason}" if found and self.reason else f"{found} in Slurm" if found else ""
        )


def read_nodes(answer: Mapping[str, Any]) -> dict[str, SlurmNode]:
    """Read the nodes that have GPUs, by name; a node with several types of GPUs counts those of one type."""
    found: dict[str, SlurmNode] = {}
    for entry in objects(answer.get("nodes")):
        name = text(entry.get("name"))
        state = states(entry.get("state"), entry.get("state_flags"))
        try:
            gpus = read_gres(text(entry.get("gres"))).whole
            out = sum(read_gres(text(entry.get("gres_drained"))).whole.values())
        except InputError as error:
            raise BackendError(f"Slurm: node {name}: {error}") from None
        if not name or not gpus or state & ABSENT:
            continue
        kind, most = max(gpus.items(), key=lambda each: each[1])
        resources = {"cpus": count(entry.get("cpus")), "memory_mb": count(entry.get("real_memory"))}
        labels = words(entry.get("active_features")) or words(entry.get("features"))
        try:
            machine = Machine(name, most, kind, resources, frozenset(labels))
        except InputError as error:
            raise BackendError(f"Slurm: {error}") from None
        partitions = tuple(words(entry.get("partitions")))
        found[name] = SlurmNode(
            machine,
            state,
            text(entry.get("reason")),
            partitions,
            text(entry.get("address")) or name,
            min(out, most),
            "slurmd_start_time" not in entry
            or count(entry["slurmd_start_time"]) > 0
            or any(each.startswith(POWERED) for each in state),
        )
    if "nodes" not in answer:
        raise BackendError(
            "Slurm lists no nodes: neither `sinfo --json` nor `scontrol show nodes --json` has them"
        )
    return found


def cluster_of(
    name: str, nodes: Mapping[str, SlurmNode], tree: FoundSwitch | None, links: Cluster | None = None
) -> Cluster:
    """Put nodes below their switches, with the speeds that `links` has for those of the same names."""
    if not nodes:
        raise BackendError("Slurm has no node with GPUs: check GresTypes and Gres in slurm.conf")
    found = [
        FoundMachine(
            *(machine.name, machine.gpus, machine.gpu_type, node.partitions),
            resources=machine.resources,
            features=machine.features,
        )
        for node in nodes.values()
        for machine in (node.machine,)
    ]
    found.sort(key=lambda machine: in_order(machine.name))
    try:
        return assemble(name, "Slurm", found, tree, link_gbps=LINK_GBPS, links=links).cluster
    except InputError as error:
        raise BackendError(str(error)) from None


def cluster_name(configuration: str) -> str:
    """Return the name of the cluster from `scontrol show config`."""
    return setting(configuration, "ClusterName") or "slurm"
