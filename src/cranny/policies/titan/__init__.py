"""Titan: place a job so that it opens no idle machine it does not need.

J. Fang, G. Zhao, H. Xu, L. Luo, Z. Yao, A. Xie, "Non-Idle Machine-Aware Worker Placement for Efficient
Distributed Training in GPU Clusters", ICNP 2024.

Symbols of the paper and their names here:
    N, n                 the ranks of the job, one of them
    S_f, S_n             `available.in_use`, `available.idle`: non-idle and idle machines
    R_s                  free GPUs of machine s
    C[t, n, n']          `share * k_bytes`: what two ranks exchange in phase t
    P[s, s']             `view.bandwidth_gbps(s, s')`: what running jobs leave between two machines
    O1, O2               `Fewest.idle`, `Fewest.machines`: idle machines opened, machines used at all

Departure: Algorithms 1-3 merge worker sets greedily and, as printed, would fill idle machines first. Without the
bandwidth constraint (O1, O2) has a closed form (`core.packing`), so we start from the optimum, give the ranks
the map with the least traffic we can find (`core.partition`; the paper's Fig. 1 does this, its pseudo-code does
not say how), and only where the bandwidth constraint forbids that try larger and quieter machines, the
paper's own algorithms (`merge`) and an exact search (`search`).

Departure: C is bytes and P a rate in the paper. We read the constraint as: what two machines exchange in a phase
must pass within `phase_budget_s`. One second, the default, is the paper's inequality taken by its numbers.
"""

from collections.abc import Iterator, Sequence

from cranny.core.machine_set import FreeMachines, lowest, within
from cranny.core.packing import Fewest, fewest, fewest_with, largest_first
from cranny.core.partition import split
from cranny.core.protocol import Drafter, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import exchange_graph
from cranny.model.cluster import Cluster
from cranny.model.collective import PLACED
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import positive, whole
from cranny.policies.titan.bandwidth import MANY_MACHINES, SEARCHED_MACHINES, WAIVED, Attainable, Bandwidth
from cranny.policies.titan.merge import merge
from cranny.policies.titan.rank_bound import RankBound, rank_limits
from cranny.policies.titan.search import FeasiblePlacement, search

# Single racks that are tried when links between racks are too busy.
RACKS_TRIED = 4


