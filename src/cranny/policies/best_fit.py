"""True best fit: the machine that a job fills most tightly; and the same with a map of ranks.

Titan's paper describes its ElasticFlow baseline as best fit, but its figures are those of `consolidate-idle`.
This is best fit as textbooks have it.
"""

from collections.abc import Sequence

from cranny.core.protocol import Drafter, WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies._shared.machine_by_machine import in_use_or_idle, take_machines, tightest
from cranny.policies._shared.rank_map import mapped


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
    """Best fit's machines with Titan's map of ranks."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Choose machines as best fit does, then map the ranks."""
        return mapped(job, view, super().place(job, view))
