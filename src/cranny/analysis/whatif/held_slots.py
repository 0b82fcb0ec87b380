"""Which GPUs of its machines each job of a log held: the lowest that were free, job after job.

The loop is written for both Python and the compiler, which logs with many jobs are worth waiting for.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cranny.model.arrays import Bits, Floats, Ints
from cranny.model.cluster import Machine
from cranny.run import COMPILE_FROM


def held_gpus(
    machines: Sequence[Machine], start_s: Floats, end_s: Floats, job: Ints, machine: Ints, count: Ints
) -> tuple[Bits, int]:
    """Return the GPUs that each part of a job holds, as bits: the lowest free ones; 0 where its job had no room.

    Also how many jobs hold GPUs that others hold. Parts are (parts,), those of a job next to each other, on
    different machines; times are of jobs. Jobs come in the order of their start, then of their rows; what ends at
    an instant is free for what starts then.
    """
    jobs, first = np.unique(job, return_index=True)
    starts, ends = start_s[jobs], end_s[jobs]
    lasting = np.flatnonzero(ends > starts)  # others hold nothing once their instant is over
    size = np.array([each.gpus for each in machines], dtype=np.int64)
    held = np.zeros(len(job), dtype=np.int64)
    columns = (
        np.argsort(starts, kind="stable"),
        lasting[np.argsort(ends[lasting], kind="stable")],
        starts,
        ends,
        np.append(first, len(job)).astype(np.int64),
        machine.astype(np.int64),
        count.astype(np.int64),
        _least(size, job, machine, count),
        size,
        size.copy(),
        np.zeros(len(size), dtype=np.int64),
        np.zeros((len(size), int(size.max())), dtype=np.int64),
        np.zeros(len(job), dtype=np.int64),
    )
    if len(jobs) >= COMPILE_FROM:
        from cranny.core.jit import compiled  # importing the compiler takes a second

        held_twice = compiled(hold_in_order)(*columns, held)
        return held.view(np.uint64), held_twice
    found = held.tolist()
    held_twice = hold_in_order(*[*(column.tolist() for column in columns), found])
    return np.array(found, dtype=np.uint64), held_twice


def hold_in_order(  # noqa: C901 - one function, or the compiler would have to know several
    starting: Any,  # jobs, by their starts
    ending: Any,  # jobs, by their ends
    start_s: Any,
    end_s: Any,
    first: Any,  # (jobs + 1,) part of each job
    machine: Any,  # of each part
    count: Any,  # GPUs that each part is assumed to have
    least: Any,  # and those that it had, whatever is assumed
    size: Any,  # GPUs of each machine
    free: Any,
    surely_held: Any,  # (machines,)
    holders: Any,  # (machines, GPUs) parts that hold a GPU
    taken: Any,  # (parts,) GPUs
    held: Any,  # (parts,) GPUs, as bits
) -> int:
    """Let jobs hold GPUs in the order of their starts; return how many hold GPUs that others hold."""
    ended = held_twice = 0
    for job in starting:
        while ended < len(ending) and end_s[ending[ended]] <= start_s[job]:
            for part in range(first[ending[ended]], first[ending[ended] + 1]):
                on = machine[part]
                if held[part]:
                    surely_held[on] -= least[part]
                for gpu in range(size[on]):
                    if held[part] >> gpu & 1:
                        holders[on][gpu] -= 1
                        free[on] += holders[on][gpu] == 0
            ended += 1
        enough, missing, sure = True, 0, True
        for part in range(first[job], first[job + 1]):
            on = machine[part]
            taken[part] = min(count[part], free[on])
            missing += count[part] - taken[part]
            sure = sure and surely_held[on] + least[part] <= size[on]
        for part in range(first[job], first[job + 1]):  # what does not fit on one is on those that have more free
            more = min(missing, free[machine[part]] - taken[part])
            taken[part] += more
            missing -= more
            enough = enough and taken[part] > 0
        if missing or not enough:
            held_twice += sure
            for part in range(first[job], first[job + 1]):
                taken[part] = count[part] if sure else 0
        for part in range(first[job], first[job + 1]):
            on, left, bits = machine[part], taken[part], 0
            for is_free in (True, False):  # the lowest free GPUs, then the lowest others
                for gpu in range(size[on]):
                    if left and (holders[on][gpu] == 0) == is_free:
                        bits |= 1 << gpu
                        left -= 1
            held[part] = bits
            if taken[part] and end_s[job] > start_s[job]:
                surely_held[on] += least[part]
                for gpu in range(size[on]):
                    if bits >> gpu & 1:
                        free[on] -= holders[on][gpu] == 0
                        holders[on][gpu] += 1
    return held_twice


def _least(size: Ints, job: Ints, machine: Ints, count: Ints) -> Ints:
    """Return how many GPUs each part held at least, however those of its job were divided, (parts,)."""
    there = size[machine]
    asked, room = (np.bincount(job, weights=each).astype(np.int64)[job] for each in (count, there))
    least: Ints = np.maximum(1, asked - (room - there))
    return least
