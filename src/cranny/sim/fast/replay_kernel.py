"""The compiled part of a replay: arrivals, ends, the queue and the samples, as long as placement is simple.

Machines are equal, the queue is fifo, and a small job goes to the lowest machine that has
the first of some numbers of GPUs free. A job that takes several machines goes where the policy's drafter says, if
it has one. Everything else is left to Python: `advance` returns, and continues with the answer. All state
is in the arrays of a `ReplayArrays` and a `PlacementArrays`; the numbers that change are in `ReplayArrays.at`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cranny.core.fast.bit_sets import count_bits, join, leave, lowest_slots, lowest_with
from cranny.core.fast.placement_arrays import (
    COMM_S,
    CROSS_BYTES,
    FALLBACK,
    LINKS,
    NO_ENTRY,
    PARTS,
    SLOWDOWN,
    WAIT,
    PlacementArrays,
    PlacementRequest,
)
from cranny.core.jit import compiled, inside
from cranny.model.arrays import Bits, Flags, Floats, Ints

Drafts = Callable[[PlacementArrays, PlacementRequest], int]

# What `advance` returns: why it stopped.
FINISHED = 0  # everything has happened
PAUSED = 1  # it reached the arrival at which it was to pause
PLACE = 2  # the first job of the queue needs Python to place it
CHECK = 3  # jobs that just arrived must wait: are they feasible at all?
STUCK = 4  # the first job of the queue does not start although nothing runs
ADD_PATTERN = 5  # the pattern of the first job of the queue is not in the arrays yet
LEARN_SPLIT = 6  # the drafter needs a split of the first job of the queue
GROW = 7  # the arrays of what jobs hold are full

# What comes next, in `at[STAGE]`.
NEXT_INSTANT, SERVE, SERVED, TAKE_SAMPLE = 0, 1, 2, 3

# Places in `ReplayArrays.at`.
STAGE = 0
ANSWER = 1  # Python's about the first job of the queue: the parts of its draft, or WAIT
ARRIVED = 2  # jobs, at the present instant: the last of the queue
NEXT_JOB = 3  # to arrive
HEAD = 4  # of the queue: its jobs are queue[HEAD:TAIL]
TAIL = 5
RUNNING = 6  # jobs, as many as there are ends
STARTS = 7  # so far
SAMPLES = 8
ENDED = 9
CHANGED = 10
USED = 11  # machines
FREE = 12  # GPUs
CROSSING = 13  # jobs that use links
HELD = 14  # parts of jobs that were drafted
SENT = 15  # links that those use
COUNTERS = 16

# Places in `ReplayArrays.level`.
NOW_S, MOVED_BYTES = 0, 1


class PartArrays(NamedTuple):
    """The machines of drafted jobs, and what they send; the arrays grow when they are full."""

    machine: Ints  # (parts,)
    slots: Bits  # (parts,)
    link: Ints  # (uses,)
    gbps: Floats  # (uses,)


class ReplayArrays(NamedTuple):
    """Everything that a compiled replay reads and writes."""

    # Jobs, (jobs,) each
    gpus: Ints
    submit_s: Floats
    duration_s: Floats
    start_s: Floats
    finish_s: Floats
    slowdown: Floats
    cross_bytes: Floats
    model: Ints
    pattern: Ints  # of its communication; -1 if only Python can tell
    machine: Ints  # of a job that took its first choice
    slots: Bits  # its GPUs on that machine
    first_part: Ints  # a drafted job is on PartArrays[first_part:first_part + parts]
    parts: Ints
    first_use: Ints  # and uses the links PartArrays[first_use:first_use + uses]
    uses: Ints
    first_sample: Ints
    past_sample: Ints
    queue: Ints
    ended: Ints  # jobs in the order of their ends
    # Models, (models,) each
    grad_bytes: Floats
    iteration_s: Floats
    # Settings
    fragments_before_idle: bool  # whether idle machines are no choice while fragments would hold the job
    stretch: float  # of the time that a job's communication takes, the share that lengthens its iterations
    # A heap of ends, (GPUs + 1,) each
    end_s: Floats
    end_start: Ints  # which start it belongs to; the earlier comes first
    end_job: Ints
    # What Python's accounting must be updated with
    is_changed: Flags  # (machines,)
    changed: Ints  # (machines,) machines that changed since the last update of Python's accounting
    # Samples and counters
    samples: Floats  # (2 * jobs, SAMPLE_COLUMNS)
    at: Ints  # (COUNTERS,)
    level: Floats  # (2,) the time, and the bytes that running jobs move between machines


@compiled
def advance(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays, drafter: Drafts, until: int) -> int:
    """Process events up to the arrival of job `until`, or until Python is needed; return why it stopped."""
    at = replay.at
    while True:
        if at[STAGE] == NEXT_INSTANT:
            if at[NEXT_JOB] >= until and until < len(replay.gpus):
                return PAUSED
            if at[NEXT_JOB] == len(replay.gpus) and not at[RUNNING]:
                return FINISHED
            _next_instant(replay, arrays, held)
        elif at[STAGE] == SERVE:
            why = _serve(replay, arrays, held, drafter)
            if why:
                return why
            at[STAGE] = SERVED
            size = len(arrays.machines.members) - 1
            for place in range(max(at[HEAD], at[TAIL] - at[ARRIVED]), at[TAIL]):
                if replay.gpus[replay.queue[place]] > size:
                    return CHECK
        elif at[STAGE] == SERVED:
            if at[HEAD] < at[TAIL] and not at[RUNNING]:
                at[STAGE] = SERVE  # the next job, once Python has skipped the first
                return STUCK
            at[STAGE] = TAKE_SAMPLE
        else:
            _sample(replay, arrays)
            at[STAGE] = NEXT_INSTANT


@inside
def _next_instant(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays) -> None:
    """Process all ends, then all arrivals of the next instant."""
    at = replay.at
    jobs, capacity = len(replay.gpus), len(arrays.machines.free) * (len(arrays.machines.members) - 1)
    now_s = replay.submit_s[at[NEXT_JOB]] if at[NEXT_JOB] < jobs else np.inf
    if at[RUNNING]:
        now_s = min(now_s, replay.end_s[0])
    replay.level[NOW_S] = now_s
    ends = at[RUNNING] and replay.end_s[0] == now_s
    at[ANSWER] = WAIT if at[HEAD] < at[TAIL] and not ends else 0  # nothing came free for a job that must wait
    while at[RUNNING] and replay.end_s[0] == now_s:
        _end(replay, arrays, held, _pop(replay))
        at[STAGE] = SERVE
    at[ARRIVED] = 0
    while at[NEXT_JOB] < jobs and replay.submit_s[at[NEXT_JOB]] == now_s:
        job = at[NEXT_JOB]
        at[NEXT_JOB] += 1
        if replay.gpus[job] <= capacity:  # a larger one is skipped
            replay.queue[at[TAIL]] = job
            at[TAIL] += 1
            at[ARRIVED] += 1
            at[STAGE] = SERVE


@inside
def _serve(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays, drafter: Drafts) -> int:
    """Start jobs from the head of the queue; return 0, or why Python is needed for the first."""
    at = replay.at
    while at[HEAD] < at[TAIL] and at[ANSWER] != WAIT:
        job = replay.queue[at[HEAD]]
        if replay.gpus[job] > at[FREE]:
            break
        if not at[ANSWER]:
            machine = _choose(replay, arrays, replay.gpus[job])
            if machine >= 0:
                slots = lowest_slots(arrays.machines.open_slots[machine], replay.gpus[job])
                replay.machine[job] = machine
                replay.slots[job] = slots
                _toggle_gpus(replay, arrays, machine, slots)
                _start(replay, job)
                continue
            why = _draft(replay, arrays, drafter, job)
            if why:
                return why
        if at[ANSWER] > 0:
            parts, links = at[HELD] + arrays.draft.at[PARTS], at[SENT] + arrays.draft.at[LINKS]
            if parts > len(held.machine) or links > len(held.link):
                return GROW
            _start_draft(replay, arrays, held, job)
            at[ANSWER] = 0
    at[ANSWER] = 0
    return 0


@inside
def _choose(replay: ReplayArrays, arrays: PlacementArrays, gpus: int) -> int:
    """Return the lowest machine with the first of the wanted numbers of GPUs free; -1 if one is not enough."""
    machines = arrays.machines
    size = len(machines.members) - 1
    if gpus > size:
        return -1
    fragments = replay.at[FREE] - size * machines.members[size]
    for free in arrays.choices[gpus]:
        if free == 0 or (free == size and replay.fragments_before_idle and gpus <= fragments):
            break
        if machines.members[free]:
            return lowest_with(machines, free) if free >= gpus else -1
    return -1


@inside
def _draft(replay: ReplayArrays, arrays: PlacementArrays, drafter: Drafts, job: int) -> int:
    """Call the drafter for the first job of the queue; return 0, or why Python is needed."""
    pattern, model = replay.pattern[job], replay.model[job]
    if pattern < 0:
        return PLACE
    if arrays.patterns.first_phase[pattern] < 0:
        return ADD_PATTERN
    answer = drafter(
        arrays, PlacementRequest(replay.gpus[job], pattern, replay.grad_bytes[model], replay.iteration_s[model])
    )
    if answer == FALLBACK:
        return PLACE
    if answer == NO_ENTRY:
        return LEARN_SPLIT
    replay.at[ANSWER] = answer
    if answer != WAIT:
        cost = arrays.draft.cost
        cost[SLOWDOWN] = 1.0 + replay.stretch * cost[COMM_S] / replay.iteration_s[model]
    return 0


@inside
def _start(replay: ReplayArrays, job: int) -> None:
    """Start the first job of the queue, whose GPUs are already held."""
    at = replay.at
    now_s = replay.level[NOW_S]
    at[HEAD] += 1
    at[STARTS] += 1
    replay.start_s[job] = now_s
    replay.first_sample[job] = at[SAMPLES]
    if replay.uses[job]:
        at[CROSSING] += 1
        replay.level[MOVED_BYTES] += replay.cross_bytes[job]
    _push(replay, now_s + replay.duration_s[job] * replay.slowdown[job], at[STARTS], job)


@inside
def _start_draft(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays, job: int) -> None:
    """Start the first job of the queue on its draft."""
    at, draft = replay.at, arrays.draft
    replay.first_part[job] = at[HELD]
    replay.parts[job] = draft.at[PARTS]
    for part in range(draft.at[PARTS]):
        machine = draft.machine[part]
        slots = lowest_slots(arrays.machines.open_slots[machine], draft.gpus[part])
        held.machine[at[HELD]] = machine
        held.slots[at[HELD]] = slots
        at[HELD] += 1
        _toggle_gpus(replay, arrays, machine, slots)
    replay.first_use[job] = at[SENT]
    for i in range(draft.at[LINKS]):
        if draft.gbps[i]:
            held.link[at[SENT]] = draft.links[i]
            held.gbps[at[SENT]] = draft.gbps[i]
            at[SENT] += 1
    replay.uses[job] = at[SENT] - replay.first_use[job]
    if replay.uses[job]:
        replay.cross_bytes[job] = draft.cost[CROSS_BYTES]
        replay.slowdown[job] = draft.cost[SLOWDOWN]
        _update_links(replay, arrays, held, job, 1)
    _start(replay, job)


@inside
def _end(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays, job: int) -> None:
    """Release what a job held."""
    at = replay.at
    replay.finish_s[job] = replay.level[NOW_S]
    replay.past_sample[job] = at[SAMPLES]
    replay.ended[at[ENDED]] = job
    at[ENDED] += 1
    if not replay.parts[job]:
        _toggle_gpus(replay, arrays, replay.machine[job], replay.slots[job])
        return
    for part in range(replay.first_part[job], replay.first_part[job] + replay.parts[job]):
        _toggle_gpus(replay, arrays, held.machine[part], held.slots[part])
    if replay.uses[job]:
        _update_links(replay, arrays, held, job, -1)
        at[CROSSING] -= 1
        replay.level[MOVED_BYTES] -= replay.cross_bytes[job]
        if not at[CROSSING]:
            replay.level[MOVED_BYTES] = 0.0  # no rounding is left over


@inside
def _update_links(replay: ReplayArrays, arrays: PlacementArrays, held: PartArrays, job: int, sign: int) -> None:
    """Add (sign 1) or remove (sign -1) what a job sends over links."""
    links = arrays.links
    for use in range(replay.first_use[job], replay.first_use[job] + replay.uses[job]):
        link = held.link[use]
        links.users[link] += sign
        links.use_gbps[link] += sign * held.gbps[use]
        if not links.users[link]:
            links.use_gbps[link] = 0.0


@inside
def _toggle_gpus(replay: ReplayArrays, arrays: PlacementArrays, machine: int, slots: np.uint64) -> None:
    """Take free GPUs of a machine, or release them."""
    at, machines = replay.at, arrays.machines
    size = len(machines.members) - 1
    before = machines.free[machine]
    machines.open_slots[machine] ^= slots
    after = count_bits(machines.open_slots[machine])
    machines.free[machine] = after
    at[FREE] += after - before
    at[USED] += (before == size) - (after == size)
    leave(machines, before, machine)
    join(machines, after, machine)
    if not replay.is_changed[machine]:
        replay.is_changed[machine] = True
        replay.changed[at[CHANGED]] = machine
        at[CHANGED] += 1


@inside
def _sample(replay: ReplayArrays, arrays: PlacementArrays) -> None:
    """Sample the state after an instant, as in `SAMPLE_COLUMNS`."""
    at = replay.at
    size = len(arrays.machines.members) - 1
    held = len(arrays.machines.free) * size - at[FREE]
    row = replay.samples[at[SAMPLES]]
    row[0] = replay.level[NOW_S]
    row[1] = at[ARRIVED]
    row[2] = at[TAIL] - at[HEAD]
    row[3] = at[USED]
    row[4] = at[USED] * size - held
    row[5] = replay.level[MOVED_BYTES]
    row[6] = held
    row[7] = at[RUNNING]
    at[SAMPLES] += 1


@inside
def _push(replay: ReplayArrays, end_s: float, serial: int, job: int) -> None:
    """Put an end on the heap."""
    child = replay.at[RUNNING]
    replay.at[RUNNING] += 1
    while child:
        parent = (child - 1) // 2
        if not _before(end_s, serial, replay, parent):
            break
        _copy_end(replay, parent, child)
        child = parent
    replay.end_s[child], replay.end_start[child], replay.end_job[child] = end_s, serial, job


@inside
def _pop(replay: ReplayArrays) -> int:
    """Take the first end from the heap; return its job."""
    job: int = replay.end_job[0]
    replay.at[RUNNING] -= 1
    last = replay.at[RUNNING]
    hole, child = 0, 1
    while child < last:
        if child + 1 < last and _before(replay.end_s[child + 1], replay.end_start[child + 1], replay, child):
            child += 1
        if _before(replay.end_s[last], replay.end_start[last], replay, child):
            break
        _copy_end(replay, child, hole)
        hole, child = child, 2 * child + 1
    _copy_end(replay, last, hole)
    return job


@inside
def _before(end_s: float, serial: int, replay: ReplayArrays, other: int) -> bool:
    """Say whether an end comes before another that is on the heap."""
    if end_s != replay.end_s[other]:
        return end_s < float(replay.end_s[other])
    return serial < int(replay.end_start[other])


@inside
def _copy_end(replay: ReplayArrays, source: int, target: int) -> None:
    replay.end_s[target] = replay.end_s[source]
    replay.end_start[target] = replay.end_start[source]
    replay.end_job[target] = replay.end_job[source]
