"""Under which account of this system the jobs of a user run. The launcher uses it: it imports little."""

import os
import pwd
from collections.abc import Mapping

from cranny.backends.privileges import Account
from cranny.model.errors import CrannyError

LEAST_UID = 1000  # below are root and the accounts of daemons


def account_of(user: str, names: Mapping[str, str] | None) -> Account:
    """Return the account of a user, by the names of accounts; None if users are called like their accounts."""
    name = user if names is None else names.get(user)
    if name is None:
        raise CrannyError(f"user {user!r} has no account on this system: the file of accounts does not name one")
    found = _find(name)
    if found is None:
        raise CrannyError(f"user {user!r} has no account on this system: there is no {name!r}")
    if found.uid < LEAST_UID or found.uid == os.getuid():
        raise CrannyError(f"user {user!r}: jobs do not run as {name!r}, which is an account of the system")
    return found


def service_account(name: str) -> Account:
    """Return the account that the service runs under, when root starts it."""
    found = _find(name)
    if found is None:
        raise CrannyError(f"--run-as: there is no account {name!r}; `useradd --system {name}` creates it")
    if found.uid == 0:
        raise CrannyError(f"--run-as: {name!r} is root; the service needs an account without rights")
    return found


def _find(name: str) -> Account | None:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return Account(found.pw_name, found.pw_uid, found.pw_gid, tuple(groups), found.pw_dir, found.pw_shell)
