"""What the account that this runs under may do in Slurm."""

import os
import pwd

from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import SlurmCommands
from cranny.backends.slurm.slurm_values import setting


def account_name() -> str:
    """Return the name of the account that this runs under."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def owns_slurm(configuration: str) -> bool:
    """Say whether it may do everything: it is root, or the SlurmUser of `scontrol show config`."""
    owner = setting(configuration, "SlurmUser").partition("(")[0]  # its number follows
    return account_name() in ("root", owner or "root")


def admin_level(commands: SlurmCommands) -> str:
    """Return what Slurm's accounting lets this account do; empty if there is no accounting."""
    try:
        asked = commands.call("sacctmgr", "-nP", "show", "user", f"name={account_name()}", "format=AdminLevel")
    except (BackendError, OSError):
        return ""
    return asked.strip() or "None"
