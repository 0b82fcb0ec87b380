"""The folder of the service, and the file in it by which commands on this machine find the server."""

import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from cranny.model.errors import InputError

SERVER_FILE = "server.json"
INVALID = (OSError, ValueError, KeyError, TypeError)  # why a server file cannot be read
CONNECT_S = 1.0  # how long to wait when checking whether another server still listens


_log = logging.getLogger("cranny.service")


class ServerAddress(NamedTuple):
    """The URL of a server, and a token for it."""

    url: str
    token: str | None


def state_folder() -> Path:
    """Return cranny's folder under the user's XDG state folder."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "cranny"


def write_server_file(folder: Path, known: ServerAddress) -> Path:
    """Write the server file, readable by its owner only."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, fresh = folder / SERVER_FILE, folder / f"{SERVER_FILE}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(known._asdict(), file)
    fresh.replace(path)
    return path


@contextmanager
def published(folder: Path, own: ServerAddress) -> Iterator[None]:
    """Keep the address of a server in its file while it serves.

    If the file held the address of another server that still listens then, it is restored; if a later server has
    replaced the file, it is left alone.
    """
    path = folder / SERVER_FILE
    before = _read_if_valid(path)
    try:
        write_server_file(folder, own)
    except OSError as error:  # such as a full disk: the server is still found by --server
        _log.warning("%s: cannot be written: %s; commands need --server and a token", path, error.strerror)
    try:
        yield
    finally:
        if _read_if_valid(path) == own:
            if before is not None and before.url != own.url and _listens(before):
                write_server_file(folder, before)
            else:
                path.unlink(missing_ok=True)


def find_server(server: str | None, token_file: Path | None) -> ServerAddress:
    """Find the server: as given, in the environment, or in the file that `cranny serve` wrote."""
    token = os.environ.get("CRANNY_TOKEN")
    if token_file is not None:
        try:
            token = token_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            raise InputError(f"--token-file: {token_file}: there is no such file") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--token-file: {token_file}: cannot be read: {error}") from None
    url = server or os.environ.get("CRANNY_SERVER")
    if url is not None and not url.startswith(("http://", "https://")):
        raise InputError(f"--server: must begin with http:// or https://, not {url!r}")
    path, known = state_folder() / SERVER_FILE, None
    try:
        known = _read(path)
    except INVALID as error:
        if not isinstance(error, FileNotFoundError):
            raise InputError(f"{path}: cannot be read: {error}") from None
    if url is not None:
        if token is None and known is not None and known.url == url.rstrip("/"):
            token = known.token
        return ServerAddress(url.rstrip("/"), token)
    if known is None:
        raise InputError("no server known: start one with `cranny serve`, or give --server or CRANNY_SERVER")
    return ServerAddress(known.url, token or known.token)


def _read(path: Path) -> ServerAddress:
    value = json.loads(path.read_text(encoding="utf-8"))
    return ServerAddress(str(value["url"]), value["token"])


def _read_if_valid(path: Path) -> ServerAddress | None:
    try:
        return _read(path)
    except INVALID:
        return None


def _listens(known: ServerAddress) -> bool:
    """Return whether a server accepts connections at an address."""
    try:
        parts = urlsplit(known.url)
        with socket.create_connection((parts.hostname, parts.port), CONNECT_S):
            return True
    except (OSError, ValueError, TypeError):
        return False
