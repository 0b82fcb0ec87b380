"""What shifted jobs keep: periods that fit together and follow what iterations really take."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.service.test_controls import Course

from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Shift, Start
from cranny.model.profile import ModelProfile
from cranny.network.phases import link_groups
from cranny.network.phases.pacing_period import DEVIATIONS, SLACKS, TOLERANCE
from cranny.service.explain import PLACED
from cranny.service.job_record import KeptPace
from cranny.service.learned_profile import LearnedProfile
from cranny.service.paces import JITTER, Paces, differs, iteration_s
from cranny.service.point_history import Point
from cranny.service.present import explain_running
from cranny.service.scheduler import REPACE_S

CLUSTER = Cluster.fat_tree(2, 3, 1, link_gbps=0.1, oversubscription=3)  # as in benchmarks/testbed
HALF = ModelProfile("half", grad_bytes=2.5e6, iteration_ms=200.0)  # 0.2 s of computing, 0.2 s on the link
LIGHT = ModelProfile("light", grad_bytes=2.5e5, iteration_ms=250.0)
MODELS = {"a": HALF, "b": HALF, "c": LIGHT}
PACES = Paces(CLUSTER)
# A period over an iteration alone, whatever others report: a perimeter that all of them can keep takes 5 % more at
# most, and the slack is what jitter takes and 20 % at most.
LONGEST = (1.0 + TOLERANCE) * (1.0 + DEVIATIONS * JITTER + max(SLACKS))


def kept(
    jobs: str,
    shifts_s: dict[str, float],
    measured_s: dict[str, float],
    models: Mapping[str, ModelProfile] = MODELS,
    paces: Paces = PACES,
) -> dict[str, KeptPace]:
    """Return what jobs keep that each have a machine in either rack, of which some are shifted."""
    state = ClusterState(CLUSTER)
    for number, job_id in enumerate(jobs):
        start = Start(Job(id=job_id, gpus=2, model=models[job_id]), Placement((number, 3 + number)))
        state.commit(Plan(state.version, (start,)), 0.0)
    state.commit(Plan(state.version, tuple([Shift(*each) for each in shifts_s.items()])), 0.0)
    return paces.kept(state.running, set(shifts_s), measured_s)


TURNS = {"a": 0.0, "b": 0.2}  # shifts of jobs that take turns


def test_jobs_that_take_turns_keep_one_period_with_slack_for_jitter() -> None:
    found = kept("ab", TURNS, {})
    assert found["a"].period_s == found["b"].period_s == pytest.approx(0.408)
    assert found["b"].shift_s - found["a"].shift_s == pytest.approx(found["a"].period_s / 2)


def test_the_period_follows_the_slower_job() -> None:
    found = kept("ab", TURNS, {"a": 0.408, "b": 0.416})
    assert 0.416 * 1.01 < found["a"].period_s == found["b"].period_s < 0.416 * 1.06
    assert kept("ab", TURNS, {"a": 0.8, "b": 0.8})["a"].period_s == pytest.approx(0.816, rel=0.005)


def test_jobs_that_no_longer_fit_together_run_freely() -> None:
    assert kept("ab", TURNS, {"a": 0.4, "b": 0.47}) == {}


def test_a_light_job_that_is_not_shifted_gets_room() -> None:
    alone, joined = kept("ab", TURNS, {}), kept("abc", TURNS, {})
    assert set(joined) == {"a", "b"}
    assert 1.03 * alone["a"].period_s < joined["a"].period_s == joined["b"].period_s < 0.5


def test_what_jobs_keep_does_not_depend_on_others_before_them() -> None:
    used = Paces(CLUSTER)
    for percent in range(20):
        measured_s = {"c": 0.25 + percent / 100}
        assert kept("abc", TURNS, measured_s, paces=used) == kept("abc", TURNS, measured_s, paces=Paces(CLUSTER))


def test_a_job_that_shares_its_links_with_no_other_keeps_nothing() -> None:
    assert kept("a", {"a": 0.1}, {}) == {}


@settings(max_examples=examples(25))
@given(st.floats(0.05, 3.0), st.floats(0.9, 1.1), st.booleans())
def test_no_period_is_shorter_than_an_iteration_nor_much_longer(own_s: float, times: float, joins: bool) -> None:  # noqa: FBT001
    measured_s = {"a": own_s, "b": own_s * times}
    found = kept("abc" if joins else "ab", TURNS, measured_s)
    assert set(found) in (set(), {"a", "b"})
    for job_id, pace in found.items():
        assert measured_s[job_id] <= pace.period_s * (1 + 1e-9) < LONGEST * measured_s[job_id]
        assert 0.0 <= pace.shift_s < pace.period_s
    assert len({pace.period_s for pace in found.values()}) <= 1


@settings(max_examples=examples(30))
@given(
    compute_ms=st.floats(1.0, 4000.0),
    gradient_bytes=st.floats(1.0, 1e8),
    said=st.floats(0.1, 10.0),
    shift=st.floats(0.0, 1.0),
    joins=st.booleans(),
)
def test_no_report_of_a_job_lengthens_the_period_of_another_beyond_tolerance_and_slack(
    compute_ms: float,
    gradient_bytes: float,
    said: float,
    shift: float,
    joins: bool,  # noqa: FBT001
) -> None:
    """The second job says what it likes: what it computes and exchanges, and what an iteration takes."""
    liar = ModelProfile("liar", grad_bytes=gradient_bytes, iteration_ms=compute_ms)
    shifts_s = {"a": 0.0, "b": shift * compute_ms / 1e3}
    measured_s = {"a": 0.4, "b": said * (compute_ms / 1e3 + gradient_bytes * 8e-8)}
    found = kept("abc" if joins else "ab", shifts_s, measured_s, {**MODELS, "b": liar})
    if "a" in found:
        assert 0.4 <= found["a"].period_s * (1 + 1e-9) < LONGEST * 0.4


def point(
    attempt: int, compute_s: float, exchange_s: float, waited_s: float = 0.0, *, paced: bool = True
) -> Point:
    return Point(
        at_s=10.0,
        attempt=attempt,
        rank=0,
        step=1,
        iterations=10,
        iteration_s=waited_s + compute_s + exchange_s,
        waited_s=waited_s,
        compute_s=compute_s,
        comm_s=exchange_s,
        samples=0.0,
        paced=paced,
        period_s=0.4,
    )


def test_an_iteration_alone_is_what_computing_takes_now_and_the_shortest_exchange() -> None:
    before = [point(1, 0.9, 0.9)] * 5
    assert iteration_s(before, 2, 5.0) is None
    contended = [point(2, 0.2, 0.4), point(2, 0.2, 0.2, waited_s=0.3), point(2, 0.2, 0.3)]
    assert iteration_s([*before, *contended[:2]], 2, 5.0) is None
    assert iteration_s([*before, *contended], 2, 5.0) == pytest.approx(0.4)
    slower = [point(2, 0.21, 0.35)] * 8
    assert iteration_s([*before, *contended, *slower], 2, 5.0) == pytest.approx(0.41)


def test_jobs_in_each_others_way_are_not_measured_unless_they_cannot_keep_slots() -> None:
    contended = [point(1, 0.2, 0.35, paced=False)] * 20
    assert iteration_s(contended, 1, paced_s=10.0) is None
    assert iteration_s(contended, 1, paced_s=5.0) == pytest.approx(0.55)
    assert iteration_s([*contended, point(1, 0.2, 0.2)], 1, paced_s=5.0) == pytest.approx(0.4)


def test_an_exchange_that_was_short_without_slots_counts_once_slots_were_kept() -> None:
    disturbed = [point(1, 0.2, 0.25)] * 3
    assert iteration_s(disturbed, 1, 5.0) == pytest.approx(0.45)
    assert iteration_s([*disturbed, point(1, 0.2, 0.21, paced=False)], 1, 5.0) == pytest.approx(0.41)


def test_jobs_notice_another_period_or_another_distance() -> None:
    pace = KeptPace(0.4, 0.399)
    assert not differs(pace, KeptPace(0.4001, 0.0001))
    assert differs(pace, KeptPace(0.4, 0.2))
    assert differs(pace, KeptPace(0.41, 0.4))
    assert differs(pace, None)
    assert not differs(None, None)


PROFILE = {"grad_bytes": 2.5e6, "iteration_ms": 200.0}


def sharing(
    folder: Path, policy: str = "themis+cassini", profile: dict[str, float] | None = None
) -> tuple[Course, str, str]:
    """Return a scheduler whose two jobs share links, each with the only machines that it could have."""
    course = Course(CLUSTER, {"name": policy}, folder)
    for machine in range(6):
        course.live.drain(machine, "root", 101.0)
    ids = []
    for place in range(2):
        for machine in (place, 3 + place):
            course.live.resume(machine, "root", 102.0)
        ids.append(course.submit(103.0 + place, gpus=2, profile=profile or PROFILE))
    return course, ids[0], ids[1]


def test_measured_iterations_change_the_periods_of_all_jobs_on_the_links(tmp_path: Path) -> None:
    course, first, second = sharing(tmp_path)
    before = course.told(first).pace
    assert before is not None
    course.live.measured(first, 1, 0.412, 110.0)
    one, two = course.told(first).pace, course.told(second).pace
    assert one is not None
    assert two is not None
    assert 0.412 * 1.01 < one.period_s == two.period_s < 0.412 * 1.06
    told = len(course.live.rows)
    course.live.measured(second, 1, 0.43, 111.0)  # too soon
    course.live.measured(first, 1, 0.4121, 110.0 + 2 * REPACE_S)  # the same
    course.live.measured(second, 2, 0.43, 110.0 + 5 * REPACE_S)  # of no attempt
    assert len(course.live.rows) == told
    course.live.tick(200.0)
    assert len(course.live.rows) == told  # a decision does not fall back to the profile
    course.check_replay()


def test_what_was_measured_too_soon_counts_at_the_next_change_of_periods(tmp_path: Path) -> None:
    course, first, second = sharing(tmp_path)
    course.live.measured(first, 1, 0.42, 110.0)
    course.live.measured(first, 1, 0.408, 111.0)  # too soon
    course.live.measured(second, 1, 0.41, 111.0 + REPACE_S)
    pace = course.told(first).pace
    assert pace is not None
    assert 0.41 * 1.01 < pace.period_s < 0.42  # that of the second one: the first one's is no longer 0.42
    course.check_replay()


def test_what_a_job_says_of_itself_slows_no_other_by_much(tmp_path: Path) -> None:
    course, liar, honest = sharing(tmp_path)
    for number, said_s in enumerate((1e-6, 1e6, 0.3, 0.45, 0.42)):
        course.live.measured(liar, 1, said_s, 110.0 + 2 * number * REPACE_S)
        pace = course.told(honest).pace
        assert pace is None or pace.period_s < LONGEST * 0.4
    course.check_replay()


@pytest.mark.parametrize("policy", ["themis+cassini", "cranny"])
def test_jobs_that_say_to_be_very_fast_and_very_slow_are_not_simulated(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many thousand iterations of one in each of the other would keep the service busy for many seconds."""
    course, *jobs = sharing(tmp_path, policy)
    shown = [
        LearnedProfile({"": 1 / each}, batch=2.0, comm_start=1.0, gradient_bytes=1e4) for each in (1e-4, 60.0)
    ]
    course.live.profiled(jobs[0], shown[0], 200.0)
    monkeypatch.setattr(link_groups, "long_run", lambda *_, **__: pytest.fail("jobs are simulated"))
    course.live.profiled(jobs[1], shown[1], 200.0)
    assert {course.told(job).pace for job in jobs} == {None}
    course.check_replay()


