"""Slurm as slurmrestd has it: jobs, nodes and reservations for a host without Slurm's commands, to read alone."""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cranny.backends.cluster_reading import Reservation
from cranny.backends.protocol import BackendError
from cranny.backends.slurm.slurm_commands import MOST_BYTES, TIMEOUT_S, SlurmDeniedError, SlurmDownError, described
from cranny.backends.slurm.slurm_rights import account_name
from cranny.backends.slurm.slurm_values import count, names, objects, text, words

if TYPE_CHECKING:
    import httpx

SOCKET = Path("/run/slurmrestd.socket")  # of Debian's unit
_JOBS = re.compile(r"/slurm/v([0-9.]+)/jobs/?")


class SlurmRest:
    """Asks one slurmrestd, in the newest version of its interface."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        """Take `http://host:port`, or `unix:PATH` of a socket; the token in SLURM_JWT is sent if there is one."""
        self.address = address
        self._timeout_s = timeout_s

    def jobs(self) -> Mapping[str, Any]:
        """Return all jobs, as `squeue --json` prints them."""
        return self._get(f"{self._version}/jobs")

    def nodes(self) -> Mapping[str, Any]:
        """Return all nodes, as `sinfo --json` prints them."""
        return self._get(f"{self._version}/nodes")

    def reservations(self) -> list[Reservation]:
        """Return reservations; one for maintenance has no users."""
        return list(reservations_of(self._get(f"{self._version}/reservations")))

    @cached_property
    def _version(self) -> str:
        """The newest version that it knows: each has a path of its own."""
        paths = self._get("/openapi/v3").get("paths")
        found = [match[1] for path in paths or () if (match := _JOBS.fullmatch(path))]
        if not found:
            raise BackendError(f"slurmrestd at {self.address} lists no jobs: start it with an openapi plugin")
        return f"/slurm/v{max(found, key=lambda each: tuple(map(int, each.split('.'))))}"

    def _client(self) -> "httpx.Client":
        import httpx

        kind, _, path = self.address.partition("unix:")
        token = _token()
        headers = {"X-SLURM-USER-NAME": account_name(), "X-SLURM-USER-TOKEN": token} if token else {}
        if path and not kind:
            if not Path(path).is_socket():
                raise SlurmDownError(f"slurmrestd at {self.address} does not answer: there is no such socket")
            return httpx.Client(
                base_url="http://localhost", headers=headers, transport=httpx.HTTPTransport(uds=path)
            )
        if not self.address.startswith(("http://", "https://")):
            raise BackendError(f"slurmrestd: {self.address!r} is neither a URL nor unix:PATH")
        return httpx.Client(base_url=self.address, headers=headers)

    def _get(self, path: str) -> Mapping[str, Any]:
        import httpx

        where, body = f"slurmrestd at {self.address}", bytearray()
        try:
            with self._client() as client, client.stream("GET", path, timeout=self._timeout_s) as response:
                for more in response.iter_bytes():
                    body += more
                    if len(body) > MOST_BYTES:
                        raise BackendError(f"{where} sent more than {MOST_BYTES >> 20} MiB, which is not read")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SlurmDownError(f"{where} does not answer: {error or type(error).__name__}") from None
        if response.status_code in (401, 403):
            raise SlurmDeniedError(f"{where} refuses the token of SLURM_JWT, or there is none")
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise BackendError(f"{where}: no JSON for {path} (status {response.status_code})")
        if found.get("errors") or response.is_error:
            said = described(found["errors"]) if found.get("errors") else f"status {response.status_code}"
            refused = ", or refuses the token of SLURM_JWT" if _token() else ""  # it looks the same
            raise SlurmDownError(f"{where}: Slurm does not answer{refused}: {said}")
        return found


def _token() -> str:
    """Return the token that slurmrestd is sent; empty if there is none."""
    return os.environ.get("SLURM_JWT", "")


def chosen_rest(given: str | None) -> SlurmRest | None:
    """Return the slurmrestd that was asked for, or the one of this host if it has no commands of Slurm."""
    if given is None and shutil.which("squeue") is None and SOCKET.is_socket():
        given = f"unix:{SOCKET}"
    return None if given is None else SlurmRest(given)


def reservations_of(answer: Mapping[str, Any]) -> Iterator[Reservation]:
    """Read the reservations of an answer."""
    for entry in objects(answer.get("reservations")):
        machines = frozenset(names(entry.get("node_list")))
        maintenance = "MAINT" in {word.upper() for word in words(entry.get("flags"))}
        users, accounts = (
            frozenset() if maintenance else frozenset(words(entry.get(key))) for key in ("users", "accounts")
        )
        if machines:
            start_s, end_s = (float(count(entry.get(key))) for key in ("start_time", "end_time"))
            yield Reservation(text(entry.get("name")), machines, start_s, end_s, users, accounts)
