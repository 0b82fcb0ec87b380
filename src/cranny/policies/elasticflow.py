"""ElasticFlow's placement: every job holds a power of two of GPUs, as one buddy block.

D. Gu et al., "ElasticFlow: An Elastic Serverless Training Platform for Distributed Deep Learning", ASPLOS
2023, its part on job placement: all GPUs are the leaves of one tree (GPU, machine, rack, ...); the number of
workers of a job is a power of two; a job gets a subtree to itself, by best fit among the free ones (buddy
allocation), so that its speed does not depend on where it runs.

Symbols:

    n    workers of the job                  u    GPUs of the largest block of a machine
    s    n rounded up to a power of two      k    machines of a large job, s / u

A block of b GPUs begins at a multiple of b. A machine whose size is no power of two, say 6 GPUs, has room for
the blocks that this leaves: 4 and 2.

Departure: ElasticFlow changes the workers of a job as it runs, so that a job of 5 would train with 4 or 8.
Jobs of a trace are rigid: one of 5 holds 8 GPUs, 3 of which do nothing, as Titan's paper describes it.
Departure: if GPUs are free but no block is, ElasticFlow migrates jobs until there is one. A placer moves
nothing: a job that fits a machine waits, and a larger one takes any idle machines, close together if it can.
Departure: a job that its rounding makes larger than the cluster would wait for ever; it is not rounded.
"""

from collections import Counter
from functools import lru_cache
from itertools import islice

from cranny.core.machine_set import FreeMachines, lowest, members, within
from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.buddy import gpu_block, smallest_block
from cranny.policies._shared.machine_by_machine import roomiest, take_machines


class ElasticFlow:
    """Give a job a power of two of GPUs: one block of a machine, or the largest blocks of several."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take a block inside one machine, or, if none is that large, the largest blocks of several."""
        size = power_of_two_from(job.gpus)
        if not _could_hold(view.cluster, view.eligible(job), size):
            # Whole idle machines, the largest first, for a job that could never have its power of two.
            ranks = take_machines(job.gpus, view.available(job).idle, roomiest)
            return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None
        return self._within_machine(job, view, size) or self._over_machines(job, view, size)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that GPUs are short, or that no block is free."""
        size = power_of_two_from(job.gpus)
        free = view.available(job).gpus
        if short := lacks_gpus(job, view):
            return short
        if not _could_hold(view.cluster, view.eligible(job), size):
            return f"needs idle machines with {job.gpus} GPUs in all; the {free} free GPUs are scattered"
        if free < size:
            return f"needs {size} GPUs ({job.gpus} rounded up to a power of two), {free} free"
        return f"needs a free block of {size} GPUs; the {free} free GPUs are scattered"

    def _within_machine(self, job: Job, view: Snapshot, size: int) -> Placement | None:
        """Best fit: the machine with the fewest free GPUs that has a block, and its smallest such block."""
        available = view.available(job)
        groups = (*available.in_use[size:], *available.idle[size:])
        for machine in (machine for group in groups for machine in members(group)):
            block = gpu_block(view.slots_on(machine), size)
            if block is not None:
                gpus, spare = tuple(range(block[0], block[0] + size)), (machine,) * (size - job.gpus)
                return view.placement(job, (machine,) * job.gpus, spare=spare, gpus=gpus)
        return None

    def _over_machines(self, job: Job, view: Snapshot, size: int) -> Placement | None:
        """Take k machines with their largest blocks free; the machines form a block, too, if possible."""
        available = view.available(job)
        for unit in _blocks(view.cluster, view.eligible(job)):
            if unit < size:
                machines = _neighbours(view.cluster, _free_units(view, available, unit), size // unit)
                if machines:  # share the ranks evenly among the blocks, and hold the rest of these
                    each, more = divmod(job.gpus, len(machines))
                    used = [(machine, each + (i < more)) for i, machine in enumerate(machines)]
                    ranks = [(machine, gpu) for machine, gpus in used for gpu in range(gpus)]
                    spare = [(machine, gpu) for machine, gpus in used for gpu in range(gpus, unit)]
                    return view.placement(
                        job,
                        tuple(machine for machine, _ in ranks),
                        spare=tuple(machine for machine, _ in spare),
                        gpus=tuple(gpu for _, gpu in ranks + spare),
                    )
        return None


def power_of_two_from(gpus: int) -> int:
    """Round up to a power of two."""
    return 1 << (gpus - 1).bit_length()


@lru_cache(maxsize=16)
def _blocks(cluster: Cluster, suited: int) -> dict[int, int]:
    """Count the machines that suit a job by the size u of their largest block, the largest first."""
    sizes = [machine.gpus for index, machine in enumerate(cluster.machines) if suited >> index & 1]
    count = Counter(1 << (size.bit_length() - 1) for size in sizes)
    return dict(sorted(count.items(), reverse=True))


def _could_hold(cluster: Cluster, suited: int, size: int) -> bool:
    """Say whether a job of this size would ever have its blocks, were the machines that suit it empty."""
    return any(unit * count >= size for unit, count in _blocks(cluster, suited).items())


def _free_units(view: Snapshot, available: FreeMachines, unit: int) -> int:
    """Return the machines whose largest block has `unit` GPUs, their first ones, and is free."""
    block = (1 << unit) - 1
    free = 0
    for group in available.idle[unit : 2 * unit]:
        free |= group
    for group in available.in_use[unit : 2 * unit]:  # machines of more GPUs than their block, used beside it
        for machine in members(group):
            if view.cluster.machines[machine].gpus < 2 * unit and not block & ~view.slots_on(machine):
                free |= 1 << machine
    return free


@lru_cache(maxsize=16)
def _switches(cluster: Cluster) -> tuple[tuple[int, int], ...]:
    """Return the machines below each switch, from a first to before a last; the smallest switches first."""
    spans = cluster.spans[len(cluster.machines) :]
    return tuple(sorted(dict.fromkeys(spans), key=lambda span: (span[1] - span[0], span[0])))


def _neighbours(cluster: Cluster, free: int, count: int) -> tuple[int, ...]:
    """Choose machines of a set below the smallest switch that has enough, as a block if there is one."""
    if free.bit_count() < count:
        return ()
    none = len(cluster.parent)  # larger than any block or switch
    best = (none, none, 0)  # machines below the switch, size of the block that is split, first machine
    for first, past in _switches(cluster):
        if past - first > best[0] or best[1] == count:
            break  # nothing closer together, or no better block, is to come
        below = within(free, first, past) >> first
        if below.bit_count() >= count:
            # Departure: see above; without migration any machines below the switch must do.
            start, split = smallest_block(below, count) or (lowest(below), none)
            best = min(best, (past - first, split, first + start))
    start = best[2]
    return tuple(islice(members(free >> start << start), count))
