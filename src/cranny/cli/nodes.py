"""`cranny nodes`, `drain`, `resume`: the machines of a server."""

from typing import Annotated, Any

import typer

from cranny.cli import options
from cranny.cli.client import ServerOption, ServiceClient, TokenOption
from cranny.cli.console import out, print_json

MachineArgument = Annotated[str, typer.Argument(metavar="MACHINE", help="The name of a machine, or its index.")]


def nodes(
    server: ServerOption = None, token_file: TokenOption = None, as_json: options.JsonOption = False
) -> None:
    """List machines, their free GPUs and the jobs that hold the others.

    Example: cranny nodes
    """
    remote = ServiceClient(server, token_file)
    found: list[Any] = []
    after = None
    while True:
        page = remote.get("/api/v1/nodes", after=after)
        found += page["nodes"]
        after = page["next"]
        if after is None:
            break
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    table = Table("machine", "rack", "state", "GPUs", "free", "uplink", "jobs", box=None, header_style="bold")
    for node in found:
        held = ", ".join(dict.fromkeys(job for job in node["slots"] if job))
        uplink = f"{node['uplink_use_gbps']:.1f} of {node['uplink_gbps']:.0f} Gbps"
        table.add_row(
            node["name"], node["rack"], node["state"], str(node["gpus"]), str(node["free"]), uplink, held
        )
    out.print(table)


def drain(
    machine: MachineArgument,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Drain a machine: place no more jobs on it; those on it keep running.

    Example: cranny drain rack0-machine1
    """
    _set_up(machine, "drain", ServiceClient(server, token_file), as_json=as_json)


def resume(
    machine: MachineArgument,
    server: ServerOption = None,
    token_file: TokenOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Resume a drained machine: place jobs on it again.

    Example: cranny resume rack0-machine1
    """
    _set_up(machine, "resume", ServiceClient(server, token_file), as_json=as_json)


def _set_up(machine: str, how: str, remote: ServiceClient, *, as_json: bool) -> None:
    from urllib.parse import quote

    node = remote.send("POST", f"/api/v1/nodes/{quote(machine, safe='')}/{how}")
    if as_json:
        print_json(node)
    else:
        out.print(f"{node['name']} {node['state']}, {node['free']} of {node['gpus']} GPUs free", markup=False)
