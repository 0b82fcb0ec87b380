"""The local machine: its GPUs, free ports, and the base environment of jobs."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from cranny.backends.device_filter import DeviceNumber
from cranny.backends.privileges import Account
from cranny.backends.protocol import BackendError
from cranny.model.cluster import Cluster
from cranny.model.topology_spec import MAX_GPUS_PER_MACHINE, Machine, Switch

# The only variables that a job inherits from the service, whose environment may hold secrets.
KEPT = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LOGNAME", "SHELL", "TMPDIR", "TZ", "USER")
NVIDIA_MAJOR = 195  # of the devices of GPUs; Linux reserves it
# Below the ephemeral ports of outgoing connections.
PORTS = range(20_000, 32_000)


def gpus(environ: Mapping[str, str] = os.environ) -> tuple[tuple[str, str], ...]:
    """Return index and type of each GPU that `nvidia-smi` finds and the environment does not hide."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return ()
    query = [command, "--query-gpu=index,name", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # a driver without a device
        return ()
    found = dict(line.split(", ", 1) for line in answer.stdout.splitlines() if ", " in line)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    chosen = list(found) if visible is None else [index.strip() for index in visible.split(",")]
    return tuple((index, found[index].strip()) for index in chosen if index in found)


def gpu_numbers(proc: Path = Path("/proc/driver/nvidia/gpus")) -> list[DeviceNumber]:
    """Return the device of each GPU in the order of nvidia-smi, which is that of their places on the bus."""
    numbers = []
    for folder in sorted(proc.iterdir()) if proc.is_dir() else ():
        text = (folder / "information").read_text(encoding="utf-8", errors="replace")
        numbers += [
            DeviceNumber(NVIDIA_MAJOR, int(line.partition(":")[2]))
            for line in text.splitlines()
            if line.startswith("Device Minor:")
        ]
    return numbers


def cluster_of(devices: Collection[tuple[str, str]]) -> Cluster:
    """Describe this machine as a cluster: its GPUs, or as many slots as it has processors."""
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    machine = Machine(
        name=socket.gethostname() or "here",
        gpus=min(len(devices) or processors, MAX_GPUS_PER_MACHINE),
        gpu_type=next((kind for _, kind in devices), ""),
    )
    return Cluster.of(Switch("here", (machine,), (100.0,)))  # one machine sends nothing over its link


def base_environment(environ: Mapping[str, str] = os.environ, account: Account | None = None) -> dict[str, str]:
    """Return the environment that every job starts from, under its account if that is not the service's."""
    base = {name: environ[name] for name in KEPT if name in environ}
    # Our own `python` and `torchrun` come last, as a fallback.
    base["PATH"] = os.pathsep.join((environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
    base["PYTHONUNBUFFERED"] = "1"  # so that log lines appear at once
    if account is not None:
        base |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell}
    return base


def free_port(taken: Collection[int]) -> int:
    """Return a free port that no other job was given."""
    first = secrets.randbelow(len(PORTS))
    for offset in range(len(PORTS)):
        port = PORTS[(first + offset) % len(PORTS)]
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise BackendError("no port is free")
