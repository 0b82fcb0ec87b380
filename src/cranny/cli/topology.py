"""`cranny topology`: the tree of switches and machines, drawn, and what is implausible about it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from cranny.cli import options
from cranny.cli.console import out, print_json, print_table, printable, say
from cranny.cli.options import argument, option
from cranny.cli.typer_errors import Commands
from cranny.cluster_import.imported import naming
from cranny.cluster_import.topology_lint import TopologyProblem, lint_cluster, nodes_below
from cranny.model.cluster import Cluster
from cranny.model.validate import counted

if TYPE_CHECKING:
    from rich.tree import Tree

app = Commands(help="Draw the tree of switches and machines, and find what is implausible about it.")

SPEC_HELP = "A cluster file, RACKSxMACHINESxGPUS, or `slurm` for the Slurm that answers here."
LINKS_HELP = "A cluster file with the speeds of links, which Slurm does not know."
SpecArgument = Annotated[str, argument("CLUSTER", SPEC_HELP)]
LinksOption = Annotated[Path | None, option("--links", LINKS_HELP)]
MOST_SWITCHES = 40  # of one level that are drawn


@app.command()
def show(spec: SpecArgument, links: LinksOption = None, as_json: options.JsonOption = False) -> None:
    """Draw the tree: switches with what is below them, speeds of links, and how far they are oversubscribed.

    Example: cranny topology show slurm --links links.yaml
    """
    cluster = options.read_cluster(spec, links=links)
    if as_json:
        print_json(_nested(cluster, cluster.root, nodes_below(cluster)))
        return
    say(cluster.describe(), cluster.describe_links())
    out.print(_drawn(cluster))


@app.command()
def lint(spec: SpecArgument, links: LinksOption = None, as_json: options.JsonOption = False) -> None:
    """Find what is implausible: machines below no rack, odd racks, speeds that cannot be; exit code 1 on errors.

    Example: cranny topology lint my.yaml
    """
    found: list[TopologyProblem] = []
    cluster = options.read_cluster(spec, links=links)
    if spec == options.FROM_SLURM:
        from cranny.backends.slurm.slurm_cluster import lint_links

        found += lint_links(cluster, None if links is None else Cluster.from_file(links))
    found += lint_cluster(cluster)
    errors = sum(each.level == "error" for each in found)
    if as_json:
        print_json(
            {"ok": not errors, "cluster": cluster.describe(), "problems": [each._asdict() for each in found]}
        )
    elif found:
        print_table(("", "where", "what"), [_row(each) for each in found], words=("where", "what"))
    else:
        say(f"{cluster.describe()}: nothing implausible was found")
    if errors:
        raise typer.Exit(1)


def _row(problem: TopologyProblem) -> tuple[str, str, str]:
    return problem.level, printable(problem.where), printable(problem.problem)


def _groups(cluster: Cluster, nodes: Iterable[int]) -> dict[tuple[int, str, float], list[str]]:
    """Return the names of machines that are alike, by GPUs, their type and the speed of the link."""
    groups: dict[tuple[int, str, float], list[str]] = {}
    for index in (node for node in nodes if node < len(cluster.machines)):
        each = cluster.machines[index]
        groups.setdefault((each.gpus, each.gpu_type, cluster.uplink_gbps[index]), []).append(each.name)
    return groups


def _switches(cluster: Cluster, nodes: Iterable[int]) -> list[int]:
    return [node for node in nodes if node >= len(cluster.machines)]


def _drawn(cluster: Cluster) -> "Tree":
    """Draw a cluster."""
    from rich.tree import Tree

    below = nodes_below(cluster)

    def add(branch: Tree, switch: int) -> None:
        for (gpus, kind, gbps), names in _groups(cluster, below[switch]).items():
            what = f"{counted(gpus, f'{kind} GPU'.strip())}{' each' if len(names) > 1 else ''}, {gbps:g} Gbps"
            branch.add(Text(printable(f"{naming(names)}: {what}")))
        switches = _switches(cluster, below[switch])
        for node in switches[:MOST_SWITCHES]:
            add(branch.add(Text(_label(cluster, node, below[node]))), node)
        if len(switches) > MOST_SWITCHES:
            branch.add(Text(f"{len(switches) - MOST_SWITCHES:,} more (--json has all)"))

    top = Tree(Text(_label(cluster, cluster.root, ())))
    add(top, cluster.root)
    return top


def _label(cluster: Cluster, switch: int, below: Iterable[int]) -> str:
    """Describe a switch in a line."""
    first, past = cluster.spans[switch]
    gpus = sum(machine.gpus for machine in cluster.machines[first:past])
    what = f"{cluster.node_names[switch]}: {counted(past - first, 'machine')}, {counted(gpus, 'GPU')}"
    if switch == cluster.root:
        return printable(what)
    uplink = cluster.uplink_gbps[switch]
    ratio = sum(cluster.uplink_gbps[node] for node in below) / uplink
    return printable(f"{what}, uplink {uplink:g} Gbps ({ratio:.3g}:1)")


def _nested(cluster: Cluster, switch: int, below: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """Return a switch with all below it, for JSON."""
    gbps = cluster.uplink_gbps
    return {
        "name": cluster.node_names[switch],
        "uplink_gbps": None if switch == cluster.root else gbps[switch],
        "machines": [
            {"name": each.name, "gpus": each.gpus, "gpu_type": each.gpu_type, "uplink_gbps": gbps[node]}
            for node, each in (
                (node, cluster.machines[node]) for node in below[switch] if node < len(cluster.machines)
            )
        ],
        "switches": [_nested(cluster, node, below) for node in _switches(cluster, below[switch])],
    }
