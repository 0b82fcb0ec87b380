"""Advice: a log is sized up, replayed under a handful of policies, and one of them is recommended, or none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cranny.analysis.advise.comparison import SAME, Judge, PolicyComparison, PolicyRatio
from cranny.analysis.advise.policy_outcome import METRICS, PolicyOutcome
from cranny.analysis.advise.workload import Workload, stretch
from cranny.model.collective import DEFAULT_COLLECTIVE
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S
from cranny.policies import DEFAULT_POLICY
from cranny.run import run_many
from cranny.scenario import Scenario

CANDIDATES = (DEFAULT_POLICY, "best-fit-mapped", "titan", "netpack", "netpack-lean", "tiresias")
RESIZING = "has-resets"  # tried too where jobs are elastic or GPUs are mixed
SAMPLE = 2_000
ALL = "all"


@dataclass(frozen=True, slots=True, eq=False)
class Advice:
    """Which policy would suit a log."""

    trace: str
    cluster: str
    network: str
    collective: str
    whole_jobs: int  # of the log, of which `workload.jobs` were replayed
    carried: int  # of those replayed that ran already when the stretch of the log began; they are not compared
    restart_s: float
    by: Sequence[str]  # the metrics that decide
    workload: Workload
    ranking: Sequence[str]  # policies, the best first
    values: Mapping[str, Mapping[str, float]]  # of each policy: its metrics over the jobs that all ran
    outcomes: Mapping[str, PolicyOutcome]
    comparisons: Sequence[PolicyComparison]  # of the others with the best, in the order of the ranking
    failed: Mapping[str, str]  # policies that could not run, and why
    parts: int  # of the log that intervals are over; 0 if it has too few jobs

    @property
    def best(self) -> str:
        """The policy that is best by the numbers, clearly or not."""
        return self.ranking[0]

    @property
    def rivals(self) -> list[PolicyComparison]:
        """Policies that ran every job and are as good as the best, or do not differ from it beyond doubt."""
        return [each for each in self.comparisons if self.outcomes[each.policy].finished and _close(each.overall)]

    @property
    def clear(self) -> bool:
        """Whether the best policy is ahead of all others beyond doubt."""
        return bool(self.parts) and not self.rivals

    def facts(self) -> dict[str, Any]:
        """Return the advice as plain values, for JSON."""
        return {
            "recommended": self.best if self.clear else None,
            "first": self.best,
            "clear": self.clear,
            "not_distinguished": [each.policy for each in self.rivals],
            "trace": self.trace,
            "cluster": self.cluster,
            "network": self.network,
            "collective": self.collective,
            "restart_s": self.restart_s,
            "by": list(self.by),
            "jobs_in_log": self.whole_jobs,
            "jobs_running_before": self.carried,
            "parts": self.parts,
            "workload": self.workload.facts(),
            "policies": [{**self.outcomes[name].facts(), **self.values[name]} for name in self.ranking],
            "compared_with_first": [each.facts() for each in self.comparisons],
            "failed": dict(self.failed),
        }


def _close(lead: PolicyRatio) -> bool:
    """Say whether a policy is as good as the best, as far as one can tell."""
    return lead.low is None or lead.low <= 1.0 or lead.ratio < 1.0 + SAME


def candidates(workload: Workload) -> tuple[str, ...]:
    """Return the policies worth trying."""
    return (*CANDIDATES, RESIZING) if workload.may_resize else CANDIDATES


def advise(
    scenario: Scenario,
    policies: Sequence[str] = (),
    *,
    by: str = ALL,
    sample: int = SAMPLE,
    restart_s: float = RESTART_S,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Advice:
    """Replay the trace of a scenario under each of some policies and recommend one.

    At most `sample` consecutive jobs are replayed, all with 0. Jobs that do not say how long a restart takes lose
    `restart_s`. `by` is one metric, or all of them alike. `progress` is called with the number of policies done.
    """
    if by != ALL and by not in METRICS:
        raise unknown("metric", by, (*METRICS, ALL))
    whole = scenario.whole_trace
    if not len(whole):
        raise InputError(f"{whole.name}: has no jobs")
    trace, carried = stretch(whole, sample)
    workload = Workload.of(trace, scenario.cluster)
    compared = frozenset(trace.frame["job_id"][carried:])
    trace = trace.with_restarts(restart_s)
    names = tuple(policies) or candidates(workload)
    scenarios = replace(scenario, trace=trace, policy=names[0]).with_policies(names)
    found = run_many(scenarios, keep=PolicyOutcome.of, failed=_reason, processes=processes, progress=progress)
    outcomes = {each.policy: each for each in found if isinstance(each, PolicyOutcome) and each.job_ids}
    failed = {name: each for name, each in zip(names, found, strict=True) if isinstance(each, str)}
    if not outcomes:
        raise InputError(f"{whole.name}: no policy could run it: {next(iter(failed.values()), 'no job was done')}")
    judged = tuple(METRICS) if by == ALL else (by,)
    judge = Judge(list(outcomes.values()), judged, scenario.seed, compared)
    ranking = judge.ranking()
    return Advice(
        trace=whole.name,
        cluster=f"{scenario.cluster.describe()}; {scenario.cluster.describe_links()}",
        network=str(scenario.network),
        collective=scenario.collective or DEFAULT_COLLECTIVE,
        whole_jobs=len(whole),
        carried=carried,
        restart_s=restart_s,
        by=judged,
        workload=workload,
        ranking=ranking,
        values=judge.values,
        outcomes=outcomes,
        comparisons=[judge.compare(name, ranking[0]) for name in ranking[1:]],
        failed=failed,
        parts=judge.parts,
    )


def _reason(error: Exception) -> str:
    """Say why a policy could not run."""
    return str(error) or type(error).__name__
