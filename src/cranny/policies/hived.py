"""HiveD: virtual clusters made of cells, placed by buddy cell allocation.

H. Zhao et al., "HiveD: Sharing a GPU Cluster for Deep Learning with Guarantees", OSDI 2020, Sec. 3. A tenant
owns cells, not a number of GPUs, so that what fits a cluster of its own also fits its part of the shared one.

Symbols:

    level-k cell    2**k GPUs of one machine, beginning at a multiple of 2**k: GPU, pair, quad, ...; above
                    these come the machine and the rack
    VC              the virtual cluster of a tenant: the machine cells that it owns; which machines these are
                    stays open until they are used
    free list       for each level, the free cells that are not part of a larger free cell

A machine belongs to a VC from the VC's first job there to its last; meanwhile no other VC can use it. As no
VC has more machines than it owns, one is always left for a VC that may have another (sharing safety).

Algorithm 1 (buddy cell allocation): for a level-k cell, take one from the free list of level k; if that is
empty, get a cell of level k+1 in the same way and split it. A cell that comes back merges with its buddies.
The free lists follow from the free GPUs, so merging takes no code here.

Jobs of a trace ask for GPUs, not for cells. They get the fewest cells that add up: 5 = 4 + 1, on one machine
if possible; larger ones get whole machines, below one rack if possible, and cells for the rest.

Departure: VCs own machine cells only, as a share of the machines of each kind, rounded down.
Departure: no low-priority jobs on cells that other VCs own but do not use; a placer could not stop them.
"""

from collections.abc import Mapping
from functools import lru_cache, reduce
from itertools import islice
from operator import or_

from cranny.core.machine_set import FreeMachines, lowest, members, within
from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster, mask_of
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import between
from cranny.policies._shared.buddy import smallest_block

Kind = tuple[int, str]  # GPUs of a machine and their type

# Shares such as 1/3 may miss a whole number of machines by rounding only.
TOLERANCE = 1e-9


class HiveD:
    """Place a job on free cells of its tenant's virtual cluster.

    `vcs` gives each tenant its share of the machines, such as {"vision": 0.5, "speech": 0.25}; without it
    there is one virtual cluster that owns everything.
    """

    def __init__(self, vcs: Mapping[str, float] | None = None) -> None:
        if not isinstance(vcs, Mapping | None):
            raise InputError(f'hived: vcs must be tenants and their shares, such as {{"a": 0.5}}, not {vcs!r}')
        self.vcs = None if vcs is None else dict(vcs)
        if self.vcs is not None:
            for tenant, share in self.vcs.items():
                between(share, f"hived: the share of {tenant!r}", 0, 1)
            if sum(self.vcs.values()) > 1 + TOLERANCE:
                raise InputError(f"hived: the shares add up to {sum(self.vcs.values()):g}, more than 1")

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Get the cells of a job, all or none."""
        vc = self._virtual_cluster(job, view)
        if vc is None or not (vc.get_on_one_machine(job.gpus) or vc.get_on_several(job.gpus)):
            return None
        ranks = [(machine, gpu) for machine, cell in vc.chosen for gpu in members(cell)]
        return view.placement(job, tuple(machine for machine, _ in ranks), gpus=tuple(gpu for _, gpu in ranks))

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say whether the tenant's cells, the cluster's GPUs, or cells among the free GPUs are short."""
        vc = self._virtual_cluster(job, view)
        if vc is None:
            return f"tenant {job.tenant!r} has no cells"
        cells = " + ".join(map(str, cell_sizes(job.gpus, vc.largest)))
        if self.vcs is None:
            free = view.available(job).gpus
            return lacks_gpus(job, view) or f"needs cells of {cells} GPUs; the {free} free GPUs are scattered"
        owned = self._owned(job, view)
        gpus = sum(size * count for (size, _), count in owned.items())
        if gpus < job.gpus:
            return f"needs {job.gpus} GPUs, tenant {job.tenant!r} owns {gpus}"
        machines = sum(owned.values())
        used = machines - sum(vc.left.values())
        return lacks_gpus(job, view) or (
            f"needs cells of {cells} GPUs; tenant {job.tenant!r} uses {used} of its {machines} machines"
        )

    def _virtual_cluster(self, job: Job, view: Snapshot) -> "_VirtualCluster | None":
        """Return what the job's tenant may use now; None if it owns nothing."""
        available = view.available(job)
        if self.vcs is None:
            kinds, suited = _kinds(view.cluster), view.eligible(job)
            largest = max((size for (size, _), machines in kinds.items() if machines & suited), default=1)
            return _VirtualCluster(view, available, {}, largest)
        owned = self._owned(job, view)
        if not owned:
            return None
        mine, others = 0, 0  # follow from the running jobs, so this costs a look at each of them
        for running in view.running.values():
            if running.job.tenant == job.tenant:
                mine |= mask_of(running.held)
            else:
                others |= mask_of(running.held)
        kinds = _kinds(view.cluster)
        left = {kind: count - (kinds[kind] & mine).bit_count() for kind, count in owned.items()}
        usable = reduce(or_, (kinds[kind] for kind, count in left.items() if count > 0), mine) & ~others
        return _VirtualCluster(view, available.only(usable), left, max(size for size, _ in owned))

    def _owned(self, job: Job, view: Snapshot) -> dict[Kind, int]:
        """Count the machine cells of each kind that the job's tenant owns and the job can use."""
        share = (self.vcs or {}).get(job.tenant, 0.0)
        suited = view.eligible(job)  # all machines of a kind, or none
        return {
            kind: count
            for kind, machines in _kinds(view.cluster).items()
            if machines & suited and (count := int(share * machines.bit_count() + TOLERANCE))
        }


