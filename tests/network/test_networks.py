"""Jobs whose speed changes while they run."""

import pytest

from cranny.core.accounting import Running
from cranny.core.protocol import Slowdowns
from cranny.core.queue import QueuePolicy
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.profile import ModelProfile
from cranny.network.networks import NETWORKS
from cranny.policies import policy
from cranny.run import Result
from cranny.sim.replay import Replay

CLUSTER = Cluster.single_rack(machines=4, gpus_per_machine=4)


class Crowded:
    """A network in which k jobs all run k times as long."""

    def __init__(self) -> None:
        self.jobs: list[str] = []

    def start(self, running: Running) -> Slowdowns:
        self.jobs.append(running.job.id)
        return [(job_id, float(len(self.jobs))) for job_id in self.jobs]

    def end(self, job_id: str) -> Slowdowns:
        self.jobs.remove(job_id)
        return [(other, float(len(self.jobs))) for other in self.jobs]


def replayed(jobs: list[Job], **settings: object) -> Result:
    replay = Replay(CLUSTER, QueuePolicy(policy("best-fit")), network=Crowded(), **settings)  # type: ignore[arg-type]
    return Result.of(CLUSTER, replay.run(jobs), {}, 1.0)


def test_jobs_slow_each_other_and_speed_up_when_others_end() -> None:
    # a: 10 s alone until 4, then at half speed; b needs 3, so it ends at 4 + 6 = 10, when a has 6 - 3 = 3 left.
    result = replayed([Job("a", 4, duration_s=10.0), Job("b", 4, submit_s=4.0, duration_s=3.0)])
    finish_s = dict(result.jobs.select("job_id", "finish_s").iter_rows())
    assert finish_s == pytest.approx({"a": 13.0, "b": 10.0})
    slowdown = dict(result.jobs.select("job_id", "slowdown").iter_rows())
    assert slowdown == pytest.approx({"a": 1.3, "b": 2.0})


def test_three_jobs_share_by_processor_sharing() -> None:
    # All come at once with 1, 2 and 3 s of work: the shortest ends at 3, the next at 5, the last at 6.
    jobs = [Job(name, 4, duration_s=float(work)) for name, work in (("a", 1), ("b", 2), ("c", 3))]
    finish_s = dict(replayed(jobs).jobs.select("job_id", "finish_s").iter_rows())
    assert finish_s == pytest.approx({"a": 3.0, "b": 5.0, "c": 6.0})


def test_a_failure_loses_what_was_done_since_the_last_checkpoint_at_whatever_speed() -> None:
    # a has done 4 + 3 = 7 when its machine fails at 10; with a checkpoint each 5 it has 5 left, b then 0.
    jobs = [Job("a", 4, duration_s=10.0), Job("b", 4, submit_s=4.0, duration_s=3.0)]
    events = [(10.0, MachineFailed(0)), (20.0, MachineRepaired(0))]
    result = replayed(jobs, machine_events=events, checkpoint_s=5.0)
    finish_s = dict(result.jobs.select("job_id", "finish_s").iter_rows())
    assert finish_s == pytest.approx({"a": 15.0, "b": 10.0})


@pytest.mark.parametrize(("name", "slowdown"), [("isolated", 2.0), ("instant", 1.0)])
def test_networks_without_sharing_answer_for_the_job_alone(name: str, slowdown: float) -> None:
    network, state = NETWORKS[name].on(CLUSTER), ClusterState(CLUSTER)
    even = ModelProfile("even", grad_bytes=1e9, iteration_ms=80.0)  # a ring of two talks for 80 ms, too
    for job_id in ("a", "b"):
        state.place(Job(job_id, 2, even, "ring"), Placement((0, 1)))
        assert dict(network.start(state.find(job_id))) == pytest.approx({job_id: slowdown})
    assert list(network.end("a")) == []
