"""What a service tells a running job: when to start iterations, how to divide its batch, when to save.

The service writes `control.json`. Rank 0 of the job reads it, decides from which step on it applies, and writes
that to `agreed.json`, which all ranks read: so they switch in the same iteration, without a collective.
"""

from dataclasses import asdict, dataclass
from heapq import heapify, heappop, heapreplace
from pathlib import Path
from typing import Any, NamedTuple, Self

from cranny.channel import files
from cranny.model.errors import InputError
from cranny.model.placement import Aggregation
from cranny.model.validate import MAX_GPUS, not_negative, one_of, positive, whole

CONTROL = "control.json"
AGREED = "agreed.json"
REASONS = ("moved", "resized", "stopped")  # what happens to a job after it has saved
ROUNDING = 1e-9  # by which shares may miss 1 together
MAX_NUMBER = 2**53  # that JSON readers of all languages keep exactly


class Pace(NamedTuple):
    """When iterations start: at `epoch_s + shift_s + k * period_s` of the wall clock."""

    period_s: float
    shift_s: float
    epoch_s: float


class CheckpointRequest(NamedTuple):
    """Save now: at `by_s` of the wall clock the job is stopped, or sooner once it reports that it has saved."""

    number: int  # of this request among all of the attempt
    by_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Control:
    """All settings of a job as of now. What is None is left to the job."""

    number: int = 0  # higher with every change
    pace: Pace | None = None
    shares: tuple[float, ...] | None = None  # of each rank in the samples of an iteration; together 1
    aggregate: Aggregation | None = (
        None  # whether switches aggregate its gradients, or the racks whose switches do
    )
    checkpoint: CheckpointRequest | None = None

    def write(self, folder: Path) -> None:
        """Write it where rank 0 looks for it."""
        files.write(folder / CONTROL, asdict_plain(self))

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what the service wrote last; None if it wrote nothing yet."""
        found = files.read(folder / CONTROL)
        return None if found is None else cls.of(found)

    @classmethod
    def of(cls, value: dict[str, Any]) -> Self:
        """Check the values of a file."""
        pace, checkpoint = value.get("pace"), value.get("checkpoint")
        return cls(
            number=whole(value.get("number"), "number", least=0, most=MAX_NUMBER),
            pace=None if pace is None else _pace(pace),
            shares=_shares(value.get("shares")),
            aggregate=_aggregate(value.get("aggregate")),
            checkpoint=None if checkpoint is None else _request(checkpoint),
        )


class Agreed(NamedTuple):
    """What all ranks do from one step on."""

    from_step: int
    control: Control

    def write(self, folder: Path) -> None:
        """Write it where all ranks look for it."""
        files.write(folder / AGREED, {"from_step": self.from_step, "control": asdict_plain(self.control)})

    @classmethod
    def read(cls, folder: Path) -> "Agreed | None":
        """Read what rank 0 wrote last; None if it wrote nothing yet."""
        found = files.read(folder / AGREED)
        return None if found is None else cls.of(found)

    @classmethod
    def of(cls, value: dict[str, Any]) -> "Agreed":
        """Check the values of a file."""
        from_step = whole(value.get("from_step"), "from_step", least=0, most=MAX_NUMBER)
        return cls(from_step, Control.of(_object(value.get("control"), "control")))


def asdict_plain(control: Control) -> dict[str, Any]:
    """Return a control as JSON values."""
    value = asdict(control)
    for name in ("pace", "checkpoint"):
        value[name] = None if value[name] is None else value[name]._asdict()
    return value


def samples(batch: int, shares: tuple[float, ...] | None, ranks: int) -> tuple[int, ...]:
    """Divide the samples of an iteration among ranks in proportion to their shares, equally if there are none.

    Every rank gets one sample at least, if there are as many; the rest goes by largest remainder. All ranks
    compute the same.
    """
    if shares is None or len(shares) != ranks:
        shares = (1.0 / ranks,) * ranks
    least = 1 if batch >= ranks else 0
    exact = [share * batch for share in shares]
    given = [max(least, int(each)) for each in exact]
    left = batch - sum(given)
    step = 1 if left > 0 else -1
    # What is missing goes to the ranks furthest below their shares, what is too much comes from those above.
    next_first = [
        (step * (given[rank] - exact[rank]), rank) for rank in range(ranks) if step > 0 or given[rank] > least
    ]
    heapify(next_first)
    for _ in range(abs(left)):
        order, rank = next_first[0]
        given[rank] += step
        if given[rank] > least or step > 0:
            heapreplace(next_first, (order + 1.0, rank))
        else:
            heappop(next_first)
    return tuple(given)


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} must be an object")
    return value


def _pace(value: object) -> Pace:
    found = _object(value, "pace")
    period_s = positive(found.get("period_s"), "pace: period_s")
    return Pace(period_s, *(not_negative(found.get(name), f"pace: {name}") for name in ("shift_s", "epoch_s")))


def _shares(value: object) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not 0 < len(value) <= MAX_GPUS:
        raise InputError("shares must be a list of numbers, one of each rank")
    found = [not_negative(each, "shares") for each in value]
    largest = max(found)
    if largest <= 0.0:
        raise InputError("shares must not all be 0")
    if abs(sum(found) - 1.0) < ROUNDING:  # as they are: all ranks must compute the same from what rank 0 wrote
        return tuple(found)
    scaled = [each / largest for each in found]  # no sum of these is infinite
    total = sum(scaled)
    return tuple(each / total for each in scaled)


def _aggregate(value: object) -> Aggregation | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise InputError("aggregate must be true, false or a list of racks")
    return tuple(whole(each, "aggregate", least=0) for each in value)


def _request(value: object) -> CheckpointRequest:
    found = _object(value, "checkpoint")
    return CheckpointRequest(
        whole(found.get("number"), "checkpoint: number", most=MAX_NUMBER),
        not_negative(found.get("by_s"), "checkpoint: by_s"),
        one_of(found.get("reason"), REASONS, "checkpoint: reason"),
    )
