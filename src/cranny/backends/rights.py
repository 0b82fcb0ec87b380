"""With which rights a service runs, and its jobs: those of one user, or of the accounts of their users."""

import os
import stat
import sys
from pathlib import Path

from cranny.backends.accounts import service_account
from cranny.backends.accounts_file import read_accounts
from cranny.backends.launcher import SOURCE, Launcher
from cranny.backends.local import ENTERED
from cranny.backends.privileges import CAPABILITIES, Account, can_launch, give_up
from cranny.model.errors import InputError

PAGE = "docs/use/users.md"


def check_one_user() -> None:
    """Refuse to run jobs of all users as root."""
    if os.geteuid() == 0:
        raise InputError(
            "jobs would run as root, and any of them could read and change everything: give --accounts, or start "
            f"it as another user; --jobs-as-root if every user may be root ({PAGE})"
        )


def apart(accounts: str, run_as: str | None, folder: Path) -> Launcher:
    """Start what runs jobs under the accounts of their users, and give up all other rights of this process."""
    if not sys.platform.startswith("linux") or not can_launch():
        raise InputError(f"--accounts: only root can do that, or Linux' {', '.join(CAPABILITIES)} ({PAGE})")
    names = read_accounts(accounts)
    own = None
    if os.geteuid() == 0:
        if run_as is None:
            raise InputError(
                "--accounts: give --run-as as well, the account of the service: it needs no rights of root"
            )
        own = service_account(run_as)
    elif run_as is not None:
        raise InputError("--run-as: only root can become another account")
    _prepare(folder, own)
    for path in (Path(sys.base_prefix), Path(sys.prefix), Path(SOURCE)):
        _check_entered(path, "the programs of cranny must be where all accounts can read them, such as /opt")
    launcher = Launcher(names, own)
    give_up(own)
    os.umask(0o077)  # the folder can be entered by others: what is in it is for the service only, unless said
    # The account need not have a home: what is compiled is kept here, out of the reach of jobs.
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder / "compiled"))
    if own is not None:
        os.environ |= {"HOME": own.home, "USER": own.name, "LOGNAME": own.name}
    return launcher


def _prepare(folder: Path, own: Account | None) -> None:
    """Let the service have its folder, and jobs reach in it what is theirs."""
    folder.mkdir(parents=True, exist_ok=True, mode=ENTERED)
    if own is not None and folder.stat().st_uid != own.uid:
        if any(folder.iterdir()):
            raise InputError(f"--folder: {folder}: does not belong to {own.name}, the account of the service")
        os.chown(folder, own.uid, own.gid)
    folder.chmod(ENTERED)
    _check_entered(folder, "jobs must reach their channels in it: choose another, such as /var/lib/cranny")


def _check_entered(path: Path, why: str) -> None:
    """Refuse a folder that other accounts cannot enter."""
    for each in (path.resolve(), *path.resolve().parents):
        mode = stat.S_IMODE(each.stat().st_mode)
        if not mode & stat.S_IXOTH:
            raise InputError(f"--accounts: {each}: other accounts cannot enter it (mode {mode:o}); {why}")
