"""The launcher: the only process of a service that may act as other users.

    python -m cranny.backends.launcher SOCKET

A service that runs jobs under the accounts of their users starts it, and then gives up all its rights. It is asked
through a socket to start supervisors, and starts them for users that have an account. Supervisors keep its
capabilities; everything else of a job runs under the account of its user. What the service itself says about an
account does not count: the launcher has its own list. It ends with the service; supervisors go on.

It imports little, and reads nothing but its requests.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cranny.backends.accounts import account_of
from cranny.backends.attempt_files import AttemptFiles
from cranny.backends.control_group import UNIFIED, ControlGroup, attempt_parents, give_groups, limitable
from cranny.backends.device_filter import DeviceNumber, deny
from cranny.backends.privileges import Account, as_arguments, keep_for_launching
from cranny.model.errors import CrannyError

MAX_REQUEST = 16_777_216  # bytes; the first has all accounts
ANSWER_S = 60.0  # how long the service waits for an answer
SOURCE = str(Path(__file__).parents[2])
BLOCKED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Launcher:
    """The service's end: starts the launcher, and asks it."""

    def __init__(self, names: Mapping[str, str] | None, account: Account | None) -> None:
        """Start the launcher; `account` is that of the service if it must still become it."""
        self._socket, other = socket.socketpair()
        with other:
            argv = module("cranny.backends.launcher", str(other.fileno()))
            os.set_inheritable(other.fileno(), True)  # noqa: FBT003 - it has no name
            env = {"PATH": os.defpath, "PYTHONPATH": SOURCE}
            self.pid = os.posix_spawn(sys.executable, argv, env, setsid=True)
        self._socket.settimeout(ANSWER_S)
        self._names, self._asked = names, 0
        self.enforced: list[str] = self._ask({"names": names, "account": account})  # see `enforceable`

    def account(self, user: str) -> Account:
        """Return the account of a user; `CrannyError` says why there is none."""
        return account_of(user, self._names)

    def start(self, user: str, log_dir: Path, attempt: int, denied: Sequence[DeviceNumber] = ()) -> int:
        """Start the supervisor of an attempt, and return its pid; `CrannyError` says why it cannot be started."""
        asked = {"user": user, "log_dir": str(log_dir), "attempt": attempt, "denied": denied}
        answer: int = self._ask(asked)
        return answer

    def close(self) -> None:
        """End the launcher."""
        self._socket.close()
        os.waitpid(self.pid, 0)

    def _ask(self, request: Mapping[str, Any]) -> Any:
        self._asked += 1
        answer: dict[str, Any] | None = {}
        try:
            send(self._socket, {**request, "number": self._asked})
            while answer is not None and answer.get("to") != self._asked:  # one before may have come too late
                answer = receive(self._socket)
        except OSError as error:
            raise CrannyError(f"the launcher does not answer: {error}; restart the service") from error
        match answer:
            case None:
                raise CrannyError("the launcher has ended; restart the service")
            case {"number": int(number), "text": str(text)}:  # of an OSError, which may pass
                raise OSError(number, text)
            case {"error": str(text)}:
                raise CrannyError(text)
            case {"done": value}:
                return value
        raise CrannyError("the launcher gives an answer that cannot be read; restart the service")


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    """Send a message, its length first."""
    text = json.dumps(message).encode()
    connection.sendall(len(text).to_bytes(4) + text)


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """Receive a message; None if the other end is closed, or sends what is none."""
    size = int.from_bytes(_received(connection, 4))
    if not 0 < size <= MAX_REQUEST:
        return None
    try:
        found = json.loads(_received(connection, size))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _received(connection: socket.socket, size: int) -> bytes:
    """Receive so many bytes; fewer if the other end is closed."""
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module with the standard library and this package only."""
    return [sys.executable, "-P", "-S", "-m", name, *arguments]


def enforceable() -> list[str]:
    """Return what control groups keep jobs from here: controllers with limits, and `devices`; found by trying."""
    return [*limitable(), *(["devices"] if _deny(f"try-{os.getpid()}", [DeviceNumber(0, 0)], leave=False) else [])]


def _deny(name: str, devices: Sequence[DeviceNumber], *, leave: bool = True) -> bool:
    """Make the group of an attempt in which some devices cannot be opened; return whether that worked."""
    group = ControlGroup.make(attempt_parents().get(UNIFIED), name)
    if group is None:
        return False
    try:
        deny(group.folder, devices)
    except OSError:
        leave = False
        return False
    else:
        return True
    finally:
        if not leave:
            group.remove()


def spawn_supervisor(
    log_dir: Path,
    attempt: int,
    env: Mapping[str, str],
    account: Sequence[str] = (),
    denied: Sequence[DeviceNumber] = (),
) -> int:
    """Start a supervisor in a session of its own, with signals blocked until it has its handlers.

    The devices that its job must not open are kept from it where that can be done.
    """
    group = f"attempt-{secrets.token_hex(6)}"
    if denied:
        _deny(group, denied)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, str(AttemptFiles.of(log_dir, attempt).errors), flags, 0o600),
    ]
    return os.posix_spawn(
        sys.executable,
        module("cranny.backends.supervisor", str(log_dir), str(attempt), group, *account),
        {**env, "PYTHONPATH": SOURCE},
        file_actions=actions,
        setsid=True,
        setsigmask=BLOCKED,
        setsigdef=(signal.SIGCHLD,),
    )


def main(connection: socket.socket) -> None:
    """Answer the service until it closes the socket.

    The first request has the accounts, and comes while the service is trusted with more than this: later ones can
    only name users.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are reaped by the system
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it ends with the service, and not before
        signal.signal(number, signal.SIG_IGN)
    settings: dict[str, Any] = {}

    def settle(first: dict[str, Any]) -> list[str]:
        account = None if first["account"] is None else Account(*first["account"])
        give_groups(os.getuid() if account is None else account.uid, os.getppid())
        keep_for_launching(account)
        settings.update(first)
        return enforceable()

    def start(request: dict[str, Any]) -> int:
        account = as_arguments(account_of(str(request["user"]), settings["names"]))
        denied = [DeviceNumber(int(major), int(minor)) for major, minor in request["denied"]]
        where = Path(str(request["log_dir"])), int(request["attempt"])
        return spawn_supervisor(*where, {"PATH": os.defpath}, account, denied)

    with contextlib.suppress(ConnectionResetError):
        while (request := receive(connection)) is not None:
            send(connection, {**_answer(start if settings else settle, request), "to": request.get("number")})


def _answer(do: Callable[[dict[str, Any]], Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"done": do(request)}
    except OSError as error:
        return {"number": error.errno, "text": error.strerror}
    except (CrannyError, ValueError, KeyError, TypeError, OverflowError) as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
