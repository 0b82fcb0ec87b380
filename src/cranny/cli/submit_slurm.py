"""`cranny submit --backend slurm`: a job file becomes a job of Slurm, of the user who submits it.

It waits there for cranny, as jobs of sbatch do, under the user's own account, limits and priority.
"""

import math
import os
import shlex
from pathlib import Path

from cranny.model.errors import InputError
from cranny.service.job_spec import JobSpec

FAR = "now+3650days"  # a begin that does not come: the job waits for cranny
TAKEN = frozenset(  # fields that mean the same in Slurm; policies hear of the models from the comment
    {
        *(
            "command",
            "shell",
            "gpus",
            "name",
            "model",
            "collective",
            "tp",
            "pp",
            "time_limit_s",
            "memory_gb",
            "cpus",
        ),
        *("resources", "env", "secrets", "cwd", "torchrun", "constraints", "checkpoint"),
    }
)
CONSTRAINTS = frozenset({"exclude", "gpu_type", "features", "partition", "reservation", "per_machine"})
RESOURCES = frozenset({"cpus", "memory_mb"})


def submission(spec: JobSpec, script: Path) -> list[str]:
    """Return the command that submits a job; a field that Slurm has no word for is refused."""
    strange = [*(spec.model_fields_set - TAKEN), *(set(spec.resources) - RESOURCES)]
    strange += [f"constraints.{name}" for name in spec.constraints.model_fields_set - CONSTRAINTS]
    if strange:
        raise InputError(f"{min(strange)}: jobs of Slurm have no such field; see docs/use/slurm.md")
    hints = [f"model={spec.model}"] if spec.model else []
    hints += [f"collective={spec.collective}"] if "collective" in spec.model_fields_set else []
    hints += [f"{name}={count}" for name, count in (("tp", spec.tp), ("pp", spec.pp)) if count > 1]
    argv = ["sbatch", "--parsable", f"--begin={FAR}", f"--comment={' '.join(['cranny', *hints])}"]
    return [*argv, *_options(spec), str(script)]


def _options(spec: JobSpec) -> list[str]:
    wanted, each = spec.constraints, spec.constraints.per_machine
    kind = "" if wanted.gpu_type is None else f"{wanted.gpu_type}:"
    if each is None:
        options = [f"--ntasks={spec.gpus}", f"--gpus-per-task={kind}1"]
    else:
        options = [f"--nodes={spec.gpus // each}", f"--ntasks-per-node={each}", f"--gpus-per-node={kind}{each}"]
    cpus = spec.resources.get("cpus") or (spec.cpus and math.ceil(spec.cpus / spec.gpus))
    memory_mb = spec.resources.get("memory_mb") or (spec.memory_gb and math.ceil(spec.memory_gb * 1e3 / spec.gpus))
    named = {
        "job-name": spec.name,
        "time": None if spec.time_limit_s is None else math.ceil(spec.time_limit_s / 60),
        "chdir": spec.cwd,
        "cpus-per-task": cpus,
        "mem-per-gpu": memory_mb and f"{memory_mb}M",
        "partition": wanted.partition,
        "reservation": wanted.reservation,
        "exclude": ",".join(wanted.exclude),
        "constraint": "&".join(wanted.features),
    }
    return [*options, *(f"--{name}={value}" for name, value in named.items() if value)]


def batch_script(spec: JobSpec, launcher: str = "cranny-launch") -> str:
    """Return the script of a job: one step, whose tasks are numbered as cranny has placed them."""
    tasks = ["--ntasks-per-node=1"] if spec.by_torchrun else []
    argv = ("torchrun", *spec.argv) if spec.by_torchrun else spec.argv
    return f"#!/bin/sh\nexec {shlex.join(['srun', '--kill-on-bad-exit=1', *tasks, launcher, *argv])}\n"


def submit_to_slurm(spec: JobSpec) -> str:
    """Submit a job, and return Slurm's id of it."""
    import tempfile

    from cranny.backends.slurm.slurm_commands import SlurmCommands

    with tempfile.TemporaryDirectory(prefix="cranny-") as folder:
        script = Path(folder) / "job.sh"
        script.write_text(batch_script(spec), encoding="utf-8")
        given = {**os.environ, **spec.variables}  # sbatch hands them over
        try:
            printed = SlurmCommands().call(*submission(spec, script), env=given)
        except OSError as error:
            raise InputError(f"nothing was submitted: {error}") from None
    return printed.strip().partition(";")[0]