class _VirtualCluster:
    """The cells of one VC while a job is placed; what it gets is taken out and noted in `chosen`.

    `left` says how many more idle machines of each kind the VC may have; if empty, there is no limit.
    """

    def __init__(self, view: Snapshot, available: FreeMachines, left: dict[Kind, int], largest: int) -> None:
        self.view = view
        self.in_use = list(available.in_use)
        self.idle = list(available.idle)
        self.left = left
        self.largest = largest  # GPUs of its largest machine
        self.slots: dict[int, int] = {}  # free GPUs of machines of which something was taken
        self.chosen: list[tuple[int, int]] = []  # machine and GPUs of each cell

    def get_on_one_machine(self, gpus: int, among: int = -1) -> bool:
        """Get cells for so many GPUs on one machine: those that split the smallest cell (Algorithm 1)."""
        if gpus > self.largest:
            return False
        best: tuple[int, int, int] | None = None  # size of the cell to split, machine, GPUs
        for machine in (machine for group in self.in_use[gpus:] for machine in members(group & among)):
            found = fit(self._slots(machine), gpus)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], machine, found[1])
                if found[0] == 1 << (gpus.bit_length() - 1):
                    break  # nothing needs to be split
        if best is None:  # the smallest idle machine that holds the job; a rack that is wholly idle is split last
            group = next((group & among for group in self.idle[gpus:] if group & among), 0)
            machine = _outside_idle_racks(self.view.cluster, group, reduce(or_, self.view.machines.idle))
            found = fit(self._slots(machine), gpus) if group else None
            if found is None:
                return False
            best = (found[0], machine, found[1])
        self._take(best[1], best[2])
        return True

    def get_on_several(self, gpus: int) -> bool:
        """Get whole machines as long as the job fills them, then cells for the rest."""
        if gpus > self.largest:
            for size in range(self.largest, 0, -1):
                if gpus < self.largest:
                    break
                for machine in self._nearby(size, gpus // size):
                    gpus -= size
                    self._take(machine, self._slots(machine))
            cluster = self.view.cluster
            spans = {cluster.rack_spans[cluster.rack_of[machine]] for machine, _ in self.chosen}
            same_racks = reduce(or_, (within(-1, *span) for span in spans), 0)
            if not gpus or self.get_on_one_machine(gpus, same_racks) or self.get_on_one_machine(gpus):
                return True
        cells = cell_sizes(gpus, self.largest)
        return len(cells) > 1 and all(self.get_on_one_machine(size) for size in cells)

    def _slots(self, machine: int) -> int:
        return self.slots[machine] if machine in self.slots else self.view.slots_on(machine)

    def _nearby(self, size: int, most: int) -> list[int]:
        """Choose idle machines of a size, at most so many and no more than the VC may have, in few racks."""
        chosen: list[int] = []
        for kind, machines in _kinds(self.view.cluster).items():
            if kind[0] == size:
                free = self.idle[size] & machines
                count = min(most - len(chosen), free.bit_count(), self.left.get(kind, most))
                if count > 0:
                    chosen += _in_few_racks(self.view.cluster, free, count)
        return chosen

    def _take(self, machine: int, cell: int) -> None:
        """Take GPUs of a machine out; if it was idle, the VC now has one machine more."""
        before = self._slots(machine)
        after = before & ~cell
        bit = 1 << machine
        if self.idle[before.bit_count()] & bit:
            self.idle[before.bit_count()] ^= bit
            described = self.view.cluster.machines[machine]
            kind = (described.gpus, described.gpu_type)
            if kind in self.left:
                self.left[kind] -= 1
                if not self.left[kind]:
                    self.idle[described.gpus] &= ~_kinds(self.view.cluster)[kind]
        else:
            self.in_use[before.bit_count()] ^= bit
        self.in_use[after.bit_count()] |= bit
        self.slots[machine] = after
        self.chosen.append((machine, cell))


def cell_sizes(gpus: int, largest: int) -> list[int]:
    """Return the fewest cells that add up to so many GPUs: whole machines, then powers of two."""
    whole = [largest] * (gpus // largest)
    rest = gpus % largest
    return whole + [1 << level for level in range(rest.bit_length() - 1, -1, -1) if rest >> level & 1]


@lru_cache(maxsize=65536)
def fit(slots: int, gpus: int) -> tuple[int, int] | None:
    """Get cells for so many GPUs from the free ones of a machine, the largest first (Algorithm 1).

    Return the size of the cell that the largest of them is split from, and the GPUs as bits.
    """
    rest, split = slots, 0
    for level in range(gpus.bit_length() - 1, -1, -1):
        size = gpus & 1 << level
        if size:
            cell = smallest_block(rest, size)
            if cell is None:
                return None
            split = split or cell[1]
            rest &= ~((1 << size) - 1 << cell[0])
    return split, slots ^ rest


@lru_cache(maxsize=16)
def _kinds(cluster: Cluster) -> dict[Kind, int]:
    """Return the machines of each kind."""
    kinds: dict[Kind, int] = {}
    for index, machine in enumerate(cluster.machines):
        kind = (machine.gpus, machine.gpu_type)
        kinds[kind] = kinds.get(kind, 0) | 1 << index
    return kinds


def _outside_idle_racks(cluster: Cluster, machines: int, idle: int) -> int:
    """Return the lowest of these machines whose rack is not wholly idle, else the lowest of all."""
    rest = machines
    while rest:
        first, past = cluster.rack_spans[cluster.rack_of[lowest(rest)]]
        if within(idle, first, past).bit_count() < past - first:
            return lowest(rest)
        rest = rest >> past << past
    return lowest(machines)


def _in_few_racks(cluster: Cluster, machines: int, count: int) -> list[int]:
    """Choose so many of the machines: in the rack with the fewest that has enough, else in few racks."""
    racks: list[int] = []
    for first, past in cluster.rack_spans:
        racks.append(within(machines, first, past))
        if racks[-1].bit_count() == count:
            return list(members(racks[-1]))
    enough = [rack for rack in racks if rack.bit_count() > count]
    if enough:
        return list(islice(members(min(enough, key=int.bit_count)), count))
    chosen: dict[int, None] = {}  # in order; switches with both machines and racks below them overlap
    for rack in sorted(racks, key=int.bit_count, reverse=True):
        chosen |= dict.fromkeys(members(rack))
    return list(islice(chosen, count))
