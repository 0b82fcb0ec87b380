"""The shape of a Slurm job: how many GPUs on how many nodes, and the options that set it.

A job of Slurm has the same count on each of its nodes, and cranny sets that count before it releases the job.
Other counts need a heterogeneous job, which cannot be made of a job that is there already.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_jobs import SlurmJob
from cranny.model.hostlist import fold


class JobShape(NamedTuple):
    """What a job asks for."""

    gpus: int  # in all
    per_node: int  # on each of its nodes
    gpu_type: str
    fixed: bool  # the user says how many nodes; otherwise cranny sets it


def shape_of(job: SlurmJob, most_per_node: int) -> JobShape:
    """Return the shape of a job; `BackendError` says why it cannot be placed.

    A job that leaves the number of nodes to Slurm gets as few as its GPUs fill evenly.
    """
    if job.other_gpus:
        raise BackendError("asks for GPUs per socket, which cranny does not place")
    nodes = job.most_nodes or (job.least_nodes if job.least_nodes > 1 else 0)  # 0: as many as needed
    if (each := job.gpus_per_node) is not None:
        count = max(job.least_nodes, 1)
        if (task := job.gpus_per_task) is not None and task.gpus * job.tasks != each.gpus * count:
            raise BackendError("asks for GPUs per node and per task that do not agree")
        return JobShape(each.gpus * count, each.gpus, each.type, fixed=True)
    if (each := job.gpus_per_task) is not None:
        tasks = max(job.tasks, 1)
        if job.tasks_per_node:
            return JobShape(each.gpus * tasks, each.gpus * min(tasks, job.tasks_per_node), each.type, fixed=True)
        units, unit, kind = tasks, each.gpus, each.type
    elif (each := job.gpus_per_job) is not None:
        units, unit, kind = each.gpus, 1, each.type
    else:
        raise BackendError("asks for no GPUs")
    if nodes and units % nodes == 0:
        return JobShape(units * unit, units // nodes * unit, kind, fixed=True)
    if nodes:
        raise BackendError(f"asks for {units * unit} GPUs on {nodes} nodes, which cannot be divided evenly")
    fits = [count for count in range(1, units + 1) if units % count == 0 and count * unit <= most_per_node]
    if not fits:
        raise BackendError(f"asks for {unit} GPUs per task, and no node has more than {most_per_node}")
    return JobShape(units * unit, max(fits) * unit, kind, fixed=False)


def per_worker(job: SlurmJob, shape: JobShape) -> dict[str, int]:
    """Return the processors and the memory that each GPU of a job comes with, rounded up."""
    cpus = -(-max(job.cpus, 1) // shape.gpus)
    if job.memory_per_gpu:
        memory = job.memory_per_gpu
    elif job.memory_per_node:
        memory = -(-job.memory_per_node // shape.per_node)
    else:
        memory = -(-job.memory_per_cpu * max(job.cpus, 1) // shape.gpus)
    found = {"cpus": cpus}
    return {**found, "memory_mb": memory} if memory else found


def placed_options(job: SlurmJob, nodes: Sequence[str]) -> list[str]:
    """Return what `scontrol update` sets so that a job runs on the nodes of its ranks, and nowhere else."""
    counts = Counter(nodes)
    if len(set(counts.values())) > 1:
        uneven = ", ".join(f"{count} on {node}" for node, count in counts.items())
        raise BackendError(f"a job of Slurm has the same number of GPUs on each node, not {uneven}")
    count, each = len(counts), next(iter(counts.values()))
    options = [f"ReqNodeList={fold(sorted(counts))}", f"NumNodes={count}-{count}"]
    if job.gpus_per_node is not None:
        return options
    if job.gpus_per_task is not None:
        tasks = max(job.tasks, 1)
        return (
            [*options, f"NumTasks={tasks}", f"TasksPerNode={tasks // count}"]
            if not job.tasks_per_node
            else options
        )
    kind = "" if (asked := job.gpus_per_job) is None or not asked.type else f"{asked.type}:"
    options.append(f"TresPerNode={job.gres}gpu:{kind}{each}")
    if job.tasks > 1 and job.tasks % count == 0 and not job.tasks_per_node:
        options += [f"NumTasks={job.tasks}", f"TasksPerNode={job.tasks // count}"]
    return options
