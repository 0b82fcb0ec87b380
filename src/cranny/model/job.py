"""A training job: how many GPUs it needs and how its workers communicate."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from cranny.model.collective import COLLECTIVES, DEFAULT_COLLECTIVE, PLACED
from cranny.model.errors import InputError, unknown
from cranny.model.profile import ModelProfile, library
from cranny.model.topology_spec import checked_resources
from cranny.model.validate import MAX_GPUS, between, positive, seconds, whole

__all__ = ["MAX_GPUS", "Job", "seconds", "whole"]  # code that makes jobs checks numbers in the same way

RESTART_S = 60.0  # that a job loses when it goes on elsewhere, if it does but does not say how much
MAX_PRIORITY = 2**53  # beyond it numbers are no longer exact
# Stands for the profile of a job that only names its model.
_BY_NAME = ModelProfile(name="", grad_bytes=1.0, iteration_ms=1.0)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of `gpus` workers, one GPU each, that starts with all of them or not at all.

    With `least_gpus` or `most_gpus` it may also run with fewer or more workers, which share the same work: each
    iteration then computes longer or shorter in proportion. `speeds` says how fast types of GPU train it, in those
    of the type that `duration_s` was measured on, which is 1. A job that goes on elsewhere loses `restart_s`.

    A job of a `partition` runs on machines of it only (`Cluster.partitions`). Queue orders that go by `priority`
    start higher ones first, and policies that share GPUs by weight let them count more. It should be over by
    `deadline_s`, a time like `submit_s`; policies that know no deadlines ignore it. With `limit_s` policies know
    this in place of the duration, as a scheduler knows only what its users ask for; a replay runs the job for its
    duration all the same.

    Each worker needs `resources` beside its GPU, countable ones of its machine such as "cpus" and "memory_mb".

    `duration_s` is the running time when all workers share one machine; the placement's communication comes
    on top. `model` is a name of the library, or a `ModelProfile`, whose name it then becomes. Ranks are
    numbered with tensor parallelism fastest, then data, then pipeline:
    rank = (stage * dp + replica) * tp + shard.
    """

    id: str
    gpus: int
    model: str | ModelProfile = "resnet50"
    collective: str = DEFAULT_COLLECTIVE
    submit_s: float = 0.0
    duration_s: float | None = None
    tp: int = 1
    pp: int = 1
    batch: int | None = None
    tenant: str = ""
    gpu_type: str | None = None
    least_gpus: int | None = None
    most_gpus: int | None = None
    speeds: Mapping[str, float] | None = field(default=None, hash=False)
    restart_s: float = 0.0
    partition: str | None = None
    priority: float = 0.0
    limit_s: float | None = None
    deadline_s: float | None = None
    profile: ModelProfile = field(default=_BY_NAME, repr=False, hash=False)
    resources: Mapping[str, int] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:  # noqa: C901 - one check a field
        # Traces hold millions of jobs: values of the right type and range pass with one comparison each.
        if type(self.id) is not str or not self.id:
            raise InputError(f"a job's id must be a non-empty string, not {self.id!r}")
        if type(self.gpus) is not int or not 0 < self.gpus <= MAX_GPUS:
            _put(self, "gpus", whole(self.gpus, f"job {self.id!r}: gpus"))
        if type(self.submit_s) is not float or not 0 <= self.submit_s < math.inf:
            _put(self, "submit_s", seconds(self.submit_s, f"job {self.id!r}: submit_s"))
        duration_s = self.duration_s
        if duration_s is not None and (type(duration_s) is not float or not 0 <= duration_s < math.inf):
            _put(self, "duration_s", seconds(duration_s, f"job {self.id!r}: duration_s"))
        if self.collective not in COLLECTIVES:
            raise unknown("collective", self.collective, COLLECTIVES)
        if type(self.tp) is not int or type(self.pp) is not int or self.tp != 1 or self.pp != 1:
            self._check_groups()
        if self.gpu_type is not None and type(self.gpu_type) is not str:
            raise InputError(f"job {self.id!r}: gpu_type must be a string, not {self.gpu_type!r}")
        if self.least_gpus is not None or self.most_gpus is not None:
            self._check_range()
        if self.speeds is not None:
            for gpu_type, speed in self.speeds.items():
                positive(speed, f"job {self.id!r}: speeds: {gpu_type}")
        if self.resources is not None:
            _put(self, "resources", checked_resources(self.resources, f"job {self.id!r}", least=1) or None)
        if self.restart_s:
            _put(self, "restart_s", seconds(self.restart_s, f"job {self.id!r}: restart_s"))
        if self.partition is not None or self.priority or self.limit_s is not None or self.deadline_s is not None:
            self._check_queue()
        profile = self.profile
        if profile is _BY_NAME or profile.name != self.model or self.batch not in (None, profile.batch):
            self._find_profile()

    @classmethod
    def checked_before(
        cls,
        id: str,  # noqa: A002 - the field's name
        gpus: int,
        model: str,
        collective: str,
        submit_s: float,
        duration_s: float,
        tenant: str,
        gpu_type: str | None,
        profile: ModelProfile,
        partition: str | None = None,
        priority: float = 0.0,
        limit_s: float | None = None,
    ) -> "Job":
        """Make a data-parallel job of values that were checked a column at a time, as those of a trace are."""
        job: Job = object.__new__(cls)
        _put(job, "id", id)
        _put(job, "gpus", gpus)
        _put(job, "model", model)
        _put(job, "collective", collective)
        _put(job, "submit_s", submit_s)
        _put(job, "duration_s", duration_s)
        _put(job, "tp", 1)
        _put(job, "pp", 1)
        _put(job, "batch", None)
        _put(job, "tenant", tenant)
        _put(job, "gpu_type", gpu_type)
        _put(job, "least_gpus", None)
        _put(job, "most_gpus", None)
        _put(job, "speeds", None)
        _put(job, "restart_s", 0.0)
        _put(job, "partition", partition)
        _put(job, "priority", priority)
        _put(job, "limit_s", limit_s)
        _put(job, "deadline_s", None)
        _put(job, "profile", profile)
        _put(job, "resources", None)
        return job

    def _check_range(self) -> None:
        """Check with how many workers the job may run."""
        if self.tp * self.pp > 1:
            raise InputError(f"job {self.id!r}: only data-parallel jobs can be resized, not tp or pp")
        if self.least_gpus is not None:
            least = whole(self.least_gpus, f"job {self.id!r}: least_gpus", most=self.gpus)
            _put(self, "least_gpus", least)
        if self.most_gpus is not None:
            most = whole(self.most_gpus, f"job {self.id!r}: most_gpus", least=self.gpus)
            _put(self, "most_gpus", most)

    def _check_queue(self) -> None:
        """Check what a scheduler knows of the job."""
        if self.partition is not None and type(self.partition) is not str:
            raise InputError(f"job {self.id!r}: partition must be a string, not {self.partition!r}")
        _put(self, "priority", between(self.priority, f"job {self.id!r}: priority", -MAX_PRIORITY, MAX_PRIORITY))
        if self.limit_s is not None:
            _put(self, "limit_s", seconds(self.limit_s, f"job {self.id!r}: limit_s"))
        if self.deadline_s is not None:
            _put(self, "deadline_s", seconds(self.deadline_s, f"job {self.id!r}: deadline_s"))

    def _check_groups(self) -> None:
        """Check the degrees of tensor and pipeline parallelism."""
        _put(self, "tp", whole(self.tp, f"job {self.id!r}: tp"))
        _put(self, "pp", whole(self.pp, f"job {self.id!r}: pp"))
        if self.gpus % (self.tp * self.pp):
            raise InputError(
                f"job {self.id!r}: {self.gpus} GPUs cannot be split into tp {self.tp} x pp {self.pp} groups"
            )
        if self.collective in PLACED and self.tp * self.pp > 1:
            raise InputError(f"job {self.id!r}: collective {self.collective!r} cannot be combined with tp or pp")

    def _find_profile(self) -> None:
        """Take the profile that `model` is or names, at the wanted batch."""
        model, batch = self.model, self.batch
        if batch is not None:
            batch = whole(batch, f"job {self.id!r}: batch")
            _put(self, "batch", batch)
        if isinstance(model, str):
            _put(self, "profile", library()[model] if batch is None else library().at(model, batch))
        elif not isinstance(model, ModelProfile):
            raise InputError(f"job {self.id!r}: model must be a name or a ModelProfile, not {model!r}")
        elif batch not in (None, model.batch):
            raise InputError(f"job {self.id!r}: its profile is for batch {model.batch}, not {batch}")
        else:
            _put(self, "profile", model)
            _put(self, "model", model.name)

    def may_have(self, gpus: int) -> bool:
        """Say whether the job can run with so many workers."""
        return gpus == self.gpus or (self.least_gpus or self.gpus) <= gpus <= (self.most_gpus or self.gpus)

    def resized(self, gpus: int, speed: float) -> "Job":
        """Return the job as it trains with so many workers that are together as fast as `speed` GPUs."""
        model = self.profile.stretched(self.gpus / speed)
        made: Job = object.__new__(Job)
        for name in self.__dataclass_fields__:
            _put(made, name, getattr(self, name))
        _put(made, "gpus", gpus)
        _put(made, "profile", model)
        return made

    @property
    def as_known(self) -> "Job":
        """The job as policies know it: with its limit in place of its duration, if it has one."""
        if self.limit_s is None:
            return self
        known: Job = object.__new__(Job)
        for name in self.__dataclass_fields__:
            _put(known, name, getattr(self, name))
        _put(known, "duration_s", self.limit_s)
        return known

    @property
    def dp(self) -> int:
        """Data-parallel replicas of the model."""
        return self.gpus // (self.tp * self.pp)


_put = object.__setattr__  # how a frozen value is put right while it is made
