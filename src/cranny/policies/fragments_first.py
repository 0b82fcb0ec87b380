"""Fragments first: what Titan's paper measures as HiveD.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement ...", ICNP 2024, Sec. II-B and Fig. 1(b): scattered free
GPUs are used before anything else, and in the example a job of 4 takes the fragments of 3 and 1 that it fills
completely. Hence the rule: the largest fragment that the job fills, again and again; if the rest is smaller
than every fragment, the roomiest; idle machines last. Ranks follow in order, without regard to traffic.

Fig. 1(b) does not show what becomes of a rest that is smaller than every fragment. On the paper's trace the
roomiest fragment gives 165 machines in use and the tightest 161; the paper reports 168.
"""

from collections.abc import Sequence

from cranny.core.machine_set import lowest
from cranny.core.protocol import Drafter, WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement


class FragmentsFirst(WaitsForGpus):
    """Fill fragments of non-idle machines exactly, however many machines that takes."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take fragments, then idle machines, until every rank has a GPU."""
        available = view.available(job)
        ranks: list[int] = []
        for groups in (list(available.in_use), list(available.idle)):
            while len(ranks) < job.gpus:
                left = job.gpus - len(ranks)
                size = next((free for free in range(min(left, len(groups) - 1), 0, -1) if groups[free]), None)
                if size is None:
                    size = next((free for free in range(len(groups) - 1, left, -1) if groups[free]), None)
                if size is None:
                    break
                machine = lowest(groups[size])
                groups[size] ^= 1 << machine
                ranks += [machine] * min(left, size)
        return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None

    def first_choices(self, gpus: int, size: int) -> Sequence[int]:
        """Look for the largest fragment that the job fills, then for the roomiest, then for an idle machine."""
        fills = min(gpus, size - 1)
        return (*range(fills, 0, -1), *range(size - 1, fills, -1), size)

    def drafter(self) -> Drafter:
        """Go on in the same way with the rest of a job."""
        from cranny.core.fast.greedy import greedy  # compiles, so it is imported only where it is used

        return greedy(fewest=False)
