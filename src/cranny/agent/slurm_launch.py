"""`cranny-launch`: srun starts it for each task of a job; it sets the task's rank and becomes its command.

    srun cranny-launch python train.py
    srun --ntasks-per-node=1 cranny-launch torchrun train.py

The node of each rank stands in a comment of the job, where cranny has put it before the job could start:
there is no file to share between nodes, and none to be out of date after the job was put back into the queue. Each
task asks slurmctld for it, or takes it from CRANNY_RANKS, which `eval "$(cranny-launch --export)"` in the batch
script sets once for all steps. In a job that cranny has not placed, ranks are as Slurm numbers tasks.

It imports only the standard library: every rank waits for it.
"""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

from cranny.channel.placed_comment import PlacedComment, folded_ranks, ranks_of

TRIES = 6
PORTS = range(20_000, 32_000)  # below those that systems give to clients
# The last field is free text; what follows it in `scontrol show job` is not ours.
_COMMENT = re.compile(
    r" (?:Admin)?Comment=(.*?)(?= (?:SystemComment|Comment|StdErr|Power|OriginCluster)=|$)", re.MULTILINE
)
USAGE = "usage: srun cranny-launch COMMAND [ARGUMENT]..., or cranny-launch --export"


class TaskOfStep(NamedTuple):
    """Where Slurm has started this task."""

    job: str
    step: int
    node: str
    local: int  # which of the tasks on its node
    here: int  # tasks on its node
    tasks: int  # in all; of a heterogeneous job, those of this part
    number: int  # Slurm's own rank
    node_number: int
    nodes: int
    part: bool  # of a heterogeneous job
    launched_from: str  # the address of the first node

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "TaskOfStep":
        """Read what srun has set."""

        def number(name: str) -> int:
            value = env.get(name, "")
            if not value.isdigit():
                _fail(f"{name} is not set: start it with srun inside a Slurm job")
            return int(value)

        index = number("SLURM_NODEID")
        counts = tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE") or env.get("SLURM_TASKS_PER_NODE") or "1")
        return cls(
            env.get("SLURM_HET_JOB_ID") or env.get("SLURM_JOB_ID") or "",
            int(env["SLURM_STEP_ID"]) if env.get("SLURM_STEP_ID", "").isdigit() else 0,
            env.get("SLURMD_NODENAME", ""),
            number("SLURM_LOCALID"),
            counts[min(index, len(counts) - 1)],
            number("SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in env else "SLURM_NTASKS"),
            number("SLURM_PROCID"),
            index,
            len(counts),
            env.get("SLURM_HET_SIZE", "1") not in ("", "1"),
            env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"),
        )


def tasks_per_node(text: str) -> list[int]:
    """Return the counts that `2(x3),1` stands for: 2, 2, 2, 1."""
    counts: list[int] = []
    for found in re.finditer(r"([0-9]{1,6})(?:\(x([0-9]{1,6})\))?(?:,|$)", text):
        counts += [int(found[1])] * int(found[2] or 1)
    return counts or [1]


def variables(task: TaskOfStep, placed: PlacedComment | None) -> dict[str, str]:
    """Return the variables that PyTorch and others read; without a placement those of Slurm's own order."""
    nodes = () if placed is None else placed.nodes
    order = list(dict.fromkeys(nodes))  # machines by their first ranks
    if nodes and task.node not in order:
        _fail(f"node {task.node} is not one of those where job {task.job} was placed")
    mine = [rank for rank, node in enumerate(nodes) if node == task.node]
    if not nodes:
        rank, world, local_world = task.number, task.tasks, task.here
        group, groups = task.node_number, task.nodes
    elif task.here == len(mine) and (task.part or task.tasks == len(nodes)):
        rank, world, local_world = mine[task.local], len(nodes), len(mine)
        group, groups = order.index(task.node), len(order)
    elif task.here == 1 and (task.part or task.tasks == len(order)):
        group, groups = order.index(task.node), len(order)
        rank, world, local_world = group, groups, 1
    else:
        has = f"{task.here} of {task.tasks} tasks are on {task.node}"
        _fail(f"{has}, but {len(mine)} of {len(nodes)} ranks: start one task for each GPU, or one for each node")
    master = placed.master if placed is not None and placed.master else task.launched_from
    number = int(task.job) * 8 + task.step if task.job.isdigit() else task.step
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(task.local),
        "LOCAL_WORLD_SIZE": str(local_world),
        "NODE_RANK": str(group),
        "GROUP_RANK": str(group),
        "GROUP_WORLD_SIZE": str(groups),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(PORTS[number % len(PORTS)]),
    }


