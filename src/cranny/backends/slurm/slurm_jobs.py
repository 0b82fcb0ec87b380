"""Jobs as `squeue --json` has them, of any version."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_values import (
    GpuRequest,
    count,
    gpu_request,
    names,
    number,
    objects,
    states,
    text,
    words,
)
from cranny.channel.placed_comment import PlacedComment
from cranny.cluster_import.gres import read_gres
from cranny.model.errors import InputError

OVER = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT", "REVOKED", "LAUNCH_FAILED"),
    }
)
HOLDS = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED"})
_UNAVAILABLE = re.compile(r"UnavailableNodes:([^\s]+)")
_INDICES = re.compile(r"(?:^|,)gpu[^,()]*\(IDX:([0-9,-]+)\)")
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
HELD_BY_USER = "JobHeldUser"
FIELDS = (  # that say anything about a job here
    *("job_id", "name", "user_name", "user_id", "account", "partition", "job_state", "state_reason", "priority"),
    "state_description",
    *(
        "submit_time",
        "eligible_time",
        "start_time",
        "time_limit",
        "nodes",
        "gres_detail",
        "job_resources",
        "comment",
    ),
    *("admin_comment", "required_nodes", "excluded_nodes", "features", "tres_per_node", "tres_per_task"),
    *("tres_per_job", "tres_per_socket", "tasks", "tasks_per_node", "node_count", "max_nodes", "cpus"),
    *("memory_per_cpu", "memory_per_node", "memory_per_tres", "resv_name", "dependency", "array_job_id"),
    *(
        "array_task_id",
        "array_task_string",
        "array_max_tasks",
        "het_job_id",
        "requeue",
        "restart_cnt",
        "exit_code",
    ),
)


@dataclass(frozen=True)
class SlurmJob:
    """A job of Slurm: what it asks for, and what it holds."""

    id: int
    name: str
    user: str
    account: str
    partition: str  # one, or several with commas between
    states: frozenset[str]
    reason: str
    unavailable: tuple[str, ...]  # nodes that it asks for and that Slurm does not give it
    priority: float
    submit_s: float
    eligible_s: float  # not before
    start_s: float
    time_limit_s: float | None
    nodes: tuple[str, ...]  # that it holds, or held
    gpus: Mapping[str, int]  # node -> GPUs that it holds there
    indices: Mapping[str, tuple[int, ...]]  # node -> which GPUs these are, as far as Slurm says
    resources: Mapping[str, Mapping[str, int]]  # node -> cpus and memory_mb that it holds there
    comment: str
    admin_comment: str
    required_nodes: tuple[str, ...]
    excluded_nodes: tuple[str, ...]
    features: str  # an expression
    gpus_per_node: GpuRequest | None
    gpus_per_task: GpuRequest | None
    gpus_per_job: GpuRequest | None
    other_gpus: bool  # asks for GPUs per socket
    tasks: int
    tasks_per_node: int
    least_nodes: int
    most_nodes: int  # 0 if it does not say
    cpus: int
    memory_per_cpu: int
    memory_per_node: int
    memory_per_gpu: int
    reservation: str
    waits_for: str  # its dependency
    array: int  # that it belongs to, or 0
    task: int | None  # of an array
    unsplit: str  # the tasks of an array that this stands for, as `1,3-9%2`; empty if it is one job
    most_tasks: int  # of its array that run at a time; 0: all
    group: int  # the heterogeneous job that it is a part of, or 0
    requeue: bool
    restarts: int
    exit_code: int | None  # minus the signal if one ended it
    gres: str = field(default="gres:", compare=False)  # how this version of Slurm begins `gres:gpu:2`

    @property
    def address(self) -> str:
        """What commands call it: the id of the last task of an array would stand for all of them."""
        return str(self.id) if self.task is None else f"{self.array}_{self.task}"

    @property
    def placed(self) -> PlacedComment | None:
        """What cranny, or its plugin, has written into one of its comments."""
        by_admin, by_user = PlacedComment.read(self.admin_comment), PlacedComment.read(self.comment)
        if by_user is not None and by_user.launch:
            return by_user if by_admin is None else by_user._replace(after_s=by_admin.after_s)
        return by_admin

    @property
    def over(self) -> bool:
        """Whether it has ended and holds nothing."""
        return bool(self.states & OVER) and not self.states & HOLDS

    @property
    def pending(self) -> bool:
        """Whether it has not started, and holds nothing."""
        return "PENDING" in self.states and not self.states & HOLDS

    @property
    def running(self) -> bool:
        """Whether it may have processes."""
        return bool(self.states & HOLDS)

    @property
    def ends_s(self) -> float | None:
        """When it ends at the latest, if it has a limit."""
        return None if self.time_limit_s is None or not self.start_s else self.start_s + self.time_limit_s


class JobReader:
    """Reads answers one after the other; jobs that are as they were before are not read again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[Any, ...], SlurmJob]] = {}  # by id: the fields, and what they say

    def read(self, answer: Mapping[str, Any]) -> dict[int, SlurmJob]:
        """Read the jobs of `squeue --json`, by id; a job that has not changed is the same object."""
        if not isinstance(answer.get("jobs"), list):
            raise BackendError("squeue --json lists no jobs")
        known: dict[int, tuple[tuple[Any, ...], SlurmJob]] = {}
        for entry in objects(answer["jobs"]):
            fields = tuple(map(entry.get, FIELDS))
            job_id = count(entry.get("job_id"))
            before = self._known.get(job_id)
            if job_id:
                same = before is not None and before[0] == fields
                known[job_id] = before if same and before is not None else (fields, _job(entry))
        self._known = known
        return {job_id: job for job_id, (_, job) in known.items()}


