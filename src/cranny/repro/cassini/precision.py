"""How fine the angles should be: Fig. 18, time against accuracy of the shifts.

Links carry two to four jobs of Table 3, drawn, as they come and with equal iteration times. Shifts are found with
angles as coarse as asked for and no finer, and judged on the exact curve of demand.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cranny.model.circle import Circle
from cranny.network.interleave.compatibility import Compatibility, compatibility
from cranny.network.interleave.unified_circle import FINEST_DEG, Search, curve
from cranny.report.confidence import Estimate, estimate
from cranny.repro.cassini.link_shapes import BATCH, EVEN, WORKERS, measured_circles
from cranny.repro.cassini.paper import DATA_PARALLEL, MODELS
from cranny.repro.cassini.setups import LINK_GBPS

PRECISIONS_DEG = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0)
RIGHT = 0.01  # of a score: shifts that come so near to the best are right
JOBS = (2, 4)  # on a link, from and to
REPEATS = 3


class AnglePrecision(NamedTuple):
    """Time and accuracy of shifts found with angles of one size, over all links."""

    degrees: float
    time_ms: Estimate  # of one link
    lost: Estimate  # of the best score
    right: float  # share of the links


def run_precision(links: int) -> list[AnglePrecision]:
    """Find shifts for the same links at every precision."""
    drawn = []
    for number in range(links):
        rng = np.random.default_rng([number, 3])
        models = rng.choice(DATA_PARALLEL, int(rng.integers(JOBS[0], JOBS[1] + 1))).tolist()
        batches = [MODELS[model].batches for model in models]
        jobs = [
            (model, int(rng.integers(low, high + 1))) for model, (low, high) in zip(models, batches, strict=True)
        ]
        # On every other link iterations take the same time.
        drawn.append(measured_circles(jobs, WORKERS, EVEN if number % 2 else BATCH))
    best = [
        max(_score(each, _found(each, degrees)[1]) for degrees in (FINEST_DEG, *PRECISIONS_DEG)) for each in drawn
    ]
    made = []
    for degrees in PRECISIONS_DEG:
        found = [_found(each, degrees) for each in drawn]
        scores = [_score(each, fit) for each, (_, fit) in zip(drawn, found, strict=True)]
        made.append(
            AnglePrecision(
                degrees,
                estimate([seconds * 1e3 for seconds, _ in found]),
                estimate([most - score for score, most in zip(scores, best, strict=True)]),
                float(np.mean([score >= most - RIGHT for score, most in zip(scores, best, strict=True)])),
            )
        )
    return made


def _found(circles: tuple[Circle, ...], degrees: float) -> tuple[float, Compatibility]:
    """Return the least CPU time of some tries, and what they found."""
    search = Search(precision_deg=degrees, angles_per_iteration=1)
    find: Callable[..., Compatibility] = compatibility.__wrapped__  # without its cache
    least_s = np.inf
    for _ in range(REPEATS):
        began = time.process_time()
        fit = find(circles, LINK_GBPS, search)
        least_s = min(least_s, time.process_time() - began)
    return float(least_s), fit


def _score(circles: tuple[Circle, ...], fit: Compatibility) -> float:
    return curve(circles, fit.shifts_s, fit.unified).score(LINK_GBPS)
