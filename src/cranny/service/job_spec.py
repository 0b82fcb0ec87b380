"""What a user writes about a job: the fields of a job file, checked."""

import re
from collections.abc import Sequence
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
from cranny.model.validate import MAX_GPUS, counted
from cranny.model.yaml_file import MAX_NAME, Document, Fields, Name, Positive, Step, checked, dotted, shown

MAX_ARGUMENTS = 1_000
MAX_ARGUMENT = 32_768  # characters of an argument or of a value in the environment
MAX_VARIABLES = 200
MAX_EXCLUDED = 10_000
MAX_RETRIES = 100
MAX_PROCESSES = 4_194_304  # that Linux can have at all
MAX_SECONDS = 10 * 365 * 86_400.0
MAX_PRIORITY = 1_000
MAX_TYPES = 100  # of GPUs
MAX_BATCH = 10**9  # samples of a rank
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
            least_gpus=self.least_gpus,
            most_gpus=self.most_gpus,
            speeds=self.speeds,
            restart_s=self.restart_s or (RESTART_S if self.may_stop else 0.0),
            priority=self.priority,
            deadline_s=None if self.deadline_s is None else submit_s + self.deadline_s,
        )

    def constraints_on(self, cluster: Cluster) -> Constraints | None:
        """Return the constraints of the job on a cluster; None if it has none."""
        constraints = self.constraints
        if not constraints.exclude and constraints.same_rack is None and constraints.spread is None:
            return None
        self._check_spread(cluster)
        index = {machine.name: number for number, machine in enumerate(cluster.machines)}
        for number, name in enumerate(constraints.exclude):
            if name not in index:
                raise InputError(f"constraints.exclude[{number}]: {unknown('machine', name, index)}")
        excluded = mask_of(index[name] for name in constraints.exclude)
        return Constraints(excluded, constraints.same_rack, constraints.spread or 1)

    def _check_spread(self, cluster: Cluster) -> None:
        """Refuse a job that is to be spread over more racks than it has GPUs, or the cluster has racks."""
        racks, spread = len(cluster.rack_nodes), self.constraints.spread or 1
        if spread > self.gpus:
            raise InputError(f"constraints.spread: {spread} racks, but the job has {counted(self.gpus, 'GPU')}")
        if spread > racks:
            raise InputError(f"constraints.spread: {spread} racks, but the cluster has {counted(racks, 'rack')}")


_WORDS = {
    "command": "a list of arguments",
    "gpus": f"a whole number from 1 to {MAX_GPUS}",
    **dict.fromkeys(("tp", "pp", "least_gpus", "most_gpus"), "a whole number from 1 up"),
    **dict.fromkeys(("name", "queue", "gpu_type", "user"), f"printable text of 1 to {MAX_NAME} characters"),
    "model": "the name of a model",
    "batch": f"a whole number from 1 to {MAX_BATCH}",
    "gradient_buckets": "a list of pairs, ms and bytes",
    "gradient_buckets[]": "a pair of ms and bytes",
    "collective": "the name of a collective",
    "priority": f"a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}",
    **dict.fromkeys(("memory_gb", "cpus"), "a positive number"),
    "processes": f"a whole number from 1 to {MAX_PROCESSES}",
    "max_retries": f"a whole number from 0 to {MAX_RETRIES}",
    **dict.fromkeys(("shell", "torchrun", "movable"), "true or false"),
    "checkpoint": "`none`, or a mapping with signal and grace_s",
    "signal": "SIGTERM, SIGUSR1 or SIGUSR2",
    "speeds": "a mapping of GPU types to numbers",
    "speeds[]": "a positive number",
    "same_rack": "`required` or `preferred`",
    "spread": "a whole number of racks from 2 up",
    "exclude": "a list of machine names",
    **dict.fromkeys(("env", "secrets"), "a mapping of names to text"),
    "cwd": "an absolute path",
    **dict.fromkeys(("constraints", "profile"), "a mapping of fields"),
    "order": "the name of a queue order",
    "exclude[]": "the name of a machine",
    "machines[]": "the name of a machine, or its index",
    "options[]": "true or false, a number, or text",
}
# What pydantic calls the kinds of values, for fields that have no words of their own.
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "a mapping of fields",
    "model": "a mapping of fields",
}
_FREE = frozenset(
    {"env", "secrets", "options", "speeds"}
)  # below these, names are the user's, whatever fields are called
_BOUNDS = {
    "greater_than": ("gt", "more than {}{}"),
    "greater_than_equal": ("ge", "{}{} or more"),
    "less_than": ("lt", "less than {}{}"),
    "less_than_equal": ("le", "at most {}{}"),
}


