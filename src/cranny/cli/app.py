"""The commands, put together."""

from typing import Annotated

import typer

from cranny.cli import admin, cluster, doctor, log, repro, topology, traces
from cranny.cli.advise import advise
from cranny.cli.bench import bench
from cranny.cli.defrag import defrag
from cranny.cli.explain import explain
from cranny.cli.hosts import fence, hosts
from cranny.cli.interleave import interleave
from cranny.cli.jobs import cancel, jobs, logs, plan, submit, watch
from cranny.cli.network import conformance, network
from cranny.cli.place import place, policies
from cranny.cli.profile import profile
from cranny.cli.serve import serve
from cranny.cli.simulate import compare, demo, simulate
from cranny.cli.sweep import sweep
from cranny.cli.typer_errors import Commands
from cranny.cli.whatif import what_if
from cranny.version import VERSION

SIMULATION = (demo, simulate, compare, what_if, advise, place, explain, defrag, network, interleave, policies)
EXPERIMENTS = (sweep, conformance, profile, bench)
SERVICE = (
    serve,
    submit,
    jobs,
    watch,
    logs,
    cancel,
    plan,
    admin.nodes,
    admin.drain,
    admin.resume,
    admin.profiles,
    hosts,
    fence,
    admin.audit,
)
GROUPS = {
    "traces": traces.app,
    "cluster": cluster.app,
    "topology": topology.app,
    "doctor": doctor.app,
    "repro": repro.app,
    "policy": admin.policy,
    "token": admin.token,
    "log": log.app,
}

app = Commands(
    name="cranny",
    help="Decide where the workers of distributed training jobs run, and see what that saves.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (*SIMULATION, *EXPERIMENTS, *SERVICE):
    app.command()(command)
for name, group in GROUPS.items():
    app.add_typer(group, name=name)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cranny {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Decide where the workers of distributed training jobs run, and see what that saves."""
