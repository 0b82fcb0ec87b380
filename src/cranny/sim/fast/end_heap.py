"""The ends of running jobs: a heap by time, and by expected time in each group, compiled."""

from cranny.core.jit import inlined
from cranny.sim.fast.replay_arrays import RUNNING, GroupArrays, ReplayArrays


@inlined
def push(replay: ReplayArrays, end_s: float, serial: int, job: int) -> None:
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


@inlined
def pop(replay: ReplayArrays) -> int:
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


@inlined
def _before(end_s: float, serial: int, replay: ReplayArrays, other: int) -> bool:
    """Say whether an end comes before another that is on the heap."""
    if end_s != replay.end_s[other]:
        return end_s < float(replay.end_s[other])
    return serial < int(replay.end_start[other])


@inlined
def _copy_end(replay: ReplayArrays, source: int, target: int) -> None:
    replay.end_s[target] = replay.end_s[source]
    replay.end_start[target] = replay.end_start[source]
    replay.end_job[target] = replay.end_job[source]


@inlined
def expect_end(groups: GroupArrays, group: int, end_s: float, job: int) -> None:
    """Insert a job that starts where its expected end belongs."""
    place = groups.end[group]
    groups.end[group] += 1
    while place > groups.begin[group] and groups.expected_s[place - 1] > end_s:
        groups.expected_s[place] = groups.expected_s[place - 1]
        groups.expected[place] = groups.expected[place - 1]
        place -= 1
    groups.expected_s[place] = end_s
    groups.expected[place] = job


@inlined
def forget_end(groups: GroupArrays, group: int, end_s: float, job: int) -> None:
    """Remove a job that ended."""
    low, past = groups.begin[group], groups.end[group]
    while low < past:  # the first with this end
        middle = (low + past) // 2
        if groups.expected_s[middle] < end_s:
            low = middle + 1
        else:
            past = middle
    while groups.expected[low] != job:
        low += 1
    groups.end[group] -= 1
    for place in range(low, groups.end[group]):
        groups.expected_s[place] = groups.expected_s[place + 1]
        groups.expected[place] = groups.expected[place + 1]
