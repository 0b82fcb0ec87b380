"""What Titan's paper measures as ElasticFlow and HiveD: consolidation on idle machines, and fragments first.

J. Fang et al., "Non-Idle Machine-Aware Worker Placement for Efficient Distributed Training in GPU Clusters",
ICNP 2024, Sec. II-B and Fig. 1(b).

`ConsolidateIdle`: replaying the paper's trace shows that its ElasticFlow opens idle machines first (334 machines
used in the paper); true best fit is far tighter.

`FragmentsFirst`: scattered free GPUs are used before anything else, and in the example a job of 4 takes the
fragments of 3 and 1 that it fills completely. Hence the rule: the largest fragment that the job fills, again and
again; if the rest is smaller than every fragment, the roomiest; idle machines last. Ranks follow in order, without
regard to traffic. Fig. 1(b) does not show what becomes of a rest that is smaller than every fragment. On the
paper's trace the roomiest fragment gives 165 machines in use and the tightest (`tightest_rest`) 161; the paper
reports 168.

That ranks follow in order rests on this example alone, whose cost would be the same in any order: whichever worker
is alone exchanges K/2 and K/4, twice. `ConsolidateIdleMapped` and `FragmentsFirstMapped` map them as Titan does.
"""

from collections.abc import Sequence

from cranny.core.packing import machines_when_empty
from cranny.core.protocol import Drafter, WaitsForGpus, lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import counted, yes_or_no
from cranny.policies._shared.machine_by_machine import roomiest, take_machines
from cranny.policies._shared.rank_map import mapped


class ConsolidateIdle:
    """Use as few machines as the job needs in an empty cluster, idle ones first; otherwise wait."""

    fragments_before_idle = False

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Fill the roomiest machines; give up if that takes more machines than an empty cluster would."""
        available = view.available(job)
        most = machines_when_empty(job.gpus, view.cluster, view.eligible(job))
        ranks = take_machines(job.gpus, available.idle, roomiest, most)
        ranks += take_machines(job.gpus - len(ranks), available.in_use, roomiest, most - len(set(ranks)))
        return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for an idle machine, else for the roomiest."""
        return roomiest(gpus, size)

    def drafter(self) -> Drafter:
        """Go on in the same way with the rest of a job, on no more machines than it needs."""
        from cranny.core.fast.greedy import greedy  # compiles, so it is imported only where it is used

        return greedy(fewest=True)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Say that the free GPUs are on too many machines, if that is why."""
        on = counted(machines_when_empty(job.gpus, view.cluster, view.eligible(job)), "machine")
        idle = sum(view.available(job).idle_count)
        return lacks_gpus(job, view) or (
            f"wants {job.gpus} GPUs on {on}: only {idle} idle, and the free GPUs are scattered"
        )


class ConsolidateIdleMapped(ConsolidateIdle):
    """The same machines with Titan's map of ranks."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Choose machines as before, then map the ranks."""
        return mapped(job, view, super().place(job, view))


class FragmentsFirst(WaitsForGpus):
    """Fill fragments of non-idle machines exactly, however many machines that takes."""

    fragments_before_idle = False

    def __init__(self, *, tightest_rest: bool = False) -> None:
        self.tightest_rest = yes_or_no(tightest_rest, "fragments-first: tightest_rest")

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take fragments, then idle machines, until every rank has a GPU."""
        available = view.available(job)
        ranks = take_machines(job.gpus, available.in_use, self._wanted)
        ranks += take_machines(job.gpus - len(ranks), available.idle, self._wanted)
        return view.placement(job, tuple(ranks)) if len(ranks) == job.gpus else None

    def first_choices(self, gpus: int, size: int) -> Sequence[int]:
        """Look for the largest fragment that the job fills, then for the roomiest, then for an idle machine."""
        return (*self._wanted(min(gpus, size - 1), size - 1), size)

    def drafter(self) -> Drafter:
        """Go on in the same way with the rest of a job."""
        from cranny.core.fast.greedy import greedy  # compiles, so it is imported only where it is used

        return greedy(fewest=False)

    def _wanted(self, gpus: int, size: int) -> Sequence[int]:
        """Want the largest fragment that is filled, else the roomiest, or the tightest."""
        larger = range(gpus + 1, size + 1)
        return (*range(gpus, 0, -1), *(larger if self.tightest_rest else reversed(larger)))


class FragmentsFirstMapped(FragmentsFirst):
    """The same machines with Titan's map of ranks."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Choose machines as before, then map the ranks."""
        return mapped(job, view, super().place(job, view))
