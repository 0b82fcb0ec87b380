"""What policies save: against the log itself, and how much of that is theirs.

The cost of a policy differs from that of the log for two reasons: the replay is not the log, and the policy is not
the log's scheduler. With the log's scheduler replayed as well, the two can be divided: from the log to that
replay, which no policy is credited with, and from that replay to the policy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cranny.analysis.whatif.money import MachineCost, SavedMoney, saving
from cranny.traces.inspect import Window

SAME_WORK = 0.99  # of the GPU-hours of jobs in the window: with fewer, work was put off, which is no saving
NO_MACHINES = "on which machines jobs ran is not in the log"


@dataclass(frozen=True, slots=True)
class CaseSaving:
    """What a case saves; `credited` is None where the log's scheduler was not replayed."""

    whole: SavedMoney  # against as it was
    credited: SavedMoney | None  # against the replay of the log's scheduler

    @property
    def shown(self) -> SavedMoney:
        """What is said to be the policy's own: the whole difference only if it cannot be divided."""
        return self.whole if self.credited is None else self.credited


@dataclass(frozen=True, slots=True)
class Savings:
    """What each case saves that does the same work as the log; the log itself is none of them."""

    of_case: Mapping[str, CaseSaving]
    late: Sequence[str]  # cases under which work of the window runs after it
    of_replay: SavedMoney | None = None  # from the log to the replay of its scheduler: of no policy's making
    why_none: str = ""  # said where there is none at all
    why_whole: str = ""  # said where savings are not divided


def savings(
    costs: Mapping[str, MachineCost], was: str, scheduler: str, why_no_replay: str, window: Window, seed: int
) -> Savings:
    """Compare what cases cost; `was` names the log itself, `scheduler` the replay of its scheduler."""
    if was not in costs:
        return Savings({}, (), why_none=NO_MACHINES)
    logged, replayed = costs[was], costs.get(scheduler)
    late = [name for name, cost in costs.items() if _hours(cost) < SAME_WORK * _hours(logged)]
    if scheduler in late:
        replayed, why_no_replay = None, f"{scheduler!r} runs fewer GPU-hours of jobs in the window than the log"
    found = {}
    for name, cost in costs.items():
        if name == was or name in late:
            continue
        if replayed is not None and _hours(cost) < SAME_WORK * _hours(replayed):
            late.append(name)
            continue
        of_policy = None if replayed is None else saving(replayed.total, cost.total, window, seed)
        found[name] = CaseSaving(saving(logged.total, cost.total, window, seed), of_policy)
    of_replay = found.pop(scheduler).whole if scheduler in found else None
    return Savings(found, late, of_replay, why_whole="" if of_replay is not None else why_no_replay)


def _hours(cost: MachineCost) -> float:
    """Return the GPU-hours of jobs in the window."""
    return float(cost.held_gpu_hours.sum())
