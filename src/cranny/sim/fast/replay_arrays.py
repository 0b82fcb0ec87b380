"""What a compiled replay reads and writes: jobs, kinds of machines, groups of kinds, and the counters in between.

Jobs that can use the same machines are of one *kind*. Kinds that share machines, directly or through others, are
in one *group*: what runs in another group changes nothing for its jobs but how busy links are. Machines that
belong to the same kinds are a *block*; free GPUs are counted by block.
"""

from collections.abc import Callable
from typing import NamedTuple

from cranny.core.fast.placement_arrays import MachineArrays, PlacementArrays, PlacementRequest
from cranny.core.jit import inlined, inside
from cranny.model.arrays import Bits, Flags, Floats, Ints

Drafts = Callable[[PlacementArrays, PlacementRequest], int]

MOST_KINDS = 60  # a bit each in a whole number

# What `advance` returns: why it stopped.
FINISHED = 0  # everything has happened
PAUSED = 1  # it reached the arrival at which it was to pause
PLACE = 2  # a job needs Python to place it
CHECK = 3  # jobs that just arrived must wait: are they feasible at all?
STUCK = 4  # the first job of the queue does not start although nothing runs
ADD_PATTERN = 5  # the pattern of a job is not in the arrays yet
LEARN_SPLIT = 6  # the drafter needs a split of a job
GROW = 7  # the arrays of what jobs hold are full

# What comes next, in `at[STAGE]`.
NEXT_INSTANT, SERVE, SERVED, TAKE_SAMPLE = 0, 1, 2, 3

# Places in `ReplayArrays.at`.
STAGE = 0
ASKED = 1  # the job that Python is asked about
ANSWER = 2  # its answer: the parts of the job's draft, or WAIT; 0 if there is none
ARRIVED = 3  # jobs, at the present instant, that are not too large
FIRST_ARRIVED = 4  # the first job of the present instant; those up to NEXT_JOB came with it
CHECKED = 5  # whether Python has looked at the jobs of the present instant
NEXT_JOB = 6  # to arrive
WAITING = 7  # jobs, in all queues
RUNNING = 8  # jobs, as many as there are ends
STARTS = 9  # so far
SAMPLES = 10
ENDED = 11
CHANGED = 12
USED = 13  # machines
FREE = 14  # GPUs
IDLE_UNITS = 15  # free GPUs of used machines, in shares of a machine
CROSSING = 16  # jobs that use links
HELD = 17  # parts of jobs that were drafted
SENT = 18  # links that those use
PLAN = 19  # counts plans: how often it was asked which job starts next
CHOSEN = 20  # the machine of the job that starts next, if it is on one; -1 if it was drafted
STUCK_JOB = 21  # the first job of the queue that was found not to fit last,
STUCK_STATE = 22  # and after how many starts and ends that was
LINES = 23  # in `LineArrays`
COUNTERS = 24

# Places in `ReplayArrays.level`.
NOW_S, MOVED_BYTES = 0, 1


class PartArrays(NamedTuple):
    """The machines of drafted jobs, and what they send; the arrays grow when they are full."""

    machine: Ints  # (parts,)
    slots: Bits  # (parts,)
    link: Ints  # (uses,)
    gbps: Floats  # (uses,)


class KindArrays(NamedTuple):
    """The kinds of jobs, by the machines that they can use; kind 0 are all machines, whether jobs can or not."""

    # Kinds, (kinds,) each
    size: Ints  # GPUs of each of its machines; 0 if they differ, and Python places its jobs
    capacity: Ints  # GPUs of all its machines
    group: Ints
    shares: Ints  # kinds that share a machine with it, a bit each
    # Machines of a kind, as in `MachineArrays`, for the largest size
    sets: Bits  # (kinds, most + 1, words)
    first_word: Ints  # (kinds, most + 1)
    members: Ints  # (kinds, most + 1)
    inside: Flags  # (kinds, machines)
    refused: Ints  # (kinds, GPUs + 1) after how many starts and ends a draft of so many GPUs was refused last
    choices: Ints  # (kinds, most + 1, most + 1) as in `PlacementArrays`
    # Blocks, and the kinds that each belongs to: kind[first_kind[block]:first_kind[block + 1]]
    has_block: Flags  # (kinds, blocks)
    block_free: Ints  # (blocks,) GPUs
    first_kind: Ints  # (blocks + 1,)
    kind: Ints
    # Machines, (machines,) each
    block: Ints
    machine_size: Ints
    share: Ints  # a GPU, in units of its machine


