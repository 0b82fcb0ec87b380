"""The file by which commands find the server that was started last, shared by all that run."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cranny.service.server_file import ServerAddress

PATIENCE_S = 1.0  # for a server that is asked whether it is there


@contextmanager
def published(folder: Path, known: "ServerAddress") -> Iterator[None]:
    """Write down where a server is while it serves.

    Another server may have written there before: it gets its place back if it still serves then. Another may
    come later: its file is left alone.
    """
    from cranny.service.server_file import ADDRESS_FILE, write_server_file

    path = folder / ADDRESS_FILE
    before = _read(path)
    write_server_file(folder, known)
    try:
        yield
    finally:
        if _read(path) == known:
            if before is not None and before.url != known.url and _serves(before):
                write_server_file(folder, before)
            else:
                path.unlink(missing_ok=True)


def _read(path: Path) -> "ServerAddress | None":
    """Read who is written down; None if nobody is, or if somebody spoilt the file."""
    from cranny.service.server_file import ServerAddress

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return ServerAddress(str(value["url"]), value["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _serves(known: "ServerAddress") -> bool:
    """Tell whether somebody listens at an address."""
    try:
        spot = urlsplit(known.url)
        with socket.create_connection((spot.hostname, spot.port), PATIENCE_S):
            return True
    except (OSError, ValueError, TypeError):
        return False
