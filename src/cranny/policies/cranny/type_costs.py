"""What GPUs of each type cost a job that keeps the number of workers that it asks for.

That is, for as long as it takes there, the GPUs that it holds, each at the price of its type (`gpu_prices`), and
the GPUs that it asks for, since it is not done: as in `worker_sets`. So a job takes fast GPUs as long as others do
not gain more by them.
"""

from collections.abc import Iterator, Mapping

from cranny.model.arrays import Flags
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.policies.cranny.gpu_prices import GpuPrices, MachineTypes
from cranny.policies.cranny.price_explanation import Held


class TypeCosts:
    """Machines by the types of their GPUs, and what these cost a job; without `choosing` all cost the same."""

    def __init__(self, cluster: Cluster, *, choosing: bool = True) -> None:
        self._machines = MachineTypes.of(cluster)
        self._names = list(self._machines.gpus)
        self._prices = GpuPrices()
        self._price = self._prices.each(self._machines.gpus)
        self._choosing = choosing and len(self._names) > 1

    def see(self, job: Job) -> None:
        """Learn from a job that was submitted what GPUs of each type are worth."""
        if self._choosing and job.speeds is not None:
            speeds = {kind: job.speeds.get(kind, 0.0) for kind in self._names}
            self._prices.see(speeds, self._machines.gpus)
            self._price = self._prices.each(self._machines.gpus)

    def matter_to(self, job: Job) -> bool:
        """Say whether the type of its GPUs may make a job faster or slower, or leave others better ones."""
        if job.speeds is None:
            return False
        speeds = self._speeds(job)
        return len(speeds) > 1 or any(speed != 1.0 for speed in speeds.values())

    def machines_for(self, job: Job) -> Iterator[tuple[float, Flags]]:
        """Yield the speed of each type of GPU that a job can use, and whether each machine has it, (machines,)."""
        if self._choosing:
            for kind, speed in self._speeds(job).items():
                yield speed, self._machines.kind == self._names.index(kind)

    def seconds_on(self, machine: int, job: Job, seconds: float) -> float:
        """Return how long a job runs on a machine that takes so long on GPUs of speed 1."""
        return seconds if job.speeds is None else seconds / job.speeds[self._name(machine)]

    def more_gpu_s(self, job: Job, held: Held, takes_s: float, seconds: float) -> float:
        """Return what a job costs on some machines beyond what it would on GPUs of the type that suits it best.

        It takes `takes_s` there, and `seconds` on GPUs of speed 1.
        """
        if not self._choosing or job.speeds is None:
            return 0.0
        price = sum(self._price[self._name(machine)] * gpus for machine, gpus in held)
        least = min((1.0 + self._price[kind]) / speed for kind, speed in self._speeds(job).items())
        return (job.gpus + price) * takes_s - least * job.gpus * seconds

    def _name(self, machine: int) -> str:
        return self._machines.cluster.machines[machine].gpu_type

    def _speeds(self, job: Job) -> Mapping[str, float]:
        """Return the speed of each type of GPU there that a job can use."""
        return {
            kind: speed
            for kind, speed in (job.speeds or {}).items()
            if kind in self._machines.gpus and job.gpu_type in (None, kind)
        }