def test_a_job_that_is_not_shifted_is_not_measured(tmp_path: Path) -> None:
    course = Course(CLUSTER, {"name": "themis"}, tmp_path)
    job = course.submit(101.0, gpus=2)
    assert not course.live.measures(job, 1, 0.5, 110.0)
    course.live.measured(job, 1, 0.5, 110.0)
    assert course.told(job).pace is None
    course.check_replay()


@pytest.mark.parametrize("before", ["themis", "titan", "best-fit", "tiresias"])
def test_running_jobs_are_shifted_by_a_policy_that_is_set_later_and_run_freely_after_it(
    before: str, tmp_path: Path
) -> None:
    course, first, second = sharing(tmp_path, before)
    assert {course.told(job).pace for job in (first, second)} == {None}
    course.live.set_policy({"name": "themis+cassini"}, "root", 110.0)
    told = course.told(first)
    paces = [course.told(job).pace for job in (first, second)]
    assert None not in paces
    assert len({pace.period_s for pace in paces if pace is not None}) == 1
    course.live.set_policy({"name": "themis+cassini"}, "root", 120.0)  # the same again
    assert [course.told(job).pace for job in (first, second)] == paces
    course.live.set_policy({"name": before}, "root", 130.0)
    assert {course.told(job).pace for job in (first, second)} == {None}
    assert course.told(first).number > told.number
    instructed = [each.record.id for each in course.live.instructions if each.do == "control"]
    assert instructed[-2:] == [first, second]
    assert course.live.records.shifted == set()
    course.check_replay()


