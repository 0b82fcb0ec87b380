"""The clock of the service: the system's wall clock, made monotonic."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

SET_BACK_S = 60.0  # a clock set back by more than this is logged
JUMP_S = 60.0  # a clock that jumps ahead by more than this is not believed at once
BELIEVED_S = 3_600.0  # but when it has stayed there so long

_log = logging.getLogger("cranny.service")


def wall_clock() -> float:
    """Return the seconds since the epoch."""
    return datetime.now(UTC).timestamp()


def steady_clock() -> float:
    """Return seconds that are never set, and go on while the machine is suspended where the system can say so."""
    names = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}  # others may stand still
    clock = vars(time).get(names.get(sys.platform, ""))
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Clock:
    """Seconds since the epoch that never decrease: if the wall clock is set back, time continues from its maximum.

    Timers therefore still fire after the wall clock was set back, or when the log was written by a clock ahead. A
    wall clock that jumps ahead by more than a minute is taken for wrong until it has stayed there: otherwise all
    times would stay as far ahead when it is set right.
    """

    def __init__(self, wall: Callable[[], float] = wall_clock, steady: Callable[[], float] = steady_clock) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._known_s, self._known_at = wall(), steady()
        self._warned = False
        self._jumped_at: float | None = None  # since when the wall clock is far ahead, by the steady one

    def begin_s(self, last_s: float, *, idle: bool) -> float:
        """Return the time at which a service starts on a log whose last event was at `last_s`.

        A log that is more than a minute ahead goes on from the wall clock if nothing in it is unfinished: no wait
        and no run would have begun in the future.
        """
        return self.now_s(0.0 if idle and last_s - self._wall() > JUMP_S else last_s)

    def now_s(self, least_s: float = 0.0) -> float:
        """Return the current time, at least `least_s`."""
        with self._lock:
            wall_s, at = self._wall(), self._steady()
            runs_on_s = max(self._known_s + at - self._known_at, least_s)
            followed_s = runs_on_s if self._far_ahead(wall_s, at) else max(wall_s, runs_on_s)
            self._known_s, self._known_at = followed_s, at
            behind_s = self._known_s - wall_s
            if behind_s > SET_BACK_S and not self._warned:
                _log.warning("the system clock is %.0f s behind the last event; time continues from it", behind_s)
            self._warned = behind_s > SET_BACK_S
            return self._known_s

    def _far_ahead(self, wall_s: float, at: float) -> bool:
        """Return whether the wall clock has jumped so far ahead, and so recently, that it is taken for wrong."""
        ahead_s = wall_s - (self._known_s + at - self._known_at)
        if ahead_s <= JUMP_S:
            self._jumped_at = None
            return False
        if self._jumped_at is None:
            self._jumped_at = at
            _log.warning("the system clock jumped ahead by %.0f s; not followed unless it stays there", ahead_s)
        return at - self._jumped_at < BELIEVED_S
