"""GPUs to divide among jobs, some of which can use only certain machines, or types of GPU.

Jobs may be promised GPUs before they have machines. All of them find theirs if for every set of machines the jobs
that can use no others were promised no more than it has (Hall's theorem). Only such sets matter that are the
machines of some jobs together which overlap. Where all jobs can use all machines that is one set, and plain
counting.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cranny.core.machine_set import members
from cranny.core.snapshot import ALL

# Sets that are checked. Only jobs for many mixtures of ten types and more make so many; then a job may be promised
# too much, and has to wait after all.
MOST_SETS = 500


class GpuPool:
    """Free GPUs, and how many of them jobs were promised."""

    def __init__(self, free: Sequence[int]) -> None:
        self._free = free  # (machines,)
        self._counts = {ALL: sum(free)}  # of sets of machines that were queried
        self._added: Counter[int] = Counter()  # GPUs that come free besides, by machine
        self._promised: Counter[int] = Counter()  # by the machines that their jobs can use

    def copy(self) -> "GpuPool":
        """Return the same pool; what is taken there is not taken here."""
        other = GpuPool(())
        other._free, other._counts = self._free, self._counts
        other._added, other._promised = self._added.copy(), self._promised.copy()
        return other

    def without(self, machines: Iterable[int]) -> "GpuPool":
        """Return the pool without one GPU of a machine for each time that it is named."""
        other = self.copy()
        other.add({machine: -times for machine, times in Counter(machines).items()})
        return other

    def add(self, gpus: Mapping[int, int]) -> None:
        """Add GPUs that come free, by machine."""
        for machine, count in gpus.items():
            self._added[machine] += count

    def take(self, machines: int, gpus: int) -> None:
        """Promise GPUs to a job that can use these machines."""
        self._promised[machines] += gpus
        if not self._promised[machines]:
            del self._promised[machines]

    def left(self, machines: int) -> int:
        """Return how many more GPUs of these machines can be promised; below 0 if there were too many already."""
        return min(self._over(each) for each in self._unions(machines))

    def short(self) -> int:
        """Return the fewest machines of which more GPUs were promised than they have; 0 if there are none."""
        every = set[int]().union(*map(self._unions, self._promised))
        sets = [each for each in every if self._over(each) < 0]
        return min(sets, key=lambda each: (each < 0, each.bit_count(), each), default=0)

    def _unions(self, machines: int) -> set[int]:
        """Return these machines, and together with those of jobs that overlap; others do not matter to them."""
        unions, fresh = {machines}, [machines]
        while fresh and len(unions) < MOST_SETS:
            each = fresh.pop()
            wider = {each | other for other in self._promised if each & other} - unions
            unions |= wider
            fresh += wider
        return unions

    def _over(self, machines: int) -> int:
        """Return how many GPUs are left to jobs that can use no other machines."""
        if machines not in self._counts:
            self._counts[machines] = sum(self._free[machine] for machine in members(machines))
        gpus = self._counts[machines]
        gpus += sum(count for machine, count in self._added.items() if machines >> machine & 1)
        return gpus - sum(count for only, count in self._promised.items() if not only & ~machines)
