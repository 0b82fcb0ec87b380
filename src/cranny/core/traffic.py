"""What a job's communication costs on the machines it is placed on.

Costs depend on which ranks share a machine and on the links between, not on which machines these are. So a
placement is first reduced to its *shape*: machines numbered in order of first use, and the links above them
likewise. Costs of a shape are computed once, per byte of gradient, and cached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from cranny.core.flows import isolated_rate, parameter_server
from cranny.model.arrays import Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.collective import PLACED, Pattern, PatternArrays, Phase, pattern, placed
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Aggregation

# Jobs on few machines come in few shapes; others hardly ever recur (1 in 50 on more than 16 machines), and take
# much more memory. Within these limits it is 20 kB at most, so 160 MB in all.
CACHED = 8192  # costs
CACHED_RANKS = 64
CACHED_MACHINES = 16

BITS_PER_BYTE = 8
GIGA = 1e9
# Megatron-style tensor parallelism reduces activations twice in the forward and twice in the backward pass.
TP_REDUCTIONS_PER_LAYER = 4


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one iteration (one allreduce, for a data-parallel job) moves between machines."""

    cross_machine_bytes: float
    machines: int


class TreeShape(NamedTuple):
    """Links above the machines of a placement: their local numbers, per machine, and their capacities."""

    paths: tuple[tuple[int, ...], ...]
    gbps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PatternCost:
    """What one pattern costs on one shape, for each byte of K."""

    cross_share: float
    comm_s: float
    link_share: tuple[float, ...]  # busier direction of each local link, summed over the phases
    peaks: tuple[tuple[int, int, float], ...]  # largest share between two machines in any one phase
    peak: float  # the largest of these


@dataclass(frozen=True, slots=True)
class Communication:
    """What a job's communication costs where it is placed."""

    cross_bytes: float
    comm_s: float
    link_gbps: dict[int, float]  # mean rate on each link while the job trains


SILENT = Communication(0.0, 0.0, {})


def renumber(machines: Sequence[int]) -> tuple[int, ...]:
    """Return the machines numbered 0, 1, ... in order of first use."""
    number: dict[int, int] = {}
    return tuple([number.setdefault(machine, len(number)) for machine in machines])


def parts(job: Job, local: tuple[int, ...]) -> tuple[tuple[Pattern, float], ...]:
    """Return the patterns that a job runs in each iteration, and the K of each in bytes."""
    profile = job.profile
    if job.tp == job.pp == 1:
        if job.collective in PLACED:
            return ((placed(job.collective, local), profile.grad_bytes),)
        gradients = pattern(job.collective, job.gpus), profile.grad_bytes
        if not profile.exchanged_bytes:
            return (gradients,)
        return (gradients, (pattern("all-to-all", job.gpus), profile.exchanged_bytes))
    layers = max(1, round(profile.layers / job.pp))
    found = (
        (_replicas(job.collective, job.dp, job.tp, job.pp), profile.grad_bytes / (job.tp * job.pp)),
        (_shards(job.dp, job.tp, job.pp, layers), profile.activation_bytes),
        (_stages(job.dp, job.tp, job.pp), profile.activation_bytes / job.tp),
    )
    tied = job.pp > 1 and profile.tied_bytes
    return (*found, (_tied(job.dp, job.tp, job.pp), profile.tied_bytes / job.tp)) if tied else found


def _together(name: str, ranks: int, groups: Sequence[tuple[Phase, ...]], times: int = 1) -> Pattern:
    """Run the same collective in several groups of ranks at once, so many times."""
    phases = tuple(
        Phase(sum((phase.pairs for phase in side_by_side), ()), first.share, first.exchange, first.times * times)
        for side_by_side in zip(*groups, strict=True)
        for first in side_by_side[:1]
    )
    return Pattern(name, ranks, phases)


@lru_cache(maxsize=1024)
def _replicas(collective: str, dp: int, tp: int, pp: int) -> Pattern:
    """Gradients: one collective over the replicas of each shard of each stage."""
    groups = [
        pattern(collective, dp).over((stage * dp + replica) * tp + shard for replica in range(dp))
        for stage in range(pp)
        for shard in range(tp)
    ]
    # Its own name: bounds that hold for one collective over all ranks do not hold for groups of them.
    return _together(f"grouped {collective}", dp * tp * pp, groups)


@lru_cache(maxsize=1024)
def _shards(dp: int, tp: int, pp: int, layers: int) -> Pattern:
    """Activations of tensor parallelism: ring allreduces over the shards, layer by layer."""
    ring = pattern("ring", tp)
    groups = [ring.over(range(first, first + tp)) for first in range(0, dp * tp * pp, tp)]
    return _together("tensor-parallel", dp * tp * pp, groups, TP_REDUCTIONS_PER_LAYER * layers)


