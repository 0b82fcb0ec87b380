"""Submits jobs that were given to cranny and not to Slurm; they are placed before that, with any counts.

Nodes with the same number of ranks form one part of a heterogeneous job; a job with one number is a plain one. The
script starts the ranks through `cranny-launch`, which numbers them by the placement.
"""

import math
import os
import pwd
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from cranny.backends.protocol import BackendError, Launch
from cranny.backends.slurm.slurm_rights import account_name
from cranny.channel.placed_comment import PlacedComment, folded_ranks
from cranny.model.hostlist import fold

WRAPPER = ("cranny-launch",)  # on the PATH of jobs


def parts_of(nodes: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Return the nodes with each number of ranks, the part with the first rank first."""
    counts = Counter(nodes)
    parts: dict[int, list[str]] = {}
    for node, ranks in counts.items():
        parts.setdefault(ranks, []).append(node)
    return list(parts.items())


def batch_script(what: Launch, comment: PlacedComment, wrapper: Sequence[str] = WRAPPER) -> str:
    """Return the script of a job: one step with a task for each rank, or for each node under torchrun."""
    parts = parts_of(what.machines)
    values = {
        "CRANNY_RANKS": folded_ranks(what.machines),
        "CRANNY_MASTER": comment.master,
        "CRANNY_JOB_ID": what.job_id,
    }
    lines = ["#!/bin/sh", *(f"export {name}={shlex.quote(value)}" for name, value in values.items())]
    step = ["srun", "--kill-on-bad-exit=1", "--unbuffered", f"--output={what.log_dir}/rank-%t.log"]
    if len(parts) > 1:
        step.append(f"--het-group=0-{len(parts) - 1}")
    if what.torchrun:
        step.append("--ntasks-per-node=1")
    argv = ("torchrun", *what.argv) if what.torchrun else what.argv
    return "\n".join([*lines, f"exec {shlex.join([*step, *wrapper, *argv])}", ""])


def submission(what: Launch, comment: PlacedComment, script: Path) -> list[str]:
    """Return the command that submits a job to the nodes of its ranks, in parts of the same count."""
    command = ["sbatch", "--parsable"]
    for index, (ranks, nodes) in enumerate(parts_of(what.machines)):
        command += [":"] if index else []
        command += _common(what, comment)
        tasks = [f"--ntasks={len(nodes) * ranks}", f"--ntasks-per-node={ranks}"]
        command += [
            f"--nodes={len(nodes)}",
            *tasks,
            f"--gpus-per-node={ranks}",
            f"--nodelist={fold(sorted(nodes))}",
        ]
        if what.limits.cpus is not None:
            command.append(f"--cpus-per-task={max(1, math.ceil(what.limits.cpus / len(what.machines)))}")
    return [*command, str(script)]


def _common(what: Launch, comment: PlacedComment) -> list[str]:
    """Return the options that all parts of a job have."""
    options = [
        f"--job-name={what.job_id}",
        f"--comment={comment.write()}",
        f"--output={what.log_dir}/batch.log",
        f"--chdir={what.cwd or '/'}",
        "--no-requeue",  # attempts are counted by the service
    ]
    if what.time_limit_s is not None:
        options.append(f"--time={math.ceil(what.time_limit_s / 60)}")
    return [*options, *account_options(what.user)]


def account_options(user: str) -> list[str]:
    """Return the option by which a job runs as its user; only root may submit for others."""
    own = account_name()
    if user in ("", own):
        return []
    if os.getuid() != 0:
        text = f"the service runs as {own} and cannot submit jobs of {user}: submit them with sbatch"
        raise BackendError(f"{text}, or run the service as root")
    try:
        pwd.getpwnam(user)
    except KeyError:
        raise BackendError(f"{user} has no account on this machine") from None
    return [f"--uid={user}"]


def environment(what: Launch) -> Mapping[str, str]:
    """Return the variables of a job; sbatch hands them over."""
    return {name: value for name, value in what.env.items() if not name.startswith(("SLURM_", "SBATCH_"))}
