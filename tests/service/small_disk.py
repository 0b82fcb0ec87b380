"""A disk that is small enough to be filled. Only root can mount it."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """Mount a small disk on a new folder; yield whether that could be done."""
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and not subprocess.run(argv, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Use all space that is left."""
    path = folder / "fills"
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 512):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return path
