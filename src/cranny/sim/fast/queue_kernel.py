"""The queue of a compiled replay: which waiting job starts next, as `core.queue` and `core.backfill` decide it.

Every look through the queue begins at its head, in the order of the whole queue, and ends with the first job that
starts. It keeps nothing but which jobs were refused, so that it can stop to ask Python and begin anew. Groups in
which nothing has changed since are passed over: no job of theirs would start.
"""

from cranny.core.backfill import DEPTH
from cranny.core.fast.bit_sets import lowest_bit
from cranny.core.fast.placement_arrays import (
    COMM_S,
    FALLBACK,
    NO_ENTRY,
    PARTS,
    SLOWDOWN,
    WAIT,
    Draft,
    PlacementArrays,
    PlacementRequest,
)
from cranny.core.jit import inlined, inside
from cranny.sim.fast.replay_arrays import (
    ADD_PATTERN,
    ANSWER,
    ASKED,
    CHOSEN,
    ENDED,
    LEARN_SPLIT,
    LINES,
    MOST_KINDS,
    NOW_S,
    PLACE,
    PLAN,
    STARTS,
    STUCK_JOB,
    STUCK_STATE,
    WAITING,
    Drafts,
    GroupArrays,
    KindArrays,
    PartArrays,
    QueueArrays,
    ReplayArrays,
    free_gpus,
    placement_arrays_of,
)
from cranny.sim.fast.reservations import reserve

# What a look at a job finds, if it need not ask Python, whose questions are above 0.
FITS, REFUSED = 0, -1
NO_JOB = -1


@inlined
def enqueue(replay: ReplayArrays, queues: QueueArrays, job: int) -> None:
    """Insert a job where its rank belongs."""
    groups, rank = queues.groups, replay.rank[job]
    group = queues.kinds.group[replay.kind[job]]
    place = groups.tail[group]
    while place > groups.head[group] and groups.queue[place - 1] > rank:
        groups.queue[place] = groups.queue[place - 1]
        place -= 1
    groups.queue[place] = rank
    if place < groups.tail[group] or not groups.is_cut[group]:  # else it is too far behind to be tried
        groups.is_open[group] = True
    groups.tail[group] += 1
    replay.is_waiting[job] = True
    replay.at[WAITING] += 1


@inlined
def dequeue(replay: ReplayArrays, queues: QueueArrays, job: int) -> None:
    """Remove a job; most are near the head."""
    groups, rank = queues.groups, replay.rank[job]
    group = queues.kinds.group[replay.kind[job]]
    place = groups.head[group]
    while groups.queue[place] != rank:
        place += 1
    for later in range(place, groups.head[group], -1):
        groups.queue[later] = groups.queue[later - 1]
    groups.head[group] += 1
    groups.is_open[group] = True
    replay.is_waiting[job] = False
    replay.at[WAITING] -= 1


@inlined
def begin_plan(replay: ReplayArrays, groups: GroupArrays) -> None:
    """Begin to ask anew which job starts next: none is refused yet."""
    replay.at[PLAN] += 1
    for group in range(len(groups.is_loose)):
        groups.is_loose[group] = False


@inlined
def first_waiting(groups: GroupArrays) -> int:
    """Return the lowest rank of all waiting jobs; there must be one."""
    first = -1
    for group in range(len(groups.head)):
        if groups.head[group] < groups.tail[group]:
            rank = groups.queue[groups.head[group]]
            if first < 0 or rank < first:
                first = rank
    return first


@inlined
def next_start(
    replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, drafter: Drafts
) -> tuple[int, int]:
    """Look through the queue for the next job to start; return why Python is needed, or 0, and the job or -1.

    The machine of the job is in `at[CHOSEN]`, or else it was drafted.
    """
    at, kinds, groups = replay.at, queues.kinds, queues.groups
    if not at[WAITING]:
        return 0, NO_JOB
    first = first_waiting(groups)
    _begin_at_head(replay, groups)
    while True:
        group = _next_group(groups)
        if group < 0:
            break
        rank = groups.queue[groups.cursor[group]]
        groups.cursor[group] += 1
        job = replay.by_rank[rank]
        is_behind = groups.blocked[group] & kinds.shares[replay.kind[job]] != 0
        found = REFUSED
        if not is_behind or (replay.backfills and _may_pass(replay, queues, held, job)):
            found = _fit(replay, arrays, kinds, groups, drafter, job, rank == first)
            if found == FITS and is_behind and not _delays_none(replay, arrays.draft, queues, job):
                replay.refused[job] = at[PLAN]
                found = REFUSED
        if found == FITS:
            return 0, job
        if found > 0:
            at[ASKED] = job
            return found, NO_JOB
        if replay.backfills:
            _join_lines(replay, queues, job, is_behind)
        _block(kinds, groups, group, replay.kind[job])
        if groups.is_blocked[group] and not (replay.backfills and _is_tried(replay, queues, group)):
            groups.cursor[group] = groups.tail[group]  # no later one may start
            groups.is_cut[group] = True
    for group in range(len(groups.head)):
        groups.is_open[group] = groups.is_loose[group]
    return 0, NO_JOB


