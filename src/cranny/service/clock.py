"""The service's time: that of the system, but it never goes back and never stands still."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

SET_BACK_S = 60.0  # from which it is worth a word that the system's clock was set back

_log = logging.getLogger("cranny.service")


def wall_clock() -> float:
    """Return the seconds since 1970."""
    return datetime.now(UTC).timestamp()


class Clock:
    """Seconds since 1970 as the system tells them; if it tells less than was known before, they run on from there.

    So what is due comes due, also when somebody sets the clock back or the log was written with a clock that went
    ahead.
    """

    def __init__(
        self, wall: Callable[[], float] = wall_clock, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._known_s, self._known_at = wall(), steady()
        self._told = False

    def now_s(self, least_s: float = 0.0) -> float:
        """Return the present time, which is not before `least_s`."""
        with self._lock:
            wall_s, at = self._wall(), self._steady()
            runs_on_s = max(self._known_s + at - self._known_at, least_s)
            self._known_s, self._known_at = max(wall_s, runs_on_s), at
            behind_s = self._known_s - wall_s
            if behind_s > SET_BACK_S and not self._told:
                _log.warning("the clock is %.0f s behind the last event; times run on from there", behind_s)
            self._told = behind_s > SET_BACK_S
            return self._known_s