class Titan:
    """Fewest idle machines, then fewest machines, then least traffic, within the bandwidth that is left."""

    fragments_before_idle = True

    def __init__(self, phase_budget_s: float = 1.0, search_nodes: int = 20_000) -> None:
        self.bandwidth = Bandwidth(positive(phase_budget_s, "titan: phase_budget_s"))
        self.search_nodes = whole(search_nodes, "titan: search_nodes", least=0)
        self._attainable = Attainable(self._meets)
        # The job that waits for bandwidth, where, and how often it was refused in a row.
        self._waiting: tuple[Job, Cluster, int] | None = None

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Return the placement that is best in (O1, O2, traffic) among those within the bandwidth."""
        available = view.available(job)
        tight = _tightest(available.in_use, job.gpus)
        if tight:  # (O1, O2) = (0, 1): nothing is better, and nothing crosses machines
            return view.placement(job, (lowest(available.in_use[tight]),) * job.gpus)
        if job.gpus == 1 and any(available.idle):  # (1, 1): no non-idle machine has a GPU left
            return view.placement(job, (lowest(available.idle[_tightest(available.idle, 1)]),))
        least = fewest(job.gpus, *available.counts_for(job.gpus))
        if least is None:
            return None
        machines = _map(job, view, available, least)
        blocked = self.bandwidth.blocked_link(job, view, machines)
        if blocked is None:
            return view.placement(job, machines)
        found = self._within_bandwidth(job, view, available, least)
        if found is not None:
            return view.placement(job, found, note=f"bandwidth constraint: {_left(view, blocked)}")
        return None if self._attainable(job, view.cluster) else view.placement(job, machines, note=WAIVED)

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the tightest machine, as `place` does: a part of the cases that need no weighing."""
        return range(gpus, size + 1)

    def drafter(self) -> Drafter:
        """Place jobs on several machines in compiled code, as long as links are quiet."""
        from cranny.policies.titan import placement_kernel

        def memo_entry(job: Job, taken: Sequence[int], cluster: Cluster) -> Sequence[int]:
            if min(taken) >= 0:
                return placement_kernel.parts_of(job, taken)
            return placement_kernel.levels_of(job, attainable=self._attainable(job, cluster))

        return Drafter(placement_kernel.draft, self.bandwidth.phase_budget_s, memo_entry)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return that GPUs are short, or which link is too busy."""
        if short := lacks_gpus(job, view):
            return short
        available = view.available(job)
        least = fewest(job.gpus, *available.counts_for(job.gpus))
        machines = () if least is None else _map(job, view, available, least)
        blocked = self.bandwidth.blocked_link(job, view, machines) if machines else None
        if blocked is None:
            return "can start now"
        scattered = "" if any(_racks(job, view, available)) else "fits only across racks: "
        return scattered + _left(view, blocked)

    def _within_bandwidth(
        self, job: Job, view: Snapshot, available: FreeMachines, least: Fewest
    ) -> tuple[int, ...] | None:
        """Return a placement within the bandwidth when the first choice is not."""
        bound = None
        if job.collective not in PLACED and _is_searched(available):
            bound = RankBound.of(rank_limits(job, view, available, self.bandwidth))
            if not bound.holds(job.gpus):
                return None
        best = self._other_machines(job, view, available, least)
        if best is not None and best.objectives == least[:2]:
            return best.machines  # as good as without the constraint
        if best is not None and bound is not None and bound.is_least(best.objectives, job.gpus):
            return best.machines
        # Where pairs depend on the placement, and where it would be in vain, nothing is searched.
        if job.collective in PLACED or (best is None and not self._attainable(job, view.cluster)):
            return best.machines if best is not None else None
        # A search takes long, and a job that waits is tried whenever another ends: after it has failed, it is
        # repeated only at the first, second, fourth, eighth ... refusal, and when all machines are idle.
        waiting, where, refused = self._waiting or (None, None, 0)
        refused = refused if waiting == job and where is view.cluster else 0
        due = not any(available.in_use) or not refused & (refused - 1)
        if best is not None or due:
            best = self._searched(job, view, available, best)
        self._waiting = (job, view.cluster, refused + 1) if best is None else None
        return best.machines if best is not None else None

    def _meets(self, job: Job, view: Snapshot) -> bool:
        """Say whether a placement is found that meets the constraint."""
        available = view.available(job)
        least = fewest(job.gpus, *available.counts_for(job.gpus))
        if least is None or self.bandwidth.blocked_link(job, view, _map(job, view, available, least)) is None:
            return True
        if self._other_machines(job, view, available, least) is not None:
            return True
        return job.collective not in PLACED and self._searched(job, view, available, None) is not None

    def _other_machines(
        self, job: Job, view: Snapshot, available: FreeMachines, least: Fewest
    ) -> FeasiblePlacement | None:
        """Open more idle machines, among all, then among those with quiet uplinks, then in single racks."""
        best: FeasiblePlacement | None = None
        for quiet in (False, True):
            part = available.only(~view.busy_machines(self.bandwidth.need_gbps(job))) if quiet else available
            found = self._open_idle(job, view, part, None if quiet else least)
            if found is not None and (best is None or found.objectives < best.objectives):
                best = found
            if best is not None and best.objectives == least[:2]:
                return best
        if best is None:  # perhaps only the links between racks are too busy
            found_in_racks = (self._open_idle(job, view, rack) for rack in _racks(job, view, available))
            best = min(filter(None, found_in_racks), key=lambda found: found.objectives, default=None)
        return best

    def _searched(
        self, job: Job, view: Snapshot, available: FreeMachines, best: FeasiblePlacement | None
    ) -> FeasiblePlacement | None:
        """Return what the paper's algorithms or the search find, if that is better than the best so far."""
        few = _is_searched(available)
        if few:
            known = best.objectives if best is not None else None
            searched = search(job, view, available, self.bandwidth, known, self.search_nodes)
            best = searched.found or best
            if searched.proven:
                return best
        if few or best is None:
            merged = merge(job, view, available, self.bandwidth)
            if merged is not None and (best is None or merged.objectives < best.objectives):
                best = merged
        return best

    def _open_idle(
        self, job: Job, view: Snapshot, available: FreeMachines, blocked: Fewest | None = None
    ) -> FeasiblePlacement | None:
        """Open more and more idle machines until the parts are large enough for the bandwidth.

        One more at a time, so that none is opened without need; twice as many more if there are many. `blocked`
        is a choice that need not be tried.
        """
        least = fewest(job.gpus, *available.counts_for(job.gpus))
        more = 1
        while least is not None:
            if least != blocked:
                machines = _map(job, view, available, least)
                if self.bandwidth.blocked_link(job, view, machines) is None:
                    return FeasiblePlacement(least[:2], machines)
            most = len(largest_first(job.gpus, available.idle_count))
            if least.idle >= most:
                return None
            if least.machines > MANY_MACHINES:
                more *= 2
            least = fewest_with(
                min(least.idle + more, most), job.gpus, available.in_use_count, available.idle_count
            )
        return None


