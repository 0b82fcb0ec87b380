"""Limits of each process of a job, as `ulimit` of a shell and `LimitNOFILE=` of systemd set them.

What all processes of an attempt may use together is in `resource_limits`. Supervisors use it: it imports little.
"""

import resource
from collections.abc import Mapping

UNLIMITED = resource.RLIM_INFINITY
# By the names of limits.conf and of containers; sizes are in bytes.
KINDS = {
    "as": resource.RLIMIT_AS,  # address space
    "core": resource.RLIMIT_CORE,  # size of a core dump
    "fsize": resource.RLIMIT_FSIZE,  # size of a file that it writes
    "memlock": resource.RLIMIT_MEMLOCK,  # memory that cannot be swapped out, as RDMA needs it
    "nofile": resource.RLIMIT_NOFILE,  # open files
    "nproc": resource.RLIMIT_NPROC,  # processes and threads of its account, in all jobs together
    "stack": resource.RLIMIT_STACK,
}


def most_allowed(name: str) -> int:
    """Return the highest limit of a kind that this process may give to others."""
    return resource.getrlimit(KINDS[name])[1]


def set_process_limits(limits: Mapping[str, int]) -> None:
    """Set limits of this process, which neither it nor its children can raise again."""
    for name, limit in limits.items():
        resource.setrlimit(KINDS[name], (limit, limit))