def read_jobs(answer: Mapping[str, Any]) -> dict[int, SlurmJob]:
    """Read the jobs of one answer."""
    return JobReader().read(answer)


def _job(entry: Mapping[str, Any]) -> SlurmJob:
    nodes = names(entry.get("nodes"))
    limit = number(entry.get("time_limit"))
    state = states(entry.get("job_state"))
    held = state & HOLDS
    return SlurmJob(
        id=count(entry.get("job_id")),
        name=text(entry.get("name")),
        user=text(entry.get("user_name")) or str(count(entry.get("user_id"))),
        account=text(entry.get("account")),
        partition=text(entry.get("partition")),
        states=state,
        reason=text(entry.get("state_reason")),
        unavailable=names(found[1])
        if (found := _UNAVAILABLE.search(text(entry.get("state_description"))))
        else (),
        priority=number(entry.get("priority")) or 0.0,
        submit_s=number(entry.get("submit_time")) or 0.0,
        eligible_s=number(entry.get("eligible_time")) or 0.0,
        start_s=number(entry.get("start_time")) or 0.0,
        time_limit_s=None if limit is None else limit * 60.0 or None,
        nodes=nodes,
        gpus=_held_gpus(entry, nodes) if held else {},
        indices=_held_indices(entry, nodes) if held else {},
        resources=_held_resources(entry, nodes) if held else {},
        comment=_comment(entry, "comment", "user"),
        admin_comment=_comment(entry, "admin_comment", "administrator"),
        required_nodes=names(entry.get("required_nodes")),
        excluded_nodes=names(entry.get("excluded_nodes")),
        features=text(entry.get("features")),
        gpus_per_node=gpu_request(entry.get("tres_per_node")),
        gpus_per_task=gpu_request(entry.get("tres_per_task")),
        gpus_per_job=gpu_request(entry.get("tres_per_job")),
        gres="gres/" if "gres/" in text(entry.get("tres_per_job")) else "gres:",
        other_gpus=gpu_request(entry.get("tres_per_socket")) is not None,
        tasks=count(entry.get("tasks")),
        tasks_per_node=count(entry.get("tasks_per_node")),
        least_nodes=count(entry.get("node_count")),
        most_nodes=count(entry.get("max_nodes")),
        cpus=count(entry.get("cpus")),
        memory_per_cpu=count(entry.get("memory_per_cpu")),
        memory_per_node=count(entry.get("memory_per_node")),
        memory_per_gpu=0 if (memory := gpu_request(entry.get("memory_per_tres"))) is None else memory.gpus,
        reservation=text(entry.get("resv_name")),
        waits_for=text(entry.get("dependency")),
        array=count(entry.get("array_job_id")),
        task=None if (task := number(entry.get("array_task_id"))) is None else int(task),
        unsplit=text(entry.get("array_task_string")),
        most_tasks=count(entry.get("array_max_tasks")),
        group=count(entry.get("het_job_id")),
        requeue=bool(entry.get("requeue")),
        restarts=count(entry.get("restart_cnt")),
        exit_code=_exit_code(entry.get("exit_code")),
    )


