"""What policies decide reaches jobs: paces, shares, switches and requests to save, from the log alone."""

from pathlib import Path
from typing import Any

import pytest
from tests.service.standing import standing

from cranny.backends.protocol import Ended
from cranny.channel.control import Control
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.service.controls import control_of
from cranny.service.executor import AttemptLaunched
from cranny.service.limits import Limits
from cranny.service.present import explain_running
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

SPEEDS = {"resnet18": {"T4": 1.0, "V100": 644 / 275}, "vgg19": {"T4": 1.0, "V100": 1754 / 884}}
WORK_S = {"resnet18": 200 * 100_000 / 275, "vgg19": 200 * 50_000 / 884}  # on one T4
PAPER_S = 10_592.0  # the optimum of HAS's example, by exhaustive search


def mixed(t4: int = 2, v100: int = 2) -> Cluster:
    """Return a rack with one machine of either type."""
    machines = (Machine("slow", t4, "T4"), Machine("fast", v100, "V100"))
    return Cluster.of(Switch("rack", machines, (100.0, 100.0)))


class Course:
    """A scheduler, its log, and jobs that do what they are told."""

    def __init__(self, cluster: Cluster, policy: dict[str, Any], folder: Path) -> None:
        self.store = EventStore(str(folder / "log.db"))
        self.live = Scheduler(cluster, "run", Limits())
        self.live.open(100.0)
        self.live.set_policy(policy, "root", 100.0)

    def submit(self, now_s: float, **spec: Any) -> str:
        record, _ = self.live.submit("ann", {"command": ["true"], **spec}, None, now_s)
        self.settle(now_s)
        return record.id

    def settle(self, now_s: float) -> None:
        for record in self.live.records.jobs.values():
            for attempt in list(record.leaving):
                self.live.attempt_ended(Ended(record.id, attempt.number, 0, "cancelled"), now_s)
            if record.status == "starting":
                self.live.attempt_launched(AttemptLaunched(record.id, len(record.attempts)), now_s)

    def end(self, job_id: str, now_s: float) -> None:
        number = len(self.live.find(job_id).attempts)
        self.live.attempt_ended(Ended(job_id, number, 0, "finished"), now_s)
        self.settle(now_s)

    def controls(self, scheduler: Scheduler | None = None) -> dict[tuple[str, int], Control]:
        given = scheduler or self.live
        return {
            (job_id, attempt.number): control_of(record, attempt, given.cluster, given.records.epoch_s or 0.0)
            for job_id, record in given.records.jobs.items()
            for attempt in record.attempts
        }

    def told(self, job_id: str) -> Control:
        return self.controls()[job_id, len(self.live.find(job_id).attempts)]

    def check_replay(self) -> None:
        """See that the log alone gives the same state and the same controls."""
        self.store.append(self.live.rows)
        again = Scheduler(self.live.cluster, "run", Limits())
        again.restore(self.store)
        assert standing(again) == standing(self.live)
        assert self.controls(again) == self.controls()
        self.store.close()


def held(course: Course, job_id: str) -> dict[str, int]:
    """Return the GPUs of each type that a job has."""
    machines = course.live.engine.state.find(job_id).placement.counts
    return {course.live.cluster.machines[machine].gpu_type: count for machine, count in machines.items()}


@pytest.mark.parametrize("order", [("resnet18", "vgg19"), ("vgg19", "resnet18")])
def test_stated_speeds_give_the_optimum_of_the_paper(order: tuple[str, str], tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "has-exact"}, tmp_path)
    ids = {}
    for at_s, name in enumerate(order):
        spec: dict[str, Any] = {"gpus": 1, "most_gpus": 4, "duration_s": WORK_S[name], "speeds": SPEEDS[name]}
        profile = {"grad_bytes": 1.0, "iteration_ms": 100.0}
        ids[name] = course.submit(101.0 + at_s, **spec, profile=profile, checkpoint={"grace_s": 5}, restart_s=1)
    assert (held(course, ids["resnet18"]), held(course, ids["vgg19"])) == ({"V100": 2}, {"T4": 2})
    times_s = [course.live.engine.state.find(ids[name]).stretch * WORK_S[name] for name in order]
    assert sum(times_s) / 2 == pytest.approx(PAPER_S, abs=0.1)
    first = ids[order[0]]
    asked = course.controls()[first, 1].checkpoint
    assert asked is not None
    assert (asked.reason, asked.by_s) == ("resized", 107.0)
    assert course.told(first).checkpoint is None
    course.check_replay()


