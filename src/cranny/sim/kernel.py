"""The compiled part of a replay: arrivals, ends, the queue and the notes, as long as the placing is simple.

Machines are alike, the queue is first come, first served, and a small job goes to the lowest machine that has
the first of some numbers of GPUs free. Whatever is not so simple is left to Python: `advance` returns, and goes
on with the answer. All state is in the arrays of a `Board`; the numbers that change are in `Board.at`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cranny.core.compiled import compiled
from cranny.sim.record import Floats, Ints

Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# What `advance` returns: why it stopped.
FINISHED = 0  # everything has happened
PAUSED = 1  # it came to the arrival that it was told to stop at
PLACE = 2  # the first job of the queue needs Python to place it
CHECK = 3  # the job that just came must wait: may it, or could it never run?
STUCK = 4  # the first job of the queue does not start although nothing runs

# What comes next, in `at[STAGE]`.
NEXT_EVENT, SERVE, SERVED, TAKE_NOTE = 0, 1, 2, 3

# Places in `Board.at`.
STAGE = 0
ANSWER = 1  # Python's about the first job of the queue: the parts it was placed in, or WAIT
ARRIVAL = 2  # whether the present event is one
NEXT_JOB = 3  # to arrive
HEAD = 4  # of the queue: its jobs are queue[HEAD:TAIL]
TAIL = 5
RUNNING = 6  # jobs, as many as there are ends
STARTS = 7  # so far
NOTES = 8
ENDED = 9
CHANGED = 10
GONE = 11
USED = 12  # machines
FREE = 13  # GPUs
CROSSING = 14  # jobs that use links
PARTS = 15  # of jobs that Python placed
COUNTERS = 16

WAIT = -1

# Places in `Board.level`.
NOW_S, CROSS_BYTES = 0, 1


class Parts(NamedTuple):
    """Where jobs sit that Python placed, (parts,) each; the arrays are made longer when they are full."""

    machine: Ints
    gpus: Ints
    slots: Bits  # those GPUs, chosen here


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
    crossing: Flags  # whether the job uses links
    machine: Ints  # where a job sits that was placed here
    slots: Bits  # its GPUs on that machine
    first_part: Ints  # a job that Python placed sits where parts[first_part:first_part + parts] say
    parts: Ints
    first_note: Ints
    past_note: Ints
    queue: Ints
    ended: Ints  # jobs in the order of their ends
    # Machines
    free: Ints  # (machines,)
    open_slots: Bits  # (machines,) GPUs that no job holds
    sets: Bits  # (size + 1, words) machines by their free GPUs, a bit each
    first_word: Ints  # (size + 1,) no word of the set before this one holds a machine
    members: Ints  # (size + 1,) machines in the set
    choices: Ints  # (size + 1, size + 1) for a job of so many GPUs, which numbers of free GPUs to look for; then 0
    fragments_before_idle: bool  # whether idle machines are no choice while fragments would hold the job
    # A heap of ends, (GPUs + 1,) each
    end_s: Floats
    end_start: Ints  # which start it belongs to; the earlier comes first
    end_job: Ints
    # What Python has to hear of
    is_changed: Flags  # (machines,)
    changed: Ints  # (machines,) machines whose GPUs were given or taken here since Python last looked
    gone: Ints  # (GPUs,) jobs that used links and ended since
    # Notes and numbers
    noted: Floats  # (2 * jobs, NOTED)
    at: Ints  # (COUNTERS,)
    level: Floats  # (2,) the time, and the bytes that running jobs move between machines


@compiled
def advance(board: Board, parts: Parts, until: int) -> int:
    """Let events happen up to the arrival of job `until`, or until Python is needed; return why it stopped."""
    at = board.at
    while True:
        if at[STAGE] == NEXT_EVENT:
            if at[NEXT_JOB] == until and until < len(board.gpus):
                return PAUSED
            if at[NEXT_JOB] == len(board.gpus) and not at[RUNNING]:
                return FINISHED
            _next_event(board, parts)
        elif at[STAGE] == SERVE:
            if _serve(board, parts):
                return PLACE
            at[STAGE] = SERVED
            if at[ARRIVAL] and at[HEAD] < at[TAIL] and board.gpus[board.queue[at[TAIL] - 1]] >= len(board.members):
                return CHECK
        elif at[STAGE] == SERVED:
            if at[HEAD] < at[TAIL] and not at[RUNNING]:
                at[STAGE] = SERVE  # whoever is next when Python has dealt with the first
                return STUCK
            at[STAGE] = TAKE_NOTE
        else:
            _note(board)
            at[STAGE] = NEXT_EVENT


@compiled
def _next_event(board: Board, parts: Parts) -> None:
    """Let a job end or arrive, whichever comes first; ends come first at equal times."""
    at = board.at
    job = at[NEXT_JOB]
    if at[RUNNING] and (job == len(board.gpus) or board.end_s[0] <= board.submit_s[job]):
        board.level[NOW_S] = board.end_s[0]
        at[ARRIVAL] = 0
        _end(board, _pop(board), parts)
        at[STAGE] = SERVE
        return
    at[NEXT_JOB] += 1
    if board.gpus[job] > len(board.free) * (len(board.members) - 1):
        return  # larger than the cluster: left out
    board.level[NOW_S] = board.submit_s[job]
    at[ARRIVAL] = 1
    if at[HEAD] < at[TAIL]:
        at[ANSWER] = WAIT  # behind another that must wait, there is nothing to try
    board.queue[at[TAIL]] = job
    at[TAIL] += 1
    at[STAGE] = SERVE


@compiled
def _serve(board: Board, parts: Parts) -> bool:
    """Start jobs from the head of the queue; say whether Python must place the first."""
    at = board.at
    if at[ANSWER] > 0:
        _start_parts(board, parts)
    while at[HEAD] < at[TAIL] and at[ANSWER] != WAIT:
        job = board.queue[at[HEAD]]
        if board.gpus[job] > at[FREE]:
            break
        machine = _choose(board, board.gpus[job])
        if machine < 0:
            return True
        slots = _lowest_slots(board.open_slots[machine], board.gpus[job])
        board.machine[job] = machine
        board.slots[job] = slots
        _flip(board, machine, slots)
        _start(board, job)
    at[ANSWER] = 0
    return False


@compiled
def _choose(board: Board, gpus: int) -> int:
    """Return the lowest machine with the first of the wanted numbers of GPUs free, or -1."""
    size = len(board.members) - 1
    if gpus > size:
        return -1
    fragments = board.at[FREE] - size * board.members[size]
    for free in board.choices[gpus]:
        if free == 0 or (free == size and board.fragments_before_idle and gpus <= fragments):
            break
        if board.members[free]:
            words, word = board.sets[free], board.first_word[free]
            while not words[word]:
                word += 1
            board.first_word[free] = word
            return int(64 * word + _lowest_bit(words[word]))
    return -1


@compiled
def _start(board: Board, job: int) -> None:
    """Start the first job of the queue, whose GPUs are already held."""
    at = board.at
    now_s = board.level[NOW_S]
    at[HEAD] += 1
    at[STARTS] += 1
    board.start_s[job] = now_s
    board.first_note[job] = at[NOTES]
    if board.crossing[job]:
        at[CROSSING] += 1
        board.level[CROSS_BYTES] += board.cross_bytes[job]
    _push(board, now_s + board.duration_s[job] * board.slowdown[job], at[STARTS], job)


@compiled
def _start_parts(board: Board, parts: Parts) -> None:
    """Start the first job of the queue where Python placed it."""
    at = board.at
    job = board.queue[at[HEAD]]
    board.first_part[job] = at[PARTS]
    board.parts[job] = at[ANSWER]
    at[PARTS] += at[ANSWER]
    at[ANSWER] = 0
    for part in range(board.first_part[job], at[PARTS]):
        machine = parts.machine[part]
        parts.slots[part] = _lowest_slots(board.open_slots[machine], parts.gpus[part])
        _flip(board, machine, parts.slots[part])
    _start(board, job)


@compiled
def _end(board: Board, job: int, parts: Parts) -> None:
    """Take back what a job held."""
    at = board.at
    board.finish_s[job] = board.level[NOW_S]
    board.past_note[job] = at[NOTES]
    board.ended[at[ENDED]] = job
    at[ENDED] += 1
    if not board.parts[job]:
        _flip(board, board.machine[job], board.slots[job])
        return
    for part in range(board.first_part[job], board.first_part[job] + board.parts[job]):
        _flip(board, parts.machine[part], parts.slots[part])
    if board.crossing[job]:
        board.gone[at[GONE]] = job
        at[GONE] += 1
        at[CROSSING] -= 1
        board.level[CROSS_BYTES] -= board.cross_bytes[job]
        if not at[CROSSING]:
            board.level[CROSS_BYTES] = 0.0  # no rounding is left over


@compiled
def _flip(board: Board, machine: int, slots: np.uint64) -> None:
    """Take free GPUs of a machine, or give them back."""
    at, size = board.at, len(board.members) - 1
    before = board.free[machine]
    board.open_slots[machine] ^= slots
    after = _count_bits(board.open_slots[machine])
    board.free[machine] = after
    at[FREE] += after - before
    at[USED] += (before == size) - (after == size)
    word, bit = machine // 64, np.uint64(1) << np.uint64(machine % 64)
    board.sets[before, word] ^= bit
    board.sets[after, word] ^= bit
    board.members[before] -= 1
    board.members[after] += 1
    board.first_word[after] = min(board.first_word[after], word)
    if not board.is_changed[machine]:
        board.is_changed[machine] = True
        board.changed[at[CHANGED]] = machine
        at[CHANGED] += 1


@compiled
def _note(board: Board) -> None:
    """Note the state after an event, as `NOTED` says."""
    at = board.at
    size = len(board.members) - 1
    held = len(board.free) * size - at[FREE]
    row = board.noted[at[NOTES]]
    row[0] = board.level[NOW_S]
    row[1] = at[ARRIVAL]
    row[2] = at[TAIL] - at[HEAD]
    row[3] = at[USED]
    row[4] = at[USED] * size - held
    row[5] = board.level[CROSS_BYTES]
    row[6] = held
    row[7] = at[RUNNING]
    at[NOTES] += 1


@compiled
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


@compiled
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


@compiled
def _before(end_s: float, serial: int, board: Board, other: int) -> bool:
    """Say whether an end comes before another that is on the heap."""
    if end_s != board.end_s[other]:
        return end_s < float(board.end_s[other])
    return serial < int(board.end_start[other])


@compiled
def _carry(board: Board, source: int, target: int) -> None:
    board.end_s[target] = board.end_s[source]
    board.end_start[target] = board.end_start[source]
    board.end_job[target] = board.end_job[source]


@compiled
def _lowest_slots(slots: np.uint64, count: int) -> np.uint64:
    """Return the lowest `count` of some bits."""
    rest = slots
    for _ in range(count):
        rest &= rest - np.uint64(1)
    return slots ^ rest


@compiled
def _count_bits(bits: np.uint64) -> int:
    count = 0
    while bits:
        bits &= bits - np.uint64(1)
        count += 1
    return count


@compiled
def _lowest_bit(bits: np.uint64) -> int:
    """Return the place of the lowest bit of a number that has one."""
    place = 0
    while not bits & np.uint64(0xFF):
        bits >>= np.uint64(8)
        place += 8
    while not bits & np.uint64(1):
        bits >>= np.uint64(1)
        place += 1
    return place
