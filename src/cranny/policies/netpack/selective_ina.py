"""Step 4 of NetPack: which switches aggregate for which jobs.

The memory of a switch goes to the jobs with the highest aggregation efficiency (AE), until it is used up. For what
that is decided, and when, the paper leaves open; each reading is a rule:

    always      every switch for every job: no step 4, as the paper has it for its baselines
    per-job     all switches of a job or none, once, when it starts: Algorithm 2 speaks of jobs
    per-rack    each switch of a job by itself, once: z of Table 2 is of a job and a rack
    again       as per-rack, for all running jobs at every decision
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple, get_args

from cranny.model.placement import Aggregation
from cranny.policies._shared.ranked_fill import DECIMALS

InaRule = Literal["always", "per-job", "per-rack", "again"]
SPENT = 10.0**-DECIMALS  # Gbps that are none but for rounding
INA_RULES: tuple[InaRule, ...] = get_args(InaRule)


class Aggregated(NamedTuple):
    """A job with a parameter server: its rate, and the flows that come in at each rack's switch."""

    job_id: str
    rate_gbps: float
    flows: Counter[int]

    @property
    def efficiency(self) -> float:
        """AE: the rate times the flows that switches merge."""
        return round(self.rate_gbps * sum(self.flows.values()), DECIMALS)


def give_memory(
    jobs: Iterable[Aggregated], memory_gbps: Sequence[float], rule: InaRule
) -> dict[str, tuple[Aggregation, int | None]]:
    """Return the switches that aggregate for each job, and a rack whose switch has no memory left for it."""
    left_gbps = list(memory_gbps)
    decided: dict[str, tuple[Aggregation, int | None]] = {}
    for job in sorted(jobs, key=lambda job: -job.efficiency):
        full = [] if rule == "always" else [rack for rack in job.flows if left_gbps[rack] < SPENT]
        on: Collection[int] = job.flows
        if full:
            on = () if rule == "per-job" else [rack for rack in on if rack not in full]
        for rack in on:
            left_gbps[rack] -= job.rate_gbps
        decided[job.job_id] = (tuple(sorted(on)) or False, full[0]) if full else (True, None)
    return decided
