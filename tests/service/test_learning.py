"""What jobs measure of themselves is learned, adopted by events, and changes later decisions."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.test_controls import Course, held, mixed

from cranny.backends.protocol import Ended, JobChannel
from cranny.channel.report import Record, Resumed
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.service.job_record import Attempt, JobRecord, LastStep, ResumedAt
from cranny.service.job_spec import parse
from cranny.service.learned_profile import LearnedProfile
from cranny.service.learning import LEAST_S, Learner
from cranny.service.probing import PROBE_S
from cranny.service.reports import RankState, WatchedAttempt

CLUSTER = mixed()
PROFILE = {"grad_bytes": 1.0, "iteration_ms": 100.0}


def watched(attempt: int = 1, *types: str) -> WatchedAttempt:
    return WatchedAttempt("job-1", attempt, JobChannel(Path(), ""), types or ("T4", "V100"), 0.0)


def record(number: int, at_s: float, compute_s: float, **more: Any) -> Record:
    values = {"iterations": 10, "wall_s": compute_s + 1.0, "compute_s": compute_s, "samples": 40.0, **more}
    return Record(number, at_s, 10 * number, **values)


class Adopted:
    """What a learner wants to be adopted."""

    def __init__(self) -> None:
        self.profiles: list[LearnedProfile] = []
        self.continued: list[tuple[int, Resumed, int | None]] = []
        self.complaints: list[str] = []
        self.learner = Learner(
            lambda _job, profile: self.profiles.append(profile),
            lambda _job, attempt, at, lost: self.continued.append((attempt, at, lost)),
            lambda _job, why: self.complaints.append(why),
        )
        self.learner.follow(logged(), None)


def logged(*attempts: Attempt) -> JobRecord:
    """Return the record of a job with some attempts."""
    spec = parse({"command": ["true"], "gpus": 2, "name": "net"})
    job = spec.job("job-1", "ann", 0.0)
    return JobRecord("job-1", "ann", spec, job, None, 0.0, attempts=list(attempts))


def attempt(number: int, **known: Any) -> Attempt:
    return Attempt(number, 0.0, Placement((0, 1)), "", {}, (0, 0), **known)


def test_rates_are_learned_by_the_type_of_each_rank() -> None:
    seen = Adopted()
    for number, at_s in enumerate((10.0, 20.0, 90.0, 100.0), 1):
        for rank, compute_s in enumerate((4.0, 2.0)):
            more = {"gradient_bytes": 1e6, "comm_start_s": 0.1}
            seen.learner.take(watched(), rank, [record(number, at_s, compute_s, **more)], RankState())
    learned = seen.profiles[-1]
    assert (learned.rates, learned.batch, learned.gradient_bytes) == ({"T4": 10.0, "V100": 20.0}, 8.0, 1e6)
    assert learned.comm_start is not None
    assert 0.25 <= learned.comm_start <= 0.5  # of a tenth of a second, where an iteration computes 0.4 s or 0.2 s
    assert len(seen.profiles) == 2  # the first ones are not learned from, and events are a minute apart
    assert not LearnedProfile({"T4": 10.0}).differs(LearnedProfile({"T4": 10.4}))
    assert LearnedProfile({"T4": 10.0}).differs(LearnedProfile({"T4": 10.6}))


@given(st.lists(st.tuples(st.floats(0.1, 500.0), st.floats(0.5, 50.0)), max_size=40))
def test_events_are_a_minute_apart_however_much_changes(course: list[tuple[float, float]]) -> None:
    seen, asked_s, at_s = Adopted(), list[float](), 0.0
    for number, (later_s, compute_s) in enumerate(course, 1):
        at_s += later_s
        before = len(seen.profiles)
        seen.learner.take(watched(), 0, [record(number, at_s, compute_s)], RankState())
        asked_s += [at_s] * (len(seen.profiles) - before)
    assert all(later - before >= LEAST_S for before, later in pairwise(asked_s))


def test_the_cost_of_a_restart_is_what_it_took_and_what_was_done_again() -> None:
    seen = Adopted()
    one = watched()
    seen.learner.take(
        one, 0, [record(1, 10.0, 4.0), record(2, 20.0, 4.0)], RankState(resumed=Resumed(0, 5.0, 5.0))
    )
    assert seen.continued == []
    at = Resumed(14, 130.0, 7.0)
    two = watched(2)
    seen.learner.take(two, 0, [Record(1, 140.0, 24, 10, 5.0, compute_s=4.0, samples=40.0)], RankState(resumed=at))
    assert seen.continued == [(2, at, 6)]
    assert seen.profiles[-1].restart_s == pytest.approx(7.0 + 6 * 0.5)


WENT_ON = Resumed(14, 130.0, 7.0)
FIRST = Record(1, 140.0, 24, 10, 5.0, compute_s=4.0, samples=40.0)  # of the attempt that went on


@pytest.mark.parametrize(
    ("before", "lost", "restart_s"),
    [
        ((attempt(1, last=LastStep(20, 0.5, 60.0)),), 6, 7.0 + 6 * 0.5),
        ((attempt(1, last=LastStep(20, 50.0, 60.0)),), 6, 7.0 + 60.0),  # no more than it ran
        ((attempt(1, last=LastStep(10, 0.5, 60.0)),), 0, 7.0),  # it saved after its last report
        ((attempt(1),), None, 7.0),  # it reported no step, or ended while no service ran
        # The second one was over before its first step.
        ((attempt(1, last=LastStep(20, 0.5, 60.0)), attempt(2)), 6, 7.0 + 6 * 0.5),
    ],
)
def test_a_service_that_was_restarted_between_attempts_knows_from_the_log_how_far_the_job_came(
    before: tuple[Attempt, ...], lost: int | None, restart_s: float
) -> None:
    seen, number = Adopted(), len(before) + 1
    seen.learner.follow(logged(*before, attempt(number)), None)
    seen.learner.take(watched(number), 0, [FIRST], RankState(resumed=WENT_ON))
    assert seen.continued == [(number, WENT_ON, lost)]
    assert seen.profiles[-1].restart_s == pytest.approx(restart_s)
    assert seen.learner.last("job-1", number) == LastStep(24, 0.5, 140.0)


def test_a_restart_that_the_log_has_already_is_not_learned_again() -> None:
    seen = Adopted()
    at = ResumedAt(14, 7.0, 6)
    seen.learner.follow(logged(attempt(1, last=LastStep(20, 0.5, 60.0)), attempt(2, resumed=at)), None)
    seen.learner.take(watched(2), 0, [FIRST], RankState(resumed=WENT_ON))
    assert (seen.continued, seen.profiles) == ([], [])
    assert seen.learner.last("job-1", 2) == LastStep(24, 0.5, 140.0)


def test_a_first_attempt_says_from_which_step_it_began() -> None:
    seen = Adopted()
    seen.learner.take(watched(), 0, [FIRST], RankState(resumed=WENT_ON))
    assert seen.continued == [(1, WENT_ON, 0)]
    assert seen.profiles == []  # it was no restart


def test_how_far_attempts_came_is_in_the_log(tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "best-fit"}, tmp_path)
    job = course.submit(101.0, gpus=1, max_retries=2)
    course.live.attempt_ended(Ended(job, 1, 1, "failed"), 110.0, LastStep(50, 0.1, 8.0))
    course.live.attempt_ended(Ended(job, 2, 1, "failed"), 120.0)
    course.live.continued(job, 3, ResumedAt(40, 3.0, None), 130.0)
    one, two, three = course.live.find(job).attempts
    assert (one.last, two.last, three.last) == (LastStep(50, 0.1, 8.0), None, None)
    assert three.resumed == ResumedAt(40, 3.0, None)
    course.check_replay()


GBIT = 1e9 / 8


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        ({"gradient_bytes": 1e15}, "more gradients than its links carry"),
        ({"compute_s": 1e-9}, "compute for less than"),
        ({"samples": 1e15}, "samples a second"),
        ({"compute_s": 1e-9, "samples": 1e15, "gradient_bytes": 1e15, "wall_s": 1e-9}, "its links carry"),
    ],
)
def test_what_no_gpu_and_no_link_can_do_is_not_learned_but_counted(lie: dict[str, float], why: str) -> None:
    seen = Adopted()
    one = watched()._replace(bytes_per_s=100 * GBIT)
    for number in range(1, 30):
        values: dict[str, Any] = {"compute_s": 4.0, "gradient_bytes": 1e6, **lie}
        for rank in range(2):
            seen.learner.take(one, rank, [record(number, 10.0 * number, **values)], RankState())
    assert len(seen.complaints) == 58
    assert why in seen.complaints[-1]
    learned = seen.profiles[-1]
    assert learned.gradient_bytes is not None
    assert learned.gradient_bytes <= 2.0 * 100 * GBIT * 0.5
    job = learned.applied(Job("job-1", 2, duration_s=100.0), CLUSTER)
    assert 1.0 <= job.profile.iteration_ms <= 6e5
    # All that it can say of itself: a link that it uses all the time.
    assert job.profile.grad_bytes <= 2.0 * 100 * GBIT * max(0.5, job.profile.iteration_ms / 1e3)


def test_one_type_of_gpu_is_not_believed_to_be_a_million_times_faster() -> None:
    seen = Adopted()
    for number in range(1, 30):
        for rank, samples in enumerate((1e9, 1.0)):
            values = {"samples": samples, "compute_s": 4.0}
            seen.learner.take(watched(), rank, [record(number, 10.0 * number, **values)], RankState())
    rates = seen.profiles[-1].rates
    assert rates["T4"] / rates["V100"] <= 100.0 * (1 + 1e-9)
    assert seen.profiles[-1].applied(Job("job-1", 2, duration_s=100.0), CLUSTER).profile.iteration_ms <= 6e5


def test_a_restart_cannot_have_lost_more_than_the_attempt_ran() -> None:
    seen = Adopted()
    seen.learner.take(watched(), 0, [Record(1, 90.0, 10**12, 1, 80.0, compute_s=4.0)], RankState())
    at = Resumed(0, 130.0, 7.0)
    seen.learner.take(watched(2), 0, [Record(1, 140.0, 24, 10, 5.0, compute_s=4.0)], RankState(resumed=at))
    assert seen.profiles[-1].restart_s == pytest.approx(7.0 + 90.0)


def test_an_honest_job_is_believed() -> None:
    seen = Adopted()
    one = watched()._replace(bytes_per_s=100 * GBIT)
    seen.learner.take(one, 0, [record(1, 10.0, 4.0, gradient_bytes=4e9)], RankState())
    assert seen.complaints == []


def test_a_profile_describes_the_job_as_it_was_measured() -> None:
    job = Job("job-1", 2, duration_s=100.0)
    seen = LearnedProfile({"T4": 10.0, "V100": 20.0}, batch=8.0, comm_start=0.5, gradient_bytes=1e6, restart_s=9.0)
    learned = seen.applied(job, CLUSTER)
    assert learned.speeds == {"T4": 1.0, "V100": 2.0}
    assert (learned.profile.iteration_ms, learned.profile.grad_bytes, learned.restart_s) == (400.0, 1e6, 9.0)
    assert learned.profile.gradient_buckets == ((200.0, 1_000_000),)
    one = LearnedProfile({"V100": 20.0}, batch=8.0).applied(job, CLUSTER)
    assert (one.speeds, one.profile.iteration_ms) == (None, 200.0)
    stated = Job("job-1", 2, speeds={"T4": 1.0, "V100": 3.0})
    assert LearnedProfile({"V100": 20.0}, 8.0).applied(stated, CLUSTER).speeds == {"T4": 1.0, "V100": 3.0}
    assert seen.applied(stated, CLUSTER).speeds == {"T4": 1.0, "V100": 2.0}
    assert LearnedProfile({"A100": 1.0}).applied(job, CLUSTER) == job


def test_an_adopted_profile_changes_running_waiting_and_later_jobs_of_its_name(tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "best-fit"}, tmp_path)
    first = course.submit(101.0, gpus=4, name="net", profile=PROFILE)
    waits = course.submit(102.0, gpus=4, name="net", profile=PROFILE)
    other = course.submit(103.0, gpus=4, name="other", profile=PROFILE)
    before = course.told(first)
    assert before.shares is None
    course.live.profiled(first, LearnedProfile({"T4": 10.0, "V100": 30.0}, batch=8.0), 110.0)
    after = course.told(first)
    assert after.shares is not None
    assert sorted(after.shares) == [0.125, 0.125, 0.375, 0.375]
    assert after.number > before.number
    state = course.live.engine.state
    assert state.find(first).job.profile.iteration_ms == pytest.approx(100.0)  # 8 samples, 80 a second together
    assert [each.job.speeds for each in course.live.engine.queue] == [{"T4": 1.0, "V100": 3.0}, None]
    later = course.submit(111.0, gpus=1, name="net", profile=PROFILE)
    assert course.live.find(later).job.speeds == {"T4": 1.0, "V100": 3.0}
    course.live.continued(first, 1, ResumedAt(40, 3.0, 2), 112.0)
    assert {waits, other} <= {each.job.id for each in course.live.engine.queue}
    course.check_replay()


HEAVY = LearnedProfile({"": 5.0}, batch=6.0, comm_start=1.0, gradient_bytes=1e9)  # 6 ranks compute for 200 ms


@pytest.mark.parametrize(
    ("shown", "machines"),
    [
        (None, {1, 2}),  # the fewest idle machines, as Titan wants
        (HEAVY, {3}),  # the link of machine 1 is busy
        (replace(HEAVY, gradient_bytes=1e6), {1, 2}),
        (replace(HEAVY, rates={"": 0.01}), {1, 2}),  # as many bytes, but 100 s apart
    ],
)
def test_titan_keeps_away_from_links_that_jobs_were_seen_to_use(
    shown: LearnedProfile | None, machines: set[int], tmp_path: Path
) -> None:
    course = Course(Cluster.fat_tree(1, 4, 4, link_gbps=10.0), {"name": "titan"}, tmp_path)
    live = course.live
    for machine in (2, 3):
        live.drain(machine, "root", 101.0)
    first = course.submit(102.0, gpus=6, profile=PROFILE)  # its file says that it sends next to nothing
    live.drain(1, "root", 103.0)
    live.resume(2, "root", 104.0)
    course.submit(105.0, gpus=2, profile=PROFILE)
    for machine in (1, 3):
        live.resume(machine, "root", 106.0)
    if shown is not None:
        live.profiled(first, shown, 110.0)
    # Machines 1 and 2 have two free GPUs each, machine 3 is idle.
    large = {"grad_bytes": 1e9, "iteration_ms": 1_000.0}
    job = course.submit(111.0, gpus=4, profile=large, collective="halving-doubling")
    assert set(live.find(job).attempts[0].placement.machines) == machines
    course.check_replay()


def test_netpack_reckons_with_the_gradients_that_were_measured(tmp_path: Path) -> None:
    """Its placement follows flows, whatever they carry, as in its paper; what a server costs follows bytes."""
    course = Course(Cluster.fat_tree(1, 4, 4, link_gbps=10.0), {"name": "netpack"}, tmp_path)
    spec: dict[str, Any] = {"gpus": 6, "profile": PROFILE, "collective": "ina", "name": "net"}

    def exchange_ms(job: str) -> float:
        found = re.search(
            r"([\d.]+) ms an iteration if the network were empty", course.live.find(job).attempts[0].why
        )
        assert found is not None
        return float(found[1])

    first = course.submit(101.0, **spec)
    assert exchange_ms(first) == 0.0
    course.live.profiled(first, HEAVY, 110.0)
    assert exchange_ms(course.submit(111.0, **spec)) >= 800.0  # 1e9 bytes at 10 Gbps
    course.check_replay()


THROUGHPUT = {"resnet18": {"T4": 275.0, "V100": 644.0}, "vgg19": {"T4": 884.0, "V100": 1754.0}}  # of the paper
WORK_S = {"resnet18": 200 * 100_000 / 275, "vgg19": 200 * 50_000 / 884}  # on one T4
ELASTIC: dict[str, Any] = {"gpus": 1, "most_gpus": 4, "checkpoint": {}, "restart_s": 1, "profile": PROFILE}


def probed(course: Course) -> int:
    """Count the probes."""
    records = course.live.records.jobs.values()
    return sum("probe" in attempt.facts for record in records for attempt in record.attempts)


@pytest.mark.parametrize("order", [("resnet18", "vgg19"), ("vgg19", "resnet18")])
@pytest.mark.parametrize("when", ["while the first is probed", "late"])
def test_speeds_that_no_job_file_states_are_found_with_one_probe_a_job(
    order: tuple[str, str], when: str, tmp_path: Path
) -> None:
    """The example of HAS again; the second job comes while the first is probed, or later."""
    course, late = Course(mixed(), {"name": "has-exact"}, tmp_path), when == "late"
    first = course.submit(101.0, **ELASTIC, name=order[0], duration_s=WORK_S[order[0]])
    assert held(course, first) == {"T4": 1, "V100": 1}
    second = "" if late else course.submit(102.0, **ELASTIC, name=order[1], duration_s=WORK_S[order[1]])
    course.live.profiled(first, LearnedProfile(THROUGHPUT[order[0]], batch=100.0), 110.0)
    course.settle(110.0)
    if late:
        assert held(course, first) == {"T4": 2, "V100": 2}
        second = course.submit(112.0, **ELASTIC, name=order[1], duration_s=WORK_S[order[1]])
    assert (held(course, first), held(course, second)) == ({"T4": 1, "V100": 1}, {"T4": 1, "V100": 1})
    course.live.profiled(second, LearnedProfile(THROUGHPUT[order[1]], batch=100.0), 120.0)
    course.settle(120.0)
    ids = dict(zip(order, (first, second), strict=True))
    assert (held(course, ids["resnet18"]), held(course, ids["vgg19"])) == ({"V100": 2}, {"T4": 2})
    again = course.submit(130.0, **ELASTIC, name="vgg19", duration_s=100.0)
    assert probed(course) == 2  # its name is known
    assert course.live.find(again).job.speeds is not None
    course.check_replay()


def test_a_job_that_shows_nothing_is_left_to_the_policy(tmp_path: Path) -> None:
    course = Course(mixed(), {"name": "has-exact"}, tmp_path)
    job = course.submit(101.0, **ELASTIC, duration_s=1_000.0)
    assert held(course, job) == {"T4": 1, "V100": 1}
    due_s = course.live.engine.next_tick_s(102.0)
    assert due_s == 101.0 + PROBE_S
    course.live.tick(due_s)
    course.settle(due_s)
    assert held(course, job) == {"T4": 2, "V100": 2}
    fixed = {**ELASTIC, "checkpoint": "none", "restart_s": None, "most_gpus": None}
    course.submit(due_s + 1.0, **{name: value for name, value in fixed.items() if value is not None})
    assert probed(course) == 1
    course.check_replay()
