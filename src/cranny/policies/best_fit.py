"""True best fit: the machine that a job fills most tightly; and the same with a map of ranks.

Titan's paper describes its ElasticFlow baseline as best fit, but its figures are those of `consolidate-idle`.
This is best fit as textbooks have it.
"""

from collections.abc import Sequence

from cranny.core.partition import split
from cranny.core.protocol import Drafter, WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import exchange_graph
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.machine_by_machine import in_use_or_idle, take_machines, tightest


class BestFit(WaitsForGpus):
    """Put a job on the machine with the least free GPUs that still holds it; split it only if none does."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the tightest machine for what is left of the job, else the emptiest one whole, and repeat."""
        ranks = take_machines(job.gpus, in_use_or_idle(view.available(job)), tightest)
        return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None

    def first_choices(self, gpus: int, size: int) -> Sequence[int]:
        """Look for the tightest machine, else for the emptiest."""
        return tightest(gpus, size)

    def drafter(self) -> Drafter:
        """Go on in the same way with the rest of a job."""
        from cranny.core.fast.greedy import greedy  # compiles, so it is imported only where it is used

        return greedy(fewest=False)


class BestFitMapped(BestFit):
    """Best fit's machines, with the ranks divided among them so that little crosses, as Titan divides them.

    Titan's paper does not have it. It separates what Titan gains by its choice of machines and by its map.
    """

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Choose machines as best fit does, then give each the ranks that exchange most with each other."""
        placement = super().place(job, view)
        if placement is None or len(placement.counts) == 1:
            return placement
        machines = [machine for machine, _ in placement.counts.most_common()]  # those with most ranks first
        found = split(exchange_graph(job), tuple(placement.counts[machine] for machine in machines))
        return view.placement(job, tuple([machines[part] for part in found.part]))
