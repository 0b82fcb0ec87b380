"""When the first job of a line could start at the latest: `backfill.reservation` once more, compiled."""

import numpy as np

from cranny.core.fast.bit_sets import count_bits
from cranny.core.jit import inside
from cranny.sim.fast.replay_arrays import (
    NOW_S,
    KindArrays,
    PartArrays,
    QueueArrays,
    ReplayArrays,
    free_gpus,
)


@inside
def _held_on(replay: ReplayArrays, kinds: KindArrays, held: PartArrays, job: int, kind: int) -> int:
    """Count the GPUs that a running job holds on machines of a kind."""
    if not replay.parts[job]:
        return int(replay.gpus[job]) if kinds.inside[kind, replay.machine[job]] else 0
    gpus = 0
    for part in range(replay.first_part[job], replay.first_part[job] + replay.parts[job]):
        if kinds.inside[kind, held.machine[part]]:
            gpus += count_bits(held.slots[part])
    return gpus


@inside
def reserve(replay: ReplayArrays, queues: QueueArrays, held: PartArrays, line: int) -> None:
    """Count the GPUs that come free as running jobs end until the first of a line can start."""
    kinds, groups, lines = queues.kinds, queues.groups, queues.lines
    job = lines.first[line]
    kind = replay.kind[job]
    group = kinds.group[kind]
    free, need = free_gpus(kinds, kind), replay.gpus[job]
    lines.known[line] = True
    lines.start_s[line] = -np.inf
    lines.extra_gpus[line] = -1
    if free >= need:
        _reserve_at_next_end(replay, queues, held, line, free)
        return
    place, end = groups.begin[group], groups.end[group]
    while place < end:
        past, freed = place, 0
        while past < end and groups.expected_s[past] == groups.expected_s[place]:
            freed += _held_on(replay, kinds, held, groups.expected[past], kind)
            past += 1
        if free + freed >= need:
            lines.start_s[line] = max(groups.expected_s[place], replay.level[NOW_S])
            lines.extra_gpus[line] = _until_enough(replay, queues, held, place, past, kind, free - need)
            return
        free += freed
        place = past


@inside
def _until_enough(
    replay: ReplayArrays, queues: QueueArrays, held: PartArrays, place: int, past: int, kind: int, spare: int
) -> int:
    """Add what jobs leave that end at one time, those with the fewest GPUs first, until `spare` is 0 or more."""
    last = 0
    while spare < 0:
        fewest = -1
        for each in range(place, past):
            gpus = _held_on(replay, queues.kinds, held, queues.groups.expected[each], kind)
            if gpus > last and (fewest < 0 or gpus < fewest):
                fewest = gpus
        for each in range(place, past):
            if spare < 0 and _held_on(replay, queues.kinds, held, queues.groups.expected[each], kind) == fewest:
                spare += fewest
        last = fewest
    return spare


@inside
def _reserve_at_next_end(
    replay: ReplayArrays, queues: QueueArrays, held: PartArrays, line: int, free: int
) -> None:
    """Reserve a start at the next expected end of a job on its machines, for a job that lacks no GPUs.

    So `backfill.reservation` does: the job waits for machines, and any such end may bring what it waits for.
    """
    kinds, groups, lines = queues.kinds, queues.groups, queues.lines
    job = lines.first[line]
    kind = replay.kind[job]
    group = kinds.group[kind]
    next_s, fewest = np.inf, 0
    for place in range(groups.begin[group], groups.end[group]):
        if groups.expected_s[place] > next_s:
            break
        gpus = _held_on(replay, kinds, held, groups.expected[place], kind)
        if gpus and (next_s == np.inf or gpus < fewest):
            next_s, fewest = groups.expected_s[place], gpus
    if fewest:
        lines.start_s[line] = max(next_s, replay.level[NOW_S])
        lines.extra_gpus[line] = free + fewest - replay.gpus[job]
