"""Jobs phase by phase, compiled: from one end of a segment to the next.

At each such moment only jobs change speed that talk at that moment and are tied to the job at hand, over links
that talking jobs share. Among these, links are shared max-min fairly: all rates rise together, a job that has
its wish stops, and so do all jobs on a link that is full.

A cycle is looked for at the starts of the longest job's iterations, by Brent's method: the state is compared
with one mark, which moves on after 1, 2, 4, ... iterations.
"""

import numpy as np

from cranny.core.jit import compiled
from cranny.network.phases.phase_arrays import LIMIT, LOGGED, MARKED, NOW, STAMP, STEPS, WAITING, WATCHING, Scene

# Why `advance` came back.
UNTIL = 0  # the time is up
ROUNDS = 1  # the longest job has done its iterations
CYCLE = 2  # the state is that of the mark
ROOM = 3  # for times of iterations, or for the log
DRAWS = 4  # all factors are used up

CLOSE = 1e-12  # relatively: rates, and beats, that are the same
ROUNDING = 1e-9  # by which what is asked of a link may exceed it and yet fit
UNUSED = 1e-12  # a weight that is left of rounding
FULL = -1.0  # in the place of a link's weight
REPEATS = 1e-9  # of an iteration: positions that are the same


@compiled
def advance(scene: Scene, until: float, rounds: int) -> int:
    """Go on to a time, or to so many iterations of the longest job; say why it ended there."""
    draws, room, lines = scene.factor.shape[1], scene.times.shape[1], len(scene.log)
    while True:
        job = int(np.argmin(scene.end))
        time = scene.end[job]
        if time > until:
            scene.clock[NOW] = until
            return UNTIL
        if scene.jobs[job].count == room or (lines and scene.at[LOGGED] + len(scene.end) + 1 > lines):
            return ROOM
        if draws and scene.jobs[job].drawn == draws:
            return DRAWS
        scene.clock[NOW] = time
        if _step(scene, job, time) and job == scene.longest:
            if scene.at[WATCHING] and _repeats(scene, time):
                return CYCLE
            if scene.jobs[job].count >= rounds:
                return ROUNDS


@compiled
def position(scene: Scene, job: int, time: float) -> float:
    """Return how far a job is in its iteration, in seconds alone; less than zero while it waits."""
    own = scene.jobs[job]
    if own.segment == WAITING:
        return time - float(scene.end[job])
    segment = scene.segments[own.segment]
    return float(segment.begin + segment.seconds) - _left(scene, job, time)


@compiled
def _left(scene: Scene, job: int, time: float) -> float:
    """Return how much of its segment a job has left, in seconds alone."""
    own = scene.jobs[job]
    return max(float(own.left - (time - own.since) * own.speed), 0.0)


@compiled
def _step(scene: Scene, job: int, time: float) -> bool:
    """Let a job go on to its next segment; say whether that ended an iteration."""
    own = scene.jobs[job]
    before = own.segment
    following, wait, ended = before + 1, 0.0, False
    if before == WAITING:
        following = own.first
    else:
        if scene.segments[before].gbps > 0.0:
            late = time - own.up_since - scene.segments[before].seconds
            own.above += scene.segments[before].gbps * max(late, 0.0)
        if following == own.past:
            ended = True
            scene.times[job, own.count] = time - own.began
            own.count += 1
            own.began = time
            following = own.first
            wait = _wait(scene, job, time)
    if wait > 0.0:
        _go(scene, job, WAITING, wait, time)
    else:
        _enter(scene, job, following, time)
    _share(scene, job, before, time)
    return ended


@compiled
def _enter(scene: Scene, job: int, segment: int, time: float) -> None:
    """Begin a segment."""
    seconds = scene.segments[segment].seconds
    if scene.segments[segment].gbps > 0.0:
        scene.jobs[job].up_since = time
    elif scene.factor.shape[1]:
        seconds *= scene.factor[job, scene.jobs[job].drawn]
        scene.jobs[job].drawn += 1
    _go(scene, job, segment, seconds, time)


