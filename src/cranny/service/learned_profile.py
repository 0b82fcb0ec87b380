"""What the jobs of a user with one name have shown of themselves, and what policies make of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.profile import ModelProfile

NOTICED = 0.05  # a relative difference that decisions should follow
LEAST_MS, MOST_MS = 1.0, 6e5  # of an iteration, whatever ranks say: circles of jobs that share links must fit


@dataclass(frozen=True, slots=True)
class LearnedProfile:
    """What jobs have shown; None where they have not."""

    rates: Mapping[str, float] = field(default_factory=dict)  # samples a second of one rank, by its type of GPU
    batch: float | None = None  # samples of all ranks in an iteration
    comm_start: float | None = None  # when communication begins, as a part of the time that an iteration computes
    gradient_bytes: float | None = None
    restart_s: float | None = None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "LearnedProfile":
        """Read the values of an event."""
        return cls(**{name: body[name] for name in cls.__slots__ if name in body})

    def values(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    def differs(self, other: "LearnedProfile") -> bool:
        """Say whether anything differs by so much that decisions should follow it."""
        before = _flat(other)
        return any(_apart(value, before.get(name)) for name, value in _flat(self).items() if value is not None)

    def applied(self, job: Job, cluster: Cluster) -> Job:
        """Return a job as its policy should see it, from the job as its file describes it."""
        restart_s = job.restart_s if self.restart_s is None else self.restart_s
        rates = {kind: self.rates[kind] for kind in cluster.machines_with if kind in self.rates}
        if not rates:
            return replace(job, restart_s=restart_s)
        reference = reference_type(job, rates)
        speeds = job.speeds
        if len(rates) > 1 or speeds is not None:
            speeds = _speeds(job, rates, reference, cluster)
        model = job.profile
        if self.batch is not None and job.tp * job.pp == 1:
            unit_rate = rates[reference] / (1.0 if speeds is None else speeds[reference])
            iteration_ms = 1e3 * self.batch / (job.gpus * unit_rate)
            model = self._model(model, min(max(iteration_ms, LEAST_MS), MOST_MS))
        return replace(job, model=model, speeds=speeds, restart_s=restart_s)

    def _model(self, model: ModelProfile, iteration_ms: float) -> ModelProfile:
        """Return a model as it was measured, with its gradients when they were exchanged."""
        grad_bytes = model.grad_bytes if self.gradient_bytes is None else max(1.0, self.gradient_bytes)
        model = replace(model.stretched(iteration_ms / model.iteration_ms), grad_bytes=grad_bytes)
        if self.comm_start is None:
            return model
        return replace(model, gradient_buckets=((iteration_ms * self.comm_start, max(1, int(grad_bytes))),))


def reference_type(job: Job, rates: Mapping[str, float]) -> str:
    """Return the type of GPU that a job's duration is for, or the first one that was measured."""
    for kind, speed in (job.speeds or {}).items():
        if speed == 1.0 and kind in rates:
            return kind
    return job.profile.gpu_type if job.profile.gpu_type in rates else next(iter(rates))


def _speeds(job: Job, rates: Mapping[str, float], reference: str, cluster: Cluster) -> dict[str, float]:
    """Return speeds by measured rates; of types that were not measured as stated, or those of the slowest."""
    stated = job.speeds or {}
    unit = stated.get(reference, 1.0) / rates[reference]
    measured = {kind: unit * rate for kind, rate in rates.items()}
    others = stated or dict.fromkeys(cluster.machines_with, min(measured.values()))
    return {kind: measured.get(kind, speed) for kind, speed in others.items()}


def _flat(profile: LearnedProfile) -> dict[str, float | None]:
    values = profile.values()
    return {**{f"rates.{kind}": rate for kind, rate in values.pop("rates").items()}, **values}


def _apart(value: float, other: float | None) -> bool:
    return other is None or abs(value - other) > NOTICED * abs(other)
