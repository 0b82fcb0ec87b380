"""HAS's jobs that come at once and can be resized, as numbers, with the machines that they share."""

from typing import NamedTuple

import numpy as np

from benchmarks.regret.paper_worlds import HasWorld
from cranny.policies._shared.heterogeneous.estimates import speed_on
from cranny.policies._shared.heterogeneous.problem import Floats, Ints, equal_s, exchange_s


class Sharing(NamedTuple):
    """Jobs, all there from the start, and machines with GPUs of one type each."""

    duration_s: Floats  # (jobs,)
    rate: Floats  # (jobs, machines) of a job, what one GPU does in a second
    gpus: Ints  # (machines,)
    between_s: Floats  # (jobs,) of all exchanges between machines, with very many workers
    restart_s: float
    equal_s: Floats  # (jobs,) completion times with equal shares, which fairness is measured by


def sharing(world: HasWorld, seed: int) -> Sharing:
    """Return the jobs and machines of a seed."""
    jobs, machines, problem = world.work(seed), world.cluster().machines, world.problem(seed)
    duration_s = np.array([job.duration_s or 0.0 for job in jobs])
    speed = np.array([[speed_on(job, machine.gpu_type) or 0.0 for machine in machines] for job in jobs])
    asked = np.array([job.gpus for job in jobs])
    return Sharing(
        duration_s,
        speed / (asked * duration_s)[:, None],
        np.array([machine.gpus for machine in machines]),
        exchange_s(problem, apart=True),
        world.restart_s,
        equal_s(problem),
    )
