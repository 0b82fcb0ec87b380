"""The compiled part of a replay: arrivals, ends, the queue and the notes, as long as the placing is simple.

Machines are alike, the queue is first come, first served, and a small job goes to the lowest machine that has
the first of some numbers of GPUs free. A job that takes several machines goes where the policy's drafter says, if
it has one. Whatever is not so simple is left to Python: `advance` returns, and goes on with the answer. All state
is in the arrays of a `Board` and a `PlacementArrays`; the numbers that change are in `Board.at`.
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
    Bits,
    Flags,
    Floats,
    Ints,
    PlacementArrays,
    PlacementRequest,
)
from cranny.core.jit import compiled, inside

Drafts = Callable[[PlacementArrays, PlacementRequest], int]

# What `advance` returns: why it stopped.
FINISHED = 0  # everything has happened
PAUSED = 1  # it came to the arrival that it was told to stop at
PLACE = 2  # the first job of the queue needs Python to place it
CHECK = 3  # the job that just came must wait: may it, or could it never run?
STUCK = 4  # the first job of the queue does not start although nothing runs
MEET = 5  # the pattern of the first job of the queue is not known yet
TEACH = 6  # the drafter must learn something about the first job of the queue
FULL = 7  # there is no room left to note where the first job of the queue will sit

# What comes next, in `at[STAGE]`.
NEXT_EVENT, SERVE, SERVED, TAKE_NOTE = 0, 1, 2, 3

# Places in `Board.at`.
STAGE = 0
ANSWER = 1  # Python's about the first job of the queue: the parts of its draft, or WAIT
ARRIVAL = 2  # whether the present event is one
NEXT_JOB = 3  # to arrive
HEAD = 4  # of the queue: its jobs are queue[HEAD:TAIL]
TAIL = 5
RUNNING = 6  # jobs, as many as there are ends
STARTS = 7  # so far
NOTES = 8
ENDED = 9
CHANGED = 10
USED = 11  # machines
FREE = 12  # GPUs
CROSSING = 13  # jobs that use links
HELD = 14  # parts of jobs that were drafted
SENT = 15  # links that those use
COUNTERS = 16

# Places in `Board.level`.
NOW_S, MOVED_BYTES = 0, 1


class Held(NamedTuple):
    """Where jobs sit that were drafted, and what they send; the arrays are made longer when they are full."""

    machine: Ints  # (parts,)
    slots: Bits  # (parts,)
    link: Ints  # (uses,)
    gbps: Floats  # (uses,)


class Board(NamedTuple):
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
    pattern: Ints  # that its ranks talk in; -1 if only Python can tell
    machine: Ints  # where a job sits that took its first choice
    slots: Bits  # its GPUs on that machine
    first_part: Ints  # a job that was drafted sits where Held[first_part:first_part + parts] say
    parts: Ints
    first_use: Ints  # and uses the links that Held[first_use:first_use + uses] say
    uses: Ints
    first_note: Ints
    past_note: Ints
    queue: Ints
    ended: Ints  # jobs in the order of their ends
    # Models, (models,) each
    grad_bytes: Floats
    iteration_s: Floats
    # Settings
    fragments_before_idle: bool  # whether idle machines are no choice while fragments would hold the job
    stretch: float  # of the time that a job's communication takes, the share that makes its iterations longer
    # A heap of ends, (GPUs + 1,) each
    end_s: Floats
    end_start: Ints  # which start it belongs to; the earlier comes first
    end_job: Ints
    # What Python has to hear of
    is_changed: Flags  # (machines,)
    changed: Ints  # (machines,) machines whose GPUs were given or taken here since Python last looked
    # Notes and numbers
    noted: Floats  # (2 * jobs, NOTED)
    at: Ints  # (COUNTERS,)
    level: Floats  # (2,) the time, and the bytes that running jobs move between machines


@compiled
def advance(board: Board, arrays: PlacementArrays, held: Held, drafter: Drafts, until: int) -> int:
    """Let events happen up to the arrival of job `until`, or until Python is needed; return why it stopped."""
    at = board.at
    while True:
        if at[STAGE] == NEXT_EVENT:
            if at[NEXT_JOB] == until and until < len(board.gpus):
                return PAUSED
            if at[NEXT_JOB] == len(board.gpus) and not at[RUNNING]:
                return FINISHED
            _next_event(board, arrays, held)
        elif at[STAGE] == SERVE:
            why = _serve(board, arrays, held, drafter)
            if why:
                return why
            at[STAGE] = SERVED
            size = len(arrays.machines.members) - 1
            if at[ARRIVAL] and at[HEAD] < at[TAIL] and board.gpus[board.queue[at[TAIL] - 1]] > size:
                return CHECK
        elif at[STAGE] == SERVED:
            if at[HEAD] < at[TAIL] and not at[RUNNING]:
                at[STAGE] = SERVE  # whoever is next when Python has dealt with the first
                return STUCK
            at[STAGE] = TAKE_NOTE
        else:
            _note(board, arrays)
            at[STAGE] = NEXT_EVENT


@inside
def _next_event(board: Board, arrays: PlacementArrays, held: Held) -> None:
    """Let a job end or arrive, whichever comes first; ends come first at equal times."""
    at = board.at
    job = at[NEXT_JOB]
    if at[RUNNING] and (job == len(board.gpus) or board.end_s[0] <= board.submit_s[job]):
        board.level[NOW_S] = board.end_s[0]
        at[ARRIVAL] = 0
        _end(board, arrays, held, _pop(board))
        at[STAGE] = SERVE
        return
    at[NEXT_JOB] += 1
    if board.gpus[job] > len(arrays.machines.free) * (len(arrays.machines.members) - 1):
        return  # larger than the cluster: skipped
    board.level[NOW_S] = board.submit_s[job]
    at[ARRIVAL] = 1
    if at[HEAD] < at[TAIL]:
        at[ANSWER] = WAIT  # behind another that must wait, there is nothing to try
    board.queue[at[TAIL]] = job
    at[TAIL] += 1
    at[STAGE] = SERVE


@inside
def _serve(board: Board, arrays: PlacementArrays, held: Held, drafter: Drafts) -> int:
    """Start jobs from the head of the queue; return 0, or why Python is needed for the first."""
    at = board.at
    while at[HEAD] < at[TAIL] and at[ANSWER] != WAIT:
        job = board.queue[at[HEAD]]
        if board.gpus[job] > at[FREE]:
            break
        if not at[ANSWER]:
            machine = _choose(board, arrays, board.gpus[job])
            if machine >= 0:
                slots = lowest_slots(arrays.machines.open_slots[machine], board.gpus[job])
                board.machine[job] = machine
                board.slots[job] = slots
                _flip(board, arrays, machine, slots)
                _start(board, job)
                continue
            why = _draft(board, arrays, drafter, job)
            if why:
                return why
        if at[ANSWER] > 0:
            if _is_full(board, arrays, held):
                return FULL
            _start_draft(board, arrays, held, job)
            at[ANSWER] = 0
    at[ANSWER] = 0
    return 0


@inside
def _choose(board: Board, arrays: PlacementArrays, gpus: int) -> int:
    """Return the lowest machine with the first of the wanted numbers of GPUs free; -1 if one is not enough."""
    machines = arrays.machines
    size = len(machines.members) - 1
    if gpus > size:
        return -1
    fragments = board.at[FREE] - size * machines.members[size]
    for free in arrays.choices[gpus]:
        if free == 0 or (free == size and board.fragments_before_idle and gpus <= fragments):
            break
        if machines.members[free]:
            return lowest_with(machines, free) if free >= gpus else -1
    return -1


@inside
def _draft(board: Board, arrays: PlacementArrays, drafter: Drafts, job: int) -> int:
    """Let the drafter answer about the first job of the queue; return 0, or why Python is needed."""
    pattern, model = board.pattern[job], board.model[job]
    if pattern < 0:
        return PLACE
    if arrays.patterns.first_phase[pattern] < 0:
        return MEET
    answer = drafter(
        arrays, PlacementRequest(board.gpus[job], pattern, board.grad_bytes[model], board.iteration_s[model])
    )
    if answer == FALLBACK:
        return PLACE
    if answer == NO_ENTRY:
        return TEACH
    board.at[ANSWER] = answer
    if answer != WAIT:
        cost = arrays.draft.cost
        cost[SLOWDOWN] = 1.0 + board.stretch * cost[COMM_S] / board.iteration_s[model]
    return 0


@inside
def _is_full(board: Board, arrays: PlacementArrays, held: Held) -> bool:
    """Say whether what the draft holds and sends can no longer be noted."""
    parts, links = board.at[HELD] + arrays.draft.at[PARTS], board.at[SENT] + arrays.draft.at[LINKS]
    return bool(parts > len(held.machine) or links > len(held.link))


@inside
def _start(board: Board, job: int) -> None:
    """Start the first job of the queue, whose GPUs are already held."""
    at = board.at
    now_s = board.level[NOW_S]
    at[HEAD] += 1
    at[STARTS] += 1
    board.start_s[job] = now_s
    board.first_note[job] = at[NOTES]
    if board.uses[job]:
        at[CROSSING] += 1
        board.level[MOVED_BYTES] += board.cross_bytes[job]
    _push(board, now_s + board.duration_s[job] * board.slowdown[job], at[STARTS], job)


@inside
def _start_draft(board: Board, arrays: PlacementArrays, held: Held, job: int) -> None:
    """Start the first job of the queue where it was drafted."""
    at, draft = board.at, arrays.draft
    board.first_part[job] = at[HELD]
    board.parts[job] = draft.at[PARTS]
    for part in range(draft.at[PARTS]):
        machine = draft.machine[part]
        slots = lowest_slots(arrays.machines.open_slots[machine], draft.gpus[part])
        held.machine[at[HELD]] = machine
        held.slots[at[HELD]] = slots
        at[HELD] += 1
        _flip(board, arrays, machine, slots)
    board.first_use[job] = at[SENT]
    for i in range(draft.at[LINKS]):
        if draft.gbps[i]:
            held.link[at[SENT]] = draft.links[i]
            held.gbps[at[SENT]] = draft.gbps[i]
            at[SENT] += 1
    board.uses[job] = at[SENT] - board.first_use[job]
    if board.uses[job]:
        board.cross_bytes[job] = draft.cost[CROSS_BYTES]
        board.slowdown[job] = draft.cost[SLOWDOWN]
        _turn_links(board, arrays, held, job, 1)
    _start(board, job)


@inside
def _end(board: Board, arrays: PlacementArrays, held: Held, job: int) -> None:
    """Take back what a job held."""
    at = board.at
    board.finish_s[job] = board.level[NOW_S]
    board.past_note[job] = at[NOTES]
    board.ended[at[ENDED]] = job
    at[ENDED] += 1
    if not board.parts[job]:
        _flip(board, arrays, board.machine[job], board.slots[job])
        return
    for part in range(board.first_part[job], board.first_part[job] + board.parts[job]):
        _flip(board, arrays, held.machine[part], held.slots[part])
    if board.uses[job]:
        _turn_links(board, arrays, held, job, -1)
        at[CROSSING] -= 1
        board.level[MOVED_BYTES] -= board.cross_bytes[job]
        if not at[CROSSING]:
            board.level[MOVED_BYTES] = 0.0  # no rounding is left over


@inside
def _turn_links(board: Board, arrays: PlacementArrays, held: Held, job: int, sign: int) -> None:
    """Book what a job sends over links in (sign 1) or out (sign -1)."""
    links = arrays.links
    for use in range(board.first_use[job], board.first_use[job] + board.uses[job]):
        link = held.link[use]
        links.users[link] += sign
        links.use_gbps[link] += sign * held.gbps[use]
        if not links.users[link]:
            links.use_gbps[link] = 0.0


@inside
def _flip(board: Board, arrays: PlacementArrays, machine: int, slots: np.uint64) -> None:
    """Take free GPUs of a machine, or give them back."""
    at, machines = board.at, arrays.machines
    size = len(machines.members) - 1
    before = machines.free[machine]
    machines.open_slots[machine] ^= slots
    after = count_bits(machines.open_slots[machine])
    machines.free[machine] = after
    at[FREE] += after - before
    at[USED] += (before == size) - (after == size)
    leave(machines, before, machine)
    join(machines, after, machine)
    if not board.is_changed[machine]:
        board.is_changed[machine] = True
        board.changed[at[CHANGED]] = machine
        at[CHANGED] += 1


@inside
def _note(board: Board, arrays: PlacementArrays) -> None:
    """Note the state after an event, as `NOTED` says."""
    at = board.at
    size = len(arrays.machines.members) - 1
    held = len(arrays.machines.free) * size - at[FREE]
    row = board.noted[at[NOTES]]
    row[0] = board.level[NOW_S]
    row[1] = at[ARRIVAL]
    row[2] = at[TAIL] - at[HEAD]
    row[3] = at[USED]
    row[4] = at[USED] * size - held
    row[5] = board.level[MOVED_BYTES]
    row[6] = held
    row[7] = at[RUNNING]
    at[NOTES] += 1


@inside
def _push(board: Board, end_s: float, serial: int, job: int) -> None:
    """Put an end on the heap."""
    child = board.at[RUNNING]
    board.at[RUNNING] += 1
    while child:
        parent = (child - 1) // 2
        if not _before(end_s, serial, board, parent):
            break
        _carry(board, parent, child)
        child = parent
    board.end_s[child], board.end_start[child], board.end_job[child] = end_s, serial, job


@inside
def _pop(board: Board) -> int:
    """Take the first end from the heap; return its job."""
    job: int = board.end_job[0]
    board.at[RUNNING] -= 1
    last = board.at[RUNNING]
    hole, child = 0, 1
    while child < last:
        if child + 1 < last and _before(board.end_s[child + 1], board.end_start[child + 1], board, child):
            child += 1
        if _before(board.end_s[last], board.end_start[last], board, child):
            break
        _carry(board, child, hole)
        hole, child = child, 2 * child + 1
    _carry(board, last, hole)
    return job


@inside
def _before(end_s: float, serial: int, board: Board, other: int) -> bool:
    """Say whether an end comes before another that is on the heap."""
    if end_s != board.end_s[other]:
        return end_s < float(board.end_s[other])
    return serial < int(board.end_start[other])


@inside
def _carry(board: Board, source: int, target: int) -> None:
    board.end_s[target] = board.end_s[source]
    board.end_start[target] = board.end_start[source]
    board.end_job[target] = board.end_job[source]