class GroupArrays(NamedTuple):
    """The queue of each group, and its running jobs by expected end; (groups,) each unless they are flat."""

    queue: Ints  # (jobs,) flat: ranks of waiting jobs, ascending, at queue[head:tail]
    head: Ints
    tail: Ints
    cursor: Ints  # of the job that is looked at next
    blocked: Ints  # kinds of the waiting jobs that were looked at, a bit each
    is_blocked: Flags  # whether every kind of the group shares a machine with those
    kinds: Ints  # of the group, a bit each
    is_open: Flags  # whether a job may start that could not when the queue was last looked through
    is_cut: Flags  # whether that look ended before the last job, since no later one may start
    # Whether a look through the queue depended on more than the group and the links, so that every event counts.
    is_loose: Flags
    expected: Ints  # (GPUs + groups,) flat: running jobs, by their expected ends, at expected[begin:end]
    expected_s: Floats
    begin: Ints
    end: Ints


class LineArrays(NamedTuple):
    """Waiting jobs that are linked by machines which several of them could use, as `core.backfill` has them."""

    kinds: Ints  # (lines,) each; of its jobs, a bit each
    first: Ints  # its first job
    tried: Ints
    known: Flags  # whether its reservation is known
    start_s: Floats  # of its first job; -infinity if there is none
    extra_gpus: Ints  # -1 if there is no reservation


class ReplayArrays(NamedTuple):
    """Everything else that a compiled replay reads and writes."""

    # Jobs, (jobs,) each
    gpus: Ints
    submit_s: Floats
    duration_s: Floats
    known_s: Floats  # how long policies expect it to run
    kind: Ints
    rank: Ints  # in the order of the queue
    by_rank: Ints  # jobs in that order
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
    is_waiting: Flags
    look: Ints  # a number for what a placer sees of a job on several machines; 0 for others
    refused: Ints  # the plan in which it was found not to fit, or not to pass others where it would run
    ended: Ints  # jobs in the order of their ends
    # Looks, (looks,) each
    is_feasible: Flags  # whether it is known that such jobs fit the empty cluster
    # Models, (models,) each
    grad_bytes: Floats
    iteration_s: Floats
    # Settings
    backfills: bool
    refuses_by_size: bool  # whether the drafter goes by free GPUs alone
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


class QueueArrays(NamedTuple):
    """What decides which job starts next."""

    kinds: KindArrays
    groups: GroupArrays
    lines: LineArrays


@inside
def placement_arrays_of(arrays: PlacementArrays, kinds: KindArrays, kind: int) -> PlacementArrays:
    """Return what a drafter reads and writes to place a job of a kind whose machines are equal."""
    past = kinds.size[kind] + 1
    machines = MachineArrays(
        arrays.machines.free,
        arrays.machines.open_slots,
        kinds.sets[kind, :past],
        kinds.first_word[kind, :past],
        kinds.members[kind, :past],
        kinds.inside[kind],
    )
    choices = kinds.choices[kind, :past]
    return PlacementArrays(
        machines, arrays.links, arrays.patterns, arrays.memo, arrays.draft, choices, arrays.setting
    )


@inlined
def free_gpus(kinds: KindArrays, kind: int) -> int:
    """Count the free GPUs that jobs of a kind could use."""
    free = 0
    for block in range(len(kinds.block_free)):
        if kinds.has_block[kind, block]:
            free += kinds.block_free[block]
    return free
