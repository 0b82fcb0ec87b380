"""Print digests of the job tables and summaries of every policy on several traces: equal lines, equal results.

To see whether a change keeps results, run it with both versions and compare what they print:
`PYTHONPATH=OLD/src python benchmarks/fingerprint.py titan netpack`, then the same with NEW/src. Without names it
goes through all policies. Why a job was skipped is text, not a result, and stays out; so do the older names of
such jobs and counts.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import polars as pl

import cranny

SMALL = cranny.Cluster.fat_tree(
    racks=4, machines_per_rack=4, gpus_per_machine=8, link_gbps=100, oversubscription=4.0
)
TINY = cranny.Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)  # for the policy `exact`
LARGE = cranny.Cluster.fat_tree(racks=64, machines_per_rack=8, gpus_per_machine=8, link_gbps=100)
TRACES: dict[str, dict[str, Any]] = {
    "philly": {"jobs": 300, "seed": 1, "load": 0.9},
    "itp": {"jobs": 300, "seed": 2, "load": 0.9},
    "acme": {"jobs": 200, "seed": 3, "load": 0.8},
}
NETWORKS = ("instant", "isolated", "steady", "phases")
# Policies that are replayed by compiled code, which only large traces reach.
COMPILED = ("titan", "best-fit", "best-fit-mapped", "consolidate-idle", "fragments-first", "gpu-balance", "random")


def digest(result: cranny.Result) -> str:
    """Return digests of the job table and of the summary, and the mean JCT to every digit."""
    older = {"left out": "skipped", "left-out": "skipped"}
    jobs = result.jobs.drop("reason").with_columns(pl.col("status").cast(pl.String).replace(older))
    summary = {key.replace("left_out", "skipped"): value for key, value in result.summary.items()}
    texts = (jobs.write_csv(), json.dumps(summary, sort_keys=True))
    table, figures = (hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts)
    return f"{table} {figures} {result.summary['mean_jct_s']!r}"


def lines(policy: str) -> Iterator[str]:
    """Yield a line for each trace and network."""
    for preset, how in TRACES.items():
        cluster, trace = SMALL, cranny.generate_trace(preset, gpus=SMALL.gpus, **how)
        if policy == "exact":
            cluster, trace = TINY, cranny.generate_trace(preset, jobs=15, seed=1, load=0.9, gpus=TINY.gpus)
        for network in NETWORKS:
            try:
                found = digest(cranny.simulate(cluster, trace, policy=policy, network=network, seed=5))
            except cranny.CrannyError as error:
                found = f"refused ({type(error).__name__})"
            yield f"{preset} {policy} {network} {found}"
    for preset in ("itp", "acme") if policy in COMPILED else ():
        trace = cranny.generate_trace(preset, jobs=60_000, seed=3, load=0.9, gpus=LARGE.gpus)
        yield f"compiled {preset} {policy} {digest(cranny.simulate(LARGE, trace, policy=policy, seed=0))}"


if __name__ == "__main__":
    for name in sys.argv[1:] or cranny.policies():
        for line in lines(name):
            print(line, flush=True)  # noqa: T201 - its output is what it is for
