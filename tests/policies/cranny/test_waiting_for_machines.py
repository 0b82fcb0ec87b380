"""A job waits for better machines than those that are free, but no longer than what that saves."""

import re

import pytest

from cranny.core.engine import Engine
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.model.placement import Placement
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


WIDE = Job("wide", 8, "vgg16", "halving-doubling", duration_s=100_000.0)


def machines_in_use(until_s: float) -> ClusterState:
    """Return machines of four GPUs, of which two are in use until some time, and half of each of four for long."""
    state = ClusterState(Cluster.fat_tree(6, 1, 4))
    busy = [Job(f"whole-{number}", 4, duration_s=until_s) for number in range(2)]
    busy += [Job(f"half-{number}", 2, duration_s=1e7) for number in range(4)]
    for machine, job in enumerate(busy):
        state.place(job, Placement((machine,) * job.gpus))
    return state


def started(policy: Cranny, view: Snapshot) -> list[str]:
    return [action.job.id for action in policy.plan(view).actions if isinstance(action, Start)]


def test_a_job_waits_as_long_as_it_says_that_better_machines_save() -> None:
    policy, view = Cranny(), machines_in_use(1.0).snapshot(0.0, [Waiting(WIDE)])
    assert not started(policy, view)
    (less,) = re.findall(r"on fewer machines it takes ([\d,]+) s less", policy.why_wait(WIDE, view))
    saves_s = float(less.replace(",", ""))
    assert saves_s > 10_000
    for share, starts in ((0.999, []), (1.001, ["wide"])):
        assert started(Cranny(), machines_in_use(share * saves_s).snapshot(0.0, [Waiting(WIDE)])) == starts


def test_a_job_waits_for_the_machines_kept_for_it_and_takes_no_others_before_it_gives_up() -> None:
    state, policy = machines_in_use(10_000.0), Cranny()
    assert not started(policy, state.snapshot(0.0, [Waiting(WIDE)]))
    due_s = policy.next_s(state.snapshot(0.0, [Waiting(WIDE)]))
    assert due_s > 10_000.0
    for number in range(4):
        state.release(f"half-{number}")  # sooner than expected
    later = state.snapshot(20.0, [Waiting(WIDE)])
    assert not started(policy, later)
    assert "on fewer machines it takes" in policy.why_wait(WIDE, later)
    assert policy.next_s(later) == due_s
    assert started(policy, state.snapshot(due_s, [Waiting(WIDE)])) == ["wide"]
