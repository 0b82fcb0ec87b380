"""Consolidation on idle machines: what Titan's paper measures as ElasticFlow.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters",
ICNP 2024, Sec. II-B and Fig. 1(b). Replaying the paper's trace shows that its baseline opens idle machines
first (334 machines used in the paper); true best fit is far tighter.
"""

from cranny.core.machine_set import lowest
from cranny.core.packing import machines_when_empty
from cranny.core.protocol import Drafter, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import counted


class ConsolidateIdle:
    """Use as few machines as the job needs in an empty cluster, idle ones first; otherwise wait."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Fill the roomiest machines; give up if that takes more machines than an empty cluster would."""
        available = view.available(job)
        idle, in_use = list(available.idle), list(available.in_use)
        ranks: list[int] = []
        for _ in range(machines_when_empty(job.gpus, view.cluster, view.eligible(job))):
            left = job.gpus - len(ranks)
            if not left:
                break
            groups = idle if any(idle) else in_use
            size = max((free for free, group in enumerate(groups) if group), default=0)
            if not size:
                return None
            machine = lowest(groups[size])
            groups[size] ^= 1 << machine
            ranks += [machine] * min(left, size)
        return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None

    def first_choices(self, gpus: int, size: int) -> range:  # noqa: ARG002 - whatever the job
        """Look for an idle machine, else for the roomiest."""
        return range(size, 0, -1)

    def drafter(self) -> Drafter:
        """Go on in the same way with the rest of a job, on no more machines than it needs."""
        from cranny.core.fast.greedy import greedy  # compiles, so it is imported only where it is used

        return greedy(fewest=True)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that the free GPUs are on too many machines, if that is why."""
        fewest = machines_when_empty(job.gpus, view.cluster, view.eligible(job))
        on = counted(fewest, "machine")
        idle = sum(view.available(job).idle_count)
        return lacks_gpus(job, view) or (
            f"wants {job.gpus} GPUs on {on}: only {idle} idle, and the free GPUs are scattered"
        )
