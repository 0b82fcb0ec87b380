"""Processes of this machine, identified by pid and start time, since the system reuses pids.

If the state of a process cannot be read, as when no more files may be opened, `OSError` is raised: it may still
run.
"""

import contextlib
import os
import signal
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cranny.backends.rank_logs import PIPE

PROC = Path("/proc")  # Linux; elsewhere `ps` and process groups are used
MOST_COMMAND = 60  # characters of a command that are shown
DELETED = " (deleted)"  # after the name of a file, in /proc
GONE = (FileNotFoundError, ProcessLookupError)  # the process has exited


class Process(NamedTuple):
    """A process, by its pid and start time."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> "Process":
        """Look up a running process."""
        return cls(pid, started(pid))

    def alive(self) -> bool:
        """Return whether the process still runs; reap it if it was our child."""
        if started(self.pid) != self.started:
            return False
        try:
            reaped, _ = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # a child of an earlier service
            return True
        return reaped == 0

    def send(self, number: int) -> None:
        """Send a signal, if the process still runs."""
        try:
            handle = os.pidfd_open(self.pid)  # refers to this process even if its pid is reused
        except ProcessLookupError:
            return
        except (AttributeError, OSError):  # not Linux, or an old one
            if started(self.pid) == self.started:
                os.kill(self.pid, number)
            return
        try:
            if started(self.pid) == self.started:
                signal.pidfd_send_signal(handle, number)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)


def started(pid: int) -> str:
    """Return the start time of a process as unique text; empty if it does not run.

    A child that ended and waits to be reaped counts as running only while we can reap it ourselves.
    """
    if not PROC.is_dir():
        import subprocess  # costly to import, and not needed on Linux

        command = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    fields = _stat(pid)
    if not fields or (fields[0] in "ZX" and int(fields[1]) != os.getpid()):
        return ""
    return f"{_boot()} {fields[19]}"


def descendants(root: int) -> dict[int, int]:
    """Return the running descendants of a process, each with its process group; Linux only."""
    stats = {pid: fields for pid in _pids() if (fields := _stat(pid))}  # of each: state, parent, group
    below: dict[int, int] = {}
    known = {root}
    while found := {pid for pid, fields in stats.items() if int(fields[1]) in known} - known:
        known |= found
        below |= {pid: int(stats[pid][2]) for pid in found if stats[pid][0] not in "ZX"}
    return below


def catches(pid: int, number: int) -> bool:
    """Return whether a process has a handler for a signal; Linux only."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except GONE:
        return False
    masks = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def carrying(variable: str, value: str) -> list[int]:
    """Return the processes that were started with a variable in their environment; Linux only."""
    wanted = f"{variable}={value}".encode()
    found = []
    for pid in _pids():
        try:
            if wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
        except (*GONE, PermissionError):  # ended meanwhile, or another user's
            continue
    return found


def writing_to_pipes(folder: Path) -> list[int]:
    """Return the processes that have a named pipe in a folder open to write, as ranks have those of their logs.

    They may have left their session, their parent and their environment. Linux only; other users' are not found.
    """
    prefix = f"{folder}/"
    found = []
    for pid in set(_pids()) - {os.getpid()}:
        with contextlib.suppress(*GONE, PermissionError, NotADirectoryError):
            for link in (PROC / str(pid) / "fd").iterdir():
                name = str(link.readlink())
                if (
                    name.startswith(prefix)
                    and name.removesuffix(DELETED).endswith(PIPE)
                    and _writes(pid, link.name)
                ):
                    found.append(pid)
                    break
    return found


def _writes(pid: int, descriptor: str) -> bool:
    text = (PROC / str(pid) / "fdinfo" / descriptor).read_text(encoding="ascii")
    flags = next(int(line.split()[1], 8) for line in text.splitlines() if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY


def command_of(pid: int) -> str:
    """Return what a process runs, short and in printable characters; empty if it has ended."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        words = words or f"[{(PROC / str(pid) / 'comm').read_text(errors='replace').strip()}]"
    except (OSError, UnicodeDecodeError):
        return ""
    return "".join(each if each.isprintable() else "?" for each in words[:MOST_COMMAND])


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """Read state, parent, group and the other fields of /proc/PID/stat; empty if the process has exited."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except GONE:
        return []
    return text.rpartition(")")[2].split()  # the name before it may hold anything


@cache
def _boot() -> str:
    """Return the boot id, since start times count from boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
