"""What water-filling reads and writes: records of resources, jobs and uses, chained by their numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cranny.model.arrays import Ints

NONE = -1
NOT_QUEUED = -1

# Places in `RateArrays.at`.
QUEUED = 0  # resources in the heap
CHANGED = 1  # jobs
FREE_USE = 2  # first of the free uses
COUNTERS = 3

# After so many edits a line is drawn anew, so that rounding does not add up. A line that is not drawn has as many.
NOT_DRAWN = 1000

# One record, one line of memory: looking at a use, job or resource takes all of it at once.
#
# What a resource carries is a line between two rates: `still + rising * rate`, from `low` up to `high`. It is that
# of rates as they are assumed, with the jobs that the resource itself holds let go.
RESOURCE = np.dtype(
    [
        ("gbps", np.float64),  # capacity of a link, PAT of a switch
        ("level", np.float64),
        ("low", np.float64),
        ("high", np.float64),
        ("still", np.float64),
        ("rising", np.float64),
        ("risers", np.int32),  # uses that rise between `low` and `high`
        ("loose", np.int32),  # those of them whose job the resource does not hold
        ("edits", np.int32),  # of the line since it was drawn
        ("queued_at", np.int32),  # place in the heap
        ("first_use", np.int32),
        ("first_held", np.int32),  # first job that the link holds
    ]
)
QUEUE = np.dtype(
    [
        ("key", np.float64),  # no later than this, going up, the resource must be updated
        ("resource", np.int64),
    ]
)
JOB = np.dtype(
    [
        ("most", np.float64),  # that the job would take
        ("rate", np.float64),
        ("was", np.float64),  # rate before this update, if the job is among those changed
        ("is_changed", np.int32),
        ("held_by", np.int32),  # link that holds the job at its rate; NONE if nothing but `most` does
        ("next_held", np.int32),  # next job that the same link holds
        ("last_held", np.int32),  # the one before
        ("first_of", np.int32),  # the job's first use
        ("", np.int32),
    ]
)
USE = np.dtype(
    [
        ("job", np.int32),  # NONE if the use is free
        ("resource", np.int32),
        ("root", np.int32),
        ("leaf", np.int32),
        ("merged", np.float64),
        ("few", np.float64),
        ("many", np.float64),
        ("next_on", np.int32),  # next use of the same resource
        ("last_on", np.int32),  # the one before
        ("next_of", np.int32),  # next use by the same job, or next free one
        ("", np.int32),
    ]
)


class RateArrays(NamedTuple):
    """Everything that water-filling reads and writes."""

    links: int  # resources from here on are switches
    resources: Any  # (resources,) of RESOURCE
    jobs: Any  # (jobs,) of JOB
    uses: Any  # (uses,) of USE
    heap: Any  # (resources,) of QUEUE
    changed: Ints  # (jobs,)
    at: Ints  # (COUNTERS,)

    @classmethod
    def empty(cls, links: int, gbps: Sequence[float]) -> "RateArrays":
        """Return the arrays of resources, so many of which are links, without jobs."""
        resources = np.zeros(len(gbps), RESOURCE)
        resources["gbps"] = gbps
        resources["level"] = np.where(resources["gbps"] > 0.0, np.inf, 0.0)
        resources["first_use"] = resources["first_held"] = NONE
        resources["queued_at"] = NOT_QUEUED
        resources["edits"] = NOT_DRAWN
        at = np.zeros(COUNTERS, dtype=np.int64)
        at[FREE_USE] = NONE
        heap = np.zeros(len(gbps), QUEUE)
        return cls(links, resources, np.zeros(0, JOB), np.zeros(0, USE), heap, np.zeros(0, dtype=np.int64), at)
