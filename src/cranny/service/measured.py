"""What the measurements of a job say: what each restart cost and gained, and what its types of GPU do."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from cranny.backends.protocol import numbered
from cranny.channel.control import Control
from cranny.model.cluster import Cluster
from cranny.service.job_record import Attempt, JobRecord
from cranny.service.learned_profile import LearnedProfile
from cranny.service.point_history import Point

RECENT_S = 60.0  # of iterations, that say how fast a job is now


class AttemptPace(NamedTuple):
    """Iterations of an attempt."""

    iterations: int
    iteration_s: float


class Restart(NamedTuple):
    """How an attempt went on from the one before; None where nothing was reported."""

    attempt: int
    reason: str  # moved, resized, stopped, or how the attempt before ended
    gpus_before: int
    gpus: int
    step: int | None  # from which it went on
    took_s: float | None  # from the start of its process to its first step
    lost_steps: int | None  # that were done again
    cost_s: float | None  # both together; the first alone where the other is not known
    iteration_before_s: float | None
    iteration_s: float | None
    gained_s: float | None  # so far, by shorter iterations; less than 0 if they are longer


def paces(points: Iterable[Point]) -> dict[int, AttemptPace]:
    """Return how long iterations of each attempt took, without those of its first report if there are others."""
    seen: dict[int, list[Point]] = {}
    for point in points:
        seen.setdefault(point.attempt, []).append(point)
    return {attempt: _pace(of[1:] or of) for attempt, of in seen.items()}


def restarts(attempts: Iterable[Attempt], points: Iterable[Point]) -> list[Restart]:
    """Return what is known of every attempt but the first."""
    known = paces(points)
    return [_restart(before, after, known) for before, after in pairwise(attempts)]


def recent_s(points: Iterable[Point]) -> float | None:
    """Return how long the latest iterations took on average; None if there are none."""
    listed = list(points)
    if not listed:
        return None
    last = listed[-1]
    recent = [each for each in listed if each.attempt == last.attempt and each.at_s > last.at_s - RECENT_S]
    return _pace(recent).iteration_s


def types(
    record: JobRecord, attempt: Attempt | None, control: Control | None, known: LearnedProfile | None, of: Cluster
) -> list[Any]:
    """Return the ranks, the share of samples and the measured samples a second of each type of GPU."""
    rates: Mapping[str, float] = {} if known is None else known.rates
    ranks: Counter[str] = Counter()
    shares: dict[str, float] = {}
    if attempt is not None:
        of = attempt.cluster or of
        machines = numbered(attempt.placement.machines, torchrun=record.spec.by_torchrun)
        given = control.shares if control is not None and control.shares is not None else None
        for rank, machine in enumerate(machines):
            kind = of.machines[machine].gpu_type
            ranks[kind] += 1
            share = 1.0 / len(machines) if given is None else given[rank]
            shares[kind] = shares.get(kind, 0.0) + share
    names = sorted({*ranks, *rates})
    return [
        {"gpu_type": kind, "ranks": ranks[kind], "share": shares.get(kind, 0.0), "samples_per_s": rates.get(kind)}
        for kind in names
    ]


def _pace(points: list[Point]) -> AttemptPace:
    count = sum(each.iterations for each in points)
    return AttemptPace(count, sum(each.iterations * each.iteration_s for each in points) / count)


def _restart(before: Attempt, after: Attempt, known: Mapping[int, AttemptPace]) -> Restart:
    gpus_before, gpus = len(before.placement.machines), len(after.placement.machines)
    reason = before.outcome
    if reason == "moved" and gpus != gpus_before:
        reason = "resized"
    went_on = after.resumed
    old, new = known.get(before.number), known.get(after.number)
    cost_s = None
    if went_on is not None:
        cost_s = went_on.took_s + (went_on.lost_steps or 0) * (0.0 if old is None else old.iteration_s)
    return Restart(
        attempt=after.number,
        reason=reason,
        gpus_before=gpus_before,
        gpus=gpus,
        step=None if went_on is None else went_on.step,
        took_s=None if went_on is None else went_on.took_s,
        lost_steps=None if went_on is None else went_on.lost_steps,
        cost_s=cost_s,
        iteration_before_s=None if old is None else old.iteration_s,
        iteration_s=None if new is None else new.iteration_s,
        gained_s=None if old is None or new is None else new.iterations * (old.iteration_s - new.iteration_s),
    )
