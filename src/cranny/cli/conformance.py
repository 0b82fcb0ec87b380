"""`cranny conformance`."""

import typer

from cranny.cli import options
from cranny.cli.console import out, print_json


def conformance(
    network: options.NetworkOption = "steady",
    as_json: options.JsonOption = False,
) -> None:
    """Check a network model on small cases whose answer can be computed by hand.

    Example: cranny conformance --network steady
    """
    from rich.table import Table

    from cranny.network.networks import network as known_network
    from cranny.sim.conformance import conformance as run

    known_network(network)
    checks = run(network)
    hold = all(check.ok for check in checks)
    if as_json:
        cases = [
            {"about": check.about, "known": check.known, "got": check.got, "ok": check.ok} for check in checks
        ]
        print_json({"network": network, "ok": hold, "checks": cases})
    else:
        table = Table("case", "known", "ours", "", box=None, header_style="bold")
        for check in checks:
            verdict = "[green]ok[/green]" if check.ok else "[red]NO[/red]"
            table.add_row(check.about, f"{check.known:g}", f"{check.got:g}", verdict)
        out.print(table)
    if not hold:
        raise typer.Exit(1)
