"""What a job can be believed about itself: not more than its links and GPUs can do.

Others on its links are placed and shifted by what is learned of a job. So a report that is in order, but says more
than is possible, is learned from as if it said the most that is, and is counted.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cranny.channel.report import Record
from cranny.service.reports import WatchedAttempt

LEAST_ITERATION_S = 1e-4  # of computing: a GPU needs some 10 us to begin anything
MOST_SAMPLES_PER_S = 1e9  # of one rank
MOST_RATIO = 100.0  # by which a type of GPU is faster than another
SPARE = 2.0  # times what a link carries, since a cluster file may say less than that


class Believed(NamedTuple):
    """A record as it can be, and what was changed about it."""

    record: Record
    why: str = ""  # empty if nothing was


def believed(record: Record, watched: WatchedAttempt) -> Believed:
    """Return a record whose rank computes, and exchanges gradients, no faster than is possible."""
    why, count = "", record.iterations
    least_s = count * LEAST_ITERATION_S
    if 0.0 < record.compute_s < least_s:
        why = f"iterations that compute for less than {LEAST_ITERATION_S:g} s"
        longer_s = least_s - record.compute_s
        record = record._replace(compute_s=least_s, wall_s=max(record.wall_s + longer_s, least_s))
    most = MOST_SAMPLES_PER_S * record.compute_s
    if record.compute_s and record.samples > most:
        why = f"more than {MOST_SAMPLES_PER_S:g} samples a second of a GPU"
        record = record._replace(samples=most)
    most_bytes = SPARE * watched.bytes_per_s * record.wall_s / count
    if record.gradient_bytes is not None and record.gradient_bytes > most_bytes:
        why = f"more gradients than its links carry in an iteration, {most_bytes:.3g} bytes"
        record = record._replace(gradient_bytes=most_bytes)
    return Believed(record, why)


def believed_rate(rate: float, others: Sequence[float]) -> float:
    """Return how fast a type of GPU can be, beside other types."""
    if not others:
        return rate
    return min(max(rate, max(others) / MOST_RATIO), min(others) * MOST_RATIO)
