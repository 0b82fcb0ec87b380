"""Control groups of Linux (v2): all processes of an attempt are in one, so that none is missed when it ends.

A process cannot leave its group without the right to write into another one. Which controllers there are does not
matter: a group without any can still be killed as a whole, and says whether anything is left in it.

Supervisors use it: it imports little.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
CHILD = "attempts"  # the group of a launcher's attempts, within its own


class ControlGroup(NamedTuple):
    """A control group."""

    folder: Path

    @classmethod
    def make(cls, parent: Path | None, name: str) -> "ControlGroup | None":
        """Make a group; None if there are no control groups, or this process may not."""
        if parent is None:
            return None
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            return None
        if not (folder / "cgroup.kill").exists():  # before Linux 5.14
            folder.rmdir()
            return None
        return cls(folder)

    def enter(self) -> None:
        """Put this process into the group; what it starts is in it, too."""
        (self.folder / "cgroup.procs").write_text("0", encoding="ascii")

    def kill(self) -> None:
        """Kill all processes of the group at once."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "cgroup.kill").write_text("1", encoding="ascii")

    @property
    def is_empty(self) -> bool:
        """Whether no process is left in it, or in groups within it."""
        try:
            return "populated 0" in (self.folder / "cgroup.events").read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return True

    def remove(self) -> None:
        """Remove the group, which must be empty, and those that its processes made in it."""
        with contextlib.suppress(OSError):  # one that stays costs little, and says no process is in it
            for folder, _, _ in os.walk(self.folder, topdown=False):
                os.rmdir(folder)  # noqa: PTH106 - its files cannot be removed


def own_group() -> Path | None:
    """Return the folder of the group of this process; None without control groups."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text(encoding="ascii").splitlines()]
        names = OWN.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    name = next((line.removeprefix("0::") for line in names if line.startswith("0::/")), None)
    # Fields of a mount: its root there, and where it is mounted, before a dash; then the kind.
    for fields in mounts:
        if name is not None and fields[fields.index("-") + 1] == "cgroup2":
            root, mounted = fields[3].rstrip("/"), Path(fields[4])
            if name == root or name.startswith(f"{root}/"):
                return mounted / name.removeprefix(root).lstrip("/")
    return None


def give_groups(uid: int) -> None:
    """Let an account make groups for attempts, in a group that it has for itself; this process moves there.

    Root calls it before it becomes that account. Without control groups nothing happens.
    """
    own = own_group()
    made = ControlGroup.make(own, f"cranny-{os.getpid()}")
    if made is None or own is None:
        return
    for other in map(ControlGroup, own.glob("cranny-*")):  # of services that have ended
        if other.is_empty and other != made:
            other.remove()
    for name in ("launcher", CHILD):
        (made.folder / name).mkdir()
    ControlGroup(made.folder / "launcher").enter()
    for folder in (made.folder, made.folder / CHILD, made.folder / "launcher"):
        for path in (folder, folder / "cgroup.procs"):
            os.chown(path, uid, -1)


def attempts_group() -> Path | None:
    """Return the group in which a supervisor makes those of attempts."""
    own = own_group()
    if own is None:
        return None
    beside = own.parent / CHILD  # that of `give_groups`
    return beside if beside.is_dir() else own
