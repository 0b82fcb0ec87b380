"""The commands, put together."""

from typing import Annotated

import typer

from cranny.cli import (
    admin,
    bench,
    conformance,
    demo,
    explain,
    interleave,
    jobs,
    network,
    place,
    policies,
    repro,
    serve,
    simulate,
    sweep,
    traces,
    whatif,
)
from cranny.cli.typer_errors import Commands
from cranny.version import VERSION

app = Commands(
    name="cranny",
    help="Decide where the workers of distributed training jobs run, and see what that saves.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("simulate")(simulate.simulate)
app.command("compare")(simulate.compare)
app.command("what-if")(whatif.what_if)
app.command("place")(place.place)
app.command("explain")(explain.explain)
app.command("network")(network.network)
app.command("interleave")(interleave.interleave)
app.command("policies")(policies.policies)
app.add_typer(traces.app, name="traces")
app.command("sweep")(sweep.sweep)
app.add_typer(repro.app, name="repro")
app.command("conformance")(conformance.conformance)
app.command("bench")(bench.bench)
app.command("serve")(serve.serve)
app.command("submit")(jobs.submit)
app.command("jobs")(jobs.jobs)
app.command("watch")(jobs.watch)
app.command("logs")(jobs.logs)
app.command("cancel")(jobs.cancel)
app.command("plan")(jobs.plan)
app.command("nodes")(admin.nodes)
app.command("drain")(admin.drain)
app.command("resume")(admin.resume)
app.add_typer(admin.policy, name="policy")
app.add_typer(admin.token, name="token")


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
