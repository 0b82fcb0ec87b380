"""Past jobs, as Slurm's accounting has them: the log of `cranny what-if --slurm`."""

from collections.abc import Iterable
from datetime import UTC, datetime

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.traces.readers.sacct_fields import ASK_FOR

PATIENCE_S = 1800.0  # slurmdbd may take minutes for a month of jobs


def accounting_commands() -> SlurmCommands:
    """Return commands that may take as long as accounting does."""
    return SlurmCommands(PATIENCE_S)


def read_accounting(
    commands: SlurmCommands, since_s: float, until_s: float | None = None, partitions: Iterable[str] = ()
) -> str:
    """Return what sacct prints of all jobs that were pending or ran in a time; times are seconds since 1970."""
    argv = ["sacct", "--allusers", "--duplicates", "--allocations", "--parsable2", f"--format={ASK_FOR}"]
    argv.append(f"--starttime={_written(since_s)}")
    if until_s is not None:
        argv.append(f"--endtime={_written(until_s)}")
    if partitions:
        argv.append(f"--partition={','.join(partitions)}")
    try:
        printed = commands.call(*argv, env={"SLURM_TIME_FORMAT": "%s"})
    except OSError as error:
        raise BackendError(f"the log cannot be read from Slurm: {error}") from None
    if printed.count("\n") < 2:
        raise BackendError(
            f"sacct has no jobs since {_written(since_s)} UTC: has this Slurm accounting (slurmdbd), and may this "
            "user see jobs of others? `cranny doctor slurm` says more"
        )
    return printed


def _written(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%M:%S}"
