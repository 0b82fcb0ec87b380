"""The compiled simulation of jobs phase by phase: from one end of a segment to the next.

At each such moment only jobs change speed that communicate then and are connected to the job at hand, over links
that such jobs share. Among these, links are shared max-min fairly: all rates rise together, a job that has
its demand stops, and so do all jobs on a link that is full.

A cycle is looked for at the starts of the longest job's iterations, by Brent's method: the state is compared
with one mark, which moves on after 1, 2, 4, ... iterations.
"""

import numpy as np

from cranny.core.jit import compiled
from cranny.network.phases.phase_arrays import (
    LIMIT,
    LOGGED,
    MARKED,
    NOW,
    STAMP,
    STEPS,
    WAITING,
    WATCHING,
    PhaseArrays,
)

# Why `advance` came back.
UNTIL = 0  # the time is up
ROUNDS = 1  # the longest job has done its iterations
CYCLE = 2  # the state is that of the mark
GROW = 3  # there is no space left for times of iterations, or for the log
DRAWS = 4  # all factors are used up

CLOSE = 1e-12  # relatively: rates, and starts of periods, that are the same
ROUNDING = 1e-9  # by which the demand of a link may exceed it and yet fit
UNUSED = 1e-12  # a weight that is left of rounding
FULL = -1.0  # in the place of a link's weight
REPEATS = 1e-9  # of an iteration: positions that are the same


@compiled
def advance(arrays: PhaseArrays, until: float, rounds: int) -> int:
    """Go on to a time, or to so many iterations of the longest job; say why it ended there."""
    draws, space, lines = arrays.factor.shape[1], arrays.times.shape[1], len(arrays.log)
    while True:
        job = int(np.argmin(arrays.end))
        time = arrays.end[job]
        if time > until:
            arrays.clock[NOW] = until
            return UNTIL
        if arrays.jobs[job].count == space or (lines and arrays.at[LOGGED] + len(arrays.end) + 1 > lines):
            return GROW
        if draws and arrays.jobs[job].drawn == draws:
            return DRAWS
        arrays.clock[NOW] = time
        if _step(arrays, job, time) and job == arrays.longest:
            if arrays.at[WATCHING] and _repeats(arrays, time):
                return CYCLE
            if arrays.jobs[job].count >= rounds:
                return ROUNDS


@compiled
def position(arrays: PhaseArrays, job: int, time: float) -> float:
    """Return how far a job is in its iteration, in seconds alone; less than zero while it waits."""
    own = arrays.jobs[job]
    if own.segment == WAITING:
        return time - float(arrays.end[job])
    segment = arrays.segments[own.segment]
    return float(segment.begin + segment.seconds) - _left(arrays, job, time)


@compiled
def _left(arrays: PhaseArrays, job: int, time: float) -> float:
    """Return how much of its segment a job has left, in seconds alone."""
    own = arrays.jobs[job]
    return max(float(own.left - (time - own.since) * own.speed), 0.0)


@compiled
def _step(arrays: PhaseArrays, job: int, time: float) -> bool:
    """Let a job go on to its next segment; say whether that ended an iteration."""
    own = arrays.jobs[job]
    before = own.segment
    following, wait, ended = before + 1, 0.0, False
    if before == WAITING:
        following = own.first
    else:
        if arrays.segments[before].gbps > 0.0:
            late = time - own.up_since - arrays.segments[before].seconds
            own.above += arrays.segments[before].gbps * max(late, 0.0)
        if following == own.past:
            ended = True
            arrays.times[job, own.count] = time - own.began
            own.count += 1
            own.began = time
            following = own.first
            wait = _wait(arrays, job, time)
    if wait > 0.0:
        _go(arrays, job, WAITING, wait, time)
    else:
        seconds = arrays.segments[following].seconds
        if arrays.segments[following].gbps > 0.0:
            own.up_since = time
        elif arrays.factor.shape[1]:
            seconds *= arrays.factor[job, own.drawn]
            own.drawn += 1
        _go(arrays, job, following, seconds, time)
    _share(arrays, job, before, time)
    return ended


