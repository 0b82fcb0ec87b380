"""A job waits for better machines than those that are free, but no longer than what that saves."""

import pytest

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.model.plan import Start
from cranny.policies.cranny import Cranny

CLUSTER = Cluster.fat_tree(4, 1, 4)  # racks of one machine each


def partly_used(until_s: float) -> Engine:
    """Return a cluster of which three machines have a job of one GPU each until some time."""
    engine = Engine(ClusterState(CLUSTER), Cranny())
    # Two on each machine, of which one ends at once.
    jobs = [Job(f"long-{number}", 3, duration_s=10.0) for number in range(3)]
    short = [Job(f"small-{number}", 1, duration_s=until_s) for number in range(3)]
    for job in (job for pair in zip(jobs, short, strict=True) for job in pair):
        engine.handle(Submitted(job), 0.0)
    for job in jobs:
        engine.finish(job.id, 10.0)
    assert sorted(engine.state.snapshot(10.0).free.tolist()) == [3, 3, 3, 4]
    return engine


@pytest.mark.parametrize(("until_s", "starts"), [(100.0, False), (1_000_000.0, True)])
def test_a_job_larger_than_a_rack_waits_for_fewer_machines(until_s: float, *, starts: bool) -> None:
    engine = partly_used(until_s)
    wide = Job("wide", 8, "vgg16", "halving-doubling", submit_s=10.0, duration_s=100_000.0)
    done = engine.handle(Submitted(wide), 10.0)
    assert [each.job_id for each in done if isinstance(each, Start)] == (["wide"] if starts else [])
    if starts:
        return
    assert "on fewer machines it takes" in engine.why_wait("wide", 10.0)
    done = [action for number in range(3) for action in engine.finish(f"small-{number}", 100.0)]
    (start,) = [each for each in done if isinstance(each, Start)]
    assert len(set(start.placement.machines)) == 2