@compiled
def _go(scene: Scene, job: int, segment: int, seconds: float, time: float) -> None:
    """Let a job be in a segment, or wait, for so long if nobody is in its way."""
    own = scene.jobs[job]
    own.segment, own.left, own.since, own.speed = segment, seconds, time, 1.0
    scene.end[job] = time + seconds
    _log(scene, job, time)


@compiled
def _log(scene: Scene, job: int, time: float) -> None:
    """Write down what a job does from now on."""
    if len(scene.log):
        own, line = scene.jobs[job], scene.log[scene.at[LOGGED]]
        line.time, line.speed = time, own.speed
        line.segment = own.segment if own.segment != WAITING else -1 - job
        scene.at[LOGGED] += 1


@compiled
def _off(scene: Scene, job: int, time: float) -> float:
    """Return how long after its beat a moment is; before it if negative, and zero if that is only rounding."""
    period = scene.jobs[job].period
    off = (time - scene.jobs[job].shift) % period
    if off > period / 2:
        off -= period
    return off if abs(off) > CLOSE * max(period, abs(time)) else 0.0


@compiled
def _wait(scene: Scene, job: int, time: float) -> float:
    """Return how long the agent of a job delays the iteration that would start now."""
    period = scene.jobs[job].period
    if period == 0.0:
        return 0.0
    off = _off(scene, job, time)
    if off < 0.0 and scene.hold:
        return -off
    if abs(off) <= scene.tolerance * period:
        return 0.0
    scene.jobs[job].adjustments += 1
    return period - off if off > 0.0 else -off


@compiled
def _share(scene: Scene, job: int, before: int, time: float) -> None:
    """Share links anew among those that talk and are tied to a job that has just left a segment."""
    scene.at[STAMP] += 1
    links = jobs = seen = 0
    for segment, sign in ((before, -1.0), (scene.jobs[job].segment, 1.0)):
        if segment != WAITING:
            links = _ask(scene, segment, sign, links)
    while seen < links:
        link = scene.reached_links[seen]
        seen += 1
        for i in range(scene.links[link].first_on, scene.links[link].past_on):
            segment = scene.on[i]
            other = scene.segments[segment].job
            if scene.jobs[other].segment == segment and scene.jobs[other].stamp != scene.at[STAMP]:
                scene.jobs[other].stamp = scene.at[STAMP]
                scene.reached_jobs[jobs] = other
                jobs += 1
                for use in range(scene.segments[segment].first_use, scene.segments[segment].past_use):
                    if scene.links[scene.uses[use].link].crowded:
                        links = _reach(scene, scene.uses[use].link, links)
    _fill(scene, jobs, links)
    for i in range(jobs):
        other = scene.reached_jobs[i]
        own = scene.jobs[other]
        speed = own.rate / scene.segments[own.segment].gbps
        if speed != own.speed:
            own.left = _left(scene, other, time)
            own.since, own.speed = time, speed
            scene.end[other] = time + own.left / speed
            _log(scene, other, time)


@compiled
def _ask(scene: Scene, segment: int, sign: float, links: int) -> int:
    """Ask for a segment's rates (sign 1), or no longer (-1), and reach its links that are, or were, crowded."""
    for use in range(scene.segments[segment].first_use, scene.segments[segment].past_use):
        link = scene.links[scene.uses[use].link]
        link.asked += sign * scene.uses[use].gbps
        crowded = link.asked > link.gbps * (1.0 + ROUNDING)
        if crowded or link.crowded:
            links = _reach(scene, scene.uses[use].link, links)
        link.crowded = crowded
    return links


@compiled
def _reach(scene: Scene, link: int, links: int) -> int:
    """Add a link to those that are to be shared; return how many these are."""
    own = scene.links[link]
    if own.stamp != scene.at[STAMP]:
        own.stamp = scene.at[STAMP]
        own.room, own.weight = own.gbps, 0.0
        scene.reached_links[links] = link
        links += 1
    return links


