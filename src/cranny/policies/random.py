"""Random placement: the yardstick that every other policy should exceed."""

import numpy as np

from cranny.core.machine_set import members
from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.model.job import Job
from cranny.model.placement import Placement


class Random(WaitsForGpus):
    """Give a job any free GPUs, each equally likely."""

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self._rng = rng if rng is not None else np.random.default_rng(0)

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Draw GPUs without replacement, and ranks in the order of the draw."""
        available = view.available(job)
        free = [
            machine
            for groups in (available.in_use, available.idle)
            for size, group in enumerate(groups)
            for machine in members(group)
            for _ in range(size)
        ]
        if len(free) < job.gpus:
            return None
        drawn = self._rng.choice(len(free), size=job.gpus, replace=False)
        return view.placement(job, tuple(free[i] for i in drawn))