@lru_cache(maxsize=1024)
def _stages(dp: int, tp: int, pp: int) -> Pattern:
    """Activations of pipeline parallelism: forward to the next stage, gradients back."""
    width = dp * tp
    hops = tuple((rank, rank + width) for rank in range(width * (pp - 1)))
    back = tuple((b, a) for a, b in hops)
    phases = (Phase(hops, 1.0, exchange=False), Phase(back, 1.0, exchange=False)) if hops else ()
    return Pattern("pipeline-parallel", width * pp, phases)


@lru_cache(maxsize=1024)
def _tied(dp: int, tp: int, pp: int) -> Pattern:
    """Gradients of tied embeddings: the first stage and the last reduce theirs, replica by replica."""
    last = dp * tp * (pp - 1)
    groups = [pattern("ring", 2).over((rank, last + rank)) for rank in range(dp * tp)]
    return _together("tied embeddings", dp * tp * pp, groups)


def cost(what: Pattern, local: tuple[int, ...], shape: TreeShape) -> PatternCost:
    """Return what a pattern costs when rank i runs on local machine `local[i]`."""
    if what.ranks <= CACHED_RANKS and len(shape.paths) <= CACHED_MACHINES:
        return _cached_cost(what, local, shape)
    return _cost(what, local, shape)


def _cost(what: Pattern, local: tuple[int, ...], shape: TreeShape) -> PatternCost:
    machines, links = len(shape.paths), len(shape.gbps)
    pairs = what.arrays
    phases = len(pairs.share)
    machine = np.array(local)
    a, b = machine[pairs.a], machine[pairs.b]
    apart = a != b
    a, b, phase = a[apart], b[apart], pairs.phase[apart]
    crossing = np.bincount(phase, minlength=phases)  # (phases,) pairs
    up, down = np.zeros((2, phases, links))  # pairs that pass a link, by phase
    # Level by level from the root, the local link above each machine, (machines,); -1 for none. Two machines
    # communicate through a link of a level exactly if it is above one of them only.
    depth = max(map(len, shape.paths))
    padded = [(*reversed(path), *[-1] * (depth - len(path))) for path in shape.paths]
    for link in np.array(padded, dtype=np.int64).reshape(machines, depth).T:
        passed = link[a] != link[b]
        at = phase[passed] * (links + 1) + 1  # a machine without a link at this level counts at -1
        up += _count(at + link[a[passed]], phases, links)
        down += _count(at + link[b[passed]], phases, links)
    busier = np.where(pairs.exchange[:, None], up + down, np.maximum(up, down)) * pairs.share[:, None]
    slowest_s = (busier * (BITS_PER_BYTE / GIGA / np.array(shape.gbps))).max(axis=1, initial=0.0)
    peaks = _peaks(a, b, phase, pairs, machines)
    return PatternCost(
        cross_share=float(_added(crossing * (pairs.share * pairs.times))),
        comm_s=float(_added(slowest_s * pairs.times)),
        link_share=tuple(_added(pairs.times[:, None] * busier).tolist()),
        peaks=peaks,
        peak=max((share for _, _, share in peaks), default=0.0),
    )


def _added(by_phase: Floats) -> Floats:
    """Add up, (phases, ...), phase by phase and not in the fastest order, as `core.fast` does."""
    return by_phase.cumsum(axis=0)[-1] if len(by_phase) else np.zeros(by_phase.shape[1:])


_cached_cost = lru_cache(maxsize=CACHED)(_cost)


def _count(at: Ints, phases: int, links: int) -> Ints:
    """Count by phase and link; what counts at link -1 is dropped."""
    return np.bincount(at, minlength=phases * (links + 1)).reshape(phases, links + 1)[:, 1:]


