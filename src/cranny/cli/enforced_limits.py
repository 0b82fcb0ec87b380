"""Limits that `cranny serve` was given, and what this system cannot enforce of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cranny.backends.process_limits import KINDS, UNLIMITED, most_allowed
from cranny.backends.resource_limits import WORDS, ResourceLimits
from cranny.cli.console import warn
from cranny.cli.options import read_settings
from cranny.model.errors import InputError, unknown
from cranny.model.validate import positive

if TYPE_CHECKING:
    from cranny.backends.local import LocalBackend

NAMES = ("memory_gb", "processes", "cpus")
PAGE = "docs/use/users.md"


class EnforcedLimits:
    """What jobs may use for each GPU and process, how much of a rank's log is kept, and device files of GPUs."""

    def __init__(
        self,
        limits: Sequence[str] | None,
        process_limits: Sequence[str] | None,
        gpu_devices: Sequence[Path] | None,
        log_limit_mb: float,
    ) -> None:
        self.log_bytes = int(log_limit_mb * 1e6)
        self.of_process = _read_process_limits(process_limits)
        given = read_settings(limits, "--limit")
        for name, value in given.items():
            if name not in NAMES:
                raise unknown("limit", name, NAMES)
            positive(value, f"--limit {name}")
        memory_gb, processes, cpus = (given.get(name) for name in NAMES)
        if processes is not None and int(processes) != processes:
            raise InputError(f"--limit processes: must be a whole number, not {processes}")
        memory = None if memory_gb is None else int(memory_gb * 1e9)
        self.per_gpu = ResourceLimits(memory, None if processes is None else int(processes), cpus)
        for path in gpu_devices or ():
            if not path.is_char_device():
                raise InputError(f"--gpu-device: {path}: is not the file of a device")
        self.gpu_devices = gpu_devices

    def check(self, backend: "LocalBackend", *, shared: bool) -> None:
        """Refuse limits that cannot be enforced here; say if several users' jobs can open each other's GPUs."""
        if not self.per_gpu.controllers and not (shared or self.gpu_devices):
            return
        enforced = backend.enforced
        for controller in self.per_gpu.controllers:
            if controller not in enforced:
                raise InputError(f"--limit: no control group can limit {WORDS[controller]} here ({PAGE})")
        if backend.has_gpu_devices and "devices" not in enforced:
            text = "jobs could open GPUs that they were not given: this system has no filter of devices"
            if self.gpu_devices:
                raise InputError(f"--gpu-device: {text} ({PAGE})")
            warn(f"{text} ({PAGE})")


def _read_process_limits(given: Sequence[str] | None) -> dict[str, int]:
    """Read limits of each process; none may be above what the service has itself, which only root can raise."""
    limits = {}
    for name, value in read_settings(given, "--ulimit").items():
        if name not in KINDS:
            raise unknown("limit of a process", name, KINDS)
        if value != "unlimited" and (type(value) is not int or value < 0):
            raise InputError(f"--ulimit {name}: must be a whole number or unlimited, not {value!r}")
        limits[name] = UNLIMITED if value == "unlimited" else value
        most = most_allowed(name)
        if most != UNLIMITED and not 0 <= limits[name] <= most:
            raise InputError(
                f"--ulimit {name}: the service itself may have {most} (in a unit of systemd: Limit{name.upper()}=)"
            )
    return limits
