"""Control groups of Linux: all processes of an attempt are in one, so that none is missed when it ends.

A process cannot leave its group without the right to write into another one. In v2 a group can be killed as a
whole, and says whether anything is left in it, whatever controllers there are. Limits are set there, or in groups
of v1 (see `resource_limits`): an attempt has a group of the same name in each tree that it needs.

Supervisors use it: it imports little.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cranny.backends.resource_limits import CONTROLLERS, WORDS, ResourceLimits, killed_for_memory

MOUNTS, OWN = Path("/proc/self/mountinfo"), Path("/proc/self/cgroup")
UNIFIED = ""  # the tree of v2, among those of controllers of v1
CHILD = "attempts"  # the group of a launcher's attempts, within its own


class ControlGroup(NamedTuple):
    """A control group of v2."""

    folder: Path

    @classmethod
    def make(cls, parent: Path | None, name: str) -> "ControlGroup | None":
        """Make a group, unless it is there; None if there are no control groups, or this process may not."""
        if parent is None:
            return None
        folder = parent / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError:
            return None
        if not (folder / "cgroup.kill").exists():  # before Linux 5.14
            folder.rmdir()
            return None
        return cls(folder)

    def enter(self) -> None:
        """Put this process into the group; what it starts is in it, too."""
        enter(self.folder)

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

    @property
    def pids(self) -> list[int]:
        """The processes in it, and in groups within it."""
        found: list[int] = []
        for folder, _, _ in os.walk(self.folder):
            with contextlib.suppress(OSError):
                found += map(int, (Path(folder) / "cgroup.procs").read_text(encoding="ascii").split())
        return found

    def remove(self) -> None:
        """Remove the group, which must be empty, and those that its processes made in it."""
        remove(self.folder)


class AttemptGroups(NamedTuple):
    """The groups of an attempt: one that holds its processes together, if any, and those with limits."""

    whole: ControlGroup | None
    limited: tuple[Path, ...]  # of v1

    @classmethod
    def make(cls, name: str, limits: ResourceLimits) -> "AttemptGroups":
        """Make the groups; `OSError` says which limit cannot be set."""
        parents = attempt_parents()
        whole = ControlGroup.make(parents.get(UNIFIED), name)
        limited: list[Path] = []
        try:
            for controller in limits.controllers:
                if whole is not None and (whole.folder / f"{controller}.max").exists():
                    limits.set_unified(controller, whole.folder)
                    continue
                folder = _separate(parents, controller) / name
                folder.mkdir(exist_ok=True)
                limited.append(folder)
                limits.set_separate(controller, folder)
        except OSError:
            cls(whole, tuple(limited)).remove()
            raise
        return cls(whole, tuple(limited))

    @classmethod
    def read(cls, written: object) -> "AttemptGroups":
        """Return the groups that `folders` named."""
        match written:
            case [str() | None as whole, *limited]:
                return cls(
                    None if whole is None else ControlGroup(Path(whole)),
                    tuple(Path(str(each)) for each in limited),
                )
        return cls(None, ())

    @property
    def folders(self) -> list[str | None]:
        """The names of all, to be written."""
        return [None if self.whole is None else str(self.whole.folder), *map(str, self.limited)]

    def enter(self) -> None:
        """Put this process into all of them."""
        for folder in self.limited:
            enter(folder)
        if self.whole is not None:
            self.whole.enter()

    @property
    def killed_for_memory(self) -> int:
        """How many processes were killed at the limit of memory."""
        return sum(killed_for_memory(each) for each in (*self.limited, *(self.whole or ())))

    def remove(self) -> None:
        """Remove all, which must be empty."""
        for folder in (*self.limited, *(self.whole or ())):
            remove(folder)


def _separate(parents: Mapping[str, Path], controller: str) -> Path:
    """Return the parent of groups in the tree that a controller has for itself."""
    if controller not in parents:
        raise OSError(f"no control group can limit {WORDS[controller]}")
    return parents[controller]


def enter(folder: Path) -> None:
    """Put this process into a group, of v1 or v2."""
    (folder / "cgroup.procs").write_text("0", encoding="ascii")


def remove(group: Path) -> None:
    """Remove a group, and those within it."""
    with contextlib.suppress(OSError):  # one that stays costs little, and says no process is in it
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)  # noqa: PTH106 - its files cannot be removed


def own_groups() -> dict[str, Path]:
    """Return the folders of the groups of this process: that of v2, and of controllers that have trees of v1."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
        lines = OWN.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    found: dict[str, Path] = {}
    for line in lines:
        _, controllers, name = line.split(":", 2)
        for controller in controllers.split(","):
            if controller == UNIFIED or controller in CONTROLLERS:
                with contextlib.suppress(StopIteration):
                    found[controller] = next(_mounted(mounts, controller, name))
    return found


