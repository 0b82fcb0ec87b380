"""What a compiled placer reads and writes: equal machines, their links, and a draft of a placement.

A placer is a compiled function of `PlacementArrays` and a `PlacementRequest`. It drafts where the job would run,
and returns the number of parts or one of the answers below.
"""

from typing import NamedTuple

import numpy as np

from cranny.core.protocol import FirstChoices
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.arrays import Bits, Flags, Floats, Ints
from cranny.model.cluster import Cluster
from cranny.model.collective import Pattern

# What a placer answers if it has no draft.
WAIT = -1  # the job must wait
FALLBACK = -2  # the case is not so simple: `place` decides
NO_ENTRY = -3  # the memo has no entry for `Draft.key` yet, which the placer needs

# Places in `Draft.at`.
PARTS, LINKS, PHASES = 0, 1, 2
# Places in `Draft.cost`.
CROSS_BYTES, COMM_S, PEAK_BYTES, SLOWDOWN = 0, 1, 2, 3


class MachineArrays(NamedTuple):
    """The machines of `size` GPUs each that a job can use, by their free GPUs; those with all free are idle."""

    free: Ints  # (machines,)
    open_slots: Bits  # (machines,) GPUs that no job holds
    sets: Bits  # (size + 1, words) machines by their free GPUs, a bit each
    first_word: Ints  # (size + 1,) no word of the set before this one holds a machine
    members: Ints  # (size + 1,) machines in the set
    inside: Flags  # (machines,) whether the job can use it


class LinkArrays(NamedTuple):
    """The tree of the cluster, (nodes,) each: link i is the uplink of node i, and machines come first."""

    parent: Ints  # the root is its own
    level: Ints  # steps from the root
    first: Ints  # of the machines below a node
    past: Ints
    gbps: Floats
    s_per_byte: Floats
    use_gbps: Floats  # of running jobs
    users: Ints


class PatternTable(NamedTuple):
    """Communication patterns of jobs: the phases of each, and the pairs of each phase."""

    first_phase: Ints  # (patterns,) -1 for one that was not added yet
    past_phase: Ints
    first_pair: Ints  # (phases + 1,)
    share: Floats  # (phases,) each
    exchange: Flags
    times: Ints
    a: Ints  # (pairs,) each
    b: Ints


class MemoTable(NamedTuple):
    """Results of a placer that are kept: entries of whole numbers, found by a key."""

    slot: Ints  # (a power of two,) row of a key, or -1
    key: Ints  # (rows, width)
    start: Ints  # (rows,) of the entry
    entry: Ints


class Draft(NamedTuple):
    """Where a job would run, what that costs, and buffers to compute it."""

    machine: Ints  # (machines,) of each part, in the order of their first ranks
    gpus: Ints  # (machines,) ranks of each part
    part: Ints  # (GPUs,) of each rank
    links: Ints  # (nodes,) links above these machines
    gbps: Floats  # (nodes,) the job's rate on each of those links
    cost: Floats
    at: Ints
    key: Ints  # (largest size + 1,) of the entry of the memo that the placer needs
    taken: Bits  # (size + 1, words) machines drafted so far, by the ranks that they would hold
    up: Floats  # (nodes,) pairs of a phase that pass a link
    down: Floats
    sent: Floats  # (nodes,) share of K on each of the links
    marked: Flags  # (nodes,)
    pair: Ints  # (a power of two,) the two machines that the tally counts
    tally: Ints
    limits: Ints  # (2, largest size + 1) machines, those in use and idle ones, by the ranks that each can take


class PlacementArrays(NamedTuple):
    """Everything that a placer reads and writes."""

    machines: MachineArrays
    links: LinkArrays
    patterns: PatternTable
    memo: MemoTable
    draft: Draft
    choices: Ints  # (size + 1, size + 1) for so many GPUs, which numbers of free GPUs to look for; then 0
    setting: float  # of the placer


class PlacementRequest(NamedTuple):
    """The job that is to be placed."""

    gpus: int
    pattern: int
    k_bytes: float
    iteration_s: float
    variant: int  # differs if the model does, or the machines that the job can use


