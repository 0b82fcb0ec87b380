"""What a sweep left in its folder."""

from pathlib import Path


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file by its path in the folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
