"""How many machines could go, and who would start sooner with more: a small search by replaying again."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from cranny.analysis.whatif.replays import Cell, Cells, Outcome

TOLERANCE = 0.05  # of the mean wait
TOLERANCE_S = 60.0  # or this, if it is more
BEYOND = (-1, 2, 3)  # neighbours of the answer that are tried as well; the next one was tried on the way


@dataclass(frozen=True, slots=True)
class Removal:
    """How many machines a policy can do without."""

    machines: int
    limit_s: float  # what the mean wait may be
    tried: Mapping[int, float]  # machines removed -> mean wait, those tried only
    again: tuple[int, ...]  # numbers above the answer that would do although a smaller one would not


@dataclass(frozen=True, slots=True)
class Addition:
    """The mean wait of each size of job before and after machines are added."""

    machines: int
    before_s: Mapping[str, float]
    after_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Search:
    """Both answers for one policy."""

    policy: str
    removal: Removal
    addition: Addition


def allowed_s(mean_wait_s: float) -> float:
    """Return the mean wait that counts as not longer."""
    return mean_wait_s + max(TOLERANCE * mean_wait_s, TOLERANCE_S)


def search(
    cells: Cells,
    machines: int,
    add: int,
    base: Mapping[str, Outcome],
    progress: Callable[[int], None] | None = None,
) -> list[Search]:
    """Ask both questions for each policy of `base`, which holds its outcome on the cluster as it is."""
    added = dict(zip(base, cells.run([Cell(policy, add) for policy in base]), strict=True))
    done = len(base)
    hunts = {policy: _hunt(machines, outcome) for policy, outcome in base.items()}
    told: dict[str, Sequence[Outcome] | None] = dict.fromkeys(base)
    found: dict[str, Removal] = {}
    while told:
        wanted = {}
        for policy, outcomes in told.items():
            try:
                wanted[policy] = next(hunts[policy]) if outcomes is None else hunts[policy].send(outcomes)
            except StopIteration as end:
                found[policy] = end.value
        if progress is not None:
            progress(done)
        # The policies go in step, so that their replays can run side by side.
        ran = iter(cells.run([Cell(policy, -count) for policy, counts in wanted.items() for count in counts]))
        told = {policy: [next(ran) for _ in counts] for policy, counts in wanted.items()}
        done += sum(map(len, wanted.values()))
    return [
        Search(policy, found[policy], Addition(add, base[policy].mean_s_by_size, added[policy].mean_s_by_size))
        for policy in base
    ]


def most_replays(machines: int, policies: int) -> int:
    """Return how many replays a search takes at most."""
    return policies * (2 + 2 * math.ceil(math.log2(max(machines, 2))) + len(BEYOND))


def _hunt(machines: int, base: Outcome) -> Generator[Sequence[int], Sequence[Outcome], Removal]:
    """Find by halving how many machines may go; yield numbers to try and be sent their outcomes.

    It begins with the machines that were never used at once and goes up from there in growing strides until one
    number fails, since clusters far too small for the log take long to replay. Halving takes for granted that
    fewer machines never shorten the wait. That holds nearly always but not by law, since placements fall out
    differently; so the neighbours of the answer are tried as well.
    """
    most = machines - 1
    limit_s = allowed_s(base.mean_wait_s)
    tried = {0: base}

    def fits(count: int) -> bool:
        return tried[count].jobs_done >= base.jobs_done and tried[count].mean_wait_s <= limit_s

    low, past = 0, most + 1
    guess, stride = min(machines - base.peak_used, most), 1
    while past - low > 1:
        if past <= most:
            middle = (low + past) // 2
        elif guess > low:
            middle = guess
        else:
            middle, stride = min(low + stride, most), 2 * stride
        tried[middle] = (yield [middle])[0]
        low, past = (middle, past) if fits(middle) else (low, middle)
    near = [low + step for step in BEYOND if 0 <= low + step <= most and low + step not in tried]
    if near:
        tried.update(zip(near, (yield near), strict=True))
    counts = sorted(tried)
    first_miss = next((count for count in counts if not fits(count)), most + 1)
    answer = max(count for count in counts if count < first_miss)
    again = tuple(count for count in counts if count > first_miss and fits(count))
    return Removal(answer, limit_s, {count: tried[count].mean_wait_s for count in counts}, again)
