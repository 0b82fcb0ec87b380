"""What water-filling reads and writes: records of resources, jobs and uses, chained by their numbers."""

from typing import Any, NamedTuple

import numpy as np

from cranny.core.steady.flows import Ints

NONE = -1
NOT_QUEUED = -1

# Places in `Net.at`.
QUEUED = 0  # resources in the heap
CHANGED = 1  # jobs
FREE_USE = 2  # first of the uses that nobody needs
UPDATE = 3  # number of this one
COUNTERS = 4


# One record, one line of memory: looking at a use, job or resource takes all of it at once.
RESOURCE = np.dtype(
    [
        ("gbps", np.float64),  # capacity of a link, PAT of a switch
        ("level", np.float64),
        ("key", np.float64),  # no later than this, going up, the resource must be looked at
        ("sure", np.float64),  # in this update the level is not below, whatever happens above where we are
        ("queued_at", np.int32),  # place in the heap
        ("first_use", np.int32),
        ("update", np.int32),  # that `sure` is of
        ("", np.int32),
    ]
)
JOB = np.dtype(
    [
        ("most", np.float64),  # that the job would take
        ("rate", np.float64),
        ("was", np.float64),  # rate before this update, if the job is among those changed
        ("is_changed", np.int32),
        ("held_by", np.int32),  # link that holds the job at its rate; NONE if nothing but `most` does
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


class Net(NamedTuple):
    """Everything that water-filling reads and writes."""

    links: int  # resources from here on are switches
    resources: Any  # (resources,) of RESOURCE
    jobs: Any  # (jobs,) of JOB
    uses: Any  # (uses,) of USE
    heap: Ints  # (resources,)
    changed: Ints  # (jobs,)
    at: Ints  # (COUNTERS,)
