"""The cluster as Slurm has it: nodes, switches, reservations, jobs of others, and jobs that cranny is to place."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from cranny.backends.cluster_reading import ClusterReading, ExternalJob, ForeignJob, Reservation
from cranny.backends.protocol import BackendError
from cranny.backends.slurm.job_arrays import ArrayLimits, to_split
from cranny.backends.slurm.managed_jobs import ManagedJobs
from cranny.backends.slurm.slurm_cluster import read_switches, tree_of
from cranny.backends.slurm.slurm_jobs import HELD_BY_USER, SlurmJob
from cranny.backends.slurm.slurm_nodes import SlurmNode, cluster_name, cluster_of
from cranny.backends.slurm.slurm_reader import JobTable, SlurmReader
from cranny.backends.slurm.slurm_shape import per_worker, shape_of
from cranny.backends.slurm.slurm_values import names, words
from cranny.channel.placed_comment import MARK, PlacedComment
from cranny.cluster_import.imported import FoundSwitch
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.yaml_file import MAX_NAME

GATED_S = 365 * 86_400.0  # a job that may not begin for so long waits for cranny
SUBMITTED = ("sbatch",)  # the command of jobs that users gave to Slurm
LONGEST_S = 10 * 365 * 86_400.0  # time limit that a job file can have
SHOWN_S = 60.0  # how often the reason of a job is written
MOST_SHOWN = 20  # reasons that are written at a time
RARELY_S = 60.0  # how often the tree of switches and reservations are asked for
_HINTS = {"model": str, "collective": str, "tp": int, "pp": int}
_FIELD = re.compile(r"(\w+)=(\S*)")
_log = logging.getLogger("cranny.backends.slurm")


class SlurmSource:
    """Reads the cluster from Slurm."""

    def __init__(
        self,
        reader: SlurmReader,
        managed: ManagedJobs,
        now_s: Callable[[], float],
        links: Cluster | None = None,
        partitions: frozenset[str] = frozenset(),
        *,
        shadows: bool = False,
    ) -> None:
        """Take the speeds of links from `links`, a cluster with machines and switches of the same names.

        Jobs that their users hold are placed if they have the mark in a comment, or are in one of `partitions`.
        A source that `shadows` Slurm writes nothing to it, and lists all jobs that wait for nothing but GPUs.
        """
        self._reader, self._managed, self._links, self._now_s = reader, managed, links, now_s
        self._partitions, self._shadows = partitions, shadows
        self._specs: dict[int, tuple[SlurmJob, Cluster, frozenset[str], dict[str, Any]]] = {}  # by id
        self._reasons: dict[str, str] = {}  # job -> why it waits, to be written
        self._shown: dict[str, float] = {}  # job -> when its reason was written
        self._asked_at = float("-inf")  # when what changes rarely was asked for
        self._name = "slurm"
        self._tree: FoundSwitch | None = None
        self._reservations: list[Reservation] = []
        self._cluster: Cluster | None = None
        self._described: object = None  # what the cluster was made from
        self.skipped: Mapping[str, str] = {}  # job -> why cranny does not place it although it is marked
        self._new_skips: Mapping[str, str] = {}  # those that the last reading has found
        self.closed: frozenset[str] = frozenset()  # nodes that took no new jobs when they were read last
        self._addresses: Mapping[str, str] = {}  # of nodes

    def read(self) -> ClusterReading:
        """Return what is there now."""
        table = self._reader.next_table()
        nodes = self._reader.nodes()
        self._write_reasons(table)
        self._read_rarely()
        cluster = self._laid_out(nodes)
        self._addresses = {name: node.address for name, node in nodes.items()}
        self._managed.forget(set(table.jobs))
        # Parts of a heterogeneous job are ours with the first of them, whose id the group has.
        others = [
            job for job in table.jobs.values() if not self._managed.ours(job.group or job.id, table.asked_at)
        ]
        others.sort(key=lambda job: (job.array or job.id, job.task or 0))
        gated = {job.id: job for job in others if self.is_gated(job)}
        limits = ArrayLimits(table.jobs.values(), gated)
        waiting = list(self._waiting(others if self._shadows else list(gated.values()), cluster, limits))
        if not self._shadows:
            self._split_arrays(gated.values())
            self._hand_over(gated)
        failed = {name: why for name, node in nodes.items() if (why := node.failed)}
        unavailable = {
            name: why for name, node in nodes.items() if name not in failed and (why := node.unavailable)
        }
        self.closed = frozenset((*failed, *unavailable))
        return ClusterReading(
            cluster=cluster,
            read_s=self._now_s() - (self._reader.clock() - table.asked_at),
            unavailable=unavailable,
            failed=failed,
            foreign=[*(_foreign(job, nodes) for job in others if job.running), *_drained(nodes)],
            waiting=waiting,
            reservations=self._reservations,
        )

    def show(self, reasons: Mapping[str, str]) -> None:
        """Write into a comment of waiting jobs why they wait; seldom, and a few after each reading."""
        if not self._shadows:
            self._reasons.update(reasons)
            self._write_reasons(self._reader.table())

    def _write_reasons(self, table: JobTable) -> None:
        now = self._reader.clock()
        self._shown = {job: at for job, at in self._shown.items() if at > now - SHOWN_S}
        due = [job for job in self._reasons if now - self._shown.get(job, float("-inf")) >= SHOWN_S]
        for job_id in due[:MOST_SHOWN]:
            job, why = table.find(job_id), self._reasons.pop(job_id)
            placed = PlacedComment() if job is None else job.placed or PlacedComment()
            with self._managed.comments:  # a launch writes the ranks there, which must not be lost
                if job is None or not self.is_gated(job) or self._managed.ours(job.id, table.asked_at):
                    continue
                if why != placed.text:
                    written = self._reader.written(job, placed._replace(master="", nodes=(), text=why))
                    self._reader.commands.call("scontrol", "update", f"JobId={job_id}", written)
            self._shown[job_id] = now

    def _split_arrays(self, gated: Iterable[SlurmJob]) -> None:
        """Make jobs of the next tasks of arrays, which are placed one by one."""
        now_s = self._now_s()
        able = [job for job in gated if job.array and _may_begin(job, now_s) and job.address not in self.skipped]
        for job, task in to_split(
            (each for each in able if each.unsplit), (each for each in able if not each.unsplit)
        ):
            written = self._reader.written(job, job.placed or PlacedComment())
            self._reader.commands.call("scontrol", "update", f"JobId={task}", written)

    def _hand_over(self, gated: Mapping[int, SlurmJob]) -> None:
        """Let Slurm start marked jobs that cranny cannot place: they would wait for ever."""
        for job in (each for each in gated.values() if each.address in self._new_skips):
            why = self._new_skips[job.address]
            if job.placed is None and job.comment.split()[:1] != [MARK]:
                _log.warning("Slurm's job %s is not placed: it %s", job.address, why)
                continue
            said = (job.placed or PlacedComment())._replace(text=f"Slurm places this job, since it {why}")
            try:
                self._reader.commands.call(
                    *("scontrol", "update", f"JobId={job.address}"),
                    self._reader.written(job, said),
                    "StartTime=now",
                )
                if not job.priority:
                    self._reader.commands.call("scontrol", "release", job.address)
            except BackendError as error:
                _log.warning(
                    "Slurm's job %s is not placed: it %s; nor is it released: %s", job.address, why, error
                )
            else:
                _log.warning("Slurm's job %s is left to Slurm: it %s", job.address, why)

    def is_gated(self, job: SlurmJob) -> bool:
        """Return whether a job waits for cranny to place it, held or with a begin far in the future."""
        if not job.pending or job.group not in (0, job.id):
            return False
        if job.priority and job.eligible_s > self._now_s() + GATED_S:
            return job.placed is not None or self._opted_in(job)
        return job.reason == HELD_BY_USER and not job.priority and self._opted_in(job)

    def address_of(self, node: str) -> str:
        """Return the address by which other nodes reach a node."""
        if node not in self._addresses:
            self._addresses = {name: each.address for name, each in self._reader.nodes().items()}
        return self._addresses.get(node, node)

    def _waits(self, job: SlurmJob) -> bool:
        """Return whether a job could start now, as far as Slurm says."""
        free = bool(job.priority) and 0 < job.eligible_s <= self._now_s()
        return job.pending and free and not (job.array or job.group)

    def _opted_in(self, job: SlurmJob) -> bool:
        return job.comment.split()[:1] == [MARK] or bool(self._partitions & set(job.partition.split(",")))

    def _waiting(self, jobs: list[SlurmJob], cluster: Cluster, limits: ArrayLimits) -> Iterator[ExternalJob]:
        now, now_s = self._reader.clock(), self._now_s()
        most = max(machine.gpus for machine in cluster.machines)
        skipped: dict[str, str] = {}
        for job in jobs:
            if (self._shadows and not self._waits(job)) or self._managed.rests(job.id, now):
                continue
            placed = job.placed
            if not _may_begin(job, now_s):
                continue
            try:
                spec = self._known_spec(job, placed, most, cluster)
            except BackendError as error:
                skipped[job.address] = str(error)
                continue
            if not job.unsplit and limits.take(job):
                yield ExternalJob(job.address, job.user, spec, job.priority, job.submit_s)
        self._new_skips = {address: why for address, why in skipped.items() if address not in self.skipped}
        self.skipped = skipped
        self._specs = {job.id: self._specs[job.id] for job in jobs if job.id in self._specs}

    def _known_spec(
        self, job: SlurmJob, placed: PlacedComment | None, most: int, cluster: Cluster
    ) -> dict[str, Any]:
        """Return the fields of a job file, made anew only if the job or the cluster has changed."""
        known, avoided = self._specs.get(job.id), self._managed.avoided(job.id, self._reader.clock())
        if known is None or known[0] is not job or known[1] is not cluster or known[2] != avoided:
            spec = self._spec(job, placed, most, cluster, avoided)
            known = self._specs[job.id] = job, cluster, avoided, spec
        return known[3]

    def _spec(
        self, job: SlurmJob, placed: PlacedComment | None, most: int, cluster: Cluster, avoided: frozenset[str]
    ) -> dict[str, Any]:
        """Return the fields of a job file; `BackendError` if cranny cannot say the same as Slurm."""
        if job.group:
            raise BackendError("is heterogeneous")
        shape = shape_of(job, most)
        spec: dict[str, Any] = {
            **_hints(job.comment),
            "command": list(SUBMITTED),  # its script is Slurm's
            "gpus": shape.gpus,
            "resources": per_worker(job, shape),
            "checkpoint": "none",  # preemption is Slurm's
            "constraints": {"per_machine": shape.per_node},
        }
        if job.name:
            spec["name"] = job.name[:MAX_NAME]
        if job.time_limit_s is not None:
            spec["time_limit_s"] = min(job.time_limit_s, LONGEST_S)
        constraints = spec["constraints"]
        every = {machine.name: machine.features for machine in cluster.machines}
        allowed = set(every)
        partitions = [each for each in job.partition.split(",") if each]
        if len(partitions) == 1:
            constraints["partition"] = partitions[0]
        elif partitions:
            members = (cluster.partitions.get(each, ()) for each in partitions)
            allowed &= {cluster.machines[machine].name for each in members for machine in each}
        needed, choices = _features(job.features)
        if needed:
            constraints["features"] = sorted(needed)
        if choices:
            allowed &= {name for name, features in every.items() if features & choices}
        if job.required_nodes and (placed is None or not placed.launch):  # the user's own, not cranny's
            allowed &= set(job.required_nodes)
        if excluded := (set(every) - allowed) | ((avoided | set(job.excluded_nodes)) & set(every)):
            constraints["exclude"] = sorted(excluded)
        if shape.gpu_type:
            constraints["gpu_type"] = shape.gpu_type
        if job.reservation:
            constraints["reservation"] = job.reservation
        return spec

    def _laid_out(self, nodes: Mapping[str, SlurmNode]) -> Cluster:
        """Return the cluster; the same object as long as nothing of it changes."""
        described = self._name, self._tree, {name: (node.machine, node.partitions) for name, node in nodes.items()}
        if self._cluster is None or described != self._described:
            try:
                self._cluster = cluster_of(self._name, nodes, self._tree, self._links)
            except InputError as error:
                raise BackendError(f"Slurm: {error}") from None
            self._described = described
        return self._cluster

    def _read_rarely(self) -> None:
        """Ask for the tree of switches and for reservations, if that was long ago."""
        now, commands = self._reader.clock(), self._reader.commands
        if now - self._asked_at < RARELY_S:
            return
        if self._reader.rest is not None:  # which knows no switches
            self._reservations = self._reader.rest.reservations()
            if self._links is not None:
                self._name, self._tree = self._links.name, tree_of(self._links)
        else:
            if self._asked_at == float("-inf"):
                self._name = cluster_name(commands.call("scontrol", "show", "config"))
            self._tree = read_switches(commands)
            self._reservations = list(read_reservations(commands.call("scontrol", "-o", "show", "reservation")))
        self._asked_at = now


def read_reservations(printed: str) -> Iterator[Reservation]:
    """Read what `scontrol -o show reservation` prints, in UTC; one for maintenance has no users."""
    for line in printed.splitlines():
        fields = {name: value for name, value in _FIELD.findall(line) if value != "(null)"}
        if "ReservationName" not in fields or not fields.get("Nodes"):
            continue
        maintenance = "MAINT" in fields.get("Flags", "").split(",")
        users, accounts = (
            frozenset() if maintenance else frozenset(words(fields.get(key, ""))) for key in ("Users", "Accounts")
        )
        yield Reservation(
            fields["ReservationName"],
            frozenset(names(fields["Nodes"])),
            _seconds(fields.get("StartTime", "")),
            _seconds(fields.get("EndTime", "")),
            users,
            accounts,
        )


def _seconds(written: str) -> float:
    try:
        return datetime.fromisoformat(written).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise BackendError(f"Slurm: the time {written[:40]!r} of a reservation cannot be read") from None


def _hints(comment: str) -> dict[str, Any]:
    """Return what a user says of the job in its comment: `cranny model=vgg16 tp=2`."""
    mark, *rest = comment.split()[:20] or [""]
    found: dict[str, Any] = {}
    for word in rest if mark == MARK else ():
        name, _, value = word.partition("=")
        if value and name in _HINTS and (_HINTS[name] is str or value.isdigit()):
            found[name] = _HINTS[name](value)
    return found


def _may_begin(job: SlurmJob, now_s: float) -> bool:
    """Return whether what the user lets a job wait for is over: other jobs, and a time."""
    placed = job.placed
    return "unfulfilled" not in job.waits_for and (placed is None or placed.after_s <= now_s)


def _features(expression: str) -> tuple[set[str], set[str]]:
    """Return the features that a job needs all of, and those that it needs one of."""
    plain = expression.replace("(", "").replace(")", "")
    if re.search(r"[\[\]*]", plain) or ("|" in plain and "&" in plain):
        raise BackendError(f"has the constraint {expression!r}, of which cranny reads & alone, or | alone")
    if "|" in plain:
        return set(), set(plain.split("|"))
    return set(re.split(r"[&,]", plain)) - {""}, set()


def _foreign(job: SlurmJob, nodes: Mapping[str, SlurmNode]) -> ForeignJob:
    """Return what a job holds on nodes with GPUs."""
    gpus = {name: held for name, held in job.gpus.items() if name in nodes}
    resources = {name: held for name, held in job.resources.items() if name in nodes}
    return ForeignJob(job.address, job.user, gpus, resources, job.ends_s)


def _drained(nodes: Mapping[str, SlurmNode]) -> Iterator[ForeignJob]:
    """Yield what stands for GPUs that an admin has drained."""
    for name, node in nodes.items():
        if node.gpus_out:
            yield ForeignJob(f"drained:{name}", "", {name: node.gpus_out}, {})
