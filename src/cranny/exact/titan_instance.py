"""Titan's NIMP problem in whole numbers, for a solver of integer problems; see `titan` for the symbols.

Within a phase every pair moves the same bytes v, so the bandwidth constraint says how many pairs may cross:
at most floor(P * budget / v). A relative slack of 1e-9 on the quotient keeps a limit that is met exactly from
being lost to rounding. The bytes that cross are counted as whole multiples of their common measure, or, where
they have none, in steps of 2**-40 of the heaviest pair.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from cranny.core.machine_set import members
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA, parts
from cranny.model.collective import Phase
from cranny.model.job import Job

SLACK = 1e-9
STEPS = 1 << 40
# Ratios of two weights with a denominator up to this are taken for exact; collectives use small ones.
LARGEST_DENOMINATOR = 1000

Pair = tuple[int, int]  # ranks
Hop = tuple[int, int]  # from and to a machine, both as positions in NimpInstance.machines


@dataclass(frozen=True, slots=True)
class NimpInstance:
    """One job and the machines that could take it."""

    ranks: int
    machines: tuple[int, ...]
    free: tuple[int, ...]  # (machines,) R_s
    idle: tuple[bool, ...]  # (machines,) whether s is in S_n
    weights: Mapping[Pair, int]  # what each two ranks exchange in all phases together
    phases: tuple[tuple[Pair, ...], ...]  # directed pairs that send at once
    limits: Mapping[Hop, tuple[int, ...]]  # (phases,) how many of the pairs may cross, if fewer than could

    def replaces(self, other: int, machine: int) -> bool:
        """Say whether whatever is placed on `machine` could be on `other` instead, if that is not used."""
        return (
            self.idle[other] == self.idle[machine]
            and self.free[other] >= self.free[machine]
            and all(
                _none_tighter(self.limits[other, third], self.limits[machine, third])
                and _none_tighter(self.limits[third, other], self.limits[third, machine])
                for third in range(len(self.machines))
                if third not in (other, machine)
            )
        )


def nimp_instance(job: Job, view: Snapshot, phase_budget_s: float) -> NimpInstance:
    """Return Eq. 1 for a job and the machines with free GPUs."""
    available = view.available(job)
    machines = tuple(sorted(m for group in (*available.in_use[1:], *available.idle[1:]) for m in members(group)))
    free = tuple(view.free_on(machine) for machine in machines)
    moved = [
        (phase, phase.share * k_bytes)
        for pattern, k_bytes in parts(job, tuple(range(job.gpus)))
        for phase in pattern.phases
        if k_bytes > 0
    ]
    phases = _directed(moved)
    # Limits that no placement could exceed are cut to the same number, so that they compare as equal.
    roomiest = max(free, default=0)
    could = [could_cross(pairs, roomiest, roomiest) for pairs in phases]

    def limits(a: int, b: int) -> tuple[int, ...]:
        budget_bytes = view.bandwidth_gbps(a, b) * GIGA / BITS_PER_BYTE * phase_budget_s
        return tuple(
            min(most, int(budget_bytes / pair_bytes * (1 + SLACK)))
            for most, pair_bytes in zip(could, phases.values(), strict=True)
        )

    return NimpInstance(
        ranks=job.gpus,
        machines=machines,
        free=free,
        idle=tuple(view.is_idle(machine) for machine in machines),
        weights=_in_one_measure(_exchanged(moved)),
        phases=tuple(phases),
        limits={(i, j): limits(a, b) for i, a in enumerate(machines) for j, b in enumerate(machines) if i != j},
    )


def could_cross(pairs: Sequence[Pair], free_from: int, free_to: int) -> int:
    """Bound how many of these pairs could go from one machine to another, whatever the placement."""
    senders = sorted(Counter(a for a, _ in pairs).values(), reverse=True)
    receivers = sorted(Counter(b for _, b in pairs).values(), reverse=True)
    return min(sum(senders[:free_from]), sum(receivers[:free_to]))


def _none_tighter(limits: Sequence[int], others: Sequence[int]) -> bool:
    return all(a >= b for a, b in zip(limits, others, strict=True))


def _directed(moved: Iterable[tuple[Phase, float]]) -> dict[tuple[Pair, ...], float]:
    """Return the directed pairs that send at once, and the bytes of each pair, C^t.

    A phase that comes again, as on the way back of halving-doubling, adds nothing; the larger volume counts.
    """
    phases: dict[tuple[Pair, ...], float] = {}
    for phase, pair_bytes in moved:
        back = tuple((b, a) for a, b in phase.pairs) if phase.exchange else ()
        pairs = tuple(sorted(phase.pairs + back))
        phases[pairs] = max(pair_bytes, phases.get(pairs, 0.0))
    return phases


def _exchanged(moved: Iterable[tuple[Phase, float]]) -> dict[Pair, float]:
    """Return the bytes that each two ranks exchange in all phases together; an exchange counts once."""
    total: dict[Pair, float] = {}
    for phase, pair_bytes in moved:
        for a, b in phase.pairs:
            pair = (min(a, b), max(a, b))
            total[pair] = total.get(pair, 0.0) + pair_bytes * phase.times
    return total


def _in_one_measure(weights: Mapping[Pair, float]) -> dict[Pair, int]:
    """Return weights as whole multiples of one measure."""
    if not weights:
        return {}
    lightest, heaviest = min(weights.values()), max(weights.values())
    ratios = {
        pair: Fraction(weight / lightest).limit_denominator(LARGEST_DENOMINATOR)
        for pair, weight in weights.items()
    }
    measure = math.lcm(*(ratio.denominator for ratio in ratios.values()))
    if max(ratios.values()) * measure <= STEPS and all(
        math.isclose(ratios[pair], weight / lightest, rel_tol=1e-12) for pair, weight in weights.items()
    ):
        return {pair: int(ratio * measure) for pair, ratio in ratios.items()}
    return {pair: round(weight / heaviest * STEPS) for pair, weight in weights.items()}
