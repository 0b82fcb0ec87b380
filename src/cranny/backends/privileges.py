"""Capabilities and users of processes: what the launcher keeps, and what a rank gives up before it runs a job.

Linux only. It imports little: supervisors use it, and start quickly.
"""

import ctypes
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from cranny.backends.session_keyring import close_keyring, join_new_keyring

# What starting and ending jobs of other users takes, by their numbers in linux/capability.h.
CAPABILITIES = {"CAP_CHOWN": 0, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
# What keeping GPUs from jobs takes besides, in the launcher only: CAP_NET_ADMIN and CAP_BPF.
FILTER_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_BPF": 39}
OOM_SCORE = 500  # of jobs: out of memory, the kernel ends them before the service and its supervisors
_VERSION = 0x20080522  # of the structures below
_PR_SET_DUMPABLE = 4
_PR_SET_KEEPCAPS = 8
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2


class Account(NamedTuple):
    """An account of this system."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    """Capabilities 0 to 31, or 32 to 63, as bits."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def held() -> set[int]:
    """Return the capabilities that this process may use."""
    sets = (_Sets * 2)()
    _call("capget", ctypes.byref(_Header(_VERSION, 0)), sets)
    return {32 * half + bit for half in (0, 1) for bit in range(32) if sets[half].permitted >> bit & 1}


def can_launch() -> bool:
    """Return whether this process may start jobs of other users."""
    return held() >= set(CAPABILITIES.values())


def keep_for_launching(account: Account | None) -> None:
    """Become an account, if one is given, but keep what starting jobs of other users takes, also across exec.

    What keeping GPUs from jobs takes is kept as well if it is there, but not across exec: supervisors lack it.
    """
    _prctl(_PR_SET_KEEPCAPS, 1)
    own = held() & set(FILTER_CAPABILITIES.values())
    if account is not None:
        _become(account)
    wanted = CAPABILITIES.values()
    _set(wanted, own)
    for each in wanted:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, each)
    _prctl(_PR_SET_DUMPABLE, 0)  # no process of the same account may look into this one, or trace it
    close_keyring()  # jobs would share it; where they cannot have one of their own, they have none


def give_up(account: Account | None) -> None:
    """Become an account, if one is given, without any capability, for good."""
    if account is not None:
        _become(account)
    _set(())
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def become_rank(account: Account) -> None:
    """Turn this process into one of a job: under its account, without a way back, first to go without memory."""
    Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE), encoding="ascii")
    give_up(account)


def _become(account: Account) -> None:
    os.setgroups(account.groups)
    os.setgid(account.gid)
    os.setuid(account.uid)
    join_new_keyring()


def _set(inherited: Collection[int], own: Collection[int] = ()) -> None:
    """Let this process have just these capabilities, and hand on only some."""
    sets = (_Sets * 2)()
    for each in (*inherited, *own):
        half = sets[each // 32]
        for name in ("effective", "permitted", "inheritable")[: 3 if each in inherited else 2]:
            setattr(half, name, getattr(half, name) | 1 << each % 32)
    _call("capset", ctypes.byref(_Header(_VERSION, 0)), sets)


def _prctl(*arguments: int) -> None:
    _call("prctl", *(ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:5]))


def _call(name: str, *arguments: object) -> None:
    """Call a function of the C library that returns 0."""
    library = ctypes.CDLL(None, use_errno=True)
    if library[name](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def as_arguments(account: Account) -> Sequence[str]:
    """Return an account as arguments of a command line."""
    return (account.name, str(account.uid), str(account.gid), ",".join(map(str, account.groups)))


def of_arguments(name: str, uid: str, gid: str, groups: str) -> Account:
    """Return the account that `as_arguments` wrote; what only an environment says of it is empty."""
    return Account(name, int(uid), int(gid), tuple(map(int, groups.split(","))), "", "")