def field_errors(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Say what is wrong with each field, with the way to it."""
    found = []
    for each in errors:
        steps = _way(each["loc"])
        if each["type"] == "missing":
            problem = "is missing"
        elif each["type"] == "extra_forbidden":
            problem = "is not a known field"
        elif each["type"] == "value_error" and str(each["ctx"]["error"]):
            problem = str(each["ctx"]["error"])
        elif each["type"] in {"too_long", "string_too_long"}:
            parts = "entries" if each["type"] == "too_long" else "characters"
            problem = f"is longer than {each['ctx']['max_length']} {parts}"
        else:
            value = each["input"]
            written = str(value).lower() if isinstance(value, bool) else shown(value)  # as in a job file
            problem = f"must be {_wanted(steps, each)}, not {written}"
            if each["type"] == "string_type" and isinstance(value, bool | int | float):
                problem += ": put it in quotes"
        found.append({"field": dotted(steps), "problem": problem})
    return found


def _way(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Leave out of the way to a field how pydantic calls the forms it may have, and where it came from."""
    if steps[:1] == ("body",):
        steps = steps[1:]
    if steps[:1] in {("command",), ("machines",)}:
        return (*steps[:1], *(step for step in steps[1:] if isinstance(step, int)))
    if steps[:1] == ("checkpoint",):
        return (*steps[:1], *steps[2:])
    most = {"options": 2, "status": 1}
    return steps[: most.get(str(steps[0]))] if steps else steps


def _wanted(steps: tuple[Step, ...], error: Any) -> str:
    """Say in words what a value must be: as we say it of its field, or else as the error has it."""
    words = _WORDS.get(str(steps[-1])) if steps else "a mapping of fields"
    if len(steps) > 1 and (isinstance(steps[-1], int) or steps[0] in _FREE):
        within = next((step for step in reversed(steps[:-1]) if isinstance(step, str)), "")
        words = _WORDS.get(f"{within}[]", "text")
    if words is not None:
        return words
    kind, context = error["type"], error.get("ctx", {})
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    seconds = " seconds" if steps and str(steps[-1]).endswith("_s") else ""
    if kind in _BOUNDS:
        name, bound = _BOUNDS[kind]
        if kind != "greater_than" or context[name] != 0:
            least_or_most = context[name]
            plain = f"{least_or_most:.12g}" if isinstance(least_or_most, float) else least_or_most
            return bound.format(plain, seconds)
        number = "a positive number"
    else:
        number = _KINDS.get(kind.partition("_")[0], "text")
    return f"{number} of{seconds}" if seconds and "number" in number else number


def parse(value: Any) -> JobSpec:
    """Read the plain values of a job file, or raise with one line that names the first wrong field."""
    try:
        return JobSpec.model_validate(value)
    except ValidationError as error:
        first = field_errors(error.errors(include_url=False))[0]
        raise InputError(": ".join(part for part in first.values() if part)) from None


def read(path: Path) -> dict[str, Any]:
    """Read a job file; bad ones get one line with file, line and field."""
    document = Document(path, frozenset({"command", "name", "queue", "cwd", "exclude"}))
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
            checked(document, JobSpec, below, _WORDS)  # raises, with a hint at the field that was meant
        raise document.error(_way(found[0]["loc"]), field_errors(found)[0]["problem"]) from None
    return dict(document.value)
