"""The commands, put together: of a command that is run, only the module that has it is imported."""

import os
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Annotated

import typer

from cranny.cli.typer_errors import Commands
from cranny.version import VERSION

# Where each command is, in the order of the help: a module of this package, and a name in it.
SIMULATION = {
    "demo": "simulate.demo",
    "simulate": "simulate.simulate",
    "compare": "simulate.compare",
    "what-if": "whatif.what_if",
    "advise": "advise.advise",
    "place": "place.place",
    "explain": "explain.explain",
    "defrag": "defrag.defrag",
    "network": "network.network",
    "interleave": "interleave.interleave",
    "policies": "place.policies",
}
EXPERIMENTS = {
    "sweep": "sweep.sweep",
    "conformance": "network.conformance",
    "profile": "profile.profile",
    "bench": "bench.bench",
}
SERVICE = {
    "serve": "serve.serve",
    "submit": "jobs.submit",
    "jobs": "jobs.jobs",
    "watch": "jobs.watch",
    "logs": "jobs.logs",
    "cancel": "jobs.cancel",
    "plan": "jobs.plan",
    "nodes": "admin.nodes",
    "drain": "admin.drain",
    "resume": "admin.resume",
    "profiles": "admin.profiles",
    "hosts": "hosts.hosts",
    "fence": "hosts.fence",
    "audit": "admin.audit",
}
COMMANDS = {**SIMULATION, **EXPERIMENTS, **SERVICE}
GROUPS = {
    "traces": "traces.app",
    "cluster": "cluster.app",
    "topology": "topology.app",
    "doctor": "doctor.app",
    "repro": "repro.app",
    "policy": "admin.policy",
    "token": "admin.token",
    "log": "log.app",
}


def run() -> None:
    """Run what was typed."""
    words = sys.argv[1:]
    completing = any(name.startswith("_") and name.endswith("_COMPLETE") for name in os.environ)
    one = not completing and bool(words) and words[0] in {*COMMANDS, *GROUPS}
    commands(words[:1] if one else None)()


def commands(names: Collection[str] | None = None) -> Commands:
    """Return the commands of these names, or all; to import and describe all takes half a second."""
    app = Commands(
        name="cranny",
        help="Decide where the workers of distributed training jobs run, and see what that saves.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name, place in (*COMMANDS.items(), *GROUPS.items()):
        if names is None or name in names:
            module, _, attribute = place.partition(".")
            found = getattr(import_module(f"cranny.cli.{module}"), attribute)
            app.command(name)(found) if name in COMMANDS else app.add_typer(found, name=name)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cranny {VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Decide where the workers of distributed training jobs run, and see what that saves."""
