"""What Slurm says now, asked at most so often, whatever needs to know it: the load on slurmctld stays bounded."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import SlurmCommands, UnknownSlurmJobError
from cranny.backends.slurm.slurm_jobs import JobReader, SlurmJob
from cranny.backends.slurm.slurm_nodes import SlurmNode, read_nodes
from cranny.backends.slurm.slurm_rest import SlurmRest
from cranny.backends.slurm.slurm_rights import admin_level, owns_slurm
from cranny.backends.slurm.slurm_values import setting
from cranny.channel.placed_comment import PlacedComment

INTERVAL_S = 5.0


@dataclass(frozen=True)
class JobTable:
    """All jobs that Slurm knew at one time."""

    asked_at: float  # by the clock of `time.monotonic`, before Slurm was asked
    jobs: Mapping[int, SlurmJob]

    def find(self, address: str) -> SlurmJob | None:
        """Return a job by what commands call it: its id, or `12_3` for a task of an array."""
        if address.isdigit():
            return self.jobs.get(int(address))
        return next((job for job in self.jobs.values() if job.task is not None and job.address == address), None)

    def parts(self, job_id: int) -> list[SlurmJob]:
        """Return the parts of a job: itself, or all of a heterogeneous one; none if Slurm does not know it."""
        first = self.jobs.get(job_id)
        if first is None or not first.group:
            return [] if first is None else [first]
        return [job for job in self.jobs.values() if job.group == first.group]


class SlurmReader:
    """Reads jobs and nodes; shared by the source and the backend, which are used by two threads."""

    def __init__(
        self,
        commands: SlurmCommands,
        interval_s: float = INTERVAL_S,
        clock: Callable[[], float] = time.monotonic,
        rest: SlurmRest | None = None,
    ) -> None:
        """Ask slurmrestd instead of commands, if there is one."""
        self.commands, self.rest = commands, rest
        self.interval_s = interval_s
        self.clock = clock
        self._lock = threading.Lock()
        self._jobs = JobReader()
        self._table: JobTable | None = None
        self._nodes_from: tuple[str, ...] | None = None  # the command that lists nodes in this version
        self._booted = ""  # when slurmctld was started, as it said last
        self._outdated = False  # it was started again since nodes were asked for

    def table(self, since: float | None = None) -> JobTable:
        """Return all jobs: as they were after `since`, or not longer ago than the interval."""
        with self._lock:
            now = self.clock()
            table = self._table
            if table is None or (
                now - table.asked_at >= self.interval_s if since is None else table.asked_at <= since
            ):
                rest = self.rest
                answer = self.commands.json("squeue", "--states=all") if rest is None else rest.jobs()
                self._table = table = JobTable(now, self._jobs.read(answer))
            return table

    def known(self, address: str) -> SlurmJob | None:
        """Return a job as Slurm had it when it was asked last."""
        return None if self._table is None else self._table.find(address)

    def next_table(self) -> JobTable:
        """Return all jobs as they are after this call, which waits so that Slurm is not asked too often."""
        last = self._table
        if last is not None:
            time.sleep(max(0.0, last.asked_at + self.interval_s - self.clock()))
        return self.table(self.clock())

    def due(self, seen: JobTable | None) -> bool:
        """Return whether `table` has, or would ask for, something newer than what was seen."""
        table = self._table
        return table is not seen or table is None or self.clock() - table.asked_at >= 2 * self.interval_s

    def restarted(self) -> bool:
        """Return whether slurmctld was started again after nodes were read: it may not know their GPUs yet."""
        booted = self._boot_time()
        if self._booted and booted != self._booted:
            self._outdated = True
        self._booted = booted
        return self._outdated

    def _boot_time(self) -> str:
        return setting(self.commands.call("scontrol", "show", "config"), "BOOT_TIME")

    def nodes(self) -> dict[str, SlurmNode]:
        """Return the nodes with GPUs, by name."""
        if not self._booted and self.rest is None:
            self._booted = self._boot_time()
        self._outdated = False  # before they are asked for, so that a restart meanwhile is not missed
        if self.rest is not None:
            return read_nodes(self.rest.nodes())
        if self._nodes_from is not None:
            return read_nodes(self.commands.json(*self._nodes_from))
        try:  # from 23.02 on; sinfo has lost the nodes since
            answer, self._nodes_from = (
                self.commands.json("scontrol", "show", "nodes"),
                ("scontrol", "show", "nodes"),
            )
        except UnknownSlurmJobError:
            raise
        except BackendError:
            answer, self._nodes_from = self.commands.json("sinfo"), ("sinfo",)
        return read_nodes(answer)

    @cached_property
    def comment_field(self) -> str:
        """The comment of a job that this account may write: only administrators may write AdminComment."""
        owns = owns_slurm(self.commands.call("scontrol", "show", "config"))
        return "AdminComment" if owns or admin_level(self.commands) == "Administrator" else "Comment"

    def written(self, job: SlurmJob, comment: PlacedComment) -> str:
        """Return the option of `scontrol update` that writes a comment; words of the user in it are kept."""
        field = self.comment_field
        before = PlacedComment.read(job.comment) if field == "Comment" else None
        return f"{field}={comment._replace(hints=() if before is None else before.hints).write()}"

    def accounted(self, job: str) -> tuple[str, int | None] | None:
        """Return the state and exit code of a job that slurmctld has forgotten, if there is accounting."""
        try:
            printed = self.commands.call("sacct", "-n", "-P", "-X", "-j", job, "-o", "State,ExitCode")
        except (BackendError, OSError):
            return None
        state, _, code = printed.strip().partition("\n")[0].partition("|")
        if not state:
            return None
        exit_code, _, signal = code.partition(":")
        known = exit_code.isdigit() and signal.isdigit()
        return state.split()[0], (-int(signal) or int(exit_code)) if known else None
