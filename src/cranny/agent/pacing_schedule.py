"""A schedule of iterations, and the file in which agents find it."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from cranny.model.errors import InputError, at, unknown
from cranny.model.validate import not_negative

FAR_S = 1e12  # later than any clock shows


@dataclass(frozen=True, slots=True)
class PacingSchedule:
    """When iterations start: at `epoch_s + shift_s + k * period_s`, or at any time if the period is 0."""

    period_s: float = 0.0
    shift_s: float = 0.0
    epoch_s: float = 0.0

    def __post_init__(self) -> None:
        for name in SCHEDULE_FIELDS:
            object.__setattr__(self, name, not_negative(getattr(self, name), name))
        if self.period_s > 0.0 and math.isinf((self.epoch_s + self.shift_s + FAR_S) / self.period_s):
            raise InputError(f"period_s is too short to number the slots: {self.period_s!r}")

    def time_s(self, number: int) -> float:
        """Return the time of a slot."""
        return self.epoch_s + self.shift_s + number * self.period_s

    def position(self, now_s: float) -> float:
        """Return the position of a time among the slots: 2.5 is halfway from slot 2 to slot 3."""
        return (now_s - self.epoch_s - self.shift_s) / self.period_s

    def write(self, file: str | os.PathLike[str]) -> None:
        """Write the schedule to a file that agents watch, atomically."""
        target = Path(file)
        draft = target.with_name(f"{target.name}.{os.getpid()}")
        draft.write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")
        draft.replace(target)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Self:
        """Read a schedule from a file."""
        try:
            found = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{at(file)}: no schedule can be read: {error}") from None
        if not isinstance(found, dict):
            raise InputError(f"{at(file)}: a schedule is an object with {', '.join(SCHEDULE_FIELDS)}")
        try:
            for name in found:
                if name not in SCHEDULE_FIELDS:
                    raise unknown("field", name, SCHEDULE_FIELDS)
            return cls(**found)
        except InputError as error:
            raise InputError(f"{at(file)}: {error}") from None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Return the schedule in `CRANNY_PERIOD_S`, `CRANNY_SHIFT_S` and `CRANNY_EPOCH_S`; 0 where not set."""
        found = {}
        for name in SCHEDULE_FIELDS:
            variable = f"CRANNY_{name.upper()}"
            text = env.get(variable, "0")
            try:
                found[name] = not_negative(float(text), variable)
            except ValueError:  # an InputError is one, too
                raise InputError(f"{variable} must be a number, zero or more, not {text!r}") from None
        return cls(**found)


SCHEDULE_FIELDS = tuple(field.name for field in fields(PacingSchedule))
