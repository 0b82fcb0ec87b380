"""How many machines could be removed, and which jobs would start sooner with more: a search by replays."""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import polars as pl

from cranny.analysis.whatif.waits import done_jobs, mean_by_size, time_stats
from cranny.report.sampling import numbers
from cranny.sim.result import Result

TOLERANCE = 0.05  # of the mean wait
TOLERANCE_S = 60.0  # or this, if it is more
BEYOND = (-1, 2, 3)  # neighbours of the answer that are tried as well; the next one was tried on the way

ResizedReplay = tuple[str, int]  # a policy, and how many machines more (or fewer, if negative) it has


@dataclass(frozen=True, slots=True)
class WaitOutcome:
    """What a replay did to the waiting; without a result no job could run, and the wait is infinite."""

    jobs_done: int = 0
    peak_used: int = 0  # machines
    mean_wait_s: float = math.inf
    mean_s_by_size: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Result, uncounted: pl.Series | None = None) -> Self:
        """Keep of a result what the search needs; the waits of the jobs with `uncounted` ids are not in means."""
        done = done_jobs(result)
        waited = done if uncounted is None else done.filter(~pl.col("job_id").is_in(uncounted.implode()))
        peak = int(numbers(result.timeline, "used_machines").max(initial=0.0))
        return cls(done.height, peak, time_stats(waited["wait_s"]).mean_s, mean_by_size(waited))


# Runs replays at the same time; outcomes are in the order of the replays.
Runner = Callable[[Sequence[ResizedReplay]], Sequence[WaitOutcome]]


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
class MachineSearch:
    """Both answers for one policy."""

    policy: str
    removal: Removal
    addition: Addition


def allowed_s(mean_wait_s: float) -> float:
    """Return the mean wait that counts as not longer."""
    return mean_wait_s + max(TOLERANCE * mean_wait_s, TOLERANCE_S)


def search(
    run: Runner,
    machines: int,
    add: int,
    base: Mapping[str, WaitOutcome],
    progress: Callable[[int], None] | None = None,
    least: int = 1,
) -> list[MachineSearch]:
    """Ask both questions for each policy of `base`, which holds its outcome on the unchanged cluster.

    At least `least` machines stay, which others need.
    """
    added = dict(zip(base, run([(policy, add) for policy in base]), strict=True))
    done = len(base)
    removals = {policy: _remove(machines, outcome, least) for policy, outcome in base.items()}
    sent: dict[str, Sequence[WaitOutcome] | None] = dict.fromkeys(base)
    found: dict[str, Removal] = {}
    while sent:
        wanted = {}
        for policy, outcomes in sent.items():
            try:
                wanted[policy] = next(removals[policy]) if outcomes is None else removals[policy].send(outcomes)
            except StopIteration as end:
                found[policy] = end.value
        if progress is not None:
            progress(done)
        # The policies go in step, so that their replays can run at the same time.
        ran = iter(run([(policy, -count) for policy, counts in wanted.items() for count in counts]))
        sent = {policy: [next(ran) for _ in counts] for policy, counts in wanted.items()}
        done += sum(map(len, wanted.values()))
    return [
        MachineSearch(
            policy, found[policy], Addition(add, base[policy].mean_s_by_size, added[policy].mean_s_by_size)
        )
        for policy in base
    ]


def most_replays(machines: int, policies: int) -> int:
    """Return how many replays a search takes at most."""
    return policies * (2 + 2 * math.ceil(math.log2(max(machines, 2))) + len(BEYOND))


def _remove(
    machines: int, base: WaitOutcome, least: int
) -> Generator[Sequence[int], Sequence[WaitOutcome], Removal]:
    """Find by halving how many machines can be removed; yield numbers to try and be sent their outcomes.

    It begins with the machines that were never used at once and goes up from there in growing strides until one
    number fails, since clusters far too small for the log take long to replay. Halving assumes that
    fewer machines never shorten the wait. That holds nearly always but not by necessity, since placements
    differ; so the neighbours of the answer are tried as well.
    """
    most = machines - max(1, least)
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
