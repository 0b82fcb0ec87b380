"""What GPUs of each type cost a job that keeps the number of workers that it asks for.

That is, for as long as it takes there, the GPUs that it holds, each at the price of its type (`gpu_prices`), and
the GPUs that it asks for, since it is not done: as in `worker_sets`. So a job takes fast GPUs as long as others do
not gain more by them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import numpy as np

from cranny.model.arrays import Flags
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.policies.cranny.gpu_prices import GpuPrices, MachineTypes
from cranny.policies.cranny.price_explanation import Held
from cranny.policies.cranny.restarts import ROUNDING


class TypeCosts:
    """How fast jobs are on GPUs of each type, and what these cost them; without `choosing` all cost the same."""

    def __init__(self, cluster: Cluster, prices: GpuPrices, *, choosing: bool = True) -> None:
        self._cluster = cluster
        self._prices = prices
        self._price: Mapping[str, float] | None = None  # of a GPU of each type, until another job is seen
        self._choosing = choosing and len(cluster.machines_with) > 1

    @cached_property
    def _machines(self) -> MachineTypes:
        return MachineTypes.of(self._cluster)

    def see_first(self, jobs: Iterable[Job]) -> None:
        """Learn from jobs that came before the first decision."""
        if self._choosing and not self._prices.known:
            for job in jobs:
                self.see(job)

    def see(self, job: Job) -> None:
        """Learn from a job that was submitted what GPUs of each type are worth."""
        if self._choosing and job.speeds is not None:
            gpus, speeds = self._machines.gpus, self._speeds(job)
            self._prices.see({kind: speeds.get(kind, 0.0) for kind in gpus}, gpus)
            self._price = None

    # -- how fast jobs are ---------------------------------------------------------------------------------

    def matter_to(self, job: Job) -> bool:
        """Say whether the type of its GPUs may make a job faster or slower, or leave others better ones."""
        if job.speeds is None:
            return False
        speeds = self._speeds(job)
        return len(speeds) > 1 or any(speed != 1.0 for speed in speeds.values())

    def least_s(self, job: Job, seconds: float) -> float:
        """Return how long a job takes on the fastest type that takes so long on GPUs of speed 1."""
        return seconds if job.speeds is None else seconds / max(self._speeds(job).values(), default=1.0)

    def most_s(self, job: Job, seconds: float) -> float:
        """Return how long it takes on the slowest type."""
        return seconds if job.speeds is None else seconds / min(self._speeds(job).values(), default=1.0)

    def seconds_on(self, machine: int, job: Job, seconds: float) -> float:
        """Return how long it takes on the GPUs of a machine."""
        return seconds if job.speeds is None else seconds / job.speeds[self._type(machine)]

    def slower_machines(self, job: Job, seconds: float, takes_s: float) -> list[int]:
        """Return the machines on which a job takes longer than that, as a job does on one machine of a type."""
        if not self.matter_to(job):
            return []
        slower = [
            kind for kind, speed in self._speeds(job).items() if seconds / speed > takes_s * (1.0 + ROUNDING)
        ]
        return [int(machine) for kind in slower for machine in np.flatnonzero(self._with(kind))]

    # -- what they cost ------------------------------------------------------------------------------------

    def machines_for(self, job: Job) -> Iterator[tuple[float, Flags]]:
        """Yield the speed of each type of GPU that a job can use, and whether each machine has it, (machines,)."""
        if self._choosing:
            for kind, speed in self._speeds(job).items():
                yield speed, self._with(kind)

    def more_gpu_s(self, job: Job, held: Held, takes_s: float, seconds: float) -> float:
        """Return what a job costs on some machines beyond what it would on GPUs of the type that suits it best.

        It takes `takes_s` there, and `seconds` on GPUs of speed 1.
        """
        if not self._choosing or job.speeds is None:
            return 0.0
        if self._price is None:
            self._price = self._prices.each(self._machines.gpus)
        each = self._price
        price = sum(each[self._type(machine)] * gpus for machine, gpus in held)
        least = min((1.0 + each[kind]) / speed for kind, speed in self._speeds(job).items())
        return (job.gpus + price) * takes_s - least * job.gpus * seconds

    def _type(self, machine: int) -> str:
        return self._cluster.machines[machine].gpu_type

    def _with(self, kind: str) -> Flags:
        """Return whether each machine has GPUs of a type, (machines,)."""
        found: Flags = self._machines.kind == list(self._machines.gpus).index(kind)
        return found

    def _speeds(self, job: Job) -> Mapping[str, float]:
        """Return the speed of each type of GPU in the cluster that a job can use."""
        there = self._cluster.machines_with
        return {
            kind: speed
            for kind, speed in (job.speeds or {}).items()
            if kind in there and job.gpu_type in (None, kind)
        }
