"""Jobs that can be resized under the policy `cranny`: machines are drained, jobs outlive what was expected."""

from collections import Counter
from typing import Any

import pytest

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import MachineDrained
from cranny.model.job import Job
from cranny.model.plan import Stop
from cranny.policies.cranny import Cranny

ONE = Cluster.fat_tree(1, 1, 8)
TWO = Cluster.fat_tree(1, 2, 8)


def engine(cluster: Cluster, *jobs: Job) -> Engine:
    """Return an engine to which jobs were submitted."""
    made = Engine(ClusterState(cluster), Cranny())
    for job in jobs:
        made.submit(job, job.submit_s)
    return made


def workers(made: Engine) -> dict[str, int]:
    """Return how many workers running jobs have."""
    return {job_id: len(each.placement.machines) for job_id, each in made.state.running.items()}


def elastic_job(
    name: str, gpus: int = 8, least: int = 4, duration_s: float | None = 1000.0, **given: object
) -> Job:
    return Job(name, gpus, duration_s=duration_s, least_gpus=least, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("restart_s", [0.0, 10.0])
def test_a_job_on_a_drained_machine_is_not_stopped_since_that_frees_no_gpu(restart_s: float) -> None:
    made = engine(TWO, elastic_job("a", restart_s=restart_s), elastic_job("b", restart_s=restart_s))
    (drained,) = made.state.find("b").held
    made.handle(MachineDrained(drained), 100.0)
    made.submit(Job("short", 8, submit_s=200.0, duration_s=50.0), 200.0)
    assert workers(made) == {"b": 8, "short": 8}


@pytest.mark.parametrize("given", [{}, {"gpu_type": "A"}, {"speeds": {"A": 1.0}}])
def test_a_job_that_names_the_only_type_is_as_any_other(given: dict[str, Any]) -> None:
    machines = (Machine("m0", 8, "A"), Machine("m1", 8, "A"))
    cluster = Cluster.of(Switch("core", machines, (1e6,) * 2))
    others = [elastic_job(f"job-{number}", least=1) for number in range(3)]
    made = engine(cluster, *others, elastic_job("d", least=1, **given))
    assert sorted(workers(made).values()) == [8, 8]


def test_a_job_that_no_machine_can_run_is_not_waited_for() -> None:
    cluster = Cluster.of(Switch("core", (Machine("m0", 8, "A"),), (1e6,)))
    made = engine(cluster, Job("nowhere", 8, duration_s=1.0, gpu_type="B"), elastic_job("job"))
    assert workers(made) == {"job": 8}


def test_a_job_that_runs_longer_than_expected_still_grows() -> None:
    """It states no duration, and after a time none is left of what it was expected to run."""
    made = engine(
        ONE, Job("rigid", 7, duration_s=50_000.0), elastic_job("unknown", least=1, duration_s=None, restart_s=10.0)
    )
    assert workers(made)["unknown"] == 1
    made.finish("rigid", 50_000.0)
    assert workers(made) == {"unknown": 8}


def test_a_job_of_which_resources_lack_waits_and_none_is_stopped_for_it() -> None:
    machines = tuple(Machine(f"m{at}", 8, resources={"cpu": 16}) for at in range(2))
    cluster = Cluster.of(Switch("core", machines, (1e6,) * 2))
    made = engine(cluster, elastic_job("a", least=8, restart_s=1.0), elastic_job("b", least=8, restart_s=1.0))
    made.submit(Job("short", 2, submit_s=10.0, duration_s=10.0, resources={"cpu": 4}), 10.0)
    assert workers(made) == {"a": 8, "b": 8}
    made.finish("a", 20.0)
    assert workers(made) == {"b": 8, "short": 2}
    made.submit(Job("more", 2, submit_s=30.0, duration_s=10.0, resources={"cpu": 6}), 30.0)  # there are eight left
    made.submit(elastic_job("c", submit_s=40.0), 40.0)
    assert workers(made) == {"b": 8, "short": 2, "c": 6}


def test_sizes_are_those_of_the_job_as_it_is_now() -> None:
    """What suits a job is not remembered by its name: another one of that name asks for fewer GPUs."""
    running = elastic_job("running", 6, least=3)
    made = engine(ONE, running, Job("waits", 8, submit_s=1.0, duration_s=3000.0))
    other = engine(ONE, running)
    other.policy = made.policy.going_on("waits")  # type: ignore[attr-defined]
    other.submit(Job("waits", 2, submit_s=1.0, duration_s=3000.0), 1.0)
    assert workers(other) == {"running": 6, "waits": 2}


class Counted(Cranny):
    """The policy, with how often jobs were stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: Counter[str] = Counter()

    def plan(self, view):  # type: ignore[no-untyped-def]
        plan = super().plan(view)
        self.stopped.update(each.job_id for each in plan.actions if isinstance(each, Stop))
        return plan


@pytest.mark.parametrize("restart_s", [0.0, 0.5])
def test_a_job_on_which_the_end_of_all_depends_is_not_stopped_again_and_again(restart_s: float) -> None:
    """It is about as long as all together, and decisions come every second."""
    policy = Counted()
    made = Engine(ClusterState(ONE), policy)
    elastic = elastic_job("elastic", 8, least=8, duration_s=10.0, restart_s=restart_s)  # so that GPUs are divided
    for job in (Job("long", 4, duration_s=199.0, restart_s=restart_s), elastic):
        made.submit(job, 0.0)
    for number in range(9):
        made.submit(Job(f"short-{number}", 8, duration_s=10.0, restart_s=restart_s), 0.0)
    for second in range(1, 60):
        made.tick(float(second))
    assert policy.stopped["long"] <= 1
