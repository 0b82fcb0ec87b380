"""A placement: the machine of each rank, and why it is there."""

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cranny.model.errors import InputError

# Which switches aggregate for a job: all on its way, none, or those of these racks.
Aggregation = bool | tuple[int, ...]

_PLAIN = {int}
_put = object.__setattr__  # how a frozen value is filled while it is made


def _indices(values: object, what: str) -> tuple[int, ...]:
    """Return indices as plain ints, or say what is wrong with them."""
    try:
        found = tuple(map(operator.index, values))  # type: ignore[call-overload]
    except TypeError:
        found = (-1,)
    if min(found, default=0) < 0:
        raise InputError(f"a placement's {what} must be whole numbers from 0 up, not {values!r}")
    return found


class Rationale(Protocol):
    """What a policy saw when it placed a job, kept small; facts and text are made when asked for."""

    def facts(self, placement: "Placement") -> Mapping[str, object]:
        """Return the reasons as plain values."""

    def text(self, placement: "Placement") -> str:
        """Return the reasons as a person would say them."""


@dataclass(frozen=True, slots=True, init=False)
class Placement:
    """Machine index of rank 0..n-1; `spare` are machines of GPUs that are held but run no rank.

    `gpus`, if given, names the GPU of each rank and then of each spare on its machine; otherwise the lowest
    free ones are taken. `server` and `aggregate` are for jobs whose collective is `ina`: the machine of the
    parameter server (that of rank 0 if not given), and which switches aggregate for the job.
    """

    machines: tuple[int, ...]
    spare: tuple[int, ...] = ()
    gpus: tuple[int, ...] | None = None
    rationale: Rationale | None = field(default=None, compare=False, repr=False)
    server: int | None = None
    aggregate: Aggregation = True

    def __init__(
        self,
        machines: Sequence[int],
        spare: Sequence[int] = (),
        gpus: Sequence[int] | None = None,
        rationale: Rationale | None = None,
        server: int | None = None,
        aggregate: bool | Sequence[int] = True,  # noqa: FBT001, FBT002 - a field like the others
    ) -> None:
        # Whole numbers of NumPy would overflow as members of a set of machines, so none may stay.
        if type(machines) is not tuple or set(map(type, machines)) != _PLAIN:
            machines = _indices(machines, "machines")
            if not machines:
                raise InputError("a placement needs at least one rank")
        if spare != ():
            spare = _indices(spare, "spare")
        if gpus is not None:
            gpus = _indices(gpus, "gpus")
            if len(gpus) != len(machines) + len(spare):
                raise InputError("a placement that names GPUs must name one for each rank and spare")
        if server is not None:
            (server,) = _indices((server,), "server")
        if not isinstance(aggregate, bool):
            aggregate = _indices(aggregate, "aggregate") or False
        _put(self, "machines", machines)
        _put(self, "spare", spare)
        _put(self, "gpus", gpus)
        _put(self, "rationale", rationale)
        _put(self, "server", server)
        _put(self, "aggregate", aggregate)

    @classmethod
    def made(
        cls,
        machines: tuple[int, ...],
        spare: tuple[int, ...],
        gpus: tuple[int, ...] | None,
        rationale: Rationale,
        server: int | None = None,
    ) -> "Placement":
        """Make a placement of plain tuples that need no checking, as policies do many times a second."""
        made: Placement = object.__new__(cls)
        _put(made, "machines", machines)
        _put(made, "spare", spare)
        _put(made, "gpus", gpus)
        _put(made, "rationale", rationale)
        _put(made, "server", server)
        _put(made, "aggregate", True)  # noqa: FBT003 - the value
        return made

    def aggregated(self, aggregate: Aggregation, rationale: Rationale | None) -> "Placement":
        """Return the same placement with other switches that aggregate, and the reason for that."""
        return Placement(self.machines, self.spare, self.gpus, rationale, self.server, aggregate)

    def aggregating(self, rack_names: Sequence[str]) -> bool | list[str]:
        """Return the racks whose switches aggregate for the job; true for all on its way, false for none."""
        racks = self.aggregate
        return racks if isinstance(racks, bool) else [rack_names[rack] for rack in racks]

    @property
    def counts(self) -> Counter[int]:
        """GPUs held on each machine, in order of first use."""
        return Counter(self.machines + self.spare)

    @property
    def facts(self) -> dict[str, object]:
        """Why the job was placed here, as plain values."""
        if self.rationale is None:
            return {"machines": list(self.machines), "placed_by": "hand"}
        return dict(self.rationale.facts(self))

    def explain(self) -> str:
        """Why the job was placed here, as text."""
        if self.rationale is None:
            return f"placed by hand on machines {', '.join(map(str, self.counts))}"
        return self.rationale.text(self)