@compiled
def _go(arrays: PhaseArrays, job: int, segment: int, seconds: float, time: float) -> None:
    """Let a job be in a segment, or wait, for so long if it is alone."""
    own = arrays.jobs[job]
    own.segment, own.left, own.since, own.speed = segment, seconds, time, 1.0
    arrays.end[job] = time + seconds
    _log(arrays, job, time)


@compiled
def _log(arrays: PhaseArrays, job: int, time: float) -> None:
    """Log what a job does from now on."""
    if len(arrays.log):
        own, line = arrays.jobs[job], arrays.log[arrays.at[LOGGED]]
        line.time, line.speed = time, own.speed
        line.segment = own.segment if own.segment != WAITING else -1 - job
        arrays.at[LOGGED] += 1


@compiled
def _off(arrays: PhaseArrays, job: int, time: float) -> float:
    """Return how long after the start of a period a moment is; negative before it, zero within rounding."""
    period = arrays.jobs[job].period
    off = (time - arrays.jobs[job].shift) % period
    if off > period / 2:
        off -= period
    return off if abs(off) > CLOSE * max(period, abs(time)) else 0.0


@compiled
def _wait(arrays: PhaseArrays, job: int, time: float) -> float:
    """Return how long the agent of a job delays the iteration that would start now."""
    period = arrays.jobs[job].period
    if period == 0.0:
        return 0.0
    off = _off(arrays, job, time)
    if off < 0.0 and arrays.hold:
        return -off
    if abs(off) <= arrays.tolerance * period:
        return 0.0
    arrays.jobs[job].adjustments += 1
    return period - off if off > 0.0 else -off


@compiled
def _share(arrays: PhaseArrays, job: int, before: int, time: float) -> None:
    """Share links anew among those that communicate and are connected to a job that has just left a segment."""
    arrays.at[STAMP] += 1
    links = jobs = seen = 0
    for segment, sign in ((before, -1.0), (arrays.jobs[job].segment, 1.0)):
        if segment != WAITING:
            links = _demand(arrays, segment, sign, links)
    while seen < links:
        link = arrays.reached_links[seen]
        seen += 1
        for i in range(arrays.links[link].first_on, arrays.links[link].past_on):
            segment = arrays.on[i]
            other = arrays.segments[segment].job
            if arrays.jobs[other].segment == segment and arrays.jobs[other].stamp != arrays.at[STAMP]:
                arrays.jobs[other].stamp = arrays.at[STAMP]
                arrays.reached_jobs[jobs] = other
                jobs += 1
                for use in range(arrays.segments[segment].first_use, arrays.segments[segment].past_use):
                    if arrays.links[arrays.uses[use].link].contended:
                        links = _reach(arrays, arrays.uses[use].link, links)
    _fill(arrays, jobs, links)
    for i in range(jobs):
        other = arrays.reached_jobs[i]
        own = arrays.jobs[other]
        speed = own.rate / arrays.segments[own.segment].gbps
        if speed != own.speed:
            own.left = _left(arrays, other, time)
            own.since, own.speed = time, speed
            arrays.end[other] = time + own.left / speed
            _log(arrays, other, time)


@compiled
def _demand(arrays: PhaseArrays, segment: int, sign: float, links: int) -> int:
    """Add a segment's demand to its links (sign 1) or remove it (-1); reach links that are or were contended."""
    for use in range(arrays.segments[segment].first_use, arrays.segments[segment].past_use):
        link = arrays.links[arrays.uses[use].link]
        link.demand += sign * arrays.uses[use].gbps
        contended = link.demand > link.gbps * (1.0 + ROUNDING)
        if contended or link.contended:
            links = _reach(arrays, arrays.uses[use].link, links)
        link.contended = contended
    return links


@compiled
def _reach(arrays: PhaseArrays, link: int, links: int) -> int:
    """Add a link to those that are to be shared; return how many these are."""
    own = arrays.links[link]
    if own.stamp != arrays.at[STAMP]:
        own.stamp = arrays.at[STAMP]
        own.unused, own.weight = own.gbps, 0.0
        arrays.reached_links[links] = link
        links += 1
    return links


