"""Maps of ranks to machines of a tree, compiled: what one costs, and swaps of ranks that make it cheaper.

A map costs the seconds of its phases, each as long as its slowest link needs; of equals, the one that keeps links
busy for fewer seconds is better. All is for each byte of K.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.jit import compiled, inside
from cranny.model.arrays import Flags, Floats, Ints

# Differences below this share are rounding, which depends on the order of additions.
ROUNDING = 1e-9
# Pairs of ranks that are swapped at random before swaps that help are looked for again.
KICKS = 3


class MapProblem(NamedTuple):
    """Which ranks communicate in which phase, and the links above the machines."""

    a: Ints  # (pairs,)
    b: Ints
    phase: Ints
    share: Floats  # (phases,)
    exchange: Flags
    times: Ints
    pair_of: Ints  # (2 x pairs,) the pairs of rank 0, of rank 1, ...
    first_of: Ints  # (ranks + 1,) where those of each rank begin
    link_at: Ints  # (machines, levels) the link above each machine at each level below the root; -1 for none
    s_per_byte: Floats  # (links,)


class LinkTally(NamedTuple):
    """What a map puts on links, kept up to date as ranks are swapped."""

    up: Ints  # (phases, links) pairs that pass a link upwards
    down: Ints
    slowest_s: Floats  # (phases,) of the slowest link
    busy_s: Floats  # (phases,) of all links together
    touched: Ints  # (phases,) those that a swap changes, the first few entries
    is_touched: Flags  # (phases,)
    before: Floats  # (phases, 2) what the touched ones took before a swap that may be taken back


def empty_tally(problem: MapProblem) -> LinkTally:
    """Return a tally of no pairs."""
    phases, links = len(problem.share), len(problem.s_per_byte)
    up, down = np.zeros((phases, links), np.int64), np.zeros((phases, links), np.int64)
    return LinkTally(
        up,
        down,
        np.zeros(phases),
        np.zeros(phases),
        np.zeros(phases, np.int64),
        np.zeros(phases, np.bool_),
        np.zeros((phases, 2)),
    )


@inside
def _pass(problem: MapProblem, tally: LinkTally, machine: Ints, pair: int, count: int) -> None:
    """Add a pair to the links that it passes, or take it away."""
    sender, receiver = machine[problem.a[pair]], machine[problem.b[pair]]
    if sender == receiver:
        return
    phase = problem.phase[pair]
    for level in range(problem.link_at.shape[1]):
        up, down = problem.link_at[sender, level], problem.link_at[receiver, level]
        if up != down:
            if up >= 0:
                tally.up[phase, up] += count
            if down >= 0:
                tally.down[phase, down] += count


@inside
def _time_phase(problem: MapProblem, tally: LinkTally, phase: int) -> None:
    """Compute how long a phase takes on the links."""
    slowest_s = busy_s = 0.0
    for link in range(len(problem.s_per_byte)):
        up, down = tally.up[phase, link], tally.down[phase, link]
        link_s = (up + down if problem.exchange[phase] else max(up, down)) * problem.s_per_byte[link]
        slowest_s = max(slowest_s, link_s)
        busy_s += link_s
    volume = problem.share[phase] * problem.times[phase]
    tally.slowest_s[phase] = slowest_s * volume
    tally.busy_s[phase] = busy_s * volume


@inside
def _count(problem: MapProblem, tally: LinkTally, machine: Ints) -> tuple[float, float]:
    """Count all pairs of a map; return its seconds, and those that links are busy."""
    tally.up[:] = 0
    tally.down[:] = 0
    for pair in range(len(problem.a)):
        _pass(problem, tally, machine, pair, 1)
    slowest_s = busy_s = 0.0
    for phase in range(len(problem.share)):
        _time_phase(problem, tally, phase)
        slowest_s += tally.slowest_s[phase]
        busy_s += tally.busy_s[phase]
    return slowest_s, busy_s


@inside
def _crossing(problem: MapProblem, machine: Ints) -> float:
    """Return the share of K that crosses machines."""
    crossing = 0.0
    for pair in range(len(problem.a)):
        if machine[problem.a[pair]] != machine[problem.b[pair]]:
            crossing += problem.share[problem.phase[pair]] * problem.times[problem.phase[pair]]
    return crossing


@compiled
def cheapest(problem: MapProblem, tally: LinkTally, maps: Ints) -> int:
    """Return which of some maps, (maps, ranks), is the best; of equals, the first.

    Of maps that take equally long, one with less traffic between machines is better.
    """
    best = 0
    least_s = least_crossing = least_busy_s = np.inf
    for at in range(len(maps)):
        slowest_s, busy_s = _count(problem, tally, maps[at])
        crossing = _crossing(problem, maps[at])
        better = busy_s < least_busy_s * (1 - ROUNDING)
        if not _near(crossing, least_crossing):
            better = crossing < least_crossing
        if not _near(slowest_s, least_s):
            better = slowest_s < least_s
        if better:
            best, least_s, least_crossing, least_busy_s = at, slowest_s, crossing, busy_s
    return best


@inside
def _near(value: float, other: float) -> bool:
    """Say whether two values differ only by rounding."""
    return abs(value - other) <= ROUNDING * value


@inside
def _touch(problem: MapProblem, tally: LinkTally, pair: int, count: int) -> int:
    """Note that the phase of a pair changes; return how many phases do so far."""
    phase = problem.phase[pair]
    if tally.is_touched[phase]:
        return count
    tally.is_touched[phase] = True
    tally.touched[count] = phase
    return count + 1


@inside
def _swap(problem: MapProblem, tally: LinkTally, machine: Ints, one: int, other: int) -> int:
    """Swap two ranks and count their pairs anew; return how many phases are touched."""
    count = 0
    for sign in (-1, 1):
        for at in range(problem.first_of[one], problem.first_of[one + 1]):
            pair = problem.pair_of[at]
            _pass(problem, tally, machine, pair, sign)
            count = _touch(problem, tally, pair, count)
        for at in range(problem.first_of[other], problem.first_of[other + 1]):
            pair = problem.pair_of[at]
            if problem.a[pair] != one and problem.b[pair] != one:  # or it was counted above
                _pass(problem, tally, machine, pair, sign)
                count = _touch(problem, tally, pair, count)
        if sign < 0:
            machine[one], machine[other] = machine[other], machine[one]
    for at in range(count):
        tally.is_touched[tally.touched[at]] = False
    return count


@inside
def _try_swap(problem: MapProblem, tally: LinkTally, machine: Ints, one: int, other: int, least: Floats) -> bool:
    """Swap two ranks if that makes the map cheaper; `least` has its seconds, and those that links are busy."""
    count = _swap(problem, tally, machine, one, other)
    slowest_s, busy_s = least[0], least[1]
    for at in range(count):
        phase = tally.touched[at]
        tally.before[at, 0], tally.before[at, 1] = tally.slowest_s[phase], tally.busy_s[phase]
        slowest_s -= tally.slowest_s[phase]
        busy_s -= tally.busy_s[phase]
        _time_phase(problem, tally, phase)
        slowest_s += tally.slowest_s[phase]
        busy_s += tally.busy_s[phase]
    if _better(slowest_s, busy_s, least):
        least[0], least[1] = slowest_s, busy_s
        return True
    count = _swap(problem, tally, machine, one, other)  # it touches the same phases in the same order
    for at in range(count):
        phase = tally.touched[at]
        tally.slowest_s[phase], tally.busy_s[phase] = tally.before[at, 0], tally.before[at, 1]
    return False


@inside
def _better(slowest_s: float, busy_s: float, least: Floats) -> bool:
    """Say whether a map is cheaper than the cheapest so far."""
    if _near(slowest_s, least[0]):
        return bool(busy_s < least[1] * (1 - ROUNDING))
    return bool(slowest_s < least[0])


@inside
def _work(problem: MapProblem, one: int, other: int) -> int:
    """Return about how many steps a swap, and taking it back, take."""
    first_of = problem.first_of
    pairs = first_of[one + 1] - first_of[one] + first_of[other + 1] - first_of[other]
    timed = min(pairs, len(problem.share)) * len(problem.s_per_byte)
    return int(2 * (2 * pairs * problem.link_at.shape[1] + timed))


@inside
def _climb(problem: MapProblem, tally: LinkTally, machine: Ints, least: Floats, steps: int) -> int:
    """Swap ranks while that helps; return how many of so many steps are left."""
    ranks = len(machine)
    least[0], least[1] = _count(problem, tally, machine)
    steps -= len(problem.a) * problem.link_at.shape[1] + len(problem.share) * len(problem.s_per_byte)
    since = at = 0  # swaps that did not help in a row, and the next one
    while since < ranks * ranks and steps > 0:
        one, other = at // ranks, at % ranks
        if one < other and machine[one] != machine[other]:
            steps -= _work(problem, one, other)
            if _try_swap(problem, tally, machine, one, other, least):
                since = 0
        since += 1
        at = (at + 1) % (ranks * ranks)
    return steps


@inside
def _copy(source: Ints, target: Ints) -> None:
    for rank in range(len(source)):
        target[rank] = source[rank]


@compiled
def search(
    problem: MapProblem, tally: LinkTally, trials: Ints, draws: Floats, least: Floats, rounds: int, steps: int
) -> None:
    """Improve a map by swaps; then disturb the best so far by random ones, and again, for so many rounds.

    `trials`, (2, ranks), has the map first, and in the end the best; `least`, (2, 2), takes their costs.
    """
    best, machine, ranks = trials[0], trials[1], trials.shape[1]
    steps = _climb(problem, tally, best, least[0], steps)
    drawn = 0
    for _ in range(rounds):
        if steps <= 0:
            break
        _copy(best, machine)
        for _ in range(KICKS):
            one = int(draws[drawn % len(draws)] * ranks)
            other = int(draws[(drawn + 1) % len(draws)] * ranks)
            machine[one], machine[other] = machine[other], machine[one]
            drawn += 2
        steps = _climb(problem, tally, machine, least[1], steps)
        if _better(least[1, 0], least[1, 1], least[0]):
            _copy(machine, best)
            least[0, 0], least[0, 1] = least[1, 0], least[1, 1]
