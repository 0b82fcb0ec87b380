"""What a user writes about a job: the fields of a job file, checked."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from cranny.backends.resource_limits import ResourceLimits
from cranny.core.constraints import Constraints
from cranny.model.cluster import Cluster, mask_of
from cranny.model.collective import DEFAULT_COLLECTIVE
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S, Job
from cranny.model.profile import ModelProfile, library
from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, MAX_RESOURCE
from cranny.model.validate import MAX_GPUS, counted
from cranny.model.yaml_file import Document, Fields, Name, Positive, checked, shown
from cranny.service.job_spec_errors import (
    MAX_BATCH,
    MAX_PRIORITY,
    MAX_PROCESSES,
    MAX_RETRIES,
    WORDS,
    field_errors,
    way_to,
)

MAX_ARGUMENTS = 1_000
MAX_ARGUMENT = 32_768  # characters of an argument or of a value in the environment
MAX_VARIABLES = 200
MAX_EXCLUDED = 10_000
MAX_FEATURES = 100
MAX_SECONDS = 10 * 365 * 86_400.0
MAX_TYPES = 100  # of GPUs
MAX_BUCKETS, MAX_BUCKET_BYTES = 1_000, 10**15  # of gradients
GRACE_S = 60.0  # that a job has to save in, if it does not say
SHELL = "/bin/sh"
TORCHRUN = "torchrun"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold the character NUL")
    return text


Text = Annotated[str, Field(max_length=MAX_ARGUMENT), AfterValidator(_no_nul)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Gpus = Annotated[int, Field(ge=1, le=MAX_GPUS)]
# ms after the start of an iteration, and bytes of gradients that are ready then
Bucket = Annotated[
    tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], Annotated[int, Field(ge=1, le=MAX_BUCKET_BYTES)]],
    Field(strict=False),  # files have lists, no tuples
]
Speeds = Annotated[dict[Name, Positive], Field(min_length=1, max_length=MAX_TYPES)]
Resources = Annotated[dict[Name, Annotated[int, Field(ge=1, le=MAX_RESOURCE)]], Field(max_length=MAX_FEATURES)]
Variables = Annotated[dict[str, Text], Field(max_length=MAX_VARIABLES)]


class ProfileFields(Fields):
    """What one iteration of a model costs, for a model that is not in the library; `cranny profile` prints it."""

    name: Name = "own"
    grad_bytes: Positive
    iteration_ms: Positive
    batch: Annotated[int, Field(ge=1, le=MAX_BATCH)] = 1
    gradient_buckets: Annotated[list[Bucket], Field(max_length=MAX_BUCKETS)] = Field(default_factory=list)

    def model(self) -> ModelProfile:
        """Return the profile."""
        return ModelProfile(
            name=self.name,
            grad_bytes=self.grad_bytes,
            iteration_ms=self.iteration_ms,
            batch=self.batch,
            gradient_buckets=tuple(self.gradient_buckets),
        )


class ConstraintFields(Fields):
    """Constraints on where the job runs."""

    same_rack: Literal["required", "preferred"] | None = None
    spread: Annotated[int, Field(ge=2, le=MAX_GPUS)] | None = None
    exclude: Annotated[list[Name], Field(max_length=MAX_EXCLUDED)] = Field(default_factory=list)
    gpu_type: Name | None = None
    features: Annotated[list[Name], Field(max_length=MAX_FEATURES)] = Field(default_factory=list)
    partition: Name | None = None
    reservation: Name | None = None
    per_machine: Annotated[int, Field(ge=1, le=MAX_GPUS_PER_MACHINE)] | None = None

    @field_validator("per_machine")
    @classmethod
    def _not_spread(cls, per_machine: int | None, info: ValidationInfo) -> int | None:
        if per_machine is not None and info.data.get("spread") is not None:
            raise ValueError("a job cannot be spread over racks and have per_machine: give one of them")
        return per_machine

    @field_validator("spread")
    @classmethod
    def _not_in_one_rack(cls, spread: int | None, info: ValidationInfo) -> int | None:
        if spread is not None and info.data.get("same_rack") is not None:
            raise ValueError("a job cannot be spread over racks and have same_rack: give one of them")
        return spread


class CheckpointFields(Fields):
    """How a job saves when it is asked to: by a signal if it names one, or else through the channel."""

    signal: Literal["SIGTERM", "SIGUSR1", "SIGUSR2"] | None = None
    grace_s: Seconds = GRACE_S


class JobSpec(Fields):
    """A job file: what to run, on how many GPUs, and how it trains."""

    command: Annotated[list[Text], Field(min_length=1, max_length=MAX_ARGUMENTS)] | Text
    shell: bool = False
    gpus: Gpus
    name: Name | None = None
    model: Name | None = None
    profile: ProfileFields | None = None
    collective: Name = DEFAULT_COLLECTIVE
    tp: Gpus = 1
    pp: Gpus = 1
    least_gpus: Gpus | None = None
    most_gpus: Gpus | None = None
    duration_s: Seconds | None = None
    deadline_s: Seconds | None = None
    time_limit_s: Seconds | None = None
    memory_gb: Positive | None = None
    processes: Annotated[int, Field(ge=1, le=MAX_PROCESSES)] | None = None
    resources: Resources = Field(default_factory=dict)
    cpus: Positive | None = None
    max_retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = 0
    movable: bool = False
    checkpoint: CheckpointFields | Literal["none"] | None = None
    restart_s: Seconds | None = None
    speeds: Speeds | None = None
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    queue: Name | None = None
    env: Variables = Field(default_factory=dict)
    secrets: Variables = Field(default_factory=dict)
    cwd: Text | None = None
    torchrun: bool = False
    constraints: ConstraintFields = Field(default_factory=ConstraintFields)

    @model_validator(mode="before")
    @classmethod
    def _current_names(cls, value: Any) -> Any:
        """Accept `wishes`, the name of `constraints` before 0.2, in stored events and older job files."""
        if isinstance(value, dict) and "wishes" in value and "constraints" not in value:
            return {"constraints" if name == "wishes" else name: field for name, field in value.items()}
        return value

    @field_validator("env", "secrets")
    @classmethod
    def _known_names(cls, variables: dict[str, str]) -> dict[str, str]:
        for name in variables:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{shown(name)} is no name of a variable")
        return variables

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, cwd: str | None) -> str | None:
        if cwd is not None and not Path(cwd).is_absolute():
            raise ValueError("must be an absolute path")
        return cwd

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if isinstance(self.command, str) != self.shell:
            raise ValueError(
                "command must be a list of arguments; one line of text needs `shell: true`"
                if isinstance(self.command, str)
                else "command must be one line of text, since `shell` is true"
            )
        if not self.command or (isinstance(self.command, list) and not self.command[0]):
            raise ValueError("command is empty")
        each = self.constraints.per_machine
        if each is not None and (self.gpus % each or self.least_gpus or self.most_gpus):
            why = "a job with least_gpus or most_gpus may have others" if not self.gpus % each else "it is no part"
            raise ValueError(f"constraints.per_machine: {each} of {counted(self.gpus, 'GPU')}: {why}")
        if self.model is not None and self.profile is not None:
            raise ValueError("give `model` or `profile`, not both")
        going_on = {"movable": self.movable, "restart_s": self.restart_s, "most_gpus": self.most_gpus}
        for name, given in going_on.items() if self.never_stopped else ():
            if given:
                raise ValueError(
                    f"{name} is for a job that can go on after it was stopped, not for `checkpoint: none`"
                )
        return self

    @property
    def never_stopped(self) -> bool:
        """Whether no policy may stop, move or resize it: it has no checkpoints."""
        return self.checkpoint == "none"

    @property
    def may_stop(self) -> bool:
        """Whether it says that it can be stopped, and go on later, elsewhere or with other workers."""
        return self.movable or isinstance(self.checkpoint, CheckpointFields)

    @property
    def is_resizable(self) -> bool:
        """Whether it may run with fewer or more GPUs than it asks for."""
        return self.least_gpus is not None or self.most_gpus is not None

    @property
    def argv(self) -> tuple[str, ...]:
        """The arguments that every rank is started with."""
        if isinstance(self.command, str):
            return (SHELL, "-c", self.command)
        return tuple(self.command[1:] if self.command[0] == TORCHRUN else self.command)

    @property
    def by_torchrun(self) -> bool:
        """Whether ranks are started by torchrun: the user says so, or has written it before the script."""
        return self.torchrun or self.command[0] == TORCHRUN

    @property
    def variables(self) -> dict[str, str]:
        """The environment that the user wants, secrets included."""
        return {**self.env, **self.secrets}

    def check_torchrun(self) -> None:
        """Refuse a torchrun with options of its own: each machine would start far too many ranks."""
        first, *rest = self.command if isinstance(self.command, list) else (SHELL,)
        if Path(first).name == TORCHRUN and (first != TORCHRUN or not rest or rest[0].startswith("-")):
            raise InputError(
                "command: write `torchrun` and then the script; its options follow from gpus and the placement"
            )

    @property
    def limits(self) -> ResourceLimits:
        """What all processes of the job may use together."""
        memory = None if self.memory_gb is None else int(self.memory_gb * 1e9)
        return ResourceLimits(memory, self.processes, self.cpus)

    def job(self, job_id: str, user: str, submit_s: float) -> Job:
        """Return the job as policies see it."""
        model: str | ModelProfile = self.model or "resnet50"
        if self.profile is not None:
            model = self.profile.model()
        elif model not in library():
            raise InputError(f"model: {unknown('model', str(model), library())}")
        return Job(
            id=job_id,
            gpus=self.gpus,
            model=model,
            collective=self.collective,
            submit_s=submit_s,
            duration_s=self.duration_s,
            tp=self.tp,
            pp=self.pp,
            tenant=self.queue or user,
            gpu_type=self.constraints.gpu_type,
            partition=self.constraints.partition,
            resources=self.resources or None,
            least_gpus=self.least_gpus,
            most_gpus=self.most_gpus,
            speeds=self.speeds,
            restart_s=self.restart_s or (RESTART_S if self.may_stop else 0.0),
            priority=self.priority,
            deadline_s=None if self.deadline_s is None else submit_s + self.deadline_s,
        )

    @property
    def constrained(self) -> bool:
        """Whether the job may not run just anywhere, partitions and types of GPU aside."""
        wanted = self.constraints
        forbids = wanted.exclude or wanted.same_rack or wanted.spread or wanted.features or wanted.per_machine
        return bool(forbids or wanted.reservation or self.resources)

    def constraints_on(self, cluster: Cluster) -> Constraints | None:
        """Return the constraints of the job on a cluster; None if it has none.

        Machines that it names and that are not there are not excluded.
        """
        if not self.constrained:
            return None
        wanted, lacking, features = self.constraints, set(self.constraints.exclude), set(self.constraints.features)
        excluded = mask_of(
            number
            for number, machine in enumerate(cluster.machines)
            if machine.name in lacking or not features <= machine.features
        )
        return Constraints(excluded, wanted.same_rack, wanted.spread or 1, wanted.per_machine)

    def check_constraints(self, cluster: Cluster) -> None:
        """Refuse constraints that name what the cluster does not have."""
        wanted = self.constraints
        self._check_spread(cluster)
        index = {machine.name for machine in cluster.machines} if wanted.exclude else ()
        for number, name in enumerate(wanted.exclude):
            if name not in index:
                raise InputError(f"constraints.exclude[{number}]: {unknown('machine', name, index)}")
        features = set(wanted.features)
        if features and not any(features <= machine.features for machine in cluster.machines):
            known = sorted({feature for machine in cluster.machines for feature in machine.features})
            has = f"; there are {', '.join(known)}" if known else ""
            raise InputError(f"constraints.features: no machine has {' and '.join(sorted(features))}{has}")
        if wanted.partition is not None and wanted.partition not in cluster.partitions:
            raise InputError(
                f"constraints.partition: {unknown('partition', wanted.partition, cluster.partitions)}"
            )
        for name in self.resources:
            if not any(machine.resources.get(name) for machine in cluster.machines):
                raise InputError(f"resources.{name}: no machine of the cluster has any")

    def _check_spread(self, cluster: Cluster) -> None:
        """Refuse a job that is to be spread over more racks than it has GPUs, or the cluster has racks."""
        racks, spread = len(cluster.rack_nodes), self.constraints.spread or 1
        if spread > self.gpus:
            raise InputError(f"constraints.spread: {spread} racks, but the job has {counted(self.gpus, 'GPU')}")
        if spread > racks:
            raise InputError(f"constraints.spread: {spread} racks, but the cluster has {counted(racks, 'rack')}")


def parse(value: Any) -> JobSpec:
    """Read the plain values of a job file, or raise with one line that names the first wrong field."""
    try:
        return JobSpec.model_validate(value)
    except ValidationError as error:
        first = field_errors(error.errors(include_url=False))[0]
        raise InputError(": ".join(part for part in first.values() if part)) from None


def read(path: Path) -> dict[str, Any]:
    """Read a job file; bad ones get one line with file, line and field."""
    document = Document(
        path, frozenset({"command", "name", "queue", "cwd", "exclude", "features", "partition", "reservation"})
    )
    if not isinstance(document.value, dict):
        raise document.error((), "must be a mapping of fields")
    below: dict[str, type[Fields]] = {"constraints": ConstraintFields, "profile": ProfileFields}
    try:
        JobSpec.model_validate(document.value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        for each in found:
            if each["loc"][0] == "checkpoint" and each["type"] == "extra_forbidden":
                what = unknown("field", str(each["loc"][-1]), CheckpointFields.model_fields)
                raise document.error(("checkpoint",), str(what)) from None
        if {each["type"] for each in found} & {"missing", "extra_forbidden"}:
            checked(document, JobSpec, below, WORDS)  # raises, with a hint at the field that was meant
        raise document.error(way_to(found[0]["loc"]), field_errors(found)[0]["problem"]) from None
    return dict(document.value)
