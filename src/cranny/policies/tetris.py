"""Tetris's placement: the machines whose free resources align best with what the job demands.

R. Grandl et al., "Multi-Resource Packing for Cluster Schedulers", SIGCOMM 2014, Sec. 3.2, as a baseline of
NetPack (B. Zhao et al., ASPLOS 2024, Sec. 2.3 and 6.1).

Symbols:

    alignment score    free GPUs x demanded GPUs + weight x free bandwidth x demanded bandwidth, each as a share of
                       what the machine or its uplink has

A job that fits one machine demands no bandwidth. A larger one demands of an uplink the share of its time that it
would stream its gradient if it had the uplink to itself, and of a machine at most all GPUs.

`TetrisPerWorker` takes each worker for a task, as Tetris itself does: it demands a GPU and, in a job of several
workers, its share of an uplink, and leaves that much less on its machine. That workers on one machine would send
one stream is not known to Tetris.

Departure: Tetris packs tasks of many kinds of resources, and weighs packing against the shortest remaining time.
Here GPUs and uplinks are all there is, and the queue order decides which job is next.
"""

import numpy as np

from cranny.core.protocol import WaitsForGpus
from cranny.core.snapshot import Snapshot
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.validate import not_negative
from cranny.policies._shared.ranked_fill import Floats, Ints, candidates, capacities, fill, fill_by_worker, ordered


class Tetris(WaitsForGpus):
    """Prefer machines with the highest alignment score."""

    def __init__(self, link_weight: float = 1.0) -> None:
        self.link_weight = not_negative(link_weight, "tetris: link_weight")

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take the best aligned machines first."""
        found = candidates(job, view)
        has = capacities(view.cluster)
        size = has.gpus[found.machines]
        score = found.free / size * np.minimum(job.gpus / size, 1.0)
        if not found.whole:
            link_gbps = has.link_gbps[found.machines]
            free = np.maximum(1.0 - view.uplink_use_gbps[found.machines] / link_gbps, 0.0)
            stream_s = job.profile.grad_bytes * BITS_PER_BYTE / GIGA / link_gbps
            score += self.link_weight * free * stream_s / (stream_s + job.profile.iteration_s)
        return fill(job, view, ordered(found, -score), "preferred: highest alignment score")


class TetrisPerWorker(Tetris):
    """Put each worker, a task of its own, on the machine with the highest alignment score by then."""

    def place(self, job: Job, view: Snapshot) -> Placement | None:
        """Take what each worker demands off the free resources of its machine."""
        has = capacities(view.cluster)
        stream_s = job.profile.grad_bytes * BITS_PER_BYTE / GIGA / has.link_gbps
        demand = stream_s / (stream_s + job.profile.iteration_s) if job.gpus > 1 else np.zeros_like(stream_s)
        left = 1.0 - view.uplink_use_gbps / has.link_gbps

        def score(free: Ints, held: Ints) -> Floats:
            bandwidth = np.maximum(left - held * demand, 0.0)
            return -(free / has.gpus / has.gpus + self.link_weight * bandwidth * demand)

        return fill_by_worker(job, view, score, "preferred for each worker: highest alignment score")
