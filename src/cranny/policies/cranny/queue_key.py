"""The order of the queue: a job may be passed by others that come later, the longer and larger it is the more."""

import math

from cranny.model.job import Job


def queue_key(job: Job, left_s: float, patience: float) -> float:
    """Return what the queue is sorted by, of a job that still runs so long on one machine."""
    return job.submit_s + patience * left_s * math.sqrt(job.gpus)
