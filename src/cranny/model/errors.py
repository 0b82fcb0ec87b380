"""The errors that cranny raises, each with one line that a person can act on."""

import difflib
from collections.abc import Iterable

NEAR = 0.65  # how alike a name must be to be suggested; `jsp` is still like `jps`
MOST_NAMES = 60  # of those that are known, to list them all


class CrannyError(Exception):
    """Anything cranny refuses to do; the message is one clear line."""


class InputError(CrannyError, ValueError):
    """What the user gave cannot be used."""


# The extra of the package that brings a library.
EXTRA_OF = {
    "authlib": "oidc",
    "fastapi": "service",
    "httpx": "service",
    "joserfc": "oidc",
    "matplotlib": "repro",
    "ortools": "exact",
    "prometheus_client": "service",
    "psycopg": "service",
    "ray": "ray",
    "sqlalchemy": "service",
    "starlette": "service",
    "torch": "torch",
    "uvicorn": "service",
}


class MissingExtraError(CrannyError):
    """A library is not installed that comes with an extra of the package."""

    def __init__(self, what: str, library: str | None) -> None:
        name = (library or "").partition(".")[0]
        extra = EXTRA_OF.get(name)
        how = f"pip install 'cranny[{extra}]'" if extra else f"pip install {name}"
        super().__init__(f"{what} needs {name!r}: {how}")


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
    name, names = str(name), sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=NEAR) or [
        each for each in names if name and each.startswith(name)
    ]
    if near:
        hint = f"did you mean {near[0]!r}?"
    elif len(names) > MOST_NAMES:
        hint = f"known: {', '.join(names[:3])} and {len(names) - 3} more"
    else:
        hint = f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
