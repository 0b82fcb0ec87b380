"""The clock of the service: the system's wall clock, made monotonic."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

SET_BACK_S = 60.0  # a clock set back by more than this is logged

_log = logging.getLogger("cranny.service")


def wall_clock() -> float:
    """Return the seconds since the epoch."""
    return datetime.now(UTC).timestamp()


class Clock:
    """Seconds since the epoch that never decrease: if the wall clock is set back, time continues from its maximum.

    Timers therefore still fire after the wall clock was set back, or when the log was written by a clock ahead.
    """

    def __init__(
        self, wall: Callable[[], float] = wall_clock, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._known_s, self._known_at = wall(), steady()
        self._warned = False

    def now_s(self, least_s: float = 0.0) -> float:
        """Return the current time, at least `least_s`."""
        with self._lock:
            wall_s, at = self._wall(), self._steady()
            runs_on_s = max(self._known_s + at - self._known_at, least_s)
            self._known_s, self._known_at = max(wall_s, runs_on_s), at
            behind_s = self._known_s - wall_s
            if behind_s > SET_BACK_S and not self._warned:
                _log.warning("the system clock is %.0f s behind the last event; time continues from it", behind_s)
            self._warned = behind_s > SET_BACK_S
            return self._known_s
