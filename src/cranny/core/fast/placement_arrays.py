"""What a compiled placer reads and writes: machines alike, their links, and a draft of a placement.

A placer is a compiled function of a `Room` and an `Ask`. It drafts where the job would sit, and returns the number
of parts or one of the answers below. Nothing here makes arrays; `furnish` does.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]

# What a placer answers if it has no draft.
WAIT = -1  # the job must wait
ASK = -2  # the case is not so simple: `place` decides
LEARN = -3  # it needs to know something first, about what is in `Draft.key`

# Places in `Draft.at`.
PARTS, LINKS, PHASES = 0, 1, 2
# Places in `Draft.cost`.
CROSS_BYTES, COMM_S, PEAK_BYTES, SLOWDOWN = 0, 1, 2, 3


class Machines(NamedTuple):
    """Machines of `size` GPUs each, by their free GPUs; those with all free are idle."""

    free: Ints  # (machines,)
    open_slots: Bits  # (machines,) GPUs that no job holds
    sets: Bits  # (size + 1, words) machines by their free GPUs, a bit each
    first_word: Ints  # (size + 1,) no word of the set before this one holds a machine
    members: Ints  # (size + 1,) machines in the set


class Links(NamedTuple):
    """The tree of the cluster, (nodes,) each: link i is the uplink of node i, and machines come first."""

    parent: Ints  # the root is its own
    level: Ints  # steps from the root
    first: Ints  # of the machines below a node
    past: Ints
    gbps: Floats
    s_per_byte: Floats
    use_gbps: Floats  # of running jobs
    users: Ints


class Talk(NamedTuple):
    """Patterns that were met: the phases of each, and the pairs of each phase."""

    first_phase: Ints  # (patterns,) -1 for one not met yet
    past_phase: Ints
    first_pair: Ints  # (phases + 1,)
    share: Floats  # (phases,) each
    exchange: Flags
    times: Ints
    a: Ints  # (pairs,) each
    b: Ints


class Known(NamedTuple):
    """What a placer learnt: entries of whole numbers, found by a key."""

    slot: Ints  # (a power of two,) row of a key, or -1
    key: Ints  # (rows, width)
    start: Ints  # (rows,) of the entry
    entry: Ints


class Draft(NamedTuple):
    """Where a job would sit, what that costs, and room to work that out."""

    machine: Ints  # (machines,) of each part, in the order of their first ranks
    gpus: Ints  # (machines,) ranks of each part
    part: Ints  # (GPUs,) of each rank
    links: Ints  # (nodes,) links above these machines
    gbps: Floats  # (nodes,) the job's rate on each of those links
    cost: Floats
    at: Ints
    key: Ints  # (size + 1,) what the placer looks for in what it learnt
    taken: Bits  # (size + 1, words) machines drafted so far, by the ranks that they would hold
    up: Floats  # (nodes,) pairs of a phase that pass a link
    down: Floats
    sent: Floats  # (nodes,) share of K on each of the links
    marked: Flags  # (nodes,)
    pair: Ints  # (a power of two,) which two machines the tally counts
    tally: Ints


class Room(NamedTuple):
    """Everything that a placer reads and writes."""

    machines: Machines
    links: Links
    talk: Talk
    known: Known
    draft: Draft
    choices: Ints  # (size + 1, size + 1) for so many GPUs, which numbers of free GPUs to look for; then 0
    setting: float  # of the placer


class Ask(NamedTuple):
    """The job that is to be placed."""

    gpus: int
    pattern: int
    k_bytes: float
    iteration_s: float