def test_a_job_that_is_left_alone_on_its_links_runs_freely(tmp_path: Path) -> None:
    course, first, second = sharing(tmp_path)
    assert course.told(first).pace is not None
    course.end(second, 110.0)
    assert course.told(first).pace is None
    course.check_replay()


def test_shifts_follow_what_is_learned_of_jobs(tmp_path: Path) -> None:
    """Jobs whose files describe them wrongly are shifted once they have shown what they are."""
    course, first, second = sharing(tmp_path, profile={"grad_bytes": 1.0, "iteration_ms": 100.0})
    assert {course.told(job).pace for job in (first, second)} == {None}
    shown = LearnedProfile({"": 5.0}, batch=2.0, comm_start=1.0, gradient_bytes=2.5e6)
    for job in (first, second):
        course.live.profiled(job, shown, 170.0)
    one, two = course.told(first).pace, course.told(second).pace
    assert one is not None
    assert two is not None
    assert one.period_s == two.period_s == pytest.approx(0.409, rel=0.01)
    assert abs(two.shift_s - one.shift_s) == pytest.approx(one.period_s / 2, rel=0.01)
    course.check_replay()


def test_cranny_shifts_jobs_that_would_slow_each_other(tmp_path: Path) -> None:
    course, first, second = sharing(tmp_path, "cranny")
    one, two = course.told(first).pace, course.told(second).pace
    assert one is not None
    assert two is not None
    assert one.period_s == two.period_s == pytest.approx(0.408)  # 0.6 s if they send at the same time
    assert abs(two.shift_s - one.shift_s) == pytest.approx(one.period_s / 2)
    course.live.set_policy({"name": "cranny", "options": {"shift": False}}, "root", 110.0)
    assert {course.told(job).pace for job in (first, second)} == {None}
    course.live.set_policy({"name": "cranny"}, "root", 120.0)
    shown = LearnedProfile({"": 4.9}, batch=2.0, comm_start=1.0, gradient_bytes=2.5e6)  # 0.204 s of computing
    for job in (first, second):
        course.live.profiled(job, shown, 170.0)
    learned = course.told(first).pace
    assert learned is not None
    assert learned.period_s == pytest.approx(0.413, rel=0.01)
    course.check_replay()