def build_arrays(
    cluster: Cluster, placer: FirstChoices, memo: MemoTable, patterns: int, setting: float
) -> PlacementArrays:
    """Return the arrays of an idle cluster, whose machines are taken to be equal, for so many patterns at most."""
    sizes = np.array([machine.gpus for machine in cluster.machines], dtype=np.int64)
    size = int(sizes.max())
    missing, none = np.full(patterns, -1, dtype=np.int64), _ints(0)
    return PlacementArrays(
        machines=machine_arrays(sizes, np.ones(len(sizes), dtype=np.bool_)),
        links=_links(cluster),
        patterns=PatternTable(
            missing, missing.copy(), _ints(1), np.empty(0), np.empty(0, np.bool_), none, none, none
        ),
        memo=memo,
        draft=_draft(cluster, size),
        choices=choice_table(placer, size, size),
        setting=setting,
    )


def choice_table(placer: FirstChoices, size: int, largest: int) -> Ints:
    """Return the first choices on machines of one size, in a table for the largest, (largest + 1, largest + 1)."""
    choices = np.zeros((largest + 1, largest + 1), dtype=np.int64)
    for gpus in range(1, size + 1):
        wanted = placer.first_choices(gpus, size)
        choices[gpus, : len(wanted)] = wanted
    return choices


def add_pattern(table: PatternTable, number: int, pattern: Pattern) -> PatternTable:
    """Return the patterns with one more, under its number."""
    added = pattern.arrays
    phases = len(table.share)
    ends = np.cumsum(np.bincount(added.phase, minlength=len(added.share)))
    table.first_phase[number] = phases
    table.past_phase[number] = phases + len(added.share)
    return table._replace(
        first_pair=np.concatenate([table.first_pair, table.first_pair[-1] + ends]),
        share=np.concatenate([table.share, added.share]),
        exchange=np.concatenate([table.exchange, added.exchange]),
        times=np.concatenate([table.times, added.times]),
        a=np.concatenate([table.a, added.a]),
        b=np.concatenate([table.b, added.b]),
    )


def machine_arrays(sizes: Ints, inside: Flags) -> MachineArrays:
    """Return idle machines of some sizes, (machines,), of which a job can use those that are `inside`."""
    largest = int(sizes.max())
    sets = np.zeros((largest + 1, _words(len(sizes))), dtype=np.uint64)
    bits = np.zeros(sets.shape[1] * 64, dtype=np.uint8)
    for size in range(1, largest + 1):
        bits[: len(sizes)] = inside & (sizes == size)
        sets[size] = np.packbits(bits, bitorder="little").view("<u8")
    return MachineArrays(
        free=sizes.copy(),
        open_slots=np.array([2**size - 1 for size in sizes.tolist()], dtype=np.uint64),
        sets=sets,
        first_word=_ints(largest + 1),
        members=np.bincount(sizes[inside], minlength=largest + 1),
        inside=inside,
    )


def _links(cluster: Cluster) -> LinkArrays:
    nodes = len(cluster.parent)
    parent = np.array(cluster.parent, dtype=np.int64)
    level, above = _ints(nodes), np.arange(nodes)
    while (below := above != cluster.root).any():
        level += below
        above = parent[above]
    gbps = np.array(cluster.uplink_gbps)
    spans = np.array(cluster.spans, dtype=np.int64)
    return LinkArrays(
        parent=parent,
        level=level,
        first=np.ascontiguousarray(spans[:, 0]),
        past=np.ascontiguousarray(spans[:, 1]),
        gbps=gbps,
        s_per_byte=BITS_PER_BYTE / GIGA / gbps,
        use_gbps=np.zeros(nodes),
        users=_ints(nodes),
    )


def _draft(cluster: Cluster, size: int) -> Draft:
    machines, nodes = len(cluster.machines), len(cluster.parent)
    pairs = 1 << (2 * cluster.gpus).bit_length()  # twice as many as communicate in a phase
    return Draft(
        machine=_ints(machines),
        gpus=_ints(machines),
        part=_ints(cluster.gpus),
        links=_ints(nodes),
        **{name: np.zeros(nodes) for name in ("gbps", "up", "down", "sent")},
        cost=np.zeros(4),
        at=_ints(3),
        key=_ints(size + 1),
        taken=np.zeros((size + 1, _words(machines)), dtype=np.uint64),
        marked=np.zeros(nodes, dtype=np.bool_),
        pair=_ints(pairs),
        tally=_ints(pairs),
        limits=np.zeros((2, size + 1), dtype=np.int64),
    )


def _words(machines: int) -> int:
    return -(-machines // 64)


def _ints(count: int) -> Ints:
    return np.zeros(count, dtype=np.int64)
