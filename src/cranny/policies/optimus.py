"""Optimus's placement: as few machines as suffice, the emptiest, with about as many workers on each.

Y. Peng et al., "Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters", EuroSys 2018, as
a baseline of NetPack (B. Zhao et al., ASPLOS 2024, Sec. 2.3 and 6.1). Jobs keep their size: how Optimus resizes
them is no part of it.

Symbols:

    k    machines of the job: the first of those sorted by free GPUs, as few as hold it

Departure: a machine with less than its even share free gives all that it has, and the others share the rest, so
that a job never waits while enough GPUs are free. A parameter server takes no GPU, so only workers are counted;
it sits beside rank 0.
"""

from itertools import accumulate

from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.ranked_fill import candidates, fill, ordered


class Optimus:
    """Divide a job evenly among the fewest machines with the most free GPUs."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Find k, then share the workers out."""
        found = candidates(job, view)
        order = ordered(found, -found.free)
        held = accumulate(free for _, free in order)
        k = next((count for count, gpus in enumerate(held, 1) if gpus >= job.gpus), 0)
        # From the machine with the fewest free GPUs up: whatever one cannot hold, those before it can.
        even: list[tuple[int, int]] = []
        left = job.gpus
        for sharing in range(k, 0, -1):
            machine, free = order[sharing - 1]
            share = min(free, left // sharing)
            even.append((machine, share))
            left -= share
        return fill(job, view, even[::-1], f"preferred: most free GPUs, evenly over k = {k}")

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the emptiest machine."""
        return range(size, gpus - 1, -1)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Optimus waits only when GPUs are short."""
        return lacks_gpus(job, view) or "nothing holds it up"