def _comment(entry: Mapping[str, Any], name: str, inner: str) -> str:
    """Return a comment; some versions have all of a job's comments in one object."""
    value = entry.get(name)
    if value is None and isinstance(both := entry.get("comment"), dict):
        value = both.get(inner)
    return text(value.get(inner) if isinstance(value, dict) else value)


def _exit_code(value: Any) -> int | None:
    """Return an exit code, from a status of `wait` or from an object with its parts."""
    if isinstance(value, dict) and ("return_code" in value or "signal" in value):
        signal = value.get("signal")
        number_of = count((signal.get("id") or signal.get("signal_id")) if isinstance(signal, dict) else signal)
        return -number_of if number_of else count(value.get("return_code"))
    status = number(value)
    return None if status is None else os.waitstatus_to_exitcode(int(status) & 0xFF7F)


def _held_gpus(entry: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, int]:
    """Return the GPUs that a job holds on each node: `gpu:h100:2(IDX:0-1)` for each of them in order."""
    detail = words(entry.get("gres_detail")) if isinstance(entry.get("gres_detail"), list) else []
    if len(detail) != len(nodes):
        each = gpu_request(entry.get("tres_per_node"))
        return {} if each is None else dict.fromkeys(nodes, each.gpus)
    held = {}
    for node, described in zip(nodes, detail, strict=True):
        try:
            gpus = sum(read_gres(described).whole.values())
        except InputError:
            gpus = 0
        if gpus:
            held[node] = gpus
    return held


def _held_indices(entry: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return which GPUs a job holds on each node: `gpu:h100:3(IDX:0-1,5)` are 0, 1 and 5."""
    detail = entry.get("gres_detail")
    if not isinstance(detail, list) or len(detail) != len(nodes):
        return {}
    held = {}
    for node, described in zip(nodes, map(text, detail), strict=True):
        written = ",".join(_INDICES.findall(described))
        numbers = [range(int(first), int(last or first) + 1) for first, last in _RANGE.findall(written)]
        if numbers:
            held[node] = tuple(sorted({number for each in numbers for number in each}))
    return held


def _held_resources(entry: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Mapping[str, int]]:
    """Return processors and memory that a job holds on each node; divided evenly if Slurm does not say."""
    found: dict[str, Mapping[str, int]] = {}
    resources = entry.get("job_resources")
    resources = resources if isinstance(resources, dict) else {}
    inner = resources.get("nodes")
    listed = inner.get("allocation") if isinstance(inner, dict) else resources.get("allocated_nodes")
    for each in objects(listed):
        name = text(each.get("nodename")) or text(each.get("name"))
        memory = each.get("memory")
        amount = count(memory.get("allocated") if isinstance(memory, dict) else each.get("memory_allocated"))
        processors = each.get("cpus")
        cpus = count(processors.get("count")) if isinstance(processors, dict) else _cores(each.get("sockets"))
        if name:
            found[name] = {"cpus": cpus, "memory_mb": amount}
    if not found and nodes:
        each_cpus = -(-count(entry.get("cpus")) // len(nodes))
        found = {node: {"cpus": each_cpus, "memory_mb": 0} for node in nodes}
    return found


def _cores(sockets: Any) -> int:
    """Count the cores that are allocated below sockets."""
    if isinstance(sockets, dict):
        inner = sockets.get("cores")
        below = inner.values() if isinstance(inner, dict) else sockets.values()
        return sum(_cores(each) for each in below)
    return int(isinstance(sockets, str) and sockets.lower().startswith("allocated"))
