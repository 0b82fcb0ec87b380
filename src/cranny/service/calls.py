"""Calls of other threads that the service loop handles, and their answers."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

from cranny.model.errors import CrannyError


class Call(NamedTuple):
    """Work for the scheduler, and the future of its result."""

    work: Callable[[float], Any]
    future: Future[Any]


CallResult = tuple[Call, Any, CrannyError | None]


def answer(results: Iterable[CallResult]) -> None:
    """Complete the futures of calls."""
    for call, value, problem in results:
        call.future.set_exception(problem) if problem is not None else call.future.set_result(value)
