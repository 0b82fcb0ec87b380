"""Checks of numbers that come from outside, with one line that says what is wrong."""

import math
import operator
from collections.abc import Iterable
from typing import SupportsFloat, TypeVar

from cranny.model.errors import InputError

T = TypeVar("T", bound=str)

# More GPUs than any cluster has; larger numbers are slips of the pen.
MAX_GPUS = 1_000_000


def whole(value: object, what: str, least: int = 1, most: int = MAX_GPUS) -> int:
    """Return `value` as an int if it is a whole number in range, or say what is wrong with it."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = int(value) if isinstance(value, float) and value.is_integer() else least - 1
    if isinstance(value, bool) or not least <= number <= most:
        raise InputError(f"{what} must be a whole number from {least} to {most}, not {value!r}")
    return number


def positive(value: object, what: str) -> float:
    """Return `value` as a finite number above zero, or say what is wrong with it."""
    number = _real(value)
    if not 0 < number < math.inf:
        raise InputError(f"{what} must be a positive number, not {value!r}")
    return number


def not_negative(value: object, what: str, kind: str = "a number") -> float:
    """Return `value` as a finite number of zero or more, or say what is wrong with it."""
    number = _real(value)
    if not 0 <= number < math.inf:
        raise InputError(f"{what} must be {kind}, zero or more, not {value!r}")
    return number


def between(value: object, what: str, least: int, most: int, *, below: bool = False) -> float:
    """Return `value` as a number in range, or say what is wrong with it; `below`: the end is not part of it."""
    number = _real(value)
    if not least <= number <= most or (below and number == most):
        raise InputError(f"{what} must be a number from {least} to {'less than ' * below}{most}, not {value!r}")
    return number


def seconds(value: object, what: str) -> float:
    """Return `value` as a finite, non-negative number of seconds, or say what is wrong with it."""
    return not_negative(value, what, "a number of seconds")


def _real(value: object) -> float:
    """Return any kind of real number as a float, and NaN for everything else."""
    if type(value) is float:  # as nearly all are; what is asked below takes microseconds
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        return math.nan
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        return math.nan


def one_of(value: object, words: Iterable[T], what: str) -> T:
    """Return the word that `value` is, or say which there are."""
    known = list(words)
    for word in known:
        if value == word:
            return word
    raise InputError(f"{what} must be one of {', '.join(map(str, known))}, not {value!r}")


def yes_or_no(value: object, what: str) -> bool:
    """Return `value` if it is true or false, or say that it is neither."""
    if not isinstance(value, bool):
        raise InputError(f"{what} must be true or false, not {value!r}")
    return value


def percent(share: float, places: int = 0) -> str:
    """Return a share of one as people write it."""
    return f"{round(100 * share, places) + 0.0:.{places}f} %"  # never -0


def counted(number: int, noun: str) -> str:
    """Return a number of things as people write it."""
    return f"{number:,} {noun}" + "s" * (number != 1)