def torchrun_command(
    argv: Sequence[str], env: Mapping[str, str], placed: PlacedComment | None, node: str
) -> list[str]:
    """Return the command of the torchrun agent of a node: as many ranks as the job has GPUs there."""
    if env["LOCAL_WORLD_SIZE"] != "1" and env["WORLD_SIZE"] != env["GROUP_WORLD_SIZE"]:
        _fail("torchrun starts the ranks of a node itself: run it with srun --ntasks-per-node=1")
    ranks = placed.nodes.count(node) if placed is not None and placed.nodes else 0
    ranks = ranks or int(os.environ.get("SLURM_GPUS_ON_NODE", "1") or 1)
    return [
        argv[0],
        f"--nnodes={env['GROUP_WORLD_SIZE']}",
        f"--nproc-per-node={ranks}",
        f"--node-rank={env['GROUP_RANK']}",
        f"--master-addr={env['MASTER_ADDR']}",
        f"--master-port={env['MASTER_PORT']}",
        *argv[1:],
    ]


def job_name(env: Mapping[str, str]) -> str:
    """Return what Slurm calls this job; the number of the last task of an array would stand for all of it."""
    if env.get("SLURM_ARRAY_JOB_ID") and env.get("SLURM_ARRAY_TASK_ID"):
        return f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    return env.get("SLURM_HET_JOB_ID") or env.get("SLURM_JOB_ID") or ""


def placement_of(job: str, env: Mapping[str, str]) -> PlacedComment | None:
    """Return where cranny has placed a job: by the environment, or else by Slurm; None if it has not."""
    if "CRANNY_RANKS" in env:
        nodes = ranks_of(env["CRANNY_RANKS"])
        return PlacedComment(env.get("CRANNY_JOB_ID", ""), "", env.get("CRANNY_MASTER", ""), nodes)
    described = _described(job, int(env.get("SLURM_PROCID", "0") or 0))
    comments = (PlacedComment.read(found[1]) for found in _COMMENT.finditer(described))
    return next((placed for placed in comments if placed is not None and placed.nodes), None)


def _described(job: str, number: int) -> str:
    """Return what `scontrol show job` says; tasks that are refused ask again at different times."""
    import subprocess

    said = "it does not answer"
    for again in range(TRIES):
        try:
            argv = ("scontrol", "-o", "show", "job", job)
            ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
        except FileNotFoundError:
            _fail("scontrol was not found on this node")
        except subprocess.TimeoutExpired:
            continue
        if ran.returncode == 0:
            return ran.stdout
        said = ran.stderr.strip().splitlines()[-1] if ran.stderr.strip() else f"exit code {ran.returncode}"
        time.sleep(0.2 * 2**again * (1 + number % 7 / 7))
    return _fail(f"Slurm does not say where job {job} was placed: {said}")


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Set the rank of this task, and become its command."""
    words = list(sys.argv[1:] if argv is None else argv)
    env = dict(os.environ)
    if words[:1] == ["--"]:
        words = words[1:]
    if words == ["--export"]:
        from shlex import quote

        placed = placement_of(job_name(env), env)
        if placed is not None:
            lines = {"RANKS": folded_ranks(placed.nodes), "MASTER": placed.master, "JOB_ID": placed.job}
            sys.stdout.write("".join(f"export CRANNY_{name}={quote(value)}\n" for name, value in lines.items()))
        sys.exit(0)
    if not words or words[0].startswith("-"):
        _fail(USAGE)
    task = TaskOfStep.of(env)
    placed = placement_of(job_name(env), env)
    found = variables(task, placed)
    for name in ("MASTER_ADDR", "MASTER_PORT"):  # a user who sets them knows better
        found[name] = env.get(name) or found[name]
    if placed is not None and placed.job:
        found["CRANNY_JOB_ID"] = placed.job
    if os.path.basename(words[0]) == "torchrun":  # noqa: PTH119 - pathlib is slow to import
        words = torchrun_command(words, found, placed, task.node)
    try:
        os.execvpe(words[0], words, {**env, **found})  # noqa: S606 - what the job asked for
    except OSError as error:
        _fail(f"cannot start {words[0]}: {error.strerror}")


def _fail(text: str) -> NoReturn:
    sys.exit(f"cranny-launch: {text}")
