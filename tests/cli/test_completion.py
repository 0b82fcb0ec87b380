import subprocess
import sys
from typing import Any

import click
import typer

from cranny.cli import completion
from cranny.cli.app import commands
from cranny.core.queue import ORDERS
from cranny.model.collective import COLLECTIVES
from cranny.network.networks import NETWORKS
from cranny.policies import TABLE
from cranny.traces.generate import presets


def test_all_names_are_known() -> None:
    assert completion.policies("") == list(TABLE)
    assert completion.orders("") == list(ORDERS)
    assert completion.networks("") == list(NETWORKS)
    assert completion.collectives("") == list(COLLECTIVES)
    assert completion.presets("") == list(presets())


def test_names_with_commas_between_are_completed_one_by_one() -> None:
    assert completion.policies("cranny,best-f") == [
        f"cranny,{name}" for name in TABLE if name.startswith("best-f")
    ]
    assert "cranny,cranny" not in completion.policies("cranny,crann")
    assert completion.presets("phil") == ["philly"]
    assert completion.presets("./phil") == []


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys, cranny.cli.app; cranny.cli.app.commands(); from cranny.cli import completion as c;"
        "c.policies(''), c.presets(''), c.orders(''), c.networks(''), c.collectives('');"
        "sys.exit(not {'polars', 'numba', 'httpx'}.isdisjoint(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_every_option_that_takes_policies_completes_them() -> None:
    known: Any = typer.main.get_command(commands())
    options = {
        name: next(option for option in command.params if option.name == "policies")
        for name, command in known.commands.items()
        if any(option.name == "policies" for option in command.params)
    }
    assert {"what-if", "compare", "advise"} <= set(options)
    for name, option in options.items():
        found = option.shell_complete(click.Context(known.commands[name]), "best-f")
        assert [each.value for each in found] == completion.policies("best-f")
