"""Bounded exact search, for when the bandwidth constraint forbids the unconstrained optimum.

Pairs (O1, O2) are tried from the best on. For each, sets of machines are enumerated by *kind*: machines with the
same free GPUs behind equally free links are interchangeable. For each set, ranks are given machines one by one,
and a branch ends as soon as some phase overloads a pair of machines. The first level with a solution is the
optimum in (O1, O2); what is left of the node budget goes into less traffic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cranny.core.machine_set import FreeMachines, members
from cranny.core.partition import order
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import exchange_graph
from cranny.model.collective import PLACED
from cranny.model.job import Job
from cranny.policies.titan.bandwidth import Bandwidth, Exchange, exchanges

EPSILON = 1e-9
# In a larger cluster there are far more sets than can be searched, and what `Titan` tries first (idle machines
# one by one, quiet machines, single racks) is nearly always as good.
MAX_MACHINES = 32
Objectives = tuple[int, int]  # O1, O2


class FeasiblePlacement(NamedTuple):
    """A placement within the bandwidth, with its O1 and O2."""

    objectives: Objectives
    machines: tuple[int, ...]


class MachineKind(NamedTuple):
    """Interchangeable machines."""

    idle: bool
    free: int
    machines: tuple[int, ...]


@dataclass(slots=True)
class _Budget:
    """Counts down the nodes that may still be searched."""

    left: int

    def spend(self) -> bool:
        """Use up a node; say whether there was one."""
        self.left -= 1
        return self.left >= 0


def search(
    job: Job, view: Snapshot, available: FreeMachines, bandwidth: Bandwidth, below: Objectives | None, nodes: int
) -> FeasiblePlacement | None:
    """Return the placement with the least (O1, O2) within the bandwidth, as far as the node budget reaches.

    Only placements with less than `below` are searched.
    """
    if job.collective in PLACED:
        return None  # its pairs depend on the placement; `Titan` falls back to quieter machines
    if len(view.cluster.machines) > MAX_MACHINES:
        return None
    budget = _Budget(nodes)
    kinds = _kinds(view, available, job.gpus)
    exchanges = _exchanges(job)
    idle_machines = sum(len(kind.machines) for kind in kinds if kind.idle)
    for idle in range(min(idle_machines, job.gpus) + 1):
        for total in range(max(idle, 1), job.gpus + 1):
            if below is not None and (idle, total) >= below:
                return None
            best: tuple[float, tuple[int, ...]] | None = None
            for machines in _sets(kinds, idle, total, job.gpus, budget):
                mapper = _RankMapper(view, machines, bandwidth, exchanges, budget)
                best = mapper.run(best[0] if best else None) or best
                if budget.left <= 0:
                    break
            if best is not None:
                return FeasiblePlacement((idle, total), best[1])
            if budget.left <= 0:
                return None
    return None


def _kinds(view: Snapshot, available: FreeMachines, most: int) -> list[MachineKind]:
    """Group interchangeable machines: as free, and with the same switch and as free an uplink."""
    groups: dict[tuple[bool, int, float, int], list[int]] = {}
    for idle, sets in ((False, available.in_use), (True, available.idle)):
        for free, machines in enumerate(sets):
            for machine in members(machines) if free else ():
                key = (idle, free, view.link_free_gbps(machine), view.cluster.parent[machine])
                group = groups.setdefault(key, [])
                if len(group) < most:
                    group.append(machine)
    # Machines with many GPUs and much bandwidth free first: they are the likeliest to suffice.
    ranked = sorted(groups.items(), key=lambda item: (-item[0][1], -item[0][2], item[1]))
    return [MachineKind(key[0], key[1], tuple(machines)) for key, machines in ranked]


def _sets(
    kinds: list[MachineKind], idle: int, total: int, gpus: int, budget: _Budget, at: int = 0
) -> Iterator[tuple[int, ...]]:
    """Yield sets of `total` machines of the kinds from `at` on, `idle` of them idle, that hold so many GPUs."""
    if not total:
        if gpus <= 0 and not idle:
            yield ()
        return
    if at == len(kinds) or total * kinds[at].free < gpus or not budget.spend():
        return  # kinds come largest first: those left cannot hold the rest
    kind = kinds[at]
    for count in range(min(len(kind.machines), total, idle if kind.idle else total - idle), -1, -1):
        idle_left = idle - count if kind.idle else idle
        for others in _sets(kinds, idle_left, total - count, gpus - count * kind.free, budget, at + 1):
            yield kind.machines[:count] + others


class RankExchanges(NamedTuple):
    """The ranks in the order in which they are placed, and what each exchanges with those before it."""

    ranks: tuple[int, ...]
    # For each place in the order: (earlier place, phase, bytes out, bytes in, bytes over all phases)
    with_earlier: list[list[Exchange]]
    twin: list[int]  # an earlier place whose rank exchanges the same with all others; -1 if there is none


def _exchanges(job: Job) -> RankExchanges:
    """List what the ranks exchange, phase by phase."""
    ranks = order(exchange_graph(job))
    place = {rank: at for at, rank in enumerate(ranks)}
    of = exchanges(job)
    with_all = [[(place[each[0]], *each[1:]) for each in of[rank]] for rank in ranks]
    with_earlier = [[each for each in exchanged if each[0] < at] for at, exchanged in enumerate(with_all)]
    seen: dict[tuple[tuple[float, ...], ...], int] = {}
    twin = []
    for at, exchanged in enumerate(with_all):
        key = tuple(sorted(each[:4] for each in exchanged))
        twin.append(seen.get(key, -1))
        seen[key] = at
    return RankExchanges(ranks, with_earlier, twin)


class _RankMapper:
    """Places the ranks of a job on one set of machines, depth first."""

    def __init__(
        self, view: Snapshot, machines: tuple[int, ...], bandwidth: Bandwidth, of: RankExchanges, budget: _Budget
    ) -> None:
        self._machines = machines
        self._ranks, self._exchanges, self._twin = of
        self._budget = budget
        self._free = [min(view.free_on(machine), len(self._ranks)) for machine in machines]
        self._kind = [
            (view.free_on(m), view.link_free_gbps(m), view.cluster.parent[m], view.is_idle(m)) for m in machines
        ]
        count = len(machines)
        budget.left -= count  # setting up costs about as much
        self._limit = [
            [bandwidth.limit_bytes(view.bandwidth_gbps(a, b)) if a != b else 0.0 for b in machines]
            for a in machines
        ]
        self._machine_at = [-1] * len(self._ranks)
        self._load: dict[tuple[int, int, int], float] = {}  # (phase, from, to) -> bytes
        self._ranks_on = [0] * count
        self._unused = count
        self._best: tuple[float, tuple[int, ...]] | None = None
        self._least = float("inf")

    def run(self, below: float | None) -> tuple[float, tuple[int, ...]] | None:
        """Return the least traffic found, if below the given, and the machine of each rank."""
        if below is not None:
            self._least = below
        self._place_from(0, 0.0)
        return self._best

    def _place_from(self, at: int, crossing: float) -> None:
        """Place the rank at this position of the order, and all after it."""
        if at == len(self._ranks):
            self._least = crossing
            machine_of = dict(zip(self._ranks, self._machine_at, strict=True))
            self._best = (crossing, tuple(self._machines[machine_of[rank]] for rank in range(len(machine_of))))
            return
        for machine, added in self._options(at):
            if crossing + added >= self._least * (1 - EPSILON) or not self._budget.spend():
                return  # options come cheapest first
            undo = self._place(at, machine)
            if undo is not None:
                self._place_from(at + 1, crossing + added)
                self._unload(undo)
                self._machine_at[at] = -1
                self._free[machine] += 1
                self._ranks_on[machine] -= 1
                self._unused += not self._ranks_on[machine]

    def _options(self, at: int) -> list[tuple[int, float]]:
        """Return the machines that a rank may be on and the traffic each adds, cheapest first."""
        exchanges = sum(total for *_, total in self._exchanges[at])
        inside: dict[int, float] = {}
        for earlier, *_, total in self._exchanges[at]:
            machine = self._machine_at[earlier]
            inside[machine] = inside.get(machine, 0.0) + total
        must_open = self._unused >= len(self._ranks) - at
        twin = self._twin[at]
        # Of two equal ranks, the later is on no earlier machine.
        from_machine = self._machine_at[twin] if twin >= 0 else 0
        options = []
        fresh = set()  # of interchangeable empty machines one is enough
        for machine, room in enumerate(self._free):
            occupied = self._ranks_on[machine] > 0
            if not room or machine < from_machine or (must_open and occupied):
                continue
            if not occupied:
                if self._kind[machine] in fresh:
                    continue
                fresh.add(self._kind[machine])
            options.append((machine, exchanges - inside.get(machine, 0.0)))
        options.sort(key=lambda option: option[1])
        return options

    def _place(self, at: int, machine: int) -> list[tuple[tuple[int, int, int], float]] | None:
        """Place a rank; return the added loads, or None (and nothing changed) if a limit is exceeded."""
        loaded: list[tuple[tuple[int, int, int], float]] = []
        fits = True
        for earlier, phase, sends, gets, _ in self._exchanges[at]:
            other = self._machine_at[earlier]
            if other == machine:
                continue
            for key, moved in (((phase, machine, other), sends), ((phase, other, machine), gets)):
                if moved:
                    self._load[key] = self._load.get(key, 0.0) + moved
                    loaded.append((key, moved))
                    fits = fits and self._load[key] <= self._limit[key[1]][key[2]]
        if not fits:
            self._unload(loaded)
            return None
        self._unused -= not self._ranks_on[machine]
        self._ranks_on[machine] += 1
        self._machine_at[at] = machine
        self._free[machine] -= 1
        return loaded

    def _unload(self, loaded: list[tuple[tuple[int, int, int], float]]) -> None:
        for key, moved in loaded:
            self._load[key] -= moved
