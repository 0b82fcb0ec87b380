"""Titan's NIMP problem solved to the optimum: the reference for the policy `titan` on small cases.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters",
ICNP 2024, Sec. III, Eq. 1, by CP-SAT. Nothing here comes from the modules that the policy is built on
(`core.packing`, `core.partition`), so that one can check the other.

Symbols, as in Table I of the paper:

    N          ranks 0..n-1                          x[n][s]    rank n is placed on machine s
    S, S_n     machines with free GPUs; the idle     y[s]       machine s is used
    R_s        free GPUs of machine s                T          phases of the collectives
    P_s,s'     bandwidth that running jobs leave     C^t_n,n'   bytes that rank n sends to n' in phase t

The objectives are taken one after the other: O1, idle machines opened; O2, machines used; then the bytes that
cross machines in all phases together. The paper's Fig. 1 minimises the last too; its Eq. 1 does not say so.

Departure: C is bytes and P is a bandwidth, so C <= P has no meaning as printed. We read it as "what a phase
sends from s to s' must pass within `phase_budget_s`", one second by default. An exchange sends both ways.

`nimp_instance` is Eq. 1 in whole numbers. Within a phase every pair moves the same bytes v, so the bandwidth
constraint says how many pairs may cross: at most floor(P * budget / v). A relative slack of 1e-9 on the quotient
keeps a limit that is met exactly from being lost to rounding. The bytes that cross are counted as whole multiples
of their common measure, or, where they have none, in steps of 2**-40 of the heaviest pair.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import ge

import numpy as np
from ortools.sat.python import cp_model

from cranny.core.machine_set import members
from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA, parts, traffic
from cranny.model.collective import PLACED
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import positive, whole

SLACK = 1e-9
STEPS = 1 << 40
# Ratios of two weights with a denominator up to this are taken for exact; collectives use small ones.
LARGEST_DENOMINATOR = 1000
# Up to this many ranks all sets of ranks are tried to bound what one machine can keep inside.
BOUND_RANKS = 16

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
                all(map(ge, self.limits[other, third], self.limits[machine, third]))
                and all(map(ge, self.limits[third, other], self.limits[third, machine]))
                for third in range(len(self.machines))
                if third not in (other, machine)
            )
        )


def nimp_instance(job: Job, view: Snapshot, phase_budget_s: float) -> NimpInstance:
    """Return Eq. 1 for a job and the machines with free GPUs."""
    available = view.available(job)
    machines = tuple(sorted(m for group in (*available.in_use[1:], *available.idle[1:]) for m in members(group)))
    free = tuple(view.free_on(machine) for machine in machines)
    phases: dict[tuple[Pair, ...], float] = {}  # directed pairs that send at once, and the bytes of each, C^t
    exchanged: dict[Pair, float] = {}  # bytes of each two ranks in all phases together; an exchange counts once
    patterns = parts(job, tuple(range(job.gpus)))
    moved = [(phase, phase.share * k_bytes) for what, k_bytes in patterns if k_bytes > 0 for phase in what.phases]
    for phase, pair_bytes in moved:
        back = tuple((b, a) for a, b in phase.pairs) if phase.exchange else ()
        directed = tuple(sorted(phase.pairs + back))
        # A phase that comes again, as on the way back of halving-doubling, adds nothing; the larger volume counts.
        phases[directed] = max(pair_bytes, phases.get(directed, 0.0))
        for a, b in phase.pairs:
            pair = (min(a, b), max(a, b))
            exchanged[pair] = exchanged.get(pair, 0.0) + pair_bytes * phase.times
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
        weights=_in_one_measure(exchanged),
        phases=tuple(phases),
        limits={(i, j): limits(a, b) for i, a in enumerate(machines) for j, b in enumerate(machines) if i != j},
    )


def could_cross(pairs: Sequence[Pair], free_from: int, free_to: int) -> int:
    """Bound how many of these pairs could go from one machine to another, whatever the placement."""
    senders = sorted(Counter(a for a, _ in pairs).values(), reverse=True)
    receivers = sorted(Counter(b for _, b in pairs).values(), reverse=True)
    return min(sum(senders[:free_from]), sum(receivers[:free_to]))


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


@dataclass(frozen=True, slots=True)
class TitanOptimum:
    """The best placement of a job, and what it costs."""

    machines: tuple[int, ...]  # of rank 0..n-1
    idle_opened: int  # O1
    machines_used: int  # O2
    cross_bytes: float  # of one iteration
    cross_share: float  # cross_bytes over the bytes of the gradient
    proven: bool  # no better one exists; False when the time limit came first


class Exact(WaitsForGpus):
    """Solve NIMP with CP-SAT, on one thread and with a fixed seed: the same answer every time.

    `time_limit_s`, for each of at most three searches, is in CP-SAT's deterministic seconds: near those of a
    clock, but the same on every machine.
    """

    other_reason = "no placement keeps every phase within the links' free bandwidth"

    def __init__(
        self,
        phase_budget_s: float = 1.0,
        max_machines: int = 16,
        max_ranks: int = 16,
        time_limit_s: float = 60.0,
    ) -> None:
        self.phase_budget_s = positive(phase_budget_s, "exact: phase_budget_s")
        self.max_machines = whole(max_machines, "exact: max_machines")
        self.max_ranks = whole(max_ranks, "exact: max_ranks")
        self.time_limit_s = positive(time_limit_s, "exact: time_limit_s")

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Return the best placement, or None if none keeps to all constraints."""
        best = self.solve(job, view)
        if best is None:
            return None
        note = "proven optimal" if best.proven else "the best found before the time limit"
        return view.placement(job, best.machines, note=note)

    def solve(self, job: Job, view: Snapshot) -> TitanOptimum | None:
        """Minimise O1, then O2, then traffic; None if no placement keeps to all constraints."""
        self._refuse_large(job, view)
        instance = nimp_instance(job, view, self.phase_budget_s)
        least = fewest_machines(instance)
        if least is None:
            return None
        # The bandwidth constraint can only raise O1 and O2. Mostly it does not: then one search is enough.
        found, sure = self._least_traffic(instance, *least), True
        if found is None:
            raised = self._fewest_within_bandwidth(instance)
            if raised is None:
                return None
            opened, used, sure = raised
            found = self._least_traffic(instance, opened, used)
        if found is None:
            raise CrannyError(f"exact: job {job.id!r}: CP-SAT lost a solution that it had found")
        positions, best = found
        machines = tuple(instance.machines[position] for position in positions)
        crossing = traffic(job, machines).cross_machine_bytes
        return TitanOptimum(
            machines=machines,
            idle_opened=sum(instance.idle[position] for position in set(positions)),
            machines_used=len(set(positions)),
            cross_bytes=crossing,
            cross_share=crossing / job.profile.grad_bytes,
            proven=best and sure,
        )

    def _refuse_large(self, job: Job, view: Snapshot) -> None:
        """Raise for what would take too long, or cannot be written as Eq. 1."""
        if job.collective in PLACED:
            raise CrannyError(
                f"exact: job {job.id!r}: with {job.collective!r} the placement decides which ranks communicate"
            )
        available = view.available(job)
        machines = sum(available.in_use_count[1:]) + sum(available.idle_count[1:])
        if machines > self.max_machines or job.gpus > self.max_ranks:
            raise CrannyError(
                f"exact: job {job.id!r} has {job.gpus} ranks and {machines} machines have free GPUs;"
                f" the limits are {self.max_ranks} ranks (max_ranks) and {self.max_machines} machines"
                " (max_machines)"
            )

    def _least_traffic(
        self, instance: NimpInstance, opened: int, used: int
    ) -> tuple[tuple[int, ...], bool] | None:
        """Minimise what crosses, with O1 and O2 given; None if the bandwidth does not allow any placement."""
        model = _Model(instance)
        model.cp.add(model.opened == opened)
        model.cp.add(model.used == used)
        model.minimise_traffic()
        found = self._run(model)
        return None if found is None else (model.positions(found[0]), found[1])

    def _fewest_within_bandwidth(self, instance: NimpInstance) -> tuple[int, int, bool] | None:
        """Minimise O1 and then O2 under all constraints; None if nothing keeps to them."""
        model = _Model(instance)
        # O2 never exceeds the number of machines, so one idle machine weighs more than any number of others.
        model.cp.minimize(model.opened * (len(instance.machines) + 1) + model.used)
        found = self._run(model)
        if found is None:
            return None
        return found[0].value(model.opened), found[0].value(model.used), found[1]

    def _run(self, model: "_Model") -> tuple[cp_model.CpSolver, bool] | None:
        """Solve a model; return the solver, and whether it proved its solution. None if there is none."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        # Else CP-SAT resets SIGINT to its default action: the next Ctrl-C would end the process without clean-up.
        solver.parameters.catch_sigint_signal = False
        solver.parameters.random_seed = 0
        solver.parameters.max_deterministic_time = self.time_limit_s
        status = solver.solve(model.cp)
        if status == cp_model.UNKNOWN:
            raise CrannyError(f"exact: nothing found within {self.time_limit_s:g} s; raise time_limit_s")
        return None if status == cp_model.INFEASIBLE else (solver, status == cp_model.OPTIMAL)


class _Model:
    """Eq. 1 as a CP-SAT model."""

    def __init__(self, instance: NimpInstance) -> None:
        self.instance = instance
        self.cp = cp = cp_model.CpModel()
        ranks, positions = range(instance.ranks), range(len(instance.machines))
        self.x = x = [[cp.new_bool_var(f"x{n},{s}") for s in positions] for n in ranks]
        self.y = y = [cp.new_bool_var(f"y{s}") for s in positions]
        for n in ranks:
            cp.add_exactly_one(x[n])  # placement constraint
        for s in positions:
            cp.add(sum(x[n][s] for n in ranks) <= instance.free[s])  # resource constraint
            cp.add_max_equality(y[s], [x[n][s] for n in ranks])  # y_s >= x_n^s, and no larger than needed
        self._bandwidth()
        self._break_symmetry()
        self.opened = cp_model.LinearExpr.sum([y[s] for s in positions if instance.idle[s]])
        self.used = cp_model.LinearExpr.sum(y)

    def _bandwidth(self) -> None:
        """Limit the pairs of each phase that cross from one machine to another, x_n^s x_n'^s' each."""
        cp, x, free = self.cp, self.x, self.instance.free
        crosses: dict[tuple[Pair, Hop], cp_model.IntVar] = {}
        for (s, t), limits in self.instance.limits.items():
            for pairs, most in zip(self.instance.phases, limits, strict=True):
                if most >= could_cross(pairs, free[s], free[t]):
                    continue
                for a, b in pairs:
                    if ((a, b), (s, t)) not in crosses:
                        crosses[(a, b), (s, t)] = cp.new_bool_var(f"p{a},{b},{s},{t}")
                        cp.add_bool_or([crosses[(a, b), (s, t)], ~x[a][s], ~x[b][t]])
                cp.add(cp_model.LinearExpr.sum([crosses[pair, (s, t)] for pair in pairs]) <= most)

    def _break_symmetry(self) -> None:
        """Exclude placements for which an equally good one is kept."""
        cp, x, y = self.cp, self.x, self.y
        positions = range(len(self.instance.machines))
        for s in positions:
            for t in positions:
                if s == t or not self.instance.replaces(s, t):
                    continue
                if not self.instance.replaces(t, s):
                    cp.add_implication(y[t], y[s])  # the one that can do all that the other can goes first
                elif s < t:  # swapping them changes nothing: the first gets the lower of their ranks
                    for n in range(self.instance.ranks):
                        cp.add_bool_or([~x[n][t], *(x[lower][s] for lower in range(n))])

    def minimise_traffic(self) -> None:
        """Minimise what crosses machines: all that is exchanged, less what stays inside."""
        cp, x, instance = self.cp, self.x, self.instance
        everything = []
        for s in range(len(instance.machines)):
            inside = []
            for (a, b), weight in instance.weights.items():
                together = cp.new_bool_var(f"t{a},{b},{s}")
                cp.add_implication(together, x[a][s])
                cp.add_implication(together, x[b][s])
                inside.append(weight * together)
            everything += inside
            if instance.ranks <= BOUND_RANKS:  # not part of Eq. 1: implied, and what makes the proof short
                most = most_inside(instance.ranks, tuple(instance.weights.items()))
                counts = range(min(instance.free[s], instance.ranks) + 1)
                holds = [cp.new_bool_var(f"c{s},{count}") for count in counts]
                cp.add_exactly_one(holds)
                cp.add(sum(row[s] for row in x) == sum(c * here for c, here in zip(counts, holds, strict=True)))
                cp.add(sum(inside) <= sum(most[c] * here for c, here in zip(counts, holds, strict=True)))
        cp.maximize(sum(everything))

    def positions(self, solver: cp_model.CpSolver) -> tuple[int, ...]:
        """Return the machine of each rank, as a position in `machines`."""
        return tuple(next(s for s, here in enumerate(row) if solver.boolean_value(here)) for row in self.x)


def fewest_machines(instance: NimpInstance) -> tuple[int, int] | None:
    """Return the least O1 and then O2 that the GPUs alone allow, by the machines with the most free GPUs."""
    kinds = list(zip(instance.free, instance.idle, strict=True))
    idle = sorted((free for free, is_idle in kinds if is_idle), reverse=True)
    in_use = sorted((free for free, is_idle in kinds if not is_idle), reverse=True)
    for opened in range(len(idle) + 1):
        for others in range(len(in_use) + 1):
            if sum(idle[:opened]) + sum(in_use[:others]) >= instance.ranks:
                return opened, opened + others
    return None


@lru_cache(maxsize=256)
def most_inside(ranks: int, weights: tuple[tuple[Pair, int], ...]) -> tuple[int, ...]:
    """Return for each count the most that so many ranks exchange among themselves; all sets are tried."""
    between = dict(weights)
    inside = np.zeros(1, dtype=np.int64)  # (sets of the ranks so far,) bit i of the index for rank i
    size = np.zeros(1, dtype=np.int64)
    for rank in range(ranks):
        with_rank = np.zeros(1, dtype=np.int64)
        for other in range(rank):
            with_rank = np.concatenate([with_rank, with_rank + between.get((other, rank), 0)])
        inside = np.concatenate([inside, inside + with_rank])
        size = np.concatenate([size, size + 1])
    return tuple(int(inside[size == count].max()) for count in range(ranks + 1))
