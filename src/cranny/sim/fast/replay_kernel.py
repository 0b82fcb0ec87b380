"""The compiled part of a replay: arrivals, ends, starts and the samples.

A small job goes to the lowest machine of its kind that has the first of some numbers of GPUs free. A job that
takes several machines goes where the policy's drafter says, if it has one and the machines of the kind are equal.
Everything else is left to Python: `advance` returns, and continues with the answer. All state is in arrays; the
numbers that change are in `ReplayArrays.at`.
"""

import numpy as np

from cranny.core.fast.bit_sets import bit_of, count_bits, lowest_slots
from cranny.core.fast.placement_arrays import CROSS_BYTES, LINKS, PARTS, SLOWDOWN, Draft, PlacementArrays
from cranny.core.jit import compiled, inlined, inside, unlocked
from cranny.sim.fast.end_heap import expect_end, forget_end, pop, push
from cranny.sim.fast.queue_kernel import begin_plan, dequeue, enqueue, next_start
from cranny.sim.fast.replay_arrays import (
    ANSWER,
    ARRIVED,
    ASKED,
    CHANGED,
    CHECK,
    CHECKED,
    CHOSEN,
    CROSSING,
    ENDED,
    FINISHED,
    FIRST_ARRIVED,
    FREE,
    GROW,
    HELD,
    IDLE_UNITS,
    MOVED_BYTES,
    NEXT_INSTANT,
    NEXT_JOB,
    NOW_S,
    PAUSED,
    RUNNING,
    SAMPLES,
    SENT,
    SERVE,
    SERVED,
    STAGE,
    STARTS,
    STUCK,
    TAKE_SAMPLE,
    USED,
    WAITING,
    Drafts,
    PartArrays,
    QueueArrays,
    ReplayArrays,
)


@unlocked
def advance(
    replay: ReplayArrays,
    arrays: PlacementArrays,
    queues: QueueArrays,
    held: PartArrays,
    drafter: Drafts,
    until: int,
) -> int:
    """Process events up to the arrival of job `until`, or until Python is needed; return why it stopped."""
    at = replay.at
    while True:
        if at[STAGE] == NEXT_INSTANT:
            if at[NEXT_JOB] >= until and until < len(replay.gpus):
                return PAUSED
            if at[NEXT_JOB] == len(replay.gpus) and not at[RUNNING]:
                return FINISHED
            _next_instant(replay, arrays, queues, held)
        elif at[STAGE] == SERVE:
            why = _serve(replay, arrays, queues, held, drafter)
            if why:
                return why
            at[STAGE] = SERVED
            if not at[CHECKED] and _is_doubtful(replay, queues):
                at[CHECKED] = 1
                return CHECK
        elif at[STAGE] == SERVED:
            if at[WAITING] and not at[RUNNING]:
                return STUCK  # once Python has skipped the first, the next is served
            at[STAGE] = TAKE_SAMPLE
        else:
            _sample(replay, queues)
            at[STAGE] = NEXT_INSTANT


@compiled
def take_out(replay: ReplayArrays, queues: QueueArrays, job: int) -> None:
    """Remove a job that will never start from the queue; then the others are served anew."""
    dequeue(replay, queues, job)
    begin_plan(replay, queues.groups)
    replay.at[STAGE] = SERVE


@inlined
def _next_instant(replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays) -> None:
    """Process all ends, then all arrivals of the next instant."""
    at, capacity = replay.at, queues.kinds.capacity
    jobs = len(replay.gpus)
    now_s = replay.submit_s[at[NEXT_JOB]] if at[NEXT_JOB] < jobs else np.inf
    if at[RUNNING]:
        now_s = min(now_s, replay.end_s[0])
    replay.level[NOW_S] = now_s
    while at[RUNNING] and replay.end_s[0] == now_s:
        _end(replay, arrays, queues, held, pop(replay))
        at[STAGE] = SERVE
    at[ARRIVED] = 0
    at[FIRST_ARRIVED] = at[NEXT_JOB]
    while at[NEXT_JOB] < jobs and replay.submit_s[at[NEXT_JOB]] == now_s:
        job = at[NEXT_JOB]
        at[NEXT_JOB] += 1
        if replay.gpus[job] <= capacity[replay.kind[job]]:  # a larger one is skipped
            if np.isnan(replay.start_s[job]):  # else it ran before
                enqueue(replay, queues, job)
            at[ARRIVED] += 1
            at[STAGE] = SERVE
    at[CHECKED] = 0
    begin_plan(replay, queues.groups)


