"""Simulate jobs phase by phase: for a span of time, or until their state recurs.

Without jitter, jobs that share links soon do the same things again and again, or come very close to it. `long_run`
simulates until a state recurs, and answers for that cycle; if there is none, for the later
half of so many iterations. That is a sample, within 1 % of the long run in 98 of 100 cases; where jobs get into
step and out of it only once in minutes it may be 10 % off. Its error falls with the root of the rounds.
`run_for` goes through a span of time, and over whole cycles in one step.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cranny.model.arrays import Floats, Ints
from cranny.model.errors import InputError
from cranny.model.validate import not_negative, positive, whole
from cranny.network.phases import segment_kernel
from cranny.network.phases.outcome import JobOutcome, PhasedRun, link_uses
from cranny.network.phases.pacing_period import TOLERANCE
from cranny.network.phases.phase_arrays import MARKED, NOW, WATCHING, PhaseArrays, initial_arrays
from cranny.network.phases.segments import PhasedJob

# Iterations of the longest job in which a cycle is looked for: as many as that number of segments allows.
SEGMENTS = 20_000
MOST_ROUNDS, FEWEST_ROUNDS = 400, 8
DRAWS = 1024  # at a time
MANY = int(np.iinfo(np.int64).max)


def long_run(
    phased_jobs: Sequence[PhasedJob],
    link_gbps: Sequence[float],
    *,
    rounds: int | None = None,
    tolerance: float = TOLERANCE,
    hold: bool = True,
    jitter: float = 0.0,
    rng: np.random.Generator | None = None,
) -> PhasedRun:
    """Return the outcome of jobs in the long run.

    `rounds` is how many iterations the longest job does at most, fewer the more jobs there are; `tolerance` by
    how much of a period a job may be late or early. With `hold`, agents let no iteration start early.
    `jitter` is the standard deviation of computing times, as a share of them.
    """
    simulation = _Simulation(phased_jobs, link_gbps, tolerance, hold, jitter, rng)
    if rounds is None:
        jobs = simulation.arrays.jobs
        segments = float(jobs["whole"].max() * ((jobs["past"] - jobs["first"]) / jobs["whole"]).sum())
        rounds = int(min(max(SEGMENTS / segments, FEWEST_ROUNDS), MOST_ROUNDS))
    rounds = whole(rounds, "rounds", least=2)
    for most in (rounds // 2, rounds):
        half = simulation.counters()
        if simulation.go(math.inf, most) == segment_kernel.CYCLE:
            return simulation.one_cycle()
    while (simulation.arrays.jobs["count"] == half.iterations).any():  # a job that is delayed for very long
        rounds *= 2
        if simulation.go(math.inf, rounds) == segment_kernel.CYCLE:
            return simulation.one_cycle()
    return simulation.outcome(half)


def run_for(
    phased_jobs: Sequence[PhasedJob],
    link_gbps: Sequence[float],
    seconds: float,
    *,
    tolerance: float = TOLERANCE,
    hold: bool = True,
    jitter: float = 0.0,
    rng: np.random.Generator | None = None,
    links: bool = False,
) -> PhasedRun:
    """Return the outcome of jobs in so many seconds, and with `links` the demand of these over time."""
    until_s = positive(seconds, "seconds to simulate")
    simulation = _Simulation(phased_jobs, link_gbps, tolerance, hold, jitter, rng, log=links)
    start = simulation.counters()
    if simulation.go(until_s) == segment_kernel.CYCLE:
        simulation.skip(until_s)
        simulation.go(until_s)
    return simulation.outcome(start)


class _Counters(NamedTuple):
    """What was counted up to some time."""

    time_s: float
    iterations: Ints
    above: Floats
    adjustments: Ints


class _Cycle(NamedTuple):
    """A cycle, the iterations of each job in it, and how often it was skipped."""

    seconds: float
    first: Ints  # (jobs,) iteration
    past: Ints  # (jobs,) the one after its last
    skipped: int


class _Simulation:
    """The arrays of running jobs, grown and filled with random draws as needed."""

    def __init__(
        self,
        phased_jobs: Sequence[PhasedJob],
        link_gbps: Sequence[float],
        tolerance: float,
        hold: bool,  # noqa: FBT001 - as in the arrays
        jitter: float,
        rng: np.random.Generator | None,
        *,
        log: bool = False,
    ) -> None:
        self._jitter = not_negative(jitter, "jitter")
        if jitter and rng is None:
            raise InputError("jitter needs a generator to draw it from")
        # A stream for each job: what is drawn for it does not depend on what the others do.
        self._streams = rng.spawn(len(phased_jobs)) if rng is not None and jitter else []
        draws, lines = DRAWS if self._streams else 0, 256 + 8 * len(phased_jobs) if log else 0
        self.arrays: PhaseArrays = initial_arrays(
            phased_jobs, link_gbps, tolerance, hold=hold, space=64, draws=draws, lines=lines
        )
        for job in range(len(self._streams)):
            self._draw(job)
        self._cycle: _Cycle | None = None

    def go(self, until_s: float, rounds: int = MANY) -> int:
        """Go on to a time or a number of iterations; say why it ended there: UNTIL, ROUNDS or CYCLE."""
        needs = segment_kernel.GROW, segment_kernel.DRAWS
        while (why := segment_kernel.advance(self.arrays, until_s, rounds)) in needs:
            if why == segment_kernel.DRAWS:
                for job in np.flatnonzero(self.arrays.jobs["drawn"] == DRAWS).tolist():
                    self._draw(job)
            else:
                times, log = self.arrays.times, self.arrays.log  # to be doubled
                self.arrays = self.arrays._replace(
                    times=np.concatenate((times, np.zeros_like(times)), axis=1),
                    log=np.concatenate((log, np.zeros_like(log))),
                )
        if why == segment_kernel.CYCLE:
            jobs, time_s = self.arrays.jobs, float(self.arrays.clock[NOW])
            at = np.array([segment_kernel.position(self.arrays, job, time_s) for job in range(len(jobs))])
            # A job at the very end of an iteration is where one at its start is.
            over = np.rint((at - jobs["marked_position"]) / jobs["whole"]).astype(np.int64)
            cycle_s = time_s - float(self.arrays.clock[MARKED])
            self._cycle = _Cycle(cycle_s, jobs["marked_count"] - over, jobs["count"].copy(), 0)
        return why

    def skip(self, until_s: float) -> None:
        """Go over as many whole cycles as fit into the time, unless what links carry is logged."""
        arrays, jobs, cycle = self.arrays, self.arrays.jobs, self._cycle
        arrays.at[WATCHING] = 0
        if cycle is None or len(arrays.log):
            return
        cycles = math.floor((until_s - arrays.clock[NOW]) / cycle.seconds)
        for moments in (jobs["since"], jobs["began"], jobs["up_since"], arrays.end, arrays.clock):
            moments[:] = moments + cycles * cycle.seconds
        jobs["above"] += cycles * (jobs["above"] - jobs["marked_above"])
        jobs["adjustments"] += cycles * (jobs["adjustments"] - jobs["marked_adjustments"])
        self._cycle = cycle._replace(skipped=cycles)

    def counters(self) -> _Counters:
        """Return what has been counted so far."""
        counted = [self.arrays.jobs[name].copy() for name in ("count", "above", "adjustments")]
        return _Counters(float(self.arrays.clock[NOW]), *counted)

    def one_cycle(self) -> PhasedRun:
        """Return the outcome of the jobs in the cycle that was just found."""
        jobs, cycle = self.arrays.jobs, self._cycle
        first = jobs["marked_count"] if cycle is None else cycle.first
        return self.outcome(
            _Counters(float(self.arrays.clock[MARKED]), first, jobs["marked_above"], jobs["marked_adjustments"])
        )

    def outcome(self, since: _Counters) -> PhasedRun:
        """Return the outcome of the jobs since some time."""
        arrays, cycle = self.arrays, self._cycle
        until_s = float(arrays.clock[NOW])
        outcomes = []
        for number, job in enumerate(arrays.jobs):
            first, past = int(since.iterations[number]), int(job["count"])
            counts = np.ones(past - first, dtype=np.int64)
            if cycle is not None:
                counts[cycle.first[number] - first : cycle.past[number] - first] += cycle.skipped
            outcomes.append(
                JobOutcome(
                    arrays.times[number, first:past].copy(),
                    counts,
                    max(until_s - max(since.time_s, float(job["shift"])), 0.0),
                    float(job["above"] - since.above[number]),
                    int(job["adjustments"] - since.adjustments[number]),
                )
            )
        links = link_uses(arrays) if len(arrays.log) else ()
        return PhasedRun(tuple(outcomes), None if cycle is None else cycle.seconds, until_s, links)

    def _draw(self, job: int) -> None:
        """Draw by how much the next down phases of a job take longer, or shorter."""
        self.arrays.factor[job] = np.maximum(1.0 + self._jitter * self._streams[job].standard_normal(DRAWS), 0.0)
        self.arrays.jobs["drawn"][job] = 0
