"""The type of GPU that suits a job best which keeps the number of workers that it asks for.

On GPUs of a type a job costs, for as long as it takes there, the GPUs that it holds, each at the price of its type
(`gpu_prices`), and the GPUs that it asks for, since it is not done: as in `worker_sets`. So a job takes fast GPUs
as long as others do not gain more by them.
"""

from collections.abc import Iterator, Mapping

from cranny.model.arrays import Flags
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.policies.cranny.gpu_prices import GpuPrices, MachineTypes
from cranny.policies.cranny.price_explanation import Held


class GpuTypes:
    """Machines by the types of their GPUs, and what these cost a job."""

    def __init__(self, cluster: Cluster) -> None:
        self._machines = MachineTypes.of(cluster)
        self._prices = GpuPrices()
        self._price = self._prices.each(self._machines.gpus)

    def see(self, job: Job) -> None:
        """Learn from a job that was submitted what GPUs of each type are worth."""
        speeds = job.speeds
        if speeds is not None and len(self._machines.gpus) > 1:
            self._prices.see({kind: speeds.get(kind, 0.0) for kind in self._machines.gpus}, self._machines.gpus)
            self._price = self._prices.each(self._machines.gpus)

    def differ_for(self, job: Job) -> bool:
        """Say whether a job could run on GPUs of several types."""
        return job.speeds is not None and len(self._speeds(job)) > 1

    def machines_for(self, job: Job) -> Iterator[tuple[float, Flags]]:
        """Yield the speed of each type of GPU that a job can use, and whether each machine has it, (machines,)."""
        types = list(self._machines.gpus)
        for kind, speed in self._speeds(job).items():
            yield speed, self._machines.kind == types.index(kind)

    def more_gpu_s(self, job: Job, held: Held, takes_s: float, seconds: float) -> float:
        """Return what a job costs on some machines beyond what it would on GPUs of the type that suits it best.

        It takes `takes_s` there, and `seconds` on GPUs of speed 1.
        """
        types = list(self._machines.gpus)
        price = sum(self._price[types[self._machines.kind[machine]]] * gpus for machine, gpus in held)
        least = min((1.0 + self._price[kind]) / speed for kind, speed in self._speeds(job).items())
        return (job.gpus + price) * takes_s - least * job.gpus * seconds

    def _speeds(self, job: Job) -> Mapping[str, float]:
        """Return the speed of each type of GPU there that a job can use."""
        return {
            kind: speed
            for kind, speed in (job.speeds or {}).items()
            if kind in self._machines.gpus and job.gpu_type in (None, kind)
        }
