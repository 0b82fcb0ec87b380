"""What the phase-level kernels read and write: records of segments, links and jobs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cranny.model.arrays import Floats, Ints
from cranny.model.errors import InputError
from cranny.model.validate import positive
from cranny.network.phases.segments import PhasedJob

WAITING = -1  # in the place of a segment: the job waits for the start of its period

# Places in `PhaseArrays.at`.
STAMP = 0  # number of the last sharing
LOGGED = 1  # lines of the log
WATCHING = 2  # 1 while a cycle is looked for
STEPS = 3  # iterations of the longest job since the mark
LIMIT = 4  # and how many of them until the next mark
COUNTERS = 5

# Places in `PhaseArrays.clock`.
NOW = 0
MARKED = 1  # when the mark was set; less than zero before
CLOCKS = 2

# Segments are numbered through, job by job; their uses of links likewise.
SEGMENT = np.dtype(
    [
        ("job", np.int64),
        ("seconds", np.float64),  # alone
        ("gbps", np.float64),  # on the busiest link; 0 in a down phase
        ("begin", np.float64),  # seconds from the start of the iteration, alone
        ("first_use", np.int64),
        ("past_use", np.int64),
    ]
)
USE = np.dtype([("link", np.int64), ("gbps", np.float64), ("share", np.float64)])  # share of the segment's gbps
LINK = np.dtype(
    [
        ("gbps", np.float64),  # capacity
        ("first_on", np.int64),  # place in `PhaseArrays.on`
        ("past_on", np.int64),
        ("demand", np.float64),  # Gbps
        ("contended", np.int64),  # 1 if the demand is above the capacity
        ("stamp", np.int64),  # of the last sharing that looked at it
        ("unused", np.float64),  # Gbps
        ("weight", np.float64),  # of the jobs that still rise, for each Gbps of theirs
    ]
)
JOB = np.dtype(
    [
        ("first", np.int64),  # segment
        ("past", np.int64),
        ("whole", np.float64),  # seconds of an iteration alone
        ("shift", np.float64),
        ("period", np.float64),  # 0 for a job without an agent
        ("segment", np.int64),  # or WAITING
        ("left", np.float64),  # seconds of the segment, alone, at `since`
        ("since", np.float64),
        ("speed", np.float64),  # share of its demand that it gets; 1 while it computes
        ("rate", np.float64),
        ("stamp", np.int64),  # of the last sharing that looked at it
        ("began", np.float64),  # the iteration
        ("up_since", np.float64),
        ("drawn", np.int64),
        ("count", np.int64),  # iterations done
        ("above", np.float64),  # gigabits demanded above capacity
        ("adjustments", np.int64),
        # The same at the mark, an earlier start of the longest job's iteration.
        ("marked_position", np.float64),  # in the iteration
        ("marked_offset", np.float64),  # since the start of the period
        ("marked_waits", np.int64),
        ("marked_count", np.int64),
        ("marked_above", np.float64),
        ("marked_adjustments", np.int64),
    ]
)
# When a job came to a segment or changed its speed; the segment is -1 - job for one that waits.
LINE = np.dtype([("time", np.float64), ("segment", np.int64), ("speed", np.float64)])


class PhaseArrays(NamedTuple):
    """The state of running jobs on links."""

    segments: Any  # (segments,) of SEGMENT
    uses: Any  # (uses,) of USE
    links: Any  # (links,) of LINK
    on: Ints  # (uses,) segments that use a link, link by link
    jobs: Any  # (jobs,) of JOB
    end: Floats  # (jobs,) of the segment, at its present speed
    factor: Floats  # (jobs, draws) of the next down phases
    times: Floats  # (jobs, space) seconds of each iteration
    log: Any  # (lines,) of LINE
    reached_links: Ints  # (links,) that are shared anew
    reached_jobs: Ints  # (jobs,) that share them
    clock: Floats  # (CLOCKS,)
    at: Ints  # (COUNTERS,)
    longest: int  # the job by whose iterations a cycle is looked for
    tolerance: float  # of a period, by which an iteration may start late or early
    hold: bool  # whether an iteration that would start early waits


def initial_arrays(
    phased_jobs: Sequence[PhasedJob],
    link_gbps: Sequence[float],
    tolerance: float,
    *,
    hold: bool,
    space: int,
    draws: int,
    lines: int,
) -> PhaseArrays:
    """Return jobs on links at time 0, when every job waits for its shift to pass."""
    if not phased_jobs:
        raise InputError("there is no job to simulate")
    segments, uses = _segments(phased_jobs)
    jobs = np.zeros(len(phased_jobs), dtype=JOB)
    jobs["past"] = np.cumsum([len(phased_job.segments) for phased_job in phased_jobs])
    jobs["first"][1:] = jobs["past"][:-1]
    jobs["whole"] = [phased_job.iteration_s for phased_job in phased_jobs]
    jobs["shift"] = jobs["left"] = jobs["began"] = [phased_job.shift_s for phased_job in phased_jobs]
    jobs["period"] = [phased_job.period_s for phased_job in phased_jobs]
    jobs["segment"] = WAITING
    jobs["speed"] = 1.0
    links, on = _links(segments, uses, link_gbps)
    at = np.zeros(COUNTERS, dtype=np.int64)
    at[WATCHING] = draws == 0
    return PhaseArrays(
        segments,
        uses,
        links,
        on,
        jobs,
        end=jobs["shift"].copy(),
        factor=np.ones((len(jobs), draws)),
        times=np.zeros((len(jobs), space)),
        log=np.zeros(lines, dtype=LINE),
        reached_links=np.zeros(len(links), dtype=np.int64),
        reached_jobs=np.zeros(len(jobs), dtype=np.int64),
        clock=np.array([0.0, -1.0]),
        at=at,
        longest=int(jobs["whole"].argmax()),
        tolerance=tolerance,
        hold=hold,
    )


def _segments(phased_jobs: Sequence[PhasedJob]) -> tuple[Any, Any]:
    """Lay out the segments of jobs and what these use."""
    rows: list[tuple[int, float, float, float, int, int]] = []
    uses: list[tuple[int, float, float]] = []
    for job, phased_job in enumerate(phased_jobs):
        begin_s = 0.0
        for segment in phased_job.segments:
            first = len(uses)
            uses += [(link, gbps, gbps / segment.gbps) for link, gbps in segment.uses]
            rows.append((job, segment.seconds, segment.gbps, begin_s, first, len(uses)))
            begin_s += segment.seconds
    return np.array(rows, dtype=SEGMENT), np.array(uses, dtype=USE)


def _links(segments: Any, uses: Any, link_gbps: Sequence[float]) -> tuple[Any, Ints]:
    """Lay out links, and the segments that use each of them."""
    links = np.zeros(len(link_gbps), dtype=LINK)
    links["gbps"] = [positive(gbps, f"the capacity of link {link}") for link, gbps in enumerate(link_gbps)]
    if len(uses) and not 0 <= uses["link"].min() <= uses["link"].max() < len(links):
        raise InputError(f"a circle is on a link that is none of the {len(links)} there are")
    of = np.repeat(np.arange(len(segments)), segments["past_use"] - segments["first_use"])
    order = np.argsort(uses["link"], kind="stable")
    edges = np.searchsorted(uses["link"][order], np.arange(len(links) + 1))
    links["first_on"], links["past_on"] = edges[:-1], edges[1:]
    return links, of[order]
