"""CPU milliseconds to share mixed clusters by has-exact and JPS, and how good the shares are.

Clusters and jobs are those of HAS/JPS (TPDS 2024). Their throughputs are in a figure only, but for four; so they
are drawn: a V100 does 1.98 to 2.34 times as much as a T4 (the two known ratios), a P100 is in between. The paper's
own time for JPS at 300 workers is 114.61 s (Table V, on a machine that it does not name).
"""

from statistics import mean

import numpy as np

from benchmarks.measure import Budget, Measured, reference, timed_ms
from cranny.policies._shared.heterogeneous.greedy_baselines import optimus_lb
from cranny.policies._shared.heterogeneous.problem import Problem, Shares
from cranny.policies.has.has_exact import has_exact
from cranny.policies.has.has_jps import has, jps
from cranny.repro.has.throughputs import counts, problem

SEEDS = 10
REFERENCE_WORKERS = 15
PAPER_JPS_300_S = 114.61
# Workers, jobs, and milliseconds that has-exact may take.
BUDGETS_MS = {(15, 4): 10.0, (30, 4): 50.0, (300, 4): 50.0, (1000, 50): 2000.0}


def draw(workers: int, jobs: int, seed: int) -> Problem:
    """Draw the throughputs of jobs."""
    rng = np.random.default_rng(seed)
    slow = np.exp(rng.uniform(np.log(100), np.log(2000), jobs))
    fast = slow * rng.uniform(1.98, 2.34, jobs)
    return problem(np.stack([slow, rng.uniform(slow, fast), fast], axis=1), counts(workers))


def run() -> Measured:
    """Share clusters of 15 to 1,000 workers; then a small one by the paper's pseudo-code, word by word."""
    metrics: dict[str, float] = {}
    budgets = []
    for (workers, jobs), limit in BUDGETS_MS.items():
        name = f"{workers}_{jobs}"
        found = _measure(metrics, workers, jobs, name)
        budgets.append(Budget(f"has_exact_ms_{name}", found, limit))
        if (workers, jobs) in ((15, 4), (30, 4)):
            budgets.append(Budget(f"proved_{name}", metrics[f"proved_{name}"], 1.0, at_least=True))
    budgets.append(Budget("worst_jct_over_jps_60_300_4", metrics["worst_jct_over_jps_60_300_4"], 1.0))
    large = draw(300, 4, seed=0)
    took_ms = min(timed_ms(lambda: jps(large, np.random.default_rng(0), samples=40))[0] for _ in range(5))
    metrics["jps_40_ms_300_4"] = took_ms
    metrics["jps_40_times_faster_than_paper"] = 1e3 * PAPER_JPS_300_S / took_ms
    budgets.append(
        Budget("jps_40_times_faster_than_paper", metrics["jps_40_times_faster_than_paper"], 100.0, at_least=True)
    )
    book = reference("has")
    if book is not None:
        small = draw(REFERENCE_WORKERS, 4, seed=0)
        slow_ms, slow_s = timed_ms(lambda: book.has_s(small))
        quick_ms, quick = min((timed_ms(lambda: has(small)) for _ in range(5)), key=lambda pair: pair[0])
        metrics["has_times_faster_than_reference"] = slow_ms / quick_ms
        metrics["has_jct_over_reference"] = quick.mean_jct_s / slow_s
        exact_ms = min(timed_ms(lambda: has_exact(small))[0] for _ in range(5))
        metrics["has_exact_times_faster_than_reference"] = slow_ms / exact_ms
    return Measured("has", metrics, budgets)


def _measure(metrics: dict[str, float], workers: int, jobs: int, name: str) -> float:
    """Add to the metrics what has-exact takes and gives on several clusters; return its worst best-of-three."""
    took_ms, gaps, proved, over = [], [], [], []
    for seed in range(SEEDS if jobs < 10 else 3):
        task = draw(workers, jobs, seed)
        runs = [timed_ms(lambda task=task: has_exact(task)) for _ in range(3)]  # type: ignore[misc]
        shares: Shares = runs[-1][1]
        took_ms.append(min(ms for ms, _ in runs))
        gaps.append(shares.gap or 0.0)
        proved.append(shares.proved)
        rivals = {
            "jps_60": jps(task, np.random.default_rng(seed), samples=60),
            "optimus_lb": optimus_lb(task),
        }
        over.append({rival: shares.mean_jct_s / other.mean_jct_s for rival, other in rivals.items()})
    metrics[f"has_exact_ms_{name}"] = max(took_ms)
    metrics[f"mean_has_exact_ms_{name}"] = mean(took_ms)
    metrics[f"proved_{name}"] = mean(proved)
    metrics[f"worst_gap_{name}"] = max(gaps)
    for rival in over[0]:
        metrics[f"jct_over_{rival}_{name}"] = mean(ratios[rival] for ratios in over)
    metrics[f"worst_jct_over_jps_60_{name}"] = max(ratios["jps_60"] for ratios in over)
    return max(took_ms)