@inlined
def _is_doubtful(replay: ReplayArrays, queues: QueueArrays) -> bool:
    """Say whether jobs that just arrived must wait of which it is not sure that they can ever run."""
    at, sizes = replay.at, queues.kinds.size
    for job in range(at[FIRST_ARRIVED], at[NEXT_JOB]):
        # One that fits a machine does run; where machines differ the size is 0.
        is_large = replay.gpus[job] > sizes[replay.kind[job]]
        if is_large and replay.is_waiting[job] and not replay.is_feasible[replay.look[job]]:
            return True
    return False


@inlined
def _serve(
    replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, drafter: Drafts
) -> int:
    """Start jobs until none can; return 0, or why Python is needed."""
    at = replay.at
    while True:
        why, job = next_start(replay, arrays, queues, held, drafter)
        if why or job < 0:
            return why
        if at[CHOSEN] >= 0:
            slots = lowest_slots(arrays.machines.open_slots[at[CHOSEN]], replay.gpus[job])
            replay.machine[job] = at[CHOSEN]
            replay.slots[job] = slots
            _toggle_gpus(replay, arrays, queues, at[CHOSEN], slots)
        else:
            if not _has_room(replay, arrays.draft, held):
                at[ASKED], at[ANSWER] = job, arrays.draft.at[PARTS]
                return GROW
            _take_draft(replay, arrays, queues, held, job)
        _start(replay, queues, job)
        begin_plan(replay, queues.groups)


@inside
def _has_room(replay: ReplayArrays, draft: Draft, held: PartArrays) -> bool:
    """Say whether the arrays of what jobs hold have room for the draft."""
    at = replay.at
    enough: bool = at[HELD] + draft.at[PARTS] <= len(held.machine) and at[SENT] + draft.at[LINKS] <= len(held.link)
    return enough


@compiled
def go_on(replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, job: int) -> int:
    """Start a job that ran before on its draft, at its arrival, which is still to come; return 0 or `GROW`."""
    if not _has_room(replay, arrays.draft, held):
        return GROW
    replay.level[NOW_S] = replay.submit_s[job]
    enqueue(replay, queues, job)
    _take_draft(replay, arrays, queues, held, job)
    _start(replay, queues, job)
    return 0


@inlined
def _start(replay: ReplayArrays, queues: QueueArrays, job: int) -> None:
    """Start a job whose GPUs are already held."""
    at = replay.at
    now_s = replay.level[NOW_S]
    dequeue(replay, queues, job)
    at[STARTS] += 1
    replay.start_s[job] = now_s
    replay.first_sample[job] = at[SAMPLES]
    if replay.uses[job]:
        at[CROSSING] += 1
        replay.level[MOVED_BYTES] += replay.cross_bytes[job]
    push(replay, now_s + replay.duration_s[job] * replay.slowdown[job], at[STARTS], job)
    if replay.backfills:
        expect_end(queues.groups, queues.kinds.group[replay.kind[job]], _expected_end_s(replay, job), job)


@inside
def _expected_end_s(replay: ReplayArrays, job: int) -> float:
    """Return when policies expect a running job to end."""
    return float(replay.start_s[job] + max(0.0, replay.known_s[job] * replay.slowdown[job]))


@inside
def _take_draft(
    replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, job: int
) -> None:
    """Take the GPUs and links of a job's draft."""
    at, draft = replay.at, arrays.draft
    replay.first_part[job] = at[HELD]
    replay.parts[job] = draft.at[PARTS]
    for part in range(draft.at[PARTS]):
        machine = draft.machine[part]
        slots = lowest_slots(arrays.machines.open_slots[machine], draft.gpus[part])
        held.machine[at[HELD]] = machine
        held.slots[at[HELD]] = slots
        at[HELD] += 1
        _toggle_gpus(replay, arrays, queues, machine, slots)
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
        _update_links(replay, arrays, queues, held, job, 1)