def _peaks(
    a: Ints, b: Ints, phase: Ints, pairs: PatternArrays, machines: int
) -> tuple[tuple[int, int, float], ...]:
    """List the largest share that two machines ever move in a phase, in either direction, once a pair."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    turned = (a > b) & ~pairs.exchange[phase]  # in an exchange both directions count together
    flow, count = np.unique(((low * machines + high) * len(pairs.share) + phase) * 2 + turned, return_counts=True)
    share = count * pairs.share[flow // 2 % len(pairs.share)]
    pair, first = np.unique(flow // 2 // len(pairs.share), return_index=True)
    most = np.maximum.reduceat(share, first) if len(first) else share
    return tuple(zip((pair // machines).tolist(), (pair % machines).tolist(), most.tolist(), strict=True))


@lru_cache(maxsize=CACHED)
def _cross_share(what: Pattern, local: tuple[int, ...]) -> float:
    """Share of K that crosses machines, whatever the links."""
    machine = np.array(local)
    pairs = what.arrays
    apart = machine[pairs.a] != machine[pairs.b]
    return float(_added(np.bincount(pairs.phase[apart], minlength=len(pairs.share)) * (pairs.share * pairs.times)))


def traffic(job: Job, machines: Sequence[int]) -> Traffic:
    """Return what one iteration of a job moves between machines, given the machine of each rank."""
    if len(machines) != job.gpus:
        raise InputError(f"job {job.id!r} has {job.gpus} ranks, but {len(machines)} machines were given")
    local = renumber(machines)
    used = max(local) + 1
    if used == 1:
        return Traffic(0.0, 1)
    crossing = sum(_cross_share(what, local) * k_bytes for what, k_bytes in parts(job, local))
    return Traffic(crossing, used)


def isolated(job: Job, communication: Communication) -> float:
    """Return how many times longer an iteration takes than on one machine, if no other job uses the links."""
    return 1.0 + communication.comm_s / job.profile.iteration_s


class Footprint(NamedTuple):
    """A job on certain machines: what each of its patterns costs there, for how many bytes of K."""

    machines: tuple[int, ...]  # behind the local numbers
    links: tuple[int, ...]  # likewise
    costs: tuple[tuple[PatternCost, float], ...]
    moved_bytes: list[float]  # what each link carries in an iteration, in its busier direction


def tree_above(cluster: Cluster, machines: Sequence[int]) -> tuple[TreeShape, tuple[int, ...]]:
    """Return the links above some machines, numbered in order of first use, and the links behind these numbers."""
    number: dict[int, int] = {}
    every_path, capacity = cluster.paths, cluster.uplink_gbps
    paths = [tuple([number.setdefault(link, len(number)) for link in every_path[machine]]) for machine in machines]
    links = tuple(number)
    return TreeShape(tuple(paths), tuple([capacity[link] for link in links])), links


# A policy weighs a placement and the state commits it a moment later: the last few are cached.
@lru_cache(maxsize=64)
def footprint(cluster: Cluster, job: Job, machines: tuple[int, ...]) -> Footprint:
    """Return what a job costs on these machines."""
    distinct = tuple(dict.fromkeys(machines))
    local = renumber(machines)
    shape, links = tree_above(cluster, distinct)
    costs = tuple([(cost(what, local, shape), k_bytes) for what, k_bytes in parts(job, local)])
    moved = [0.0] * len(links)
    for each, k_bytes in costs:
        moved = [before + share * k_bytes for before, share in zip(moved, each.link_share, strict=True)]
    return Footprint(distinct, links, costs, moved)


def communication(
    cluster: Cluster,
    job: Job,
    machines: tuple[int, ...],
    server: int | None = None,
    aggregate: Aggregation = True,  # noqa: FBT002 - as in a placement
) -> Communication:
    """Return what a job's communication costs on these machines, in time and on each link.

    `server` and `aggregate` are those of a placement of a job whose collective is `ina`.
    """
    if machines.count(machines[0]) == len(machines) and server in (None, machines[0]):
        return SILENT
    if job.collective == "ina":  # gradients stream to a parameter server, while sums stream back the same way
        server = machines[0] if server is None else server
        workers, k_bytes = set(machines), job.profile.grad_bytes
        rate_gbps, carried = isolated_rate(cluster, parameter_server(cluster, workers, server, ina=aggregate))
        comm_s = k_bytes * BITS_PER_BYTE / GIGA / rate_gbps
        busy = comm_s / (job.profile.iteration_s + comm_s)  # share of the time that the job communicates
        link_gbps = {link: gbps * busy for link, gbps in carried.items() if gbps}
        return Communication(2.0 * k_bytes * len(workers - {server}), comm_s, link_gbps)
    found = footprint(cluster, job, machines)
    comm_s = cross_bytes = 0.0
    for each, k_bytes in found.costs:
        comm_s += each.comm_s * k_bytes
        cross_bytes += each.cross_share * k_bytes
    gbps_per_byte = BITS_PER_BYTE / GIGA / (job.profile.iteration_s + comm_s)
    link_gbps = {
        link: sent * gbps_per_byte for link, sent in zip(found.links, found.moved_bytes, strict=True) if sent
    }
    return Communication(cross_bytes, comm_s, link_gbps)


@lru_cache(maxsize=4096)
def _merged(weighted: tuple[tuple[Pattern, float], ...]) -> Pattern:
    unit = weighted[0][1] or 1.0
    phases = tuple(
        Phase(phase.pairs, phase.share * k_bytes / unit, phase.exchange, phase.times)
        for what, k_bytes in weighted
        for phase in what.phases
    )
    return Pattern("hybrid", weighted[0][0].ranks, phases)


def exchange_graph(job: Job) -> Pattern:
    """Return as one pattern all that a job's ranks exchange, for choosing which ranks share a machine."""
    if job.collective in PLACED:
        # Only one rank of each machine communicates with others, so any map is as good as the ranks in order.
        return pattern("ring", job.gpus)
    if job.tp == job.pp == 1 and not job.profile.exchanged_bytes:
        return pattern(job.collective, job.gpus)
    return _merged(parts(job, ()))
