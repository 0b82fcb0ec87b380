"""Constraints of job files, checked literally: by the names of machines, and by trying all placements."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from cranny.model.cluster import Cluster
from cranny.model.placement import Placement


def violated(constraints: Mapping[str, Any], placement: Placement, cluster: Cluster) -> list[str]:
    """Return the fields of `constraints` in a job file that a placement does not keep."""
    server = () if placement.server is None else (placement.server,)
    used = {cluster.machines[machine].name for machine in (*placement.machines, *placement.spare, *server)}
    racks = {cluster.rack_of[machine] for machine in (*placement.machines, *placement.spare, *server)}
    found = []
    if used & set(constraints.get("exclude", ())):
        found.append("exclude")
    if constraints.get("same_rack") == "required" and len(racks) > 1:
        found.append("same_rack")
    spread = constraints.get("spread", 1)
    in_racks = Counter(cluster.rack_of[machine] for machine in placement.machines)
    share = -(-len(placement.machines) // spread)
    if len(in_racks) < spread or max(in_racks.values()) > share:
        found.append("spread")
    return found


def kept_by_some(constraints: Mapping[str, Any], gpus: int, free: Sequence[int], cluster: Cluster) -> bool:
    """Say whether some placement on the free GPUs of each machine keeps the constraints."""
    return any(not violated(constraints, Placement(each), cluster) for each in _placements(gpus, free))


def _placements(gpus: int, free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for counts in product(*(range(min(gpus, each) + 1) for each in free)):
        if sum(counts) == gpus:
            yield tuple(Counter(dict(enumerate(counts))).elements())