@inlined
def _begin_at_head(replay: ReplayArrays, groups: GroupArrays) -> None:
    """Begin to look through the queues of groups in which something has changed."""
    replay.at[LINES] = 0
    for group in range(len(groups.head)):
        groups.blocked[group] = 0
        groups.is_blocked[group] = False
        groups.cursor[group] = groups.tail[group]
        if groups.is_open[group]:
            groups.cursor[group] = groups.head[group]
            groups.is_cut[group] = False


@inlined
def _next_group(groups: GroupArrays) -> int:
    """Return the group whose next job is the first in the order of the whole queue; -1 if there are no more."""
    found, rank = -1, -1
    for group in range(len(groups.head)):
        if groups.cursor[group] < groups.tail[group]:
            other = groups.queue[groups.cursor[group]]
            if found < 0 or other < rank:
                found, rank = group, other
    return found


@inlined
def _block(kinds: KindArrays, groups: GroupArrays, group: int, kind: int) -> None:
    """Add a kind to those of the waiting jobs that were looked at."""
    if groups.blocked[group] >> kind & 1:
        return
    groups.blocked[group] |= 1 << kind
    is_blocked = True
    for each in range(len(kinds.group)):
        if groups.kinds[group] >> each & 1 and not kinds.shares[each] & groups.blocked[group]:
            is_blocked = False
    groups.is_blocked[group] = is_blocked


@inlined
def _fit(
    replay: ReplayArrays,
    arrays: PlacementArrays,
    kinds: KindArrays,
    groups: GroupArrays,
    drafter: Drafts,
    job: int,
    is_first: bool,  # noqa: FBT001 - a kernel
) -> int:
    """Find a place for a job; return FITS, REFUSED, or why Python is needed."""
    at, kind = replay.at, replay.kind[job]
    state = at[STARTS] + at[ENDED]
    if replay.refused[job] == at[PLAN]:
        return REFUSED
    if is_first and at[STUCK_JOB] == job and at[STUCK_STATE] == state:
        if not replay.refuses_by_size:
            groups.is_loose[kinds.group[kind]] = True  # it is tried again once anything has changed
        return REFUSED
    if replay.gpus[job] <= free_gpus(kinds, kind):
        answer = _answer(replay, arrays, kinds, groups, drafter, job)
        if answer != REFUSED:
            return answer
    replay.refused[job] = at[PLAN]
    if is_first:
        at[STUCK_JOB], at[STUCK_STATE] = job, state
    return REFUSED


@inlined
def _answer(
    replay: ReplayArrays,
    arrays: PlacementArrays,
    kinds: KindArrays,
    groups: GroupArrays,
    drafter: Drafts,
    job: int,
) -> int:
    """Choose a machine, draft a placement, or take Python's answer."""
    at, kind = replay.at, replay.kind[job]
    at[CHOSEN] = -1
    if at[ANSWER] and at[ASKED] == job:
        refused = at[ANSWER] == WAIT
        at[ANSWER] = 0
        # Python may remember what it was asked: it is asked as often as by the event loop.
        groups.is_loose[kinds.group[kind]] = True
        return REFUSED if refused else FITS
    if not kinds.size[kind]:
        return PLACE
    at[CHOSEN] = _choose(kinds, kind, replay.gpus[job], replay.fragments_before_idle)
    if at[CHOSEN] >= 0:
        return FITS
    state = at[STARTS] + at[ENDED]
    if replay.refuses_by_size and kinds.refused[kind, replay.gpus[job]] == state:
        return REFUSED
    found = _draft(replay, placement_arrays_of(arrays, kinds, kind), drafter, job)
    if found == REFUSED:
        kinds.refused[kind, replay.gpus[job]] = state
    return found


@inlined
def _choose(kinds: KindArrays, kind: int, gpus: int, fragments_before_idle: bool) -> int:  # noqa: FBT001 - a kernel
    """Return the lowest machine with the first of the wanted numbers of GPUs free; -1 if one is not enough."""
    size, members = kinds.size[kind], kinds.members[kind]
    if gpus > size:
        return -1
    fragments = 0
    if fragments_before_idle:
        for free in range(1, size):
            fragments += free * members[free]
    for free in kinds.choices[kind, gpus]:
        if free == 0 or (free == size and fragments_before_idle and gpus <= fragments):
            break
        if members[free]:
            return _lowest_with(kinds, kind, free) if free >= gpus else -1
    return -1


