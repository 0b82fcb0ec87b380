"""Policies compared with each other on one log, with intervals from drawing its parts again and again."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cranny.analysis.advise.policy_outcome import METRICS, PolicyOutcome
from cranny.model.arrays import Floats, Ints
from cranny.model.errors import InputError

PARTS = 20  # consecutive parts of the log, with as many jobs each
LEAST_JOBS = 25  # of a part
LEAST_PARTS = 4  # for an interval
SAMPLES = 400
CONFIDENCE = 0.95
TINY = 1e-12  # in place of zero, of which no ratio can be formed
SAME = 0.01  # ratios closer to 1 are the same to a person


@dataclass(frozen=True, slots=True)
class PolicyRatio:
    """How many times as much another policy has of a metric, with a 95 % interval where there are enough jobs."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def certain(self) -> bool:
        """Whether the interval is on one side of 1."""
        return self.low is not None and self.high is not None and (self.low > 1.0 or self.high < 1.0)


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """One policy against the recommended one: each metric, and all judged metrics alike in one."""

    policy: str
    metrics: dict[str, PolicyRatio]
    overall: PolicyRatio

    def facts(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        leads = {name: asdict(lead) for name, lead in self.metrics.items()}
        return {"policy": self.policy, "metrics": leads, "overall": asdict(self.overall)}


class Judge:
    """Puts policies in order by some metrics: by the geometric mean of how many times the least each has."""

    def __init__(
        self, outcomes: Sequence[PolicyOutcome], by: Sequence[str], seed: int, jobs: frozenset[str]
    ) -> None:
        common = jobs.intersection(*(each.job_ids for each in outcomes))
        self.jobs = len(common)
        if not common:
            raise InputError("no job ran under every policy, so there is nothing to compare")
        self._by = tuple(by)
        self._outcomes = {each.policy: each.only(common) for each in outcomes}
        parts = min(PARTS, self.jobs // LEAST_JOBS)
        self.parts = parts if parts >= LEAST_PARTS else 0  # 0 if there are too few jobs to say how sure it is
        self.values = {name: each.values() for name, each in self._outcomes.items()}
        self._samples = {name: self._resampled(each, seed) for name, each in self._outcomes.items()}

    def _resampled(self, outcome: PolicyOutcome, seed: int) -> dict[str, Floats]:
        if not self.parts:
            return {}
        part: Ints = np.arange(self.jobs) * self.parts // self.jobs
        # The same draws for every policy, so that they are compared on the same days.
        drawn = np.random.default_rng(seed).multinomial(self.parts, np.full(self.parts, 1 / self.parts), SAMPLES)
        return outcome.resampled(part, drawn.astype(np.float64))

    def ranking(self) -> list[str]:
        """Return the policies, the best first; those that did not run every job last."""
        least = {metric: min(each[metric] for each in self.values.values()) for metric in self._by}

        def rank(policy: str) -> tuple[bool, float]:
            times = [_ratio(self.values[policy][metric], least[metric]) for metric in self._by]
            return not self._outcomes[policy].finished, _mean(times)

        return sorted(self.values, key=rank)

    def compare(self, policy: str, best: str) -> PolicyComparison:
        """Compare a policy with the best one."""
        mine, its, drawn = self.values[best], self.values[policy], {}
        leads = {}
        for metric in METRICS:
            ratio = _ratio(its[metric], mine[metric])
            if self.parts:
                ours, theirs = (np.maximum(self._samples[name][metric], TINY) for name in (best, policy))
                drawn[metric] = theirs / ours
                leads[metric] = _lead(ratio, drawn[metric])
            else:
                leads[metric] = PolicyRatio(ratio)
        overall = _mean([leads[metric].ratio for metric in self._by])
        if not self.parts:
            return PolicyComparison(policy, leads, PolicyRatio(overall))
        together = np.exp(np.mean([np.log(drawn[metric]) for metric in self._by], axis=0))
        return PolicyComparison(policy, leads, _lead(overall, together))


def _lead(ratio: float, drawn: Floats) -> PolicyRatio:
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail])
    return PolicyRatio(ratio, float(low), float(high))


def _ratio(value: float, other: float) -> float:
    return max(value, TINY) / max(other, TINY)


def _mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))
