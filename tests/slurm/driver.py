"""What tests of the Slurm backend share: its parts with short intervals, and launches of jobs that wait."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import cranny
from cranny.backends.protocol import Ended, Launch, Rank
from cranny.backends.slurm.managed_jobs import ManagedJobs
from cranny.backends.slurm.slurm_backend import SlurmBackend
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.backends.slurm.slurm_reader import SlurmReader
from cranny.backends.slurm.slurm_source import SlurmSource
from cranny.service.clock import wall_clock
from tests.slurm.real_slurm import PATIENCE_S, RealSlurm

SOURCE = Path(cranny.__file__).parents[1]
WRAPPER = (
    *("env", f"PYTHONPATH={SOURCE}", sys.executable, "-S", "-c"),
    "from cranny.agent.slurm_launch import main; main()",
)
FAR = "--begin=now+3650days"  # as job_submit.lua does it


class Driver:
    """A source and a backend on a real Slurm."""

    def __init__(self, slurm: RealSlurm, *, start_s: float = 60.0, timeout_s: float = 30.0) -> None:
        self.slurm = slurm
        self.commands = SlurmCommands(timeout_s, str(slurm.conf))
        self.reader = SlurmReader(self.commands, 0.1)
        self.managed = ManagedJobs()
        self.source = SlurmSource(self.reader, self.managed, wall_clock)
        self.backend = SlurmBackend(self.reader, self.source, self.managed, start_s=start_s, wrapper=WRAPPER)

    def restarted(self) -> "Driver":
        """Return another one on the same Slurm, as after a restart of the service."""
        return Driver(self.slurm)

    def launch_of(self, slurm_id: str, nodes: Sequence[str], attempt: int = 1, note: str = "") -> Launch:
        """Return the launch of a job on the nodes of its ranks."""
        return Launch(
            job_id=f"job-{slurm_id}",
            attempt=attempt,
            argv=("sbatch",),
            ranks=tuple(Rank(rank, 0, rank) for rank in range(len(nodes))),
            env={},
            cwd=None,
            log_dir=Path("/nowhere") / slurm_id / str(attempt),
            time_limit_s=None,
            external=slurm_id,
            machines=tuple(nodes),
            note=note,
        )

    def launch(self, slurm_id: str, nodes: Sequence[str], attempt: int = 1) -> Launch:
        """Launch a job on the nodes of its ranks."""
        what = self.launch_of(slurm_id, nodes, attempt)
        self.backend.launch(what)
        return what

    def waiting(self) -> list[str]:
        """Return the jobs that are to be placed, as Slurm has them after this call."""
        self.reader.table(self.reader.clock())
        return [each.id for each in self.source.read().waiting]

    def ends(self, count: int = 1, patience_s: float = PATIENCE_S) -> list[Ended]:
        """Wait until some attempts have ended."""
        ended: list[Ended] = []
        until_s = time.monotonic() + patience_s
        while len(ended) < count and time.monotonic() < until_s:
            ended += self.backend.poll()
            time.sleep(0.02)
        return ended
