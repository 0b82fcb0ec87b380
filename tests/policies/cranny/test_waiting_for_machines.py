"""A job waits for better machines than those that are free, but no longer than what that saves."""

import re

import pytest

from cranny.core.engine import Engine
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
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


def where_machines_are_in_use(until_s: float) -> tuple[Plan, str]:
    """Return what is done with a job of 8 GPUs, and why it waits.

    Two machines of four GPUs are in use until some time, and half of each of four others for long.
    """
    state = ClusterState(Cluster.fat_tree(6, 1, 4))
    busy = [Job(f"whole-{number}", 4, duration_s=until_s) for number in range(2)]
    busy += [Job(f"half-{number}", 2, duration_s=1e7) for number in range(4)]
    for machine, job in enumerate(busy):
        state.place(job, Placement((machine,) * job.gpus))
    wide = Job("wide", 8, "vgg16", "halving-doubling", duration_s=100_000.0)
    view, policy = state.snapshot(0.0, [Waiting(wide)]), Cranny()
    return policy.plan(view), policy.why_wait(wide, view)


def test_a_job_waits_as_long_as_it_says_that_better_machines_save() -> None:
    plan, why = where_machines_are_in_use(1.0)
    assert not plan.actions
    (less,) = re.findall(r"on fewer machines it takes ([\d,]+) s less", why)
    saves_s = float(less.replace(",", ""))
    assert saves_s > 10_000
    assert not where_machines_are_in_use(0.999 * saves_s)[0].actions
    assert [action.job_id for action in where_machines_are_in_use(1.001 * saves_s)[0].actions] == ["wide"]
