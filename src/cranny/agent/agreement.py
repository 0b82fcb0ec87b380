"""Agreement of the ranks of a job on when a control applies, by files alone: they switch in the same iteration.

Rank 0 reads what the service wants, chooses a step and publishes it; every rank looks for it before each of its
steps. What must hold is that the file is there before any rank looks at the start of that step.

In synchronous training a rank does not end an iteration before all ranks have exchanged gradients in it. So when
rank 0 is about to start step k, no rank has started a step after k + `lead`, where `lead` is how many iterations
the program may run ahead of its device (0 on a CPU). A step of k + lead + 1 is thus soon enough; we take one more,
and as many as take a second if those are more, for file systems that show a new file late.

Rank 0 publishes the next control only when every rank has seen the one before: at step k + 2 lead + 2 each of them
has started step k + lead + 1, and looked. Otherwise one of them might do what another does not.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from cranny.channel.control import AGREED, CONTROL, Agreed, Control
from cranny.channel.files import Watched

POLL_S = 0.5  # between two looks of rank 0 at what the service wants
SPARE = 2  # steps ahead of those that ranks may be ahead of each other
SETTLE_S = 2 * POLL_S  # until a new file is seen by all ranks
FASTEST_S = 1e-6  # an iteration; shorter ones are errors of measurement


class Due(NamedTuple):
    """A control that applies from now on."""

    control: Control
    late: bool  # whether its step was over when it was seen, so that other ranks have switched before


class Agreement:
    """The controls of one rank, each at the step from which all ranks apply it."""

    def __init__(self, folder: Path, rank: int, *, lead: int = 0) -> None:
        self._folder, self._rank, self._lead = folder, rank, lead
        self._wanted, self._agreed = Watched(folder / CONTROL), Watched(folder / AGREED)
        self._latest: Agreed | None = None
        self._waiting: list[Agreed] = []  # until their steps come
        self._next: Control | None = None  # that is to be published
        self._poll_s = -math.inf

    def due(
        self, step: int, now_s: float, *, iteration_s: Callable[[], float | None] = lambda: None, drawn: int = 0
    ) -> list[Due]:
        """Return what applies from the step on that is about to start, in order.

        `iteration_s` returns what iterations take, where that is known. `drawn` is for how many steps ahead
        samples are chosen at most, which cannot be divided otherwise any more.
        """
        if self._rank == 0:
            self._lead_others(step, now_s, iteration_s, drawn)
        else:
            self._follow(now_s)
        if not self._waiting:
            return []
        found = [Due(each.control, each.from_step < step) for each in self._waiting if each.from_step <= step]
        self._waiting = [each for each in self._waiting if each.from_step > step]
        return found

    def shares_at(self, step: int, now: tuple[float, ...] | None) -> tuple[float, ...] | None:
        """Return the shares of ranks at a later step, as far as it is known; `now` are those that apply now."""
        for each in self._waiting:
            if each.from_step <= step:
                now = each.control.shares
        return now

    def _lead_others(self, step: int, now_s: float, iteration_s: Callable[[], float | None], drawn: int) -> None:
        """Publish what the service wants, if it has changed."""
        if not 0.0 <= now_s - self._poll_s < POLL_S:  # the clock may be set
            self._poll_s = now_s
            found = self._wanted.read(now_s)
            if found is not None:
                self._next = Control.of(found)
        latest = self._latest
        if self._next is None or (latest is not None and step < latest.from_step + self._lead):
            return
        if latest is None or latest.control != self._next:
            taken_s = iteration_s()
            settling = 0 if taken_s is None else math.ceil(SETTLE_S / max(taken_s, FASTEST_S))
            agreed = Agreed(step + max(self._lead + SPARE + drawn, settling), self._next)
            agreed.write(self._folder)  # if that fails it is tried again at the next step
            self._latest = agreed
            self._waiting.append(agreed)
        self._next = None

    def _follow(self, now_s: float) -> None:
        """See what rank 0 has published."""
        found = self._agreed.read(now_s)
        agreed = None if found is None else Agreed.of(found)
        if agreed is not None and agreed != self._latest:
            self._latest = agreed
            self._waiting.append(agreed)
