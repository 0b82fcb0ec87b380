"""The earliest starts of waiting jobs, one after the other, compiled."""

import numpy as np

from cranny.core.jit import allocating
from cranny.model.arrays import Flags, Floats, Ints


@allocating
def earliest_starts(
    now_s: float,
    free: Ints,
    end_s: Floats,
    held: Ints,
    gpus: Ints,
    seconds: Floats,
    usable: Flags,
    taken_first: Ints,
) -> Floats:
    """Return when each job can start that delays none before it, (jobs,); infinity if that is unknown.

    `free` are the free GPUs of each kind of machine, (kinds,). Running jobs end at `end_s`, (running,) ascending,
    and leave `held`, (running, kinds). Each job needs `gpus` for `seconds` on kinds that are `usable`,
    (jobs, kinds); it takes those of `taken_first` first.
    """
    kinds, most = len(free), 1 + len(end_s) + 2 * len(gpus)
    time_s = np.empty(most)  # of each step of the profile
    left = np.zeros((most, kinds), np.int64)  # GPUs that are free from then on
    time_s[0] = now_s
    left[0] = free
    steps = 1
    for job in range(len(end_s)):
        if end_s[job] == np.inf:
            break
        if end_s[job] > time_s[steps - 1]:
            time_s[steps] = end_s[job]
            left[steps] = left[steps - 1]
            steps += 1
        left[steps - 1] += held[job]
    starts = np.full(len(gpus), np.inf)
    least = np.zeros(kinds, np.int64)
    for job in range(len(gpus)):
        first = 0
        while first < steps:
            past = _fits(time_s, left, steps, first, gpus[job], seconds[job], usable[job], least)
            if past >= 0:
                break
            first = -past  # the step after the one that has too few
        if first >= steps:
            continue
        starts[job] = time_s[first]
        until_s = time_s[first] + seconds[job]
        ends_before_s = time_s[past] if past < steps else np.inf
        if time_s[past - 1] < until_s < ends_before_s:  # another step of the profile
            for step in range(steps, past, -1):
                time_s[step] = time_s[step - 1]
                left[step] = left[step - 1]
            time_s[past] = until_s
            left[past] = left[past - 1]
            steps += 1
        missing = gpus[job]
        for kind in taken_first:
            if usable[job, kind] and missing > 0:
                taken = min(missing, least[kind])
                missing -= taken
                for step in range(first, past):
                    left[step, kind] -= taken
    return starts


@allocating
def _fits(
    time_s: Floats, left: Ints, steps: int, first: int, gpus: int, seconds: float, usable: Flags, least: Ints
) -> int:
    """Return the step after the last that a job needs if it starts with a step; minus the next to try if not.

    `least` becomes what is free of each kind all the time.
    """
    until_s = time_s[first] + seconds
    for kind in range(len(least)):
        least[kind] = left[first, kind] if usable[kind] else 0
    step = first
    while True:
        here = 0
        throughout = 0
        for kind in range(len(least)):
            if usable[kind]:
                least[kind] = min(least[kind], left[step, kind])
                here += left[step, kind]
                throughout += least[kind]
        if throughout < gpus:
            return -(step + 1) if here < gpus else -(first + 1)
        step += 1
        if step == steps or time_s[step] >= until_s:
            return step
