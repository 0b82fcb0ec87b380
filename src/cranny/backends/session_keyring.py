"""Session keyrings of Linux: keys that the kernel keeps for a process and its children, under whatever account.

All that inherit a session keyring can read and replace what is in it. A service inherits that of the login of
root, or of its unit of systemd. So no job may inherit it: jobs of all users would share it.

It imports little: supervisors use it.
"""

import ctypes
import os
import sys

# The number of the system call keyctl(2), which depends on the processor.
_CALLS = {"x86_64": 250, "aarch64": 219, "arm64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_JOIN, _SET_PERMISSIONS = 1, 5  # from linux/keyctl.h
_SESSION = -3  # the session keyring of this process
_FOR_NO_PROCESS = 0


def join_new_keyring() -> bool:
    """Give this process an empty session keyring; return False where there are none, or it has too many."""
    return _keyctl(_JOIN, 0)


def close_keyring() -> None:
    """Give this process and its children a session keyring that none of them can use, until they join another."""
    if join_new_keyring():
        _keyctl(_SET_PERMISSIONS, _SESSION, _FOR_NO_PROCESS)


def _keyctl(operation: int, *arguments: int) -> bool:
    call = _CALLS.get(os.uname().machine) if sys.platform.startswith("linux") else None
    if call is None:
        return False
    given = (ctypes.c_long(each) for each in (operation, *arguments))
    return bool(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(call), *given) >= 0)
