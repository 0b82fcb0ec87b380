"""Starts, watches and ends jobs of Slurm where they were placed.

Most jobs were given to Slurm by their users, and wait there: held, or with a begin far in the future. One call
of `scontrol update` sets node list and shape of a job and lets it begin; Slurm starts it. Slurm refuses to
update a job that has started, so that a call that is made twice, or whose answer was lost, cannot start it
twice or elsewhere. A job that was given to cranny itself is submitted to Slurm when it is launched.
"""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cranny.backends.protocol import NOT_STARTED, BackendError, Ended, GivenGpus, JobChannel, Launch, Reason
from cranny.backends.slurm.managed_jobs import ManagedJobs
from cranny.backends.slurm.slurm_commands import UnknownSlurmJobError
from cranny.backends.slurm.slurm_jobs import SlurmJob
from cranny.backends.slurm.slurm_reader import JobTable, SlurmReader
from cranny.backends.slurm.slurm_shape import placed_options
from cranny.backends.slurm.slurm_source import SUBMITTED, SlurmSource
from cranny.backends.slurm.slurm_submit import WRAPPER, batch_script, environment, submission
from cranny.channel.placed_comment import PlacedComment
from cranny.model.cluster import Cluster

START_S = 60.0  # that Slurm has to start a job whose nodes are busy; then it is taken back
SURE_S = 5.0  # after which the reason that Slurm has is believed, if it is another one
REST_S = 10.0  # before a job that was taken back is placed again
AVOID_S = 120.0  # for which it is not placed on nodes where Slurm did not start it
LIMITED_REST_S = 300.0  # if a limit or something else of Slurm keeps it from starting
NEVER = float("-inf")  # it was not launched
UNSURE_S = 120.0  # that a launch is retried within, if Slurm did not answer
FAR = "now+3650days"  # a begin that does not come: the job waits for cranny
_REASONS: Mapping[str, Reason] = {
    "COMPLETED": "finished",
    "CANCELLED": "cancelled",
    "TIMEOUT": "timed out",
    "DEADLINE": "timed out",
}
_log = logging.getLogger("cranny.backends.slurm")


@dataclass
class _Followed:
    """An attempt that Slurm runs, or may start."""

    what: Launch
    slurm_id: int  # 0 if Slurm has forgotten it
    address: str  # what commands call it
    since: float  # by the monotonic clock: answers from before do not count
    restarts: int
    stopping: bool = False
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # that Slurm has given it


