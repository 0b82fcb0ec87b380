"""Run a command on a machine of an emulated network: `python enter.py NETWORK COMMAND...`.

The machine is that of `CRANNY_MACHINE`. The process enters its namespace, and is told where rank 0 is: on the
first machine of `CRANNY_MACHINES`. Nothing but the standard library is needed, so that a rank starts quickly.
"""

import ctypes
import os
import sys

INTERFACE = "eth0"
NETWORK = "10.77.0.0/16"
CLONE_NEWNET = 0x40000000  # of linux/sched.h


def namespace(name: str, node: int) -> str:
    """Return the name of the namespace of a machine or switch."""
    return f"{name}-{node}"


def address(machine: int) -> str:
    """Return the address of a machine."""
    return f"10.77.0.{machine + 1}"


def enter(name: str, machine: int) -> None:
    """Move this process to the namespace of a machine."""
    handle = os.open(f"/run/netns/{namespace(name, machine)}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(handle, CLONE_NEWNET):  # os.setns is in Python 3.12
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    finally:
        os.close(handle)


def main(name: str, argv: list[str]) -> None:
    """Enter the network, and become the command."""
    enter(name, int(os.environ["CRANNY_MACHINE"]))
    first = int(os.environ["CRANNY_MACHINES"].partition(",")[0])
    os.environ |= {"MASTER_ADDR": address(first), "GLOO_SOCKET_IFNAME": INTERFACE}
    os.execvp(argv[0], argv)  # noqa: S606 - the command of the job


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
