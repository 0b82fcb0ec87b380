"""`cranny cluster`: cluster files made from what a scheduler prints, and what is in one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from cranny.cli import options
from cranny.cli.console import out, print_json, print_table, say, warn
from cranny.cli.options import argument, option
from cranny.cli.typer_errors import Commands
from cranny.model.cluster import Machine
from cranny.model.errors import InputError
from cranny.model.validate import counted, positive

if TYPE_CHECKING:
    from cranny.cluster_import.imported import ImportedCluster

app = Commands(help="Make cluster files from what a scheduler prints, and look at them.")

PARTS_HELP = "Count each MIG instance as a GPU; otherwise they are skipped."
RACK_HELP = "Label that names a node's rack (several: the first that a node has); with --kubectl."
MOST_SHOWN = 20  # racks


class RackFacts(NamedTuple):
    """What is printed of a rack."""

    rack: str
    machines: int
    gpus: int
    types: list[str]


@app.command("import")
def import_(
    scontrol: Annotated[Path | None, option("--scontrol", "What `scontrol show node -d` printed.")] = None,
    topology: Annotated[
        Path | None, option("--topology", "What `scontrol show topology` printed; with --scontrol.")
    ] = None,
    kubectl: Annotated[Path | None, option("--kubectl", "What `kubectl get nodes -o json` printed.")] = None,
    log: Annotated[Path | None, option("--log", "A log that says on which machines its jobs ran.")] = None,
    output: Annotated[Path | None, option("--output", "Write to this new file.", short="-o")] = None,
    rack_label: Annotated[list[str] | None, option("--rack-label", RACK_HELP)] = None,
    count_parts: Annotated[bool, option("--count-parts", PARTS_HELP)] = False,
    link_gbps: Annotated[float, option("--link-gbps", "Assumed uplink of each machine.", positive)] = 100.0,
    trace_format: options.FormatOption = "auto",
    as_json: options.JsonOption = False,
) -> None:
    """Make a cluster file from what Slurm or Kubernetes prints, or guess one from a log.

    Example: cranny cluster import --scontrol nodes.txt --topology topology.txt -o my.yaml
    """
    given = [source for source in (scontrol, kubectl, log) if source is not None]
    if len(given) != 1:
        raise InputError("give one of --scontrol, --kubectl and --log")
    if topology is not None and scontrol is None:
        raise InputError("--topology: goes with --scontrol")
    if rack_label and kubectl is None:
        raise InputError("--rack-label: goes with --kubectl")
    for path in (*given, *([topology] if topology is not None else [])):
        if not path.is_file():
            raise InputError(f"{path}: " + ("is not a file" if path.exists() else "there is no such file"))
    options.check_file(output, "--output")
    if output is not None and output.exists():
        raise InputError(f"--output: {output}: is there already; remove it, or give another name")
    found = _import(scontrol, topology, kubectl, log, rack_label or [], count_parts, link_gbps, trace_format)
    if output is not None:
        try:
            output.write_text(found.yaml(), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--output: {output}: cannot be written: {error.strerror or error}") from None
    if as_json:
        print_json({"cluster": found.cluster.describe(), "notes": list(found.notes), "yaml": found.yaml()})
        return
    if output is None:
        say(*found.yaml().splitlines())
        return
    say(found.cluster.describe())
    for note in found.notes:
        warn(note)
    say(f"written to {output}; speeds of links are assumed")


def _import(
    scontrol: Path | None,
    topology: Path | None,
    kubectl: Path | None,
    log: Path | None,
    rack_labels: list[str],
    count_parts: bool,
    link_gbps: float,
    trace_format: str,
) -> "ImportedCluster":
    """Read the source that was given."""
    if scontrol is not None:
        from cranny.cluster_import.scontrol import read_scontrol
        from cranny.cluster_import.slurm_topology import read_topology

        tree = read_topology(topology) if topology is not None else None
        return read_scontrol(scontrol, tree, count_parts=count_parts, link_gbps=link_gbps)
    if kubectl is not None:
        from cranny.cluster_import.kubernetes_nodes import read_kubernetes_nodes

        return read_kubernetes_nodes(kubectl, rack_labels, count_parts=count_parts, link_gbps=link_gbps)
    from cranny.cluster_import.from_log import guess_cluster
    from cranny.traces.read import read_trace

    return guess_cluster(read_trace(str(log), trace_format, attempts=True), link_gbps)


@app.command()
def show(
    spec: Annotated[str, argument("CLUSTER", "A cluster file (YAML or JSON), or RACKSxMACHINESxGPUS.")],
    as_json: options.JsonOption = False,
) -> None:
    """Print what is in a cluster file: machines, racks, links and partitions.

    Example: cranny cluster show my.yaml
    """
    cluster = options.read_cluster(spec)
    held: list[list[Machine]] = [[] for _ in cluster.rack_names]
    for machine, rack in zip(cluster.machines, cluster.rack_of, strict=True):
        held[rack].append(machine)
    racks = [
        RackFacts(name, len(own), sum(each.gpus for each in own), sorted({each.gpu_type for each in own} - {""}))
        for name, own in zip(cluster.rack_names, held, strict=True)
    ]
    partitions = {
        name: {"machines": len(own), "gpus": sum(cluster.machines[machine].gpus for machine in own)}
        for name, own in cluster.partitions.items()
    }
    if as_json:
        about = {"cluster": cluster.describe(), "links": cluster.describe_links()}
        print_json({**about, "racks": [rack._asdict() for rack in racks], "partitions": partitions})
        return
    say(cluster.describe(), cluster.describe_links())
    rows = [(rack.rack, f"{rack.machines:,}", f"{rack.gpus:,}", ", ".join(rack.types)) for rack in racks]
    print_table(("rack", "machines", "GPUs", "types"), rows[:MOST_SHOWN])
    if len(rows) > MOST_SHOWN:
        out.print(f"and {counted(len(rows) - MOST_SHOWN, 'rack')} more (--json has all)", style="dim")
    for name, holds in partitions.items():
        say(f"partition {name}: {counted(holds['machines'], 'machine')}, {counted(holds['gpus'], 'GPU')}")