class SlurmBackend:
    """Lets Slurm run jobs."""

    def __init__(
        self,
        reader: SlurmReader,
        source: SlurmSource,
        managed: ManagedJobs,
        *,
        start_s: float = START_S,
        wrapper: Sequence[str] = WRAPPER,
    ) -> None:
        self._reader, self._source, self._managed = reader, source, managed
        self._start_s, self._wrapper = start_s, tuple(wrapper)
        self._running: dict[str, _Followed] = {}  # by our id
        self._over: set[str] = set()  # attempts that ended since this backend was made
        self._seen: JobTable | None = None
        self._given: dict[str, GivenGpus] = {}  # by our id: not asked for yet
        self._cluster: Cluster | None = None

    def nodes(self) -> Cluster:
        """Return the machines as Slurm has them now."""
        if self._cluster is None:
            self._cluster = self._source.read().cluster
        return self._cluster

    def launch(self, what: Launch) -> None:
        """Let Slurm start a job on the nodes of its ranks."""
        if what.job_id in self._running:
            raise BackendError(f"job {what.job_id!r} runs already")
        if launch_token(what) in self._over:
            raise BackendError(f"job {what.job_id!r}: attempt {what.attempt} was launched before")
        if not what.machines:
            raise BackendError(f"job {what.job_id!r}: its launch names no nodes")
        if what.argv == SUBMITTED:
            self._launch_submitted(what)
        else:
            self._submit(what)

    def _launch_submitted(self, what: Launch) -> None:
        """Release a job that waits in Slurm."""
        mine = launch_token(what)
        job = self._reader.known(what.external) or self._reader.table(self._reader.clock()).find(what.external)
        if job is None:
            raise BackendError(f"job {what.job_id!r}: Slurm does not know its job {what.external}")
        slurm_id = job.id
        placed = job.placed
        released = placed is not None and placed.launch == mine and not self._source.is_gated(job)
        if job.over or (job.running and not released):
            where = f" on {','.join(job.nodes)}" if job.running else ""
            raise BackendError(f"job {what.job_id!r}: {_said(job)}{where}, and was not started by cranny")
        with self._managed.comments:
            self._managed.follow(slurm_id)
        try:
            if not released and self._reader.restarted():
                # It stays gated, which `poll` reports: it is placed again once nodes have registered.
                _log.warning("Slurm's job %s is not released: slurmctld was started again meanwhile", job.address)
            elif not released:
                self._release(what, job)
        except BackendError:
            self._managed.drop(slurm_id, NEVER)
            raise
        except OSError:  # it may have been released: until the next try it is no job of others
            self._managed.drop(slurm_id, self._reader.clock() + UNSURE_S)
            raise
        self._running[what.job_id] = _Followed(what, slurm_id, job.address, self._reader.clock(), job.restarts)

    def _submit(self, what: Launch) -> None:
        """Submit a job to the nodes of its ranks, unless an earlier call has."""
        found = self._by_token(self._reader.table(self._reader.clock()), launch_token(what))
        if found is None:
            if not what.log_dir.is_dir():
                what.log_dir.mkdir(parents=True)
            script = what.log_dir / "batch.sh"
            comment = self._comment(what)
            script.write_text(batch_script(what, comment, self._wrapper), encoding="utf-8")
            argv = submission(what, comment, script)
            try:
                printed = self._reader.commands.call(*argv, env=environment(what))
            except BackendError as error:
                raise BackendError(f"job {what.job_id!r}: {error}") from None
            found = int(printed.strip().partition(";")[0])
        self._managed.follow(found)
        self._running[what.job_id] = _Followed(what, found, str(found), self._reader.clock(), 0)

    def stop(self, job_id: str, grace_s: float | None = None) -> None:
        """Cancel a job; the time between SIGTERM and SIGKILL is Slurm's KillWait, or none if `grace_s` is 0."""
        followed = self._running.get(job_id)
        if followed is None:
            return
        kill = ("--signal=KILL", "--full") if grace_s == 0 and followed.stopping else ()
        with contextlib.suppress(UnknownSlurmJobError):  # it is over, which `poll` reports
            self._call("scancel", *kill, followed.address)
        followed.stopping = True

    def signal(self, job_id: str, number: int) -> None:
        """Do nothing: Slurm does not know which processes have a handler, and its jobs are not asked to save."""

    def channel(self, job_id: str) -> JobChannel | None:  # noqa: ARG002 - jobs of Slurm have none
        """Return None: jobs that users submit to Slurm are launched without a channel."""
        return None

    def external_id(self, job_id: str) -> str:
        """Return what Slurm calls a job that runs."""
        followed = self._running.get(job_id)
        return "" if followed is None else followed.address

    def poll(self) -> Sequence[Ended]:
        """Return the attempts that ended, as far as Slurm's last answer tells."""
        if not self._running or not self._reader.due(self._seen):
            return []
        table = self._seen = self._reader.table()
        ended = []
        for followed in list(self._running.values()):
            if table.asked_at > followed.since:
                report = self._judge(followed, table)
                if report is not None:
                    del self._running[followed.what.job_id]
                    self._over.add(launch_token(followed.what))
                    ended.append(report)
        return ended

    def given(self) -> Sequence[GivenGpus]:
        """Return which GPUs Slurm has given to attempts, as far as its last answer says."""
        given, self._given = list(self._given.values()), {}
        return given

    def adopt(self, launches: Sequence[Launch]) -> Sequence[Ended]:
        """Follow the attempts that an earlier service had released; the others never started."""
        table = self._reader.table(self._reader.clock())
        ended = []
        for what in launches:
            known = self._running.get(what.job_id)
            if known is not None and known.what.attempt == what.attempt:
                continue
            job = self._job_of(what, table)
            if known is not None or not self._was_launched(what, job):
                ended.append(Ended(what.job_id, what.attempt, None, "lost"))
                continue
            known_as = (0, what.external) if job is None else (job.id, job.address)
            followed = _Followed(what, *known_as, table.asked_at, 0 if job is None else job.restarts)
            self._managed.follow(followed.slurm_id)
            if (report := self._judge(followed, table)) is not None:
                ended.append(report)
            else:
                self._running[what.job_id] = followed
        return ended

    def close(self) -> None:
        """Do nothing: Slurm runs the jobs."""

    def _job_of(self, what: Launch, table: JobTable) -> SlurmJob | None:
        """Return the job of Slurm that an attempt is; None if Slurm does not know it."""
        if what.argv == SUBMITTED:
            return table.find(what.external)
        return table.jobs.get(self._by_token(table, launch_token(what)) or 0)

    def _by_token(self, table: JobTable, token: str) -> int | None:
        """Return the job of Slurm that an attempt was submitted as; of several parts the first."""
        for job in table.jobs.values():
            placed = PlacedComment.read(job.comment) if token in job.comment else None
            if job.group in (0, job.id) and placed is not None and placed.launch == token:
                return job.id
        return None

    def _was_launched(self, what: Launch, job: SlurmJob | None) -> bool:
        """Return whether an attempt was released; one that was only set up stays as it is, and did not start."""
        if job is None:  # Slurm has forgotten it, or never had it
            return what.argv == SUBMITTED or what.launched_s is not None
        placed = job.placed
        return placed is not None and placed.launch == launch_token(what) and not self._source.is_gated(job)

    def _call(self, *argv: str) -> str:
        return self._reader.commands.call(*argv)

    def _comment(self, what: Launch) -> PlacedComment:
        master = self._source.address_of(what.machines[0])
        return PlacedComment(what.job_id, launch_token(what), master, what.machines, text=what.note)

    def _release(self, what: Launch, job: SlurmJob) -> None:
        """Set nodes and shape of a job and let it begin, in one call; one that is held is released in a second."""
        if not job.priority and job.pending and not self._source.is_gated(job):
            raise BackendError(f"job {what.job_id!r}: its job {job.address} is held in Slurm ({job.reason})")
        comment = self._reader.written(job, self._comment(what))
        options = [*placed_options(job, what.machines), comment, "StartTime=now"]
        try:
            self._call("scontrol", "update", f"JobId={job.address}", *options)
        except BackendError as error:
            now = self._reader.table(self._reader.clock()).jobs.get(job.id)
            if now is not None and now.running and set(now.nodes) == set(what.machines):
                return  # an earlier call had reached Slurm
            raise BackendError(f"job {what.job_id!r}: {error}") from None
        if not job.priority:
            self._call("scontrol", "release", job.address)

    def _gate(self, address: str) -> bool:
        """Let a job that has not started wait for cranny again; return False if it has started meanwhile."""
        try:
            self._call("scontrol", "update", f"JobId={address}", f"StartTime={FAR}")
        except BackendError as error:
            _log.warning("Slurm's job %s is not taken back: %s", address, error)
            return False
        return True

    def _judge(self, followed: _Followed, table: JobTable) -> Ended | None:
        """Return how an attempt ended; None if it runs, or may still start."""
        parts = table.parts(followed.slurm_id)
        job = next((part for part in parts if not part.over), parts[0] if parts else None)
        end = partial(Ended, followed.what.job_id, followed.what.attempt)
        if job is None:
            report = end(*self._forgotten(followed.address))
        elif job.over:
            report = end(*_how(next(iter(sorted(job.states))), job.exit_code))
        elif job.running:
            for part in parts:
                self._managed.follow(part.id)
            nodes = {node for part in parts for node in part.nodes}
            if nodes == set(followed.what.machines) or any("RUNNING" not in part.states for part in parts):
                followed.restarts = job.restarts
                self._note_gpus(followed, parts)
                return None
            report = end(None, "failed", f"Slurm runs it on {','.join(job.nodes)}; cranny no longer follows it")
        else:
            return self._judge_pending(followed, job, end)
        for slurm_id in {followed.slurm_id, *(part.id for part in parts)}:
            self._managed.drop(slurm_id, self._reader.clock())
        return report

    def _note_gpus(self, followed: _Followed, parts: Sequence[SlurmJob]) -> None:
        """Note which GPUs an attempt has, once; if they are as many as it has ranks."""
        gpus = {node: numbers for part in parts for node, numbers in part.indices.items()}
        if gpus != followed.gpus and sum(map(len, gpus.values())) == len(followed.what.machines):
            followed.gpus = gpus
            self._given[followed.what.job_id] = GivenGpus(followed.what.job_id, followed.what.attempt, gpus)

    def _judge_pending(self, followed: _Followed, job: SlurmJob, end: Callable[..., Ended]) -> Ended | None:
        """Return what became of an attempt whose job waits in Slurm; None if it is about to start."""
        rest_s = 0.0
        if followed.what.argv != SUBMITTED:
            return None  # it has its nodes, and waits for them
        begins_later = job.reason == "BeginTime" and not self._source.is_gated(job)  # as after a node has failed
        if job.restarts > followed.restarts or begins_later:
            if not self._source.is_gated(job) and job.priority and not self._gate(job.address):
                return None
            report = end(None, "lost", f"Slurm has put it back into its queue: {job.reason}")
        elif self._source.is_gated(job) or not job.priority:
            report = end(None, NOT_STARTED, f"held in Slurm: {job.reason}")
        else:
            patience_s, rest_s = self._patience(job.reason, followed.what.machines)
            if (
                self._reader.clock() - followed.since < patience_s
                or followed.stopping
                or not self._gate(job.address)
            ):
                return None
            if rest_s and job.reason.startswith(("Resources", "ReqNodeNotAvail", "NodeDown")):
                refused = set(job.unavailable) & set(followed.what.machines) or followed.what.machines
                self._managed.avoid(job.id, refused, self._reader.clock() + AVOID_S)
            report = end(None, NOT_STARTED, f"Slurm does not start it: {job.reason}")
            _log.warning("Slurm's job %s was not started within %g s: %s", job.address, patience_s, job.reason)
        self._managed.drop(job.id, self._reader.clock(), rest_s)
        return report

    def _patience(self, reason: str, nodes: Sequence[str]) -> tuple[float, float]:
        """Return how long a job may wait for its nodes, and how long it rests after that, in seconds."""
        if reason.startswith("ReqNodeNotAvail") and self._source.closed & set(nodes):
            return 0.0, 0.0  # it is not placed on that node again
        if reason in ("", "None", "Resources", "Priority", "Prolog", "Cleaning"):
            return self._start_s, REST_S
        soon_s = min(SURE_S, self._start_s)
        return soon_s, REST_S if reason.startswith(("ReqNodeNotAvail", "NodeDown")) else LIMITED_REST_S

    def _forgotten(self, address: str) -> tuple[int | None, Reason, str]:
        """Return how a job ended that slurmctld no longer knows, by accounting if there is any."""
        found = self._reader.accounted(address)
        if found is None:
            return None, "failed", "Slurm no longer knows how it ended: raise MinJobAge, or set up accounting"
        return _how(*found)


def _how(state: str, exit_code: int | None) -> tuple[int | None, Reason, str]:
    """Return exit code, reason and detail of a job that is over."""
    reason = _REASONS.get(state, "failed")
    plain = reason == "finished" or (state == "FAILED" and exit_code)
    return (exit_code, reason, "" if plain else f"{state} in Slurm")


def _said(job: SlurmJob) -> str:
    return f"its job {job.address} is {', '.join(sorted(job.states)).lower()} in Slurm"


def launch_token(what: Launch) -> str:
    """Return what tells this attempt from all others, also those of other services."""
    return hashlib.sha256(f"{what.log_dir}\0{what.job_id}\0{what.attempt}".encode()).hexdigest()[:12]
