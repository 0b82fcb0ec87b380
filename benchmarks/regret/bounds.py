"""What no policy can go below: in each metric, whatever else it gives up for it, and in all metrics together.

**Each metric alone.** No job completes sooner than it runs alone, with all the workers that it can have, on the
fastest GPUs; if no machine can hold it, all its gradients cross the link of some machine in each iteration. So
mean and p99 JCT and slowdown are at least those of such times. All jobs together complete no sooner than if the
whole cluster did them one at a time (`one_by_one`); where types of GPU differ, work is counted in prices of GPUs,
of which any hold. A machine-hour gives no more than a full machine does, and fairness is at most 1.

**All metrics together.** At least the largest of these ratios; where a few jobs come at once and can be resized,
that of `shares_bound`, but only for one seed: of several seeds another metric may be the worst in each.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import NamedTuple, TypeGuard

import numpy as np

from benchmarks.regret.judgement import Row, best_costs
from benchmarks.regret.measures import SHORT_S
from benchmarks.regret.one_by_one import one_by_one_s
from benchmarks.regret.paper_worlds import HasWorld
from benchmarks.regret.shares_bound import MOST_JOBS, joint_bound
from benchmarks.regret.sharing import sharing
from benchmarks.regret.world import Contender, World
from cranny.core.traffic import BITS_PER_BYTE, GIGA
from cranny.model.arrays import Floats
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.estimates import speed_on
from cranny.policies._shared.heterogeneous.instance import max_gpus
from cranny.policies._shared.resize import elastic
from cranny.sim.metrics import SECONDS_PER_HOUR

COMMUNICATES = ("isolated", "steady")  # networks in which a job on several machines is slower than on one


class RowBound(NamedTuple):
    """Ratios to the best other policies that no policy is below in a world."""

    worst: float  # cell
    mean: float  # over cells; one without a bound counts as 0
    each: Mapping[str, float]  # metric alone


def row_bound(row: Row, own: Contender, traces: Path | None) -> RowBound:
    """Return the bound for the seeds of the judged policy; of the ratios of several, the geometric mean."""
    world, seeds = row.world, row.measures.get(own, ())
    found = [_seed_bound(world, seed, traces, best_costs(row, own, seed)) for seed in seeds]
    if len(found) == 1:
        return found[0]
    shared = [metric for metric in world.metrics if found and all(metric in bound.each for bound in found)]
    each = {metric: geometric_mean([bound.each[metric] for bound in found]) for metric in shared}
    return RowBound(max(each.values(), default=0.0), sum(each.values()) / len(world.metrics), each)


def _seed_bound(world: World, seed: int, traces: Path | None, best: Mapping[str, float]) -> RowBound:
    """Return the bound for what the best other policies have, each metric so that less is better."""
    alone = {
        metric: value / best[metric]
        for metric, value in lower_bounds(world, seed, traces).items()
        if best.get(metric)
    }
    if comes_at_once(world) and best.keys() >= {*world.metrics}:
        joint = joint_bound(sharing(world, seed), best)
        each = {metric: max(value, alone.get(metric, 0.0)) for metric, value in joint.each.items()}
        return RowBound(max(joint.worst, *each.values()), max(joint.mean, sum(each.values()) / len(best)), each)
    return RowBound(max(alone.values(), default=0.0), sum(alone.values()) / max(1, len(best)), alone)


def comes_at_once(world: World) -> TypeGuard[HasWorld]:
    """Say whether a few jobs that can be resized come at once."""
    return isinstance(world, HasWorld) and not world.load and world.jobs <= MOST_JOBS


def lower_bounds(world: World, seed: int, traces: Path | None) -> dict[str, float]:
    """Return a value for each metric that no policy is below, each so that less is better."""
    scenario = world.scenario(Contender("best-fit"), seed, traces)
    jobs, cluster = list(scenario.jobs()), scenario.cluster
    speed = np.array([[speed_on(job, machine.gpu_type) or 0.0 for machine in cluster.machines] for job in jobs])
    duration_s = np.array([job.duration_s or 0.0 for job in jobs])
    crossing_s = np.array([_crossing_s(job, cluster) for job in jobs]) * (scenario.network in COMMUNICATES)
    work = np.array([job.gpus for job in jobs]) * (duration_s + crossing_s)  # in seconds of a GPU of speed 1
    fastest_s = work / [_most_speed(job, row, cluster) for job, row in zip(jobs, speed, strict=True)]
    one_by_one = max(_one_by_one_s(jobs, work, speed, cluster), float(fastest_s.sum()))
    machine_s = work / (speed * [machine.gpus for machine in cluster.machines]).max(axis=1)
    found = {
        "machine_hours": float(machine_s.sum()) / SECONDS_PER_HOUR,
        "mean_jct_s": one_by_one / len(jobs),
        "p99_jct_s": float(np.quantile(fastest_s, 0.99)),
        "mean_slowdown": float((np.maximum(fastest_s, SHORT_S) / np.maximum(duration_s, SHORT_S)).mean()),
        "fairness": 1.0,
    }
    return {metric: value for metric, value in found.items() if metric in world.metrics}


def _crossing_s(job: Job, cluster: Cluster) -> float:
    """Return for how long a job communicates at the least if no machine can hold it."""
    held = max(machine.gpus for machine in cluster.machines)
    if job.gpus <= held or elastic(job) or job.tp * job.pp > 1:
        return 0.0
    gbps = max(cluster.uplink_gbps[: len(cluster.machines)])
    iterations = (job.duration_s or 0.0) / job.profile.iteration_s
    return iterations * job.profile.grad_bytes * BITS_PER_BYTE / (gbps * GIGA)


def _most_speed(job: Job, speed: Floats, cluster: Cluster) -> float:
    """Return the speed of a job with all the workers that it can have, on the GPUs that are fastest for it."""
    left, total = max_gpus(job), 0.0
    for machine in np.argsort(-speed).tolist():
        count = min(left, cluster.machines[machine].gpus)
        left, total = left - count, total + count * float(speed[machine])
        if not left:
            break
    return total


def _one_by_one_s(jobs: Sequence[Job], work: Floats, speed: Floats, cluster: Cluster) -> float:
    """Return the sum of completion times, one job at a time, for the better of two sets of prices.

    A GPU has a price a second, all together 1. A job pays at least its work on the GPUs that are cheapest for it,
    and all jobs together pay at most 1 a second.
    """
    gpus = np.array([machine.gpus for machine in cluster.machines])
    submit_s = [job.submit_s for job in jobs]
    found = []
    for price in (np.ones(len(gpus)), speed.mean(axis=0)):
        cost = np.divide(price / (price @ gpus), speed, out=np.full(speed.shape, np.inf), where=speed > 0)
        found.append(one_by_one_s(submit_s, (work * cost.min(axis=1)).tolist()))
    return max(found)