@compiled
def _fill(scene: Scene, jobs: int, links: int) -> None:
    """Raise the rates of jobs together until each has its wish or a link of it is full.

    Links and jobs that are done with change places with the last one that is not.
    """
    for i in range(jobs):
        segment = scene.jobs[scene.reached_jobs[i]].segment
        for use in range(scene.segments[segment].first_use, scene.segments[segment].past_use):
            scene.links[scene.uses[use].link].weight += scene.uses[use].share
    while jobs:
        level = np.inf
        for i in range(jobs):
            level = min(level, scene.segments[scene.jobs[scene.reached_jobs[i]].segment].gbps)
        for i in range(links):
            on = scene.links[scene.reached_links[i]]
            if on.weight > UNUSED:
                level = min(level, on.room / on.weight)
        most = level * (1.0 + CLOSE)
        i = 0
        while i < links:
            link = scene.reached_links[i]
            on = scene.links[link]
            if on.weight <= UNUSED or on.room <= on.weight * most:
                on.weight = FULL  # or nobody who rises is on it
                links -= 1
                scene.reached_links[i], scene.reached_links[links] = scene.reached_links[links], link
            else:
                i += 1
        i = 0
        while i < jobs:
            job = scene.reached_jobs[i]
            if _stops(scene, job, level, most):
                jobs -= 1
                scene.reached_jobs[i], scene.reached_jobs[jobs] = scene.reached_jobs[jobs], job
            else:
                i += 1


@compiled
def _stops(scene: Scene, job: int, level: float, most: float) -> bool:
    """Stop a job at a level, at `most`, if it has its wish or a link of it is full; say so."""
    segment = scene.jobs[job].segment
    wish = scene.segments[segment].gbps
    uses = range(scene.segments[segment].first_use, scene.segments[segment].past_use)
    scene.jobs[job].rate = wish
    if wish > most:
        full = False
        for use in uses:
            full = full or _is_full(scene, scene.uses[use].link)
        if not full:
            return False
        scene.jobs[job].rate = level
    for use in uses:
        link, share = scene.links[scene.uses[use].link], scene.uses[use].share
        if link.stamp == scene.at[STAMP] and link.weight != FULL:
            link.room -= share * scene.jobs[job].rate
            link.weight = max(link.weight - share, 0.0)
    return True


@compiled
def _is_full(scene: Scene, link: int) -> bool:
    return bool(scene.links[link].stamp == scene.at[STAMP] and scene.links[link].weight == FULL)


@compiled
def _repeats(scene: Scene, time: float) -> bool:
    """Say whether the state is that of the mark; from time to time, set the mark."""
    if scene.clock[MARKED] >= 0.0:
        same = True
        for job in range(len(scene.jobs)):
            same = same and _as_marked(scene, job, time)
        if same:
            return True
        scene.at[STEPS] += 1
        if scene.at[STEPS] < scene.at[LIMIT]:
            return False
    scene.at[LIMIT] = max(2 * scene.at[LIMIT], 1)
    scene.at[STEPS] = 0
    scene.clock[MARKED] = time
    for job in range(len(scene.jobs)):
        own = scene.jobs[job]
        own.marked_position = position(scene, job, time)
        own.marked_beat = _off(scene, job, time) if own.period > 0.0 else 0.0
        own.marked_waits = own.segment == WAITING
        own.marked_count, own.marked_above, own.marked_adjustments = own.count, own.above, own.adjustments
    return False


@compiled
def _as_marked(scene: Scene, job: int, time: float) -> bool:
    """Say whether a job is where it was at the mark, in its iteration and against its beat."""
    own = scene.jobs[job]
    waits = own.segment == WAITING
    if waits != own.marked_waits:
        return False
    whole, period = own.whole, own.period
    apart = position(scene, job, time) - own.marked_position
    if not waits:  # the end of an iteration is the start of the next
        apart -= whole * np.rint(apart / whole)
    if abs(apart) > REPEATS * whole:
        return False
    if period == 0.0:
        return True
    apart = _off(scene, job, time) - own.marked_beat
    return bool(abs(apart - period * np.rint(apart / period)) <= REPEATS * period)
