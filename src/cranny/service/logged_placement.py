"""Placements as events of the log hold them."""

from collections.abc import Sequence
from typing import Any

from cranny.model.placement import Placement


def reasons(placement: Placement, job_id: str) -> str:
    """Return the explanation of a placement, without the job id in front."""
    return placement.explain().removeprefix(f"job {job_id}: ")


def plain(placement: Placement) -> dict[str, Any]:
    """Return a placement as JSON values."""
    return {
        "machines": list(placement.machines),
        "spare": list(placement.spare),
        "gpus": list(placement.gpus) if placement.gpus is not None else None,
        "server": placement.server,
        "aggregate": placement.aggregate,
    }


def gpus_of(machines: Sequence[int], held: dict[int, int]) -> tuple[int, ...]:
    """Return the GPU of each rank on its machine, the lowest first."""
    left = dict(held)
    gpus = []
    for machine in machines:
        low = left[machine] & -left[machine]
        left[machine] ^= low
        gpus.append(low.bit_length() - 1)
    return tuple(gpus)
