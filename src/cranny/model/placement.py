"""A placement: the machine of each rank, and why it is there."""

import operator
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cranny.model.errors import InputError

_PLAIN = {int}


def _indices(values: object, what: str) -> tuple[int, ...]:
    """Return indices as plain ints, or say what is wrong with them."""
    try:
        found = tuple(map(operator.index, values))  # type: ignore[call-overload]
    except TypeError:
        found = (-1,)
    if min(found, default=0) < 0:
        raise InputError(f"a placement's {what} must be whole numbers from 0 up, not {values!r}")
    return found


class Evidence(Protocol):
    """What a policy saw when it placed a job, kept small; facts and text are made when asked for."""

    def facts(self, placement: "Placement") -> Mapping[str, object]:
        """Return the reasons as plain values."""

    def text(self, placement: "Placement") -> str:
        """Return the reasons as a person would say them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Machine index of rank 0..n-1; `spare` are machines of GPUs that are held but run no rank.

    `gpus`, if given, names the GPU of each rank and then of each spare on its machine; otherwise the lowest
    free ones are taken.
    """

    machines: tuple[int, ...]
    spare: tuple[int, ...] = ()
    gpus: tuple[int, ...] | None = None
    evidence: Evidence | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Whole numbers of NumPy would overflow as members of a set of machines, so none may stay.
        if type(self.machines) is not tuple or set(map(type, self.machines)) != _PLAIN:
            object.__setattr__(self, "machines", _indices(self.machines, "machines"))
            if not self.machines:
                raise InputError("a placement needs at least one rank")
        if type(self.spare) is not tuple or self.spare:
            object.__setattr__(self, "spare", _indices(self.spare, "spare"))
        if self.gpus is not None:
            object.__setattr__(self, "gpus", _indices(self.gpus, "gpus"))
            if len(self.gpus) != len(self.machines) + len(self.spare):
                raise InputError("a placement that names GPUs must name one for each rank and spare")

    @property
    def counts(self) -> Counter[int]:
        """GPUs held on each machine, in order of first use."""
        return Counter(self.machines + self.spare)

    @property
    def facts(self) -> dict[str, object]:
        """Why the job was placed here, as plain values."""
        if self.evidence is None:
            return {"machines": list(self.machines), "placed_by": "hand"}
        return dict(self.evidence.facts(self))

    def explain(self) -> str:
        """Why the job was placed here, as text."""
        if self.evidence is None:
            return f"placed by hand on machines {', '.join(map(str, self.counts))}"
        return self.evidence.text(self)
