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

from cranny.core.packing import machines_when_empty
from cranny.core.protocol import lacks_gpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import not_negative
from cranny.policies._shared.machine_by_machine import in_use_or_idle, take_machines, tightest
from cranny.policies._shared.rank_map import mapped


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
        available = view.available(job)
        if consolidate:  # fill the emptiest machines and end on the tightest that holds the rest, or give up
            most = machines_when_empty(job.gpus, view.cluster, view.eligible(job))
            ranks = take_machines(job.gpus, in_use_or_idle(available), tightest, most)
        else:  # use up the machines that have the fewest GPUs free, idle machines last
            ranks = take_machines(job.gpus, available.in_use, _smallest)
            ranks += take_machines(job.gpus - len(ranks), available.idle, _smallest)
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


class TiresiasMapped(Tiresias):
    """The same machines with Titan's map of ranks."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Choose machines as before, then map the ranks."""
        return mapped(job, view, super().place(job, view))


def _smallest(gpus: int, size: int) -> range:  # noqa: ARG001 - whatever the job
    """Want the machine with the fewest free GPUs."""
    return range(1, size + 1)
