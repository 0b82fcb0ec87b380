"""`cranny doctor`: whether a cluster manager can be read and driven from here, and what to change if not."""

from pathlib import Path
from typing import Annotated

import typer

from cranny.cli import options
from cranny.cli.console import print_json, print_table, printable, say
from cranny.cli.options import option
from cranny.cli.topology import LINKS_HELP
from cranny.cli.typer_errors import Commands
from cranny.model.cluster import Cluster
from cranny.model.validate import counted

app = Commands(help="Check whether a cluster manager can be used from here, and say what to change.")


@app.callback()
def _group() -> None:
    """Check whether a cluster manager can be used from here, and say what to change."""


@app.command()
def slurm(
    links: Annotated[Path | None, option("--links", LINKS_HELP)] = None,
    rest: Annotated[str | None, option("--slurmrestd", "Also check slurmrestd at this URL, or unix:PATH.")] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Check access, rights, clocks, GPUs, topology and versions of Slurm; exit code 1 if something is wrong.

    Example: cranny doctor slurm --links links.yaml
    """
    from cranny.backends.slurm.slurm_checks import SlurmChecks
    from cranny.backends.slurm.slurm_commands import SlurmCommands
    from cranny.backends.slurm.slurm_rest import chosen_rest
    from cranny.service.clock import wall_clock

    given = None if links is None else Cluster.from_file(links)
    found = list(SlurmChecks(SlurmCommands(), wall_clock, given, chosen_rest(rest)).results())
    errors = sum(each.level == "error" for each in found)
    if as_json:
        print_json({"ok": not errors, "checks": [each._asdict() for each in found]})
    else:
        rows = [(each.level, each.about, printable(each.found), printable(each.advice)) for each in found]
        print_table(("", "about", "found", "what to change"), rows, words=("found", "what to change"))
        say("", f"{counted(errors, 'error')}" if errors else "cranny can work with this Slurm")
    if errors:
        raise typer.Exit(1)
