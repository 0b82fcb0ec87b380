"""The file by which commands find the server that was started last, shared by all that run."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from cranny.service.server_file import Known

PATIENCE_S = 1.0  # for a server that is asked whether it is there


@contextmanager
def written_down(folder: Path, known: "Known") -> Iterator[None]:
    """Write down where a server is while it serves.

    Another server may have written there before: it gets its place back if it still serves then. Another may
    come later: its file is left alone.
    """
    from cranny.service.server_file import ADDRESS_FILE, write_address

    path = folder / ADDRESS_FILE
    before = _read(path)
    write_address(folder, known)
    try:
        yield
    finally:
        if _read(path) == known:
            if before is not None and before.url != known.url and _serves(before):
                write_address(folder, before)
            else:
                path.unlink(missing_ok=True)


def _read(path: Path) -> "Known | None":
    """Read who is written down; None if nobody is, or if somebody spoilt the file."""
    from cranny.service.server_file import Known

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Known(str(value["url"]), value["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _serves(known: "Known") -> bool:
    """Tell whether somebody listens at an address."""
    try:
        spot = urlsplit(known.url)
        with socket.create_connection((spot.hostname, spot.port), PATIENCE_S):
            return True
    except (OSError, ValueError, TypeError):
        return False
