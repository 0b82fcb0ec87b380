"""Estimates of throughput, from a probe first and then from training itself; HAS/JPS (TPDS 2024), Section III-C.

A job goes through a few samples on one worker of each GPU type. Later, after each epoch, what workers report
moves the estimate: an exponentially weighted moving average. The paper gives no weight; ours is 0.3, so that an
estimate follows a lasting change within some ten reports and one odd report moves it by less than a third.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan

from cranny.model.errors import InputError
from cranny.model.validate import positive

WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Estimates:
    """Samples a second of one worker, by job and GPU type; None where a job cannot run."""

    values: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    weight: float = WEIGHT  # of a new report

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise InputError(f"weight must be above 0 and at most 1, not {self.weight!r}")

    def probed(self, job: str, gpu_type: str, samples: float, seconds: float) -> "Estimates":
        """Return estimates that begin with what a probe measured."""
        return self._with(job, gpu_type, _rate(job, gpu_type, samples, seconds))

    def failed(self, job: str, gpu_type: str) -> "Estimates":
        """Return estimates that know that a job cannot run on a type, such as for want of memory."""
        return self._with(job, gpu_type, None)

    def reported(self, job: str, gpu_type: str, samples: float, seconds: float) -> "Estimates":
        """Return estimates that moved towards what a worker reports; a first report counts as a probe."""
        rate = _rate(job, gpu_type, samples, seconds)
        before = self.values.get((job, gpu_type))
        return self._with(job, gpu_type, rate if before is None else before + self.weight * (rate - before))

    def matrix(self, jobs: Sequence[str], gpu_types: Sequence[str]) -> list[list[float | None]]:
        """Return throughputs as a `Problem` takes them; it refuses what was never probed (not a number)."""
        return [[self.values.get((job, gpu_type), nan) for gpu_type in gpu_types] for job in jobs]

    def _with(self, job: str, gpu_type: str, value: float | None) -> "Estimates":
        return replace(self, values={**self.values, (job, gpu_type): value})


def _rate(job: str, gpu_type: str, samples: float, seconds: float) -> float:
    what = f"job {job!r} on {gpu_type}"
    return positive(samples, f"{what}: samples") / positive(seconds, f"{what}: seconds")
