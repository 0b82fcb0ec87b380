"""Make the arrays of a `Room`: all machines idle, nothing sent, nothing known."""

from collections.abc import Sequence

import numpy as np

from cranny.core.fast.placement_arrays import Draft, Ints, Known, Links, Machines, Room, Talk
from cranny.core.protocol import FirstChoices
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.cluster import Cluster
from cranny.model.collective import Pattern


def furnish(cluster: Cluster, placer: FirstChoices, known: Known, patterns: int, setting: float) -> Room:
    """Set up the room of a cluster of machines alike, for so many patterns at most."""
    size = cluster.machines[0].gpus
    return Room(
        machines=_machines(len(cluster.machines), size),
        links=_links(cluster),
        talk=_talk(patterns),
        known=known,
        draft=_draft(cluster, size),
        choices=_choices(placer, size),
        setting=setting,
    )


def meet(talk: Talk, pattern: int, what: Pattern) -> Talk:
    """Return the patterns with one more, under its number."""
    arrays = what.arrays
    phases = len(talk.share)
    ends = np.cumsum(np.bincount(arrays.phase, minlength=len(arrays.share)))
    talk.first_phase[pattern] = phases
    talk.past_phase[pattern] = phases + len(arrays.share)
    return talk._replace(
        first_pair=np.concatenate([talk.first_pair, talk.first_pair[-1] + ends]),
        share=np.concatenate([talk.share, arrays.share]),
        exchange=np.concatenate([talk.exchange, arrays.exchange]),
        times=np.concatenate([talk.times, arrays.times]),
        a=np.concatenate([talk.a, arrays.a]),
        b=np.concatenate([talk.b, arrays.b]),
    )


def _machines(count: int, size: int) -> Machines:
    words = _words(count)
    everyone = np.zeros(words * 64, dtype=np.uint8)
    everyone[:count] = 1
    sets = np.zeros((size + 1, words), dtype=np.uint64)
    sets[size] = np.packbits(everyone, bitorder="little").view("<u8")
    members = _ints(size + 1)
    members[size] = count
    return Machines(
        free=np.full(count, size, dtype=np.int64),
        open_slots=np.full(count, 2**size - 1, dtype=np.uint64),
        sets=sets,
        first_word=_ints(size + 1),
        members=members,
    )


def _links(cluster: Cluster) -> Links:
    nodes = len(cluster.parent)
    parent = np.array(cluster.parent, dtype=np.int64)
    level, above = _ints(nodes), np.arange(nodes)
    while (below := above != cluster.root).any():
        level += below
        above = parent[above]
    gbps = np.array(cluster.uplink_gbps)
    spans = np.array(cluster.spans, dtype=np.int64)
    return Links(
        parent=parent,
        level=level,
        first=np.ascontiguousarray(spans[:, 0]),
        past=np.ascontiguousarray(spans[:, 1]),
        gbps=gbps,
        s_per_byte=BITS_PER_BYTE / GIGA / gbps,
        use_gbps=np.zeros(nodes),
        users=_ints(nodes),
    )


def _talk(patterns: int) -> Talk:
    unmet = np.full(patterns, -1, dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    return Talk(unmet, unmet.copy(), _ints(1), np.empty(0), np.empty(0, dtype=np.bool_), none, none, none)


def _draft(cluster: Cluster, size: int) -> Draft:
    machines, nodes = len(cluster.machines), len(cluster.parent)
    pairs = 1 << (2 * cluster.gpus).bit_length()  # twice as many as talk in a phase
    return Draft(
        machine=_ints(machines),
        gpus=_ints(machines),
        part=_ints(cluster.gpus),
        links=_ints(nodes),
        gbps=np.zeros(nodes),
        cost=np.zeros(4),
        at=_ints(3),
        key=_ints(size + 1),
        taken=np.zeros((size + 1, _words(machines)), dtype=np.uint64),
        up=np.zeros(nodes),
        down=np.zeros(nodes),
        sent=np.zeros(nodes),
        marked=np.zeros(nodes, dtype=np.bool_),
        pair=_ints(pairs),
        tally=_ints(pairs),
    )


def _choices(placer: FirstChoices, size: int) -> Ints:
    """Return a placer's first choices for each number of GPUs, each row filled up with zeros."""
    choices = np.zeros((size + 1, size + 1), dtype=np.int64)
    for gpus in range(1, size + 1):
        wanted: Sequence[int] = placer.first_choices(gpus, size)
        choices[gpus, : len(wanted)] = wanted
    return choices


def _words(machines: int) -> int:
    return -(-machines // 64)


def _ints(count: int) -> Ints:
    return np.zeros(count, dtype=np.int64)