@pytest.mark.parametrize("policy", ["themis+cassini", "cranny", "titan", "netpack", "best-fit"])
def test_explanations_name_the_neighbours_of_now(tmp_path: Path, policy: str) -> None:
    course, first, second = sharing(tmp_path, policy, {"grad_bytes": 1e6, "iteration_ms": 200.0})

    def links(now_s: float) -> list[list[str]]:
        view = course.live.engine.state.snapshot(now_s)
        told = explain_running(course.live.find(first), view)
        now = [line for line in told.evidence if not line.startswith(PLACED)]
        # What is not said to be of the placement is about now: of all that policies say of placements nothing.
        assert all(line.startswith(("now shares ", "its iterations start every ")) for line in now)
        assert len(told.evidence) - len(now) == len(course.live.find(first).attempts[-1].why.splitlines()) - 1
        found = [sorted(link["jobs"]) for link in told.facts["now"]["links"]]
        named = [line for line in now if any(job in line for job in (second, "job-3"))]
        assert len(named) == len(found)
        return found

    assert links(110.0) == [[second]] * 2
    for machine in (2, 5):
        course.live.resume(machine, "root", 111.0)
    third = course.submit(112.0, gpus=2, profile={"grad_bytes": 2.5e5, "iteration_ms": 250.0})
    assert links(113.0) == [[second, third]] * 2
    course.end(second, 114.0)
    assert links(115.0) == [[third]] * 2
    course.end(third, 116.0)
    assert links(117.0) == []
    course.check_replay()
