"""`cranny policies`."""

from cranny.cli import options
from cranny.cli.console import out, print_json
from cranny.policies import TABLE


def policies(as_json: options.JsonOption = False) -> None:
    """List the policies, what each does, and the paper it comes from.

    Example: cranny policies --json
    """
    from rich.table import Table

    from cranny.core.queue import ORDERS

    if as_json:
        known = {name: {"about": e.about, "paper": e.paper, "order": e.order} for name, e in TABLE.items()}
        print_json({"policies": known, "orders": ORDERS})
        return
    table = Table("policy", "what it does", "paper", "queue", box=None, header_style="bold")
    for name, entry in TABLE.items():
        table.add_row(name, entry.about, entry.paper, entry.order)
    out.print(table)
    out.print()
    orders = Table("queue order", "which job is next", box=None, header_style="bold")
    for name, about in ORDERS.items():
        orders.add_row(name, about)
    out.print(orders)
