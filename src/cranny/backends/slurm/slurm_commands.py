"""Calls of Slurm's commands: lists of arguments, with a time limit, and with errors of one line."""

import errno
import json
import os
import re
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cranny.backends.protocol import BackendError

TIMEOUT_S = 30.0
MOST_BYTES = 512 * 2**20  # of what a command prints
MOST_ERRORS = 65_536  # bytes
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_JWT")  # of our environment
# Slurm does not answer now, but may do so later.
_DOWN = re.compile(
    r"unable to contact slurm|connection refused|socket timed out|communication connection failure|zero bytes|"
    r"connection timed out|in standby mode|unable to establish|munge|authentication|unexpected message|"
    r"transport endpoint|connection reset|no route to host|controller is (busy|shutting)|try again",
    re.IGNORECASE,
)
_DENIED = re.compile(r"access/permission denied|invalid user|not permitted|must be root", re.IGNORECASE)
_NO_JOB = re.compile(r"invalid job id", re.IGNORECASE)


class SlurmDownError(OSError):
    """Slurm does not answer; a later call may succeed."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EAGAIN, text)
        self._text = text

    def __str__(self) -> str:
        return self._text


class SlurmDeniedError(BackendError):
    """Slurm refuses a call for lack of rights."""


class UnknownSlurmJobError(BackendError):
    """Slurm does not know a job, or no longer."""


class SlurmCommands:
    """Calls the commands of one Slurm."""

    def __init__(self, timeout_s: float = TIMEOUT_S, conf: str | None = None) -> None:
        """Set a limit for each call, and slurm.conf if it is not the one of this machine."""
        self.timeout_s = timeout_s
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self._env = {"PATH": os.defpath, **kept, "LC_ALL": "C", "TZ": "UTC"}
        if conf is not None:
            self._env["SLURM_CONF"] = conf
        self.calls = 0  # so far, by which their rate is known

    def call(self, *argv: str, env: Mapping[str, str] | None = None) -> str:
        """Run a command and return what it prints; raise `SlurmDownError`, or another `BackendError`."""
        self.calls += 1
        name = argv[0]
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell, and what is asked for is ours
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**self._env, **(env or {})},
            )
        except FileNotFoundError:
            text = f"{name} was not found: install Slurm's client commands, or put them on the PATH of the service"
            raise BackendError(text) from None
        except PermissionError as error:
            raise BackendError(f"{name} cannot be run: {error.strerror}") from None
        with process:
            try:
                code, printed, errors = _finish(process, name, self.timeout_s)
            finally:
                if process.poll() is None:
                    process.kill()
        if code:
            raise _error(argv, code, errors)
        return printed.decode(errors="replace")

    def json(self, *argv: str) -> Mapping[str, Any]:
        """Run a command that prints a JSON object."""
        printed = self.call(*argv, "--json")
        try:
            found = json.loads(printed)
        except (ValueError, RecursionError) as error:
            start = " ".join(printed[:60].split())
            raise BackendError(f"{argv[0]} --json prints no JSON: {error}; it begins with {start!r}") from None
        if not isinstance(found, dict):
            raise BackendError(f"{argv[0]} --json prints no object")
        if found.get("errors"):  # with exit code 0: an empty list of jobs beside it means nothing
            raise SlurmDownError(f"{argv[0]}: Slurm does not answer: {described(found['errors'])}")
        return found


def _finish(process: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[int, bytes, str]:
    """Read what a command prints until it ends, within bounds of time and size."""
    until_s = time.monotonic() + timeout_s
    printed, errors = bytearray(), bytearray()
    with selectors.DefaultSelector() as watched:
        for stream, holder in ((process.stdout, printed), (process.stderr, errors)):
            if stream is not None:
                watched.register(stream, selectors.EVENT_READ, holder)
        while watched.get_map():
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise SlurmDownError(f"{name} did not answer within {timeout_s:g} s: Slurm hangs or is overloaded")
            for key, _ in watched.select(left_s):
                more = os.read(key.fd, 2**20)
                if not more:
                    watched.unregister(key.fileobj)
                elif key.data is printed or len(errors) < MOST_ERRORS:
                    key.data.extend(more)
                if len(printed) > MOST_BYTES:
                    raise BackendError(f"{name} printed more than {MOST_BYTES >> 20} MiB, which is not read")
    try:
        code = process.wait(max(0.1, until_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise SlurmDownError(f"{name} does not end") from None
    return code, bytes(printed), errors.decode(errors="replace")


def described(errors: Any) -> str:
    """Return the words of the first of the errors in an answer."""
    first = errors[0] if isinstance(errors, list) and errors else errors
    parts = first if isinstance(first, dict) else {"error": first}
    return ", ".join(str(parts[name]) for name in ("description", "error", "source") if parts.get(name))[:300]


def _error(argv: Sequence[str], code: int, errors: str) -> Exception:
    """Make the error of a command that failed."""
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not line.startswith("Try ")]
    said = re.sub(r"^(\w+: )(error: )?", r"\1", lines[-1])[:300] if lines else f"exit code {code}"
    name = argv[0]
    said = said if said.startswith(f"{name}:") else f"{name}: {said}"
    if _NO_JOB.search(errors):
        return UnknownSlurmJobError(said)
    if _DENIED.search(errors):
        return SlurmDeniedError(f"{said}; docs/use/slurm.md lists the rights that cranny needs")
    if _DOWN.search(errors):
        return SlurmDownError(said)
    return BackendError(said)