@inlined
def _end(replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, job: int) -> None:
    """Release what a job held."""
    at, group = replay.at, queues.kinds.group[replay.kind[job]]
    replay.finish_s[job] = replay.level[NOW_S]
    replay.past_sample[job] = at[SAMPLES]
    replay.ended[at[ENDED]] = job
    at[ENDED] += 1
    queues.groups.is_open[group] = True
    if replay.backfills:
        forget_end(queues.groups, group, _expected_end_s(replay, job), job)
    if not replay.parts[job]:
        _toggle_gpus(replay, arrays, queues, replay.machine[job], replay.slots[job])
        return
    for part in range(replay.first_part[job], replay.first_part[job] + replay.parts[job]):
        _toggle_gpus(replay, arrays, queues, held.machine[part], held.slots[part])
    if replay.uses[job]:
        _update_links(replay, arrays, queues, held, job, -1)
        at[CROSSING] -= 1
        replay.level[MOVED_BYTES] -= replay.cross_bytes[job]
        if not at[CROSSING]:
            replay.level[MOVED_BYTES] = 0.0  # no rounding is left over


@inside
def _update_links(
    replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, held: PartArrays, job: int, sign: int
) -> None:
    """Add (sign 1) or remove (sign -1) what a job sends over links, which may matter to jobs of any group."""
    links, is_open = arrays.links, queues.groups.is_open
    for use in range(replay.first_use[job], replay.first_use[job] + replay.uses[job]):
        link = held.link[use]
        links.users[link] += sign
        links.use_gbps[link] += sign * held.gbps[use]
        if not links.users[link]:
            links.use_gbps[link] = 0.0
    if not replay.refuses_by_size:
        for group in range(len(is_open)):
            is_open[group] = True


@inlined
def _toggle_gpus(
    replay: ReplayArrays, arrays: PlacementArrays, queues: QueueArrays, machine: int, slots: np.uint64
) -> None:
    """Take free GPUs of a machine, or release them."""
    at, machines, kinds = replay.at, arrays.machines, queues.kinds
    size, share, block = kinds.machine_size[machine], kinds.share[machine], kinds.block[machine]
    before = machines.free[machine]
    machines.open_slots[machine] ^= slots
    after = count_bits(machines.open_slots[machine])
    machines.free[machine] = after
    at[FREE] += after - before
    at[USED] += (before == size) - (after == size)
    at[IDLE_UNITS] += share * ((after if after < size else 0) - (before if before < size else 0))
    kinds.block_free[block] += after - before
    word, bit = machine // 64, bit_of(machine)
    for place in range(kinds.first_kind[block], kinds.first_kind[block + 1]):
        kind = kinds.kind[place]
        kinds.sets[kind, before, word] ^= bit
        kinds.members[kind, before] -= 1
        kinds.sets[kind, after, word] ^= bit
        kinds.members[kind, after] += 1
        kinds.first_word[kind, after] = min(kinds.first_word[kind, after], word)
    if not replay.is_changed[machine]:
        replay.is_changed[machine] = True
        replay.changed[at[CHANGED]] = machine
        at[CHANGED] += 1


@inlined
def _sample(replay: ReplayArrays, queues: QueueArrays) -> None:
    """Sample the state after an instant, as in `SAMPLE_COLUMNS`."""
    at = replay.at
    row = replay.samples[at[SAMPLES]]
    row[0] = replay.level[NOW_S]
    row[1] = at[ARRIVED]
    row[2] = at[WAITING]
    row[3] = at[USED]
    row[4] = at[IDLE_UNITS]
    row[5] = replay.level[MOVED_BYTES]
    row[6] = queues.kinds.capacity[0] - at[FREE]
    row[7] = at[RUNNING]
    at[SAMPLES] += 1
