"""What one decision of the service takes: a job of 10,000 ranks, and the end of a job while 50,000 wait."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import Budget, Measured, timed_ms
from cranny.core.engine import Engine
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.model.job import Job
from cranny.service.engines import build_policy, complete_setting
from cranny.service.job_records import JobRecords
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler

RANKS = 10_000
RACKS = 25  # of 64 machines with 8 GPUs
PENDING = 50_000
POLICIES = ("themis", "netpack")
SIZES = (1, 2, 4, 8, 16, 32)
EVENTS = 5
HERE = Path(__file__).parents[1]  # where the package `benchmarks` is found


def run() -> Measured:
    """Measure both; the memory is that of a process which makes nothing but the one decision."""
    metrics = _large_job()
    for policy in POLICIES:
        metrics[f"pending_ms_{policy}"] = pending_ms(policy)
    limits = {"ranks_s": 1.0, "ranks_mb": 300.0} | {f"pending_ms_{policy}": 100.0 for policy in POLICIES}
    return Measured(
        "service-decision", metrics, [Budget(name, metrics[name], limit) for name, limit in limits.items()]
    )


def _large_job() -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.service_decision", str(RANKS)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)  # noqa: S603 - ourselves
    if ran.returncode:
        raise CrannyError(f"service-decision: {ran.stderr.strip().splitlines()[-1]}")
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def large_job(ranks: int) -> dict[str, float]:
    """Let the service accept and place a job of so many ranks, once its policy is compiled."""
    scheduler = Scheduler(Cluster.fat_tree(RACKS, 64, 8), "run", Limits())
    scheduler.open(0.0)
    scheduler.switch({"name": "cranny"}, "bench", 0.0)
    for number, gpus in enumerate((16, 64, ranks), 1):
        began = time.process_time()
        scheduler.submit("bench", {"command": ["true"], "gpus": gpus, "model": "vgg16"}, None, float(number))
        scheduler.tick(number + 0.5)
        seconds = time.process_time() - began
    if scheduler.rows[-1].kind != "placed":
        raise CrannyError("service-decision: the large job was not placed")
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {"ranks_s": seconds, "ranks_mb": used_mb}


def pending_ms(policy: str) -> float:
    """Return the median time that a policy takes about the end of a job while many wait on a full cluster."""
    cluster, setting = Cluster.fat_tree(16, 8, 8), complete_setting({"name": policy})
    engine = Engine(ClusterState(cluster), build_policy(setting, JobRecords(cluster)))
    rng = np.random.default_rng(0)
    sizes, lengths_s = rng.choice(SIZES, PENDING).tolist(), rng.integers(600, 36_000, PENDING).tolist()
    engine.queue.fill(
        [
            Waiting(Job(id=f"job-{i}", gpus=gpus, model="vgg16", submit_s=i * 1e-3, duration_s=float(length_s)))
            for i, (gpus, length_s) in enumerate(zip(sizes, lengths_s, strict=True))
        ]
    )
    now_s = 1.0 + PENDING * 1e-3
    engine.tick(now_s)  # fills the cluster, and compiles
    took_ms = []
    for job_id in list(engine.state.running)[:EVENTS]:
        now_s += 1.0
        engine.state.release(job_id)
        while True:  # decision by decision: after one that changes something the policy is asked again
            view = engine.state.snapshot(now_s, engine.queue)
            each_ms, plan = timed_ms(lambda view=view: engine.policy.plan(view))  # type: ignore[misc]
            took_ms.append(each_ms)
            del view
            if not plan.actions:
                break
            engine.state.commit(plan, now_s)
            for action in plan.actions:
                engine.queue.take(action.job_id)
    return float(np.median(took_ms))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(large_job(int(sys.argv[1]))))