def _mounted(mounts: Sequence[Sequence[str]], controller: str, name: str) -> Iterator[Path]:
    """Yield where a group is mounted.

    The fields of a mount are its root there, and where it is mounted, before a dash; then the kind, and last its
    options, which name the controllers.
    """
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind == "cgroup2" if controller == UNIFIED else kind == "cgroup" and controller in options:
            root, mounted = fields[3].rstrip("/"), Path(fields[4])
            if name == root or name.startswith(f"{root}/"):
                yield mounted / name.removeprefix(root).lstrip("/")


def give_groups(uid: int, service: int) -> None:
    """Let an account make groups for attempts, in groups that it has for itself; this process moves there.

    Root calls it before it becomes that account; `service` is the process that started this one. Without control
    groups nothing happens.
    """
    for tree, own in own_groups().items():
        with contextlib.suppress(OSError):  # read-only, or all of another account
            _give(own / f"cranny-{os.getpid()}", uid)
            if tree == UNIFIED:
                _share_controllers(own, own / f"cranny-{os.getpid()}", service, uid)
            for other in own.glob("cranny-*"):
                if not (other / "launcher" / "cgroup.procs").read_text(encoding="ascii"):  # its service has ended
                    remove(other)


def _give(made: Path, uid: int) -> None:
    """Make the groups of a launcher and its attempts."""
    for folder in (made, made / CHILD, made / "launcher"):
        folder.mkdir()
        for path in (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control"):
            if path.exists():  # the last only in v2
                os.chown(path, uid, -1)
    enter(made / "launcher")


def _share_controllers(own: Path, made: Path, service: int, uid: int) -> None:
    """Let groups of attempts have the controllers that this one has (v2).

    The kernel wants no process beside groups that have controllers, so the service moves as well. Where others are
    beside them, as in the session of a user, limits cannot be set.
    """
    (made / "service").mkdir()
    (made / "service" / "cgroup.procs").write_text(str(service), encoding="ascii")
    os.chown(made / "service", uid, -1)
    wanted = set((own / "cgroup.controllers").read_text(encoding="ascii").split()) & set(CONTROLLERS)
    text = " ".join(f"+{each}" for each in sorted(wanted))
    for folder in (own, made, made / CHILD) if wanted else ():
        (folder / "cgroup.subtree_control").write_text(text, encoding="ascii")


def attempt_parents() -> dict[str, Path]:
    """Return the groups in which a supervisor makes those of attempts: that of v2, and of controllers of v1."""
    parents = {}
    for tree, own in own_groups().items():
        beside = own.parent / CHILD  # that of `give_groups`
        parents[tree] = beside if beside.is_dir() else own
    return parents


def limitable() -> list[str]:
    """Return the controllers whose limits can be set here, found by trying."""
    found = []
    for controller in CONTROLLERS:
        tried = ResourceLimits(*(2**20 if each == controller else None for each in CONTROLLERS))
        with contextlib.suppress(OSError):
            AttemptGroups.make(f"try-{os.getpid()}", tried).remove()
            found.append(controller)
    return found
