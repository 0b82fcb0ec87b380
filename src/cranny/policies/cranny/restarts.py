"""Restarts: how long they take, and when changing a running job that can be resized is worth one."""

from cranny.core.accounting import Running
from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job

RESTARTS = 2.0  # that a stop or another size must pay: its own, and as much again for what else it delays
ROUNDING = 1e-9  # of two costs or times that count as equal


def restart_s(waiting: Waiting) -> float:
    """Return how long a waiting job restarts before it goes on; one that never ran starts at once."""
    return waiting.job.restart_s if waiting.attained_gpu_s else 0.0


def goes_on(running: Running, view: Snapshot) -> bool:
    """Say whether a running job is past its start and restart: a decision that undoes itself might never end."""
    return view.now_s - running.started_s > (running.submitted.restart_s if running.attained_gpu_s else 0.0)


def least_gain_s(job: Job, left_s: float) -> float:
    """Return how much sooner a job must end on other workers to be moved; without one, by more than rounding."""
    return max(RESTARTS * job.restart_s, ROUNDING * left_s)
