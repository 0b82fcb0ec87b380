"""The errors that cranny raises, each with one line that a person can act on."""

import difflib
from collections.abc import Iterable


class CrannyError(Exception):
    """Anything cranny refuses to do; the message is one clear line."""


class InputError(CrannyError, ValueError):
    """What the user gave cannot be used."""


class StalePlanError(CrannyError):
    """A plan was made for a state that has changed since."""


class PlacementError(CrannyError):
    """A placement does not fit the cluster as it is now."""


def at(file: object, line: int | None = None, field: str | None = None) -> str:
    """Name a spot in a file the way compilers do: `file:line: field`."""
    spot = str(file) if line is None else f"{file}:{line}"
    return spot if field is None else f"{spot}: {field}"


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Say that `name` is not known and suggest the nearest name that is."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
