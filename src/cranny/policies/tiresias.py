"""Tiresias's placement: consolidate the jobs whose model has a skewed distribution of tensor sizes.

J. Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019, Sec. 3.3. Models
with one huge tensor suffer when their workers are apart, others hardly; so only the former are consolidated.
The order of the queue, 2D-LAS of Sec. 3.2, is "las" of `core.queue`.

Symbols:

    S_J          skew of a job's model: its largest gradient bucket over the mean bucket
    PACKLIMIT    above this skew a job is consolidated; here `skew_limit`

A consolidated job gets as few machines as it would in an empty cluster, or waits; the authors' simulator does
the same in its scheme "yarn". The others take free GPUs wherever they are, beginning with the machines that
have the fewest, so that fragments are used up.

Departure: the paper reads the skew off the messages of parameter servers, and learns PACKLIMIT from past jobs
with a linear classifier. We know the gradient buckets of each model, and take a constant limit.
"""

import math

from cranny.core.machine_set import lowest, members
from cranny.core.packing import machines_when_empty
from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import not_negative


class Tiresias:
    """Put jobs with skewed tensors on the fewest machines; the others fill fragments."""

    fragments_before_idle = False

    order = "las"

    def __init__(self, skew_limit: float = 1.5) -> None:
        never = skew_limit == math.inf  # consolidates no job
        self.skew_limit = skew_limit if never else not_negative(skew_limit, "tiresias: skew_limit")

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Compare S_J with PACKLIMIT and place the job accordingly."""
        skew = job.profile.skew
        consolidate = skew > self.skew_limit
        ranks = _consolidated(job, view) if consolidate else _fragments(job, view)
        if len(ranks) < job.gpus:
            return None
        verb = "consolidated" if consolidate else "not consolidated"
        return view.placement(job, tuple(ranks), note=f"{verb}: skew {skew:.2f}, limit {self.skew_limit:g}")

    def first_choices(self, gpus: int, size: int) -> range:
        """Look for the tightest machine for one worker, skewed or not; the skew decides about others."""
        return range(1, size + 1) if gpus == 1 else range(0)

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return that GPUs are short, or that they are on too many machines."""
        short = lacks_gpus(job, view)
        if short is not None or job.profile.skew <= self.skew_limit:
            return short or "can start now"
        count = machines_when_empty(job.gpus, view.cluster, view.eligible(job))
        where = "one machine" if count == 1 else f"{count} machines"
        return f"must be consolidated: {job.gpus} GPUs on {where}; the free GPUs are on more"


def _consolidated(job: Job, view: Snapshot) -> list[int]:
    """Fill the emptiest machines and end on the tightest that holds the rest, or give up."""
    available = view.available(job)
    groups = [in_use | idle for in_use, idle in zip(available.in_use, available.idle, strict=True)]
    ranks: list[int] = []
    for _ in range(machines_when_empty(job.gpus, view.cluster, view.eligible(job))):
        left = job.gpus - len(ranks)
        tightest = (free for free in range(left, len(groups)) if groups[free])
        emptiest = (free for free in range(min(left, len(groups)) - 1, 0, -1) if groups[free])
        free = next(tightest, 0) or next(emptiest, 0)
        if not left or not free:
            break
        machine = lowest(groups[free])
        groups[free] ^= 1 << machine
        ranks += [machine] * min(left, free)
    return ranks


def _fragments(job: Job, view: Snapshot) -> list[int]:
    """Take all free GPUs of the machines that have the fewest, idle machines last."""
    available = view.available(job)
    ranks: list[int] = []
    for groups in (available.in_use, available.idle):
        for free in range(1, len(groups)):
            for machine in members(groups[free]):
                if len(ranks) == job.gpus:
                    return ranks
                ranks += [machine] * min(free, job.gpus - len(ranks))
    return ranks
