"""Logs that are compressed, or UTF-16 as PowerShell writes it: they are read from a copy that is removed again."""

import bz2
import codecs
import gzip
import lzma
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from cranny.model.errors import InputError

# By the first bytes of a file.
_KINDS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_OTHERS = {b"\x28\xb5\x2f\xfd": "zstd -d", b"PK\x03\x04": "unzip"}  # and what unpacks them


def open_unpacked(path: Path) -> BufferedIOBase | BinaryIO:
    """Open a file; what is read of it is unpacked if it is compressed."""
    match _kind(path):
        case "gzip":
            return gzip.GzipFile(path)
        case "bzip2":
            return bz2.BZ2File(path)
        case "xz":
            return lzma.LZMAFile(path)
        case "UTF-16":
            return codecs.EncodedFile(path.open("rb"), "utf-8", "utf-16", "replace")
        case _:
            return path.open("rb")


def advice(head: bytes) -> str | None:
    """Say what to do with a packed file that begins like this, if we cannot unpack it."""
    if b"[Content_Types].xml" in head:
        return "looks like a workbook of Excel: save its sheet as CSV"
    how = next((how for magic, how in _OTHERS.items() if head.startswith(magic)), None)
    return None if how is None else f"is compressed: unpack it with `{how}`"


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give a file that is not compressed: this one, or one that holds what it unpacks to."""
    kind = _kind(path)
    if kind is None:
        yield path
        return
    with TemporaryDirectory(prefix="cranny-") as folder:
        plain = Path(folder, path.stem)
        try:
            with open_unpacked(path) as packed, plain.open("wb") as copy:
                shutil.copyfileobj(packed, copy, 1 << 20)
        except (EOFError, lzma.LZMAError, OSError) as error:
            raise InputError(f"{path}: cannot be unpacked ({kind}): {error}") from None
        try:
            yield plain
        except InputError as error:  # names the file that was given
            raise InputError(str(error).replace(str(plain), str(path))) from None


def _kind(path: Path) -> str | None:
    with path.open("rb") as file:
        head = file.read(8)
    return next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), None)