@inlined
def _lowest_with(kinds: KindArrays, kind: int, free: int) -> int:
    """Return the lowest machine of a kind with so many GPUs free; there must be one."""
    words, word = kinds.sets[kind, free], kinds.first_word[kind, free]
    while not words[word]:
        word += 1
    kinds.first_word[kind, free] = word
    return int(64 * word + lowest_bit(words[word]))


@inside
def _draft(replay: ReplayArrays, arrays: PlacementArrays, drafter: Drafts, job: int) -> int:
    """Call the drafter for a job; return FITS, REFUSED, or why Python is needed."""
    pattern, model = replay.pattern[job], replay.model[job]
    if pattern < 0:
        return PLACE
    if arrays.patterns.first_phase[pattern] < 0:
        return ADD_PATTERN
    variant = model * MOST_KINDS + replay.kind[job]
    answer = drafter(
        arrays,
        PlacementRequest(replay.gpus[job], pattern, replay.grad_bytes[model], replay.iteration_s[model], variant),
    )
    if answer == FALLBACK:
        return PLACE
    if answer == NO_ENTRY:
        return LEARN_SPLIT
    if answer == WAIT:
        return REFUSED
    cost = arrays.draft.cost
    cost[SLOWDOWN] = 1.0 + replay.stretch * cost[COMM_S] / replay.iteration_s[model]
    return FITS


@inlined
def _may_pass(replay: ReplayArrays, queues: QueueArrays, held: PartArrays, job: int) -> bool:
    """Say whether a job could pass the first ones that it is behind, where it runs best, as `backfill.easy` does.

    So it does if it ends before they could start, or if it leaves them enough GPUs with all that it can have of
    others.
    """
    at, kinds, lines = replay.at, queues.kinds, queues.lines
    kind, gpus = replay.kind[job], replay.gpus[job]
    if replay.refuses_by_size and kinds.refused[kind, gpus] == at[STARTS] + at[ENDED]:
        return False
    if replay.refused[job] == at[PLAN] or gpus > free_gpus(kinds, kind):
        return False
    for line in range(at[LINES]):
        if lines.kinds[line] & kinds.shares[kind] and lines.tried[line] >= DEPTH:
            return False
    end_s = replay.level[NOW_S] + max(0.0, replay.known_s[job])
    for line in range(at[LINES]):
        if lines.kinds[line] & kinds.shares[kind]:
            if not lines.known[line]:
                reserve(replay, queues, held, line)
            elsewhere = 0
            first = replay.kind[lines.first[line]]
            for block in range(len(kinds.block_free)):
                if kinds.has_block[kind, block] and not kinds.has_block[first, block]:
                    elsewhere += kinds.block_free[block]
            if end_s > lines.start_s[line] and max(0, gpus - elsewhere) > lines.extra_gpus[line]:
                return False
    return True


@inlined
def _delays_none(replay: ReplayArrays, draft: Draft, queues: QueueArrays, job: int) -> bool:
    """Say whether a job delays no first one where it would run."""
    at, kinds, lines = replay.at, queues.kinds, queues.lines
    slowdown = 1.0 if at[CHOSEN] >= 0 else draft.cost[SLOWDOWN]
    end_s = replay.level[NOW_S] + max(0.0, replay.known_s[job] * slowdown)
    for line in range(at[LINES]):
        if lines.kinds[line] & kinds.shares[replay.kind[job]] and end_s > lines.start_s[line]:
            first, taken = replay.kind[lines.first[line]], 0
            if at[CHOSEN] >= 0:
                taken = replay.gpus[job] if kinds.inside[first, at[CHOSEN]] else 0
            else:
                for part in range(draft.at[PARTS]):
                    if kinds.inside[first, draft.machine[part]]:
                        taken += draft.gpus[part]
            if taken > lines.extra_gpus[line]:
                return False
    return True


@inlined
def _join_lines(
    replay: ReplayArrays,
    queues: QueueArrays,
    job: int,
    is_behind: bool,  # noqa: FBT001 - a kernel
) -> None:
    """Add a job that waits to the lines that it is behind, or make it the first of a new one."""
    at, kinds, lines = replay.at, queues.kinds, queues.lines
    kind = replay.kind[job]
    if not is_behind:
        line = at[LINES]
        lines.kinds[line] = 1 << kind
        lines.first[line] = job
        lines.tried[line] = 0
        lines.known[line] = False
        at[LINES] += 1
        return
    for line in range(at[LINES]):
        if lines.kinds[line] & kinds.shares[kind]:
            lines.tried[line] += 1
            lines.kinds[line] |= 1 << kind


@inlined
def _is_tried(replay: ReplayArrays, queues: QueueArrays, group: int) -> bool:
    """Say whether jobs behind some line of a group are still tried."""
    lines = queues.lines
    for line in range(replay.at[LINES]):
        if queues.kinds.group[replay.kind[lines.first[line]]] == group and lines.tried[line] < DEPTH:
            return True
    return False