@compiled
def _fill(arrays: PhaseArrays, jobs: int, links: int) -> None:
    """Raise the rates of jobs together until each has its demand or a link of it is full.

    Links and jobs that are done with change places with the last one that is not.
    """
    for i in range(jobs):
        segment = arrays.jobs[arrays.reached_jobs[i]].segment
        for use in range(arrays.segments[segment].first_use, arrays.segments[segment].past_use):
            arrays.links[arrays.uses[use].link].weight += arrays.uses[use].share
    while jobs:
        level = np.inf
        for i in range(jobs):
            level = min(level, arrays.segments[arrays.jobs[arrays.reached_jobs[i]].segment].gbps)
        for i in range(links):
            on = arrays.links[arrays.reached_links[i]]
            if on.weight > UNUSED:
                level = min(level, on.unused / on.weight)
        most = level * (1.0 + CLOSE)
        i = 0
        while i < links:
            link = arrays.reached_links[i]
            on = arrays.links[link]
            if on.weight <= UNUSED or on.unused <= on.weight * most:
                on.weight = FULL  # or no job that rises is on it
                links -= 1
                arrays.reached_links[i], arrays.reached_links[links] = arrays.reached_links[links], link
            else:
                i += 1
        i = 0
        while i < jobs:
            job = arrays.reached_jobs[i]
            if _stops(arrays, job, level, most):
                jobs -= 1
                arrays.reached_jobs[i], arrays.reached_jobs[jobs] = arrays.reached_jobs[jobs], job
            else:
                i += 1


@compiled
def _stops(arrays: PhaseArrays, job: int, level: float, most: float) -> bool:
    """Stop a job at a level, at `most`, if it has its demand or a link of it is full; say so."""
    segment = arrays.jobs[job].segment
    demand = arrays.segments[segment].gbps
    uses = range(arrays.segments[segment].first_use, arrays.segments[segment].past_use)
    arrays.jobs[job].rate = demand
    if demand > most:
        full = False
        for use in uses:
            link = arrays.links[arrays.uses[use].link]
            full = full or (link.stamp == arrays.at[STAMP] and link.weight == FULL)
        if not full:
            return False
        arrays.jobs[job].rate = level
    for use in uses:
        link, share = arrays.links[arrays.uses[use].link], arrays.uses[use].share
        if link.stamp == arrays.at[STAMP] and link.weight != FULL:
            link.unused -= share * arrays.jobs[job].rate
            link.weight = max(link.weight - share, 0.0)
    return True


@compiled
def _repeats(arrays: PhaseArrays, time: float) -> bool:
    """Say whether the state is that of the mark; from time to time, set the mark."""
    if arrays.clock[MARKED] >= 0.0:
        same = True
        for job in range(len(arrays.jobs)):
            same = same and _as_marked(arrays, job, time)
        if same:
            return True
        arrays.at[STEPS] += 1
        if arrays.at[STEPS] < arrays.at[LIMIT]:
            return False
    arrays.at[LIMIT] = max(2 * arrays.at[LIMIT], 1)
    arrays.at[STEPS] = 0
    arrays.clock[MARKED] = time
    for job in range(len(arrays.jobs)):
        own = arrays.jobs[job]
        own.marked_position = position(arrays, job, time)
        own.marked_offset = _off(arrays, job, time) if own.period > 0.0 else 0.0
        own.marked_waits = own.segment == WAITING
        own.marked_count, own.marked_above, own.marked_adjustments = own.count, own.above, own.adjustments
    return False


@compiled
def _as_marked(arrays: PhaseArrays, job: int, time: float) -> bool:
    """Say whether a job is where it was at the mark, in its iteration and in its period."""
    own = arrays.jobs[job]
    waits = own.segment == WAITING
    if waits != own.marked_waits:
        return False
    whole, period = own.whole, own.period
    apart = position(arrays, job, time) - own.marked_position
    if not waits:  # the end of an iteration is the start of the next
        apart -= whole * np.rint(apart / whole)
    if abs(apart) > REPEATS * whole:
        return False
    if period == 0.0:
        return True
    apart = _off(arrays, job, time) - own.marked_offset
    return bool(abs(apart - period * np.rint(apart / period)) <= REPEATS * period)
