"""Values in Slurm's JSON, read by meaning: versions from 22.05 on write the same facts in several forms.

A number is `5`, `"5"` or `{"set": true, "infinite": false, "number": 5}`; a state is `"running"` or `["RUNNING"]`;
a list of nodes is text; a field that is not set is absent, null, empty or `{"set": false}`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cranny.backends.protocol import BackendError
from cranny.model.errors import InputError
from cranny.model.hostlist import expand

NO_VALUE = {0xFFFFFFFE, 0xFFFFFFFF, 0xFFFE, 0xFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF}  # not set, or no limit
_GPU = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?:[:/](?P<type>[A-Za-z][^:=,()]*))?(?:[:=](?P<count>[0-9]{1,9}))?(?=$|[,(])"
)


class GpuRequest(NamedTuple):
    """GPUs that a job asks for, on each node, for each task, or in all."""

    gpus: int
    type: str = ""


def number(value: Any) -> float | None:
    """Return a number; None if it is not set, or has no limit."""
    if isinstance(value, dict):
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value in NO_VALUE:
        return None
    return float(value)


def count(value: Any) -> int:
    """Return a count; 0 if it is not set."""
    found = number(value)
    return 0 if found is None else int(found)


def text(value: Any) -> str:
    """Return text; empty if it is not set."""
    return value if isinstance(value, str) and value not in ("(null)", "N/A") else ""


def words(value: Any) -> list[str]:
    """Return words from a list of them, or from text with commas or plus signs between."""
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str) and each]
    return [each for each in re.split(r"[,+]", text(value)) if each]


def states(*values: Any) -> frozenset[str]:
    """Return states and their flags in capitals."""
    return frozenset(word.upper() for value in values for word in words(value))


def names(value: Any) -> tuple[str, ...]:
    """Return the names of a host list."""
    try:
        return expand(text(value))
    except InputError as error:
        raise BackendError(f"Slurm: {error}") from None


def gpu_request(value: Any) -> GpuRequest | None:
    """Return the GPUs of `gres:gpu:h100:2`, `gres/gpu:2` or `gres/gpu:h100=2`; None if there are none."""
    found = list(_GPU.finditer(text(value)))
    if not found:
        return None
    total = sum(int(match["count"] or 1) for match in found)
    return GpuRequest(total, found[0]["type"] or "") if total else None


def objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a list."""
    yield from (each for each in value if isinstance(each, dict)) if isinstance(value, list) else ()


def setting(configuration: str, name: str) -> str:
    """Return the first word of a setting that `scontrol show config` has printed; empty if it has none."""
    found = re.search(rf"^{re.escape(name)}\s*=\s*(\S+)", configuration, re.MULTILINE)
    return found[1] if found else ""