def test_ranks_get_samples_by_the_speed_of_their_gpus(tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "best-fit"}, tmp_path)
    job = course.submit(101.0, gpus=4, speeds={"T4": 1.0, "V100": 3.0})
    machines = course.live.find(job).attempts[0].placement.machines
    assert course.told(job).shares == tuple(0.375 if machine == 1 else 0.125 for machine in machines)
    course.end(job, 102.0)
    assert course.told(course.submit(103.0, gpus=4)).shares is None
    course.check_replay()


def test_a_job_runs_only_on_types_whose_speeds_it_states(tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "best-fit"}, tmp_path)
    job = course.submit(101.0, gpus=2, speeds={"V100": 1.0})
    assert held(course, job) == {"V100": 2}
    with pytest.raises(Exception, match="gpus: needs 3 V100 GPUs, the cluster has 2"):
        course.submit(102.0, gpus=3, speeds={"V100": 1.0})
    course.store.close()


def cluster_names(course: Course) -> tuple[str, ...]:
    return course.live.cluster.node_names


def test_jobs_that_share_a_link_keep_periods_that_fit_together(tmp_path: Path) -> None:
    course = Course(Cluster.fat_tree(1, 2, 4, link_gbps=10.0), {"name": "themis+cassini"}, tmp_path)
    profile = {"grad_bytes": 5e7, "iteration_ms": 100.0}
    fillers = [course.submit(101.0, gpus=3), course.submit(101.0, gpus=3)]
    first = course.submit(101.0, gpus=2, profile=profile, checkpoint="none")
    for filler in fillers:
        course.end(filler, 101.5)
    fillers = [course.submit(101.6, gpus=2), course.submit(101.6, gpus=2)]
    assert course.told(first).pace is None
    second = course.submit(102.0, gpus=2, profile={**profile, "iteration_ms": 101.0}, checkpoint="none")
    state = course.live.engine.state
    links = [set(state.find(each).communication.link_gbps) for each in (first, second)]
    assert links[0] & links[1]
    one, two = course.told(first).pace, course.told(second).pace
    assert one is not None
    assert two is not None
    assert one.epoch_s == two.epoch_s == 100.0
    assert one.period_s == two.period_s > 0.101
    assert one.shift_s != two.shift_s
    told = explain_running(course.live.find(first), state.snapshot(105.0))
    assert f"now shares the uplink of {cluster_names(course)[0]} with {second}" in told.evidence[0]
    assert told.evidence[2] == f"its iterations start every {one.period_s * 1e3:.1f} ms, shifted by 0.0 ms"
    course.end(second, 110.0)
    told = explain_running(course.live.find(first), state.snapshot(111.0))
    assert told.evidence[0] == "now shares no link with another job"
    assert told.facts["now"] == {"links": [], "period_s": None, "shift_s": None}
    assert course.told(first).pace is None  # no other job is on its links
    assert course.told(first).number > 0
    course.check_replay()


def test_numbers_grow_with_every_change_of_the_switches(tmp_path: Path) -> None:
    cluster = Cluster.fat_tree(1, 8, 1, pat_gbps=10.0)  # memory for one of two jobs
    course = Course(cluster, {"name": "netpack"}, tmp_path)
    spec = {"collective": "ina", "model": "vgg16"}
    small = course.submit(101.0, **spec, gpus=2)
    before = course.told(small)
    assert before.aggregate is True
    course.submit(102.0, **spec, gpus=5)
    after = course.told(small)
    assert after.aggregate is False
    assert after.number > before.number
    course.check_replay()
