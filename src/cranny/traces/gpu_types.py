"""Names of GPU types: logs, cluster files and node labels write one type in many ways.

A name is taken apart into the model (`a100`), the form it is built in (`sxm`, `pcie`, `nvl`) and its memory. Two
names are of one type if the model is the same and neither form nor memory differs where both say it: `a100` is as
`NVIDIA-A100-SXM4-80GB` and as `a100-40gb`, but these two differ. A part of a GPU is of the type of the
GPU: `a100_1g.5gb` is an `a100`.
"""

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from cranny.model.errors import NEAR

# Words that say nothing about the type: makers, brands, kinds of memory, and what Kubernetes adds for shared GPUs.
_MAKERS = {"nvidia", "amd", "intel", "tesla", "geforce", "quadro", "instinct", "radeon"}
_MEMORIES = {"hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"}
_FILLERS = {*_MAKERS, *_MEMORIES, "gpu", "graphics", "tensor", "core", "generation", "edition", "shared", "mig"}
_FORM = re.compile(r"(sxm|pcie|nvl|oam|dgxs)\d*")
_MEMORY = re.compile(r"(\d{1,4})(?:g|gb|gib)")
# Sizes of memory in GB that names give without a unit, such as a100-80.
_SIZES = frozenset({11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 180, 192, 256, 288})
_PART = re.compile(r"(?:\d+c\.)?(\d+)g\.(\d+)gb(?:\+[a-z.]+)?")
# Consumer cards are also called by their number alone, workstation cards of the Ampere generation without rtx.
_SERIES = re.compile(r"^(?:gtx|rtx)(?=(?:10|16|20|30|40|50)[5-9]0|a\d{4})")
_MOST = 200  # characters of a name that are looked at
# Profiles of MIG on GPUs that have four slices rather than seven (A30, RTX PRO 6000).
_OF_FOUR = frozenset({(1, 6), (2, 12), (4, 24), (2, 48), (4, 96)})


class GpuType(NamedTuple):
    """What a name says about a type; None where it does not say."""

    model: str
    form: str | None
    memory_gb: int | None


@lru_cache(maxsize=4096)
def parse(name: str) -> GpuType:
    """Take a name apart."""
    plain = " ".join(name[:_MOST].lower().split())
    form: str | None = None
    memory_gb: int | None = None
    model: list[str] = []
    for word in re.split(r"[^a-z0-9]+", _PART.sub(" ", plain)):
        memory = _MEMORY.fullmatch(word)
        if not word or word in _FILLERS:
            continue
        if _FORM.fullmatch(word):
            form = form or word.rstrip("0123456789")
        elif memory or (model and word.isdecimal() and int(word) in _SIZES):
            memory_gb = memory_gb or int(memory[1] if memory else word)
        else:
            model.append(word)
    return GpuType(_SERIES.sub("", "".join(model)) or plain, form, memory_gb)


def canonical(name: str) -> str:
    """Return one name for all ways to write a type, such as `a100-sxm-80gb`."""
    model, form, memory_gb = parse(name)
    return "-".join([model, *([form] if form else []), *([f"{memory_gb}gb"] if memory_gb else [])])


def same_type(first: str, second: str) -> bool:
    """Say whether two names can mean one type: what both say is equal."""
    one, other = parse(first), parse(second)
    return all(mine == theirs or mine is None or theirs is None for mine, theirs in zip(one, other, strict=True))


def matching(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that can mean this type: itself, else equal ones, else all that do not differ."""
    alike = [other for other in known if same_type(name, other)]
    for chosen in ([other for other in alike if other == name], [o for o in alike if parse(o) == parse(name)]):
        if chosen:
            return chosen
    return alike


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name to suggest for one that matches none: of the same model, else written nearly so."""
    names = sorted(known)
    of_model = [other for other in names if parse(other).model == parse(name).model]
    if of_model:
        return of_model[0]
    by_canonical = {canonical(other): other for other in reversed(names)}
    near = difflib.get_close_matches(canonical(name), by_canonical, n=1, cutoff=NEAR)
    return by_canonical[near[0]] if near else None


def without_part(name: str) -> str:
    """Return the type of the GPU that a part is of: `a100` of `a100_1g.5gb`, nothing of `1g.5gb`."""
    return (
        re.sub(r"(?i)[-_.]*(mig)?[-_.]*$", "", _PART.sub("", name[:_MOST].lower()))
        if _PART.search(name.lower())
        else name
    )


def part_of_gpu(name: str) -> float | None:
    """Return the share of a GPU that a MIG profile in a name is, by compute slices; None if it names none."""
    found = _PART.search(name[:_MOST].lower())
    if found is None:
        return None
    slices, memory_gb = int(found[1]), int(found[2])
    of_four = (slices, memory_gb) in _OF_FOUR or parse(name).model in ("a30", "rtxpro6000blackwell")
    return min(slices / (4 if of_four else 7), 1.0)
