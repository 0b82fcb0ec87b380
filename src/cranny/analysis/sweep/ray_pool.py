"""Calls at the same time as tasks of a Ray cluster; to `run_many` it is a pool like that of this machine."""

import logging
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from types import TracebackType
from typing import Any, Self, TypeVar

from cranny.model.errors import CrannyError

RETRIES = 5  # how often Ray runs a call again whose machine or process has died
CONNECT_S = 10.0
T = TypeVar("T")


class RayPool:
    """The Ray cluster at an address, until the pool is left.

    What calls need and what they find travels through Ray, so the machines need no common folder; each needs the
    same version of cranny. A call on a machine that dies is run again on another.
    """

    def __init__(self, address: str, shared: Sequence[Any]) -> None:
        self._address = address
        self._shared = shared
        self._open = ExitStack()

    def __enter__(self) -> Self:
        try:
            import ray
        except ModuleNotFoundError:
            raise CrannyError("a sweep on Ray needs 'ray': install cranny with its extra 'ray'") from None
        self._check_reachable()
        with self._open:
            # Ray reports on stdout machines that died; our output is for results.
            self._open.enter_context(redirect_stdout(sys.stderr))
            try:
                ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
            except Exception as error:  # noqa: BLE001 - Ray raises many kinds where it cannot be used
                raise CrannyError(f"Ray at {self._address} cannot be used: {_line(error)}") from None
            self._open.callback(ray.shutdown)
            self._open = self._open.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._open.close()

    def ended(
        self, work: Callable[..., T], calls: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, T | CrannyError]]:
        """Call `work` with each of the arguments; yield the number of a call and its result as they end."""
        import ray

        task = ray.remote(max_retries=RETRIES)(work)
        held = [ray.put(value) for value in self._shared]
        under_way = {task.remote(*arguments, *held): number for number, arguments in enumerate(calls)}
        while under_way:
            (ended, *_), _ = ray.wait(list(under_way), num_returns=1)
            try:
                result = ray.get(ended)
            except ray.exceptions.RayError as error:
                result = CrannyError(f"Ray: {_line(error)}")
            yield under_way.pop(ended), result

    def _check_reachable(self) -> None:
        """Refuse an address HOST:PORT that does not answer: Ray itself would try for minutes."""
        found = re.fullmatch(r"(?:ray://)?(.+):(\d{1,5})", self._address)
        if found is None:
            return
        try:
            socket.create_connection((found[1].strip("[]"), int(found[2])), CONNECT_S).close()
        except (OSError, OverflowError) as error:
            raise CrannyError(f"Ray at {self._address} cannot be reached: {_line(error)}") from None


def _line(error: Exception) -> str:
    """Return an error in one line."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
