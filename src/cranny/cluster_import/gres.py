"""What Slurm's Gres of a node says about its GPUs: `gpu:a100:8(S:0-1),gpu:1g.5gb:7,nic:2`."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from cranny.model.errors import InputError
from cranny.traces.gpu_types import part_of_gpu

_ITEM = re.compile(r"([^,()]+)(?:\([^()]*\))?(?:,|$)")
_FLAGS = frozenset({"no_consume"})
_SHARED = frozenset({"shard", "mps"})


class NodeGpus(NamedTuple):
    """The GPUs of a node."""

    whole: Mapping[str, int]  # type, empty if it is not named -> GPUs
    parts: Mapping[str, int]  # type with a MIG profile -> instances
    shared: bool  # GPUs can be shared by shards or MPS


def read_gres(text: str) -> NodeGpus:
    """Read the Gres of a node; what is no GPU is passed over."""
    whole: dict[str, int] = {}
    parts: dict[str, int] = {}
    shared = False
    position = 0
    text = "" if text in ("(null)", "N/A") else text
    while position < len(text):
        found = _ITEM.match(text, position)
        if found is None:
            raise InputError(f"Gres={text[:60]!r} cannot be read from {text[position : position + 20]!r} on")
        position = found.end()
        name, *fields = found[1].split(":")
        shared |= name in _SHARED
        if name != "gpu":
            continue
        fields = [each for each in fields if each not in _FLAGS]
        count = fields.pop() if fields and re.fullmatch(r"[0-9]{1,6}", fields[-1]) else "1"
        kind = ":".join(fields)
        holder = whole if part_of_gpu(kind) in (None, 1.0) else parts
        holder[kind] = holder.get(kind, 0) + int(count)
    return NodeGpus({kind: count for kind, count in whole.items() if count}, parts, shared)
