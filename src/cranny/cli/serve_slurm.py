"""Options of `cranny serve` for a cluster that Slurm manages."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cranny.cli import options
from cranny.cli.console import warn
from cranny.cli.options import option
from cranny.cli.serve_local import JobRunner, LocalOptions
from cranny.model.errors import InputError

if TYPE_CHECKING:
    from cranny.backends.slurm.slurm_source import SlurmSource
    from cranny.model.cluster import Cluster

LOCAL_ONLY = ("accounts", "run_as", "limit", "ulimit", "gpu_device")  # options that make no sense with Slurm
RETRY_S = 5.0  # while Slurm does not answer at the start


@dataclass
class SlurmOptions:
    """What runs jobs, and how Slurm is asked."""

    kind: Annotated[
        Literal["local", "slurm"],
        option("--backend", "What runs jobs: this machine, or Slurm, from which the cluster is read as well."),
    ] = "local"
    partitions: Annotated[
        list[str] | None,
        option(
            "--slurm-partition",
            "Place all jobs that their users hold in this partition (default: those with `cranny` in a comment).",
        ),
    ] = None
    interval_s: Annotated[
        float, option("--slurm-interval", "Seconds between two questions to Slurm, at least.", min=0.05)
    ] = 5.0

    rest: Annotated[
        str | None,
        option(
            "--slurmrestd",
            "Read from slurmrestd at this URL, or unix:PATH, instead of by commands; with --recommend-only.",
        ),
    ] = None

    def chosen(self, local: LocalOptions) -> bool:
        """Return whether Slurm runs jobs; refuse options that are for jobs on this machine."""
        for name in LOCAL_ONLY if self.kind == "slurm" else ():
            if vars(local)[name]:
                raise InputError(
                    f"--{name.replace('_', '-')} is for --backend local: Slurm has accounts and limits"
                )
        return self.kind == "slurm"

    def build(self, cluster: str | None, folder: Path, *, recommend_only: bool) -> JobRunner:
        """Return what runs jobs; `cluster` is a file with the speeds of links.

        It waits while Slurm does not answer. Only recommending, it writes nothing to Slurm.
        """
        from cranny.backends.slurm.managed_jobs import ManagedJobs
        from cranny.backends.slurm.slurm_backend import SlurmBackend
        from cranny.backends.slurm.slurm_commands import SlurmCommands
        from cranny.backends.slurm.slurm_reader import SlurmReader
        from cranny.backends.slurm.slurm_rest import chosen_rest
        from cranny.backends.slurm.slurm_source import SlurmSource
        from cranny.backends.slurm.slurm_submit import account_options
        from cranny.service.clock import wall_clock

        if self.rest is not None and not recommend_only:
            raise InputError("--slurmrestd: goes with --recommend-only; cranny places jobs by Slurm's commands")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        links = None if cluster is None else options.read_cluster(cluster)
        rest = chosen_rest(self.rest) if recommend_only else None
        reader, managed = SlurmReader(SlurmCommands(), self.interval_s, rest=rest), ManagedJobs()
        held_in = frozenset(self.partitions or ())
        source = SlurmSource(reader, managed, wall_clock, links, held_in, shadows=recommend_only)
        backend = None if recommend_only else SlurmBackend(reader, source, managed)
        return JobRunner(backend, _first_answer(source), source, account_options)


def _first_answer(source: "SlurmSource") -> "Cluster":
    """Return the cluster as soon as Slurm answers; anything else that is wrong is an error at once."""
    warned = False
    while True:
        try:
            return source.read().cluster
        except OSError as error:
            if not warned:
                warn(f"{error}; waiting for Slurm")
                warned = True
            time.sleep(RETRY_S)