def _racks(job: Job, view: Snapshot, available: FreeMachines) -> Iterator[FreeMachines]:
    """Yield the racks that could hold the whole job, those with the most non-idle GPUs free first."""
    spans = [span for span in view.cluster.rack_spans if view.free_between(*span) >= job.gpus]
    large_enough = [available.only(within(-1, *span)) for span in spans]
    large_enough = [rack for rack in large_enough if rack.gpus >= job.gpus]
    yield from sorted(large_enough, key=lambda rack: (-rack.gpus_in_use, rack.gpus))[:RACKS_TRIED]


def _is_searched(available: FreeMachines) -> bool:
    """Say whether machines are few enough to search sets of them."""
    return sum(available.in_use_count[1:]) + sum(available.idle_count) <= SEARCHED_MACHINES


def _left(view: Snapshot, link: int) -> str:
    free, capacity = view.link_free_gbps(link), view.cluster.uplink_gbps[link]
    name = view.cluster.link_name(link)
    return f"{name} is full" if free < capacity / 100 else f"{name} has {free:.1f} of {capacity:g} Gbps left"


def _tightest(groups: Sequence[int], gpus: int) -> int:
    """Return the least number of free GPUs, at least `gpus`, that some machine of these has; 0 if none."""
    for size in range(gpus, len(groups)):
        if groups[size]:
            return size
    return 0


def _map(job: Job, view: Snapshot, available: FreeMachines, least: Fewest) -> tuple[int, ...]:
    """Give each rank a machine: parts with the least traffic, on the tightest machines, close together.

    Any (O1, O2)-optimal set of machines has no more room than the largest ones, so the parts are made for
    these; each part then goes to the tightest machine that holds it, which keeps large holes for large jobs.
    """
    if least.machines == 1:
        size = _tightest(available.idle, job.gpus)
        return (lowest(available.idle[size]),) * job.gpus
    found = split(exchange_graph(job), least.sizes)
    count = found.sizes
    groups = {True: list(available.idle), False: list(available.in_use)}
    near: Sequence[tuple[int, int]] = ()
    taken: dict[int, list[int]] = {}  # ranks of a part -> machines that hold so many
    for part in sorted(range(least.machines), key=count.__getitem__, reverse=True):
        group = groups[part < least.idle]
        size = _tightest(group, count[part])
        below = (within(group[size], *switch) for switch in near)  # the nearest that has a machine is best
        machine = lowest(next(filter(None, below), group[size]))
        group[size] ^= 1 << machine
        taken.setdefault(count[part], []).append(machine)
        near = near or [view.cluster.spans[link] for link in view.cluster.paths[machine][1:]]
    for machines in taken.values():
        machines.sort(reverse=True)
    machine_of: dict[int, int] = {}  # parts in order of their first rank take the machines from the lowest
    for part in found.part:
        if part not in machine_of:
            machine_of[part] = taken[count[part]].pop()
    return tuple([machine_of[part] for part in found.part])
