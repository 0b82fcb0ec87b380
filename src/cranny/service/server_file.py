"""Where the service keeps its things, and how commands on this machine find it."""

import json
import os
from pathlib import Path
from typing import NamedTuple

from cranny.model.errors import InputError

ADDRESS_FILE = "server.json"


class ServerAddress(NamedTuple):
    """A server, and a token for it."""

    url: str
    token: str | None


def state_folder() -> Path:
    """Return the user's folder for what programs keep."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "cranny"


def write_server_file(folder: Path, known: ServerAddress) -> Path:
    """Write down where the server is, for the owner's eyes only."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, fresh = folder / ADDRESS_FILE, folder / f"{ADDRESS_FILE}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(known._asdict(), file)
    fresh.replace(path)
    return path


def find_server(server: str | None, token_file: Path | None) -> ServerAddress:
    """Find the server: as told, in the environment, or as `cranny serve` wrote it down."""
    token = _token(token_file)
    url = server or os.environ.get("CRANNY_SERVER")
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise InputError(f"--server: must begin with http:// or https://, not {url!r}")
        known = _written()
        if token is None and known is not None and known.url == url.rstrip("/"):
            token = known.token
        return ServerAddress(url.rstrip("/"), token)
    known = _written()
    if known is None:
        raise InputError("no server is known: start one with `cranny serve`, or give --server or CRANNY_SERVER")
    return ServerAddress(known.url, token or known.token)


def _token(token_file: Path | None) -> str | None:
    if token_file is None:
        return os.environ.get("CRANNY_TOKEN")
    try:
        return token_file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise InputError(f"--token-file: {token_file}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--token-file: {token_file}: cannot be read: {error}") from None


def _written() -> ServerAddress | None:
    path = state_folder() / ADDRESS_FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return ServerAddress(value["url"], value["token"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
