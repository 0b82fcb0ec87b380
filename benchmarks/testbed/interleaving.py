"""Two jobs that share a link, with shifts and without: how long their iterations take.

Each computes for as long as it exchanges gradients, so that the link is always in use if they take turns. A third
job, which computes for nearly all of its time, may join them; or computing of one of them may take ever longer.
"""

import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.testbed.served import Summary, TrainingJob, served

COMPUTE_S, GRADIENT_MB = 0.2, 2.5  # which take 0.2 s on a link of 0.1 Gbps
JITTER = 0.01
DRIFT = 0.02  # of an iteration alone
SETTLE_S = 15.0  # in which periods follow what was measured at the start
FIRST = TrainingJob("first", COMPUTE_S, GRADIENT_MB, JITTER)
SECOND = TrainingJob("second", COMPUTE_S, GRADIENT_MB, JITTER)
LIGHT = TrainingJob("light", 0.25, 0.25, JITTER)


class Course(NamedTuple):
    """How two jobs trained, and then three if a third one joined."""

    two: tuple[Summary, ...]
    three: tuple[Summary, ...] = ()

    @property
    def mean_s(self) -> float:
        """Seconds of an iteration of the two jobs, on average."""
        return sum(each.mean_s for each in self.two) / len(self.two)

    @property
    def mean_of_three_s(self) -> float:
        """Seconds of an iteration of the three jobs, on average."""
        return sum(each.mean_s for each in self.three) / len(self.three)


def course(policy: str, seconds: float, *, joined_s: float = 0.0, drifts: bool = False) -> Course:
    """Let two jobs train under a policy, and after some seconds a third one with them.

    With `drifts`, iterations of the second one alone take 2 % longer in the end.
    """
    second = SECOND
    if drifts:
        grows_s = DRIFT * 2 * COMPUTE_S
        second = SECOND._replace(grows_by_s=grows_s, grows_for_s=seconds)
    with tempfile.TemporaryDirectory() as folder, served(policy, Path(folder)) as cluster:
        cluster.submit(FIRST, 0)
        cluster.started(FIRST)
        cluster.submit(second, 1)
        cluster.started(second)
        jobs = [FIRST, second]
        found: list[tuple[Summary, ...]] = []
        for more, lasts_s in ((None, seconds), (LIGHT, joined_s)):
            if not lasts_s:
                break
            if more is not None:
                jobs.append(more)
                cluster.submit(more, 2)
                cluster.started(more)
            time.sleep(SETTLE_S)
            since_s = time.monotonic()
            time.sleep(lasts_s)
            found.append(tuple([cluster.summary(job, since_s) for job in jobs]))
        return Course(*found)
