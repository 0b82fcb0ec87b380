"""How much memory, how many processes and processors an attempt may use: limits of its control groups.

Systems have one of two layouts. In v2 one group has all controllers; in v1, and in mixed layouts, each controller
has a tree of its own, in which the attempt gets another group.

Supervisors use it: it imports little.
"""

from pathlib import Path
from typing import NamedTuple

PERIOD_US = 100_000  # in which the time of processors is counted
CONTROLLERS = ("memory", "pids", "cpu")
WORDS = {"memory": "memory", "pids": "processes", "cpu": "processors"}


class ResourceLimits(NamedTuple):
    """What all processes of an attempt may use together; None where there is no limit."""

    memory_bytes: int | None = None
    processes: int | None = None  # threads count, too
    cpus: float | None = None

    @property
    def controllers(self) -> list[str]:
        """The controllers that these limits need."""
        return [name for name, limit in zip(CONTROLLERS, self, strict=True) if limit is not None]

    def at_most(self, other: "ResourceLimits") -> "ResourceLimits":
        """Return the lower of two limits, of each kind."""
        pairs = zip(self, other, strict=True)
        return ResourceLimits(*(min((x for x in pair if x is not None), default=None) for pair in pairs))  # type: ignore[arg-type]

    def times(self, gpus: int) -> "ResourceLimits":
        """Return the limits of a job from those of one GPU."""
        memory, processes, cpus = self
        return ResourceLimits(memory and memory * gpus, processes and processes * gpus, cpus and cpus * gpus)

    def set_unified(self, controller: str, group: Path) -> None:
        """Set the limit of a controller in a group of v2."""
        if controller == "memory":
            _write(group / "memory.max", self.memory_bytes)
            _write_if_there(group / "memory.swap.max", 0)
        elif controller == "pids":
            _write(group / "pids.max", self.processes)
        else:
            _write(group / "cpu.max", f"{self._quota_us} {PERIOD_US}")

    def set_separate(self, controller: str, group: Path) -> None:
        """Set the limit of a controller in a group of v1."""
        if controller == "memory":
            _write(group / "memory.limit_in_bytes", self.memory_bytes)
            _write_if_there(group / "memory.memsw.limit_in_bytes", self.memory_bytes)  # with what is swapped out
        elif controller == "pids":
            _write(group / "pids.max", self.processes)
        else:
            _write(group / "cpu.cfs_period_us", PERIOD_US)
            _write(group / "cpu.cfs_quota_us", self._quota_us)

    @property
    def _quota_us(self) -> int:
        return max(1_000, round((self.cpus or 0.0) * PERIOD_US))  # the kernel takes no less


NO_LIMITS = ResourceLimits()


def killed_for_memory(group: Path) -> int:
    """Return how many processes of a group the kernel has killed at its limit of memory."""
    for name in ("memory.events", "memory.oom_control"):  # of v2, and of v1
        try:
            lines = (group / name).read_text(encoding="ascii").splitlines()
        except OSError:
            continue
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return 0


def _write(path: Path, value: object) -> None:
    with path.open("r+", encoding="ascii") as file:  # of a controller that is not there no file is made
        file.write(str(value))


def _write_if_there(path: Path, value: object) -> None:
    if path.exists():
        _write(path, value)
