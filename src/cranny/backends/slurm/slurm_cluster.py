"""The cluster of a Slurm, read once: for commands that need no service."""

from pathlib import Path

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.backends.slurm.slurm_nodes import cluster_name, cluster_of
from cranny.backends.slurm.slurm_reader import SlurmReader
from cranny.cluster_import.imported import FoundSwitch, naming
from cranny.cluster_import.slurm_topology import topology_of
from cranny.cluster_import.topology_lint import TopologyProblem
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError


def read_switches(commands: SlurmCommands) -> FoundSwitch | None:
    """Return the tree of switches; None if Slurm has none."""
    printed = commands.call("scontrol", "show", "topology")
    try:
        return topology_of(printed, Path("scontrol show topology")) if "SwitchName=" in printed else None
    except InputError as error:
        raise BackendError(str(error)) from None


def tree_of(cluster: Cluster) -> FoundSwitch:
    """Return the switches of a cluster file: where Slurm does not say which there are, they are those."""
    machines: dict[int, list[str]] = {}
    switches: dict[int, list[int]] = {}
    for node, above in enumerate(cluster.parent):
        if node < len(cluster.machines):
            machines.setdefault(above, []).append(cluster.node_names[node])
        elif node != cluster.root:
            switches.setdefault(above, []).append(node)

    def made(node: int) -> FoundSwitch:
        below = tuple(map(made, switches.get(node, ())))
        return FoundSwitch(cluster.node_names[node], tuple(machines.get(node, ())), below)

    return made(cluster.root)


def read_slurm_cluster(commands: SlurmCommands | None = None, links: Cluster | None = None) -> Cluster:
    """Return the cluster that Slurm has now, with the speeds that `links` has for what has the same name."""
    commands = commands or SlurmCommands()
    try:
        name = cluster_name(commands.call("scontrol", "show", "config"))
        return cluster_of(name, SlurmReader(commands).nodes(), read_switches(commands), links)
    except (InputError, OSError) as error:
        raise BackendError(f"the cluster cannot be read from Slurm: {error}") from None


def lint_links(cluster: Cluster, links: Cluster | None) -> list[TopologyProblem]:
    """Return which speeds of a cluster are assumed, and which of those that were given belong to nothing in it."""
    if links is None:
        problem = "the speeds of links are assumed, 100 Gbps for each node: Slurm does not know them (see --links)"
        return [TopologyProblem("warning", cluster.name, problem)]
    known, here = set(links.node_names), set(cluster.node_names[: cluster.root])
    found = []
    if missing := here - known:
        problem = "not in the file of links: its speed is assumed"
        found.append(TopologyProblem("warning", naming(missing), problem))
    if strange := known - here - {links.node_names[links.root]}:
        problem = "in the file of links, but not in Slurm: is the name right?"
        found.append(TopologyProblem("warning", naming(strange), problem))
    return found
