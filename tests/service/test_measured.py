import pytest
from tests.service.test_controls import mixed

from cranny.channel.control import Control
from cranny.model.placement import Placement
from cranny.service.job_record import Attempt, JobRecord, ResumedAt
from cranny.service.job_spec import parse
from cranny.service.learned_profile import LearnedProfile
from cranny.service.measured import recent_s, restarts, types
from cranny.service.point_history import Point


def point(at: int, attempt: int, iteration_s: float) -> Point:
    return Point(float(at), attempt, 0, at, 10, iteration_s, 0.0, 0.0, 0.0, 8.0, paced=False, period_s=0.0)


def attempt(
    number: int, machines: tuple[int, ...], resumed: ResumedAt | None = None, outcome: str = "moved"
) -> Attempt:
    where = Placement(machines=machines)
    return Attempt(number, 0.0, where, "", {}, (0,) * len(machines), outcome=outcome, resumed=resumed)


def test_a_restart_costs_its_start_and_what_is_done_again_and_gains_by_shorter_iterations() -> None:
    before, after = attempt(1, (0, 0)), attempt(2, (0, 0, 0, 0), ResumedAt(90, 4.0, 10), outcome="")
    points = [point(1, 1, 5.0), point(2, 1, 0.4), point(3, 2, 9.0), point(4, 2, 0.1), point(5, 2, 0.3)]
    (found,) = restarts([before, after], points)
    assert (found.attempt, found.reason, found.gpus_before, found.gpus) == (2, "resized", 2, 4)
    assert (found.step, found.took_s, found.lost_steps) == (90, 4.0, 10)
    # The first report of an attempt is of iterations that load data and compile.
    assert [found.iteration_before_s, found.iteration_s] == pytest.approx([0.4, 0.2])
    assert found.cost_s == pytest.approx(4.0 + 10 * 0.4)
    assert found.gained_s == pytest.approx(20 * 0.2)


@pytest.mark.parametrize(("outcome", "reason"), [("moved", "moved"), ("stopped", "stopped"), ("failed", "failed")])
def test_what_was_not_reported_is_not_known(outcome: str, reason: str) -> None:
    (found,) = restarts([attempt(1, (0,), outcome=outcome), attempt(2, (1,))], [])
    assert found.reason == reason
    assert (found.step, found.cost_s, found.iteration_s, found.gained_s) == (None, None, None, None)


def test_recent_iterations_are_those_of_the_last_minute_of_the_last_attempt() -> None:
    assert recent_s([]) is None
    points = [point(0, 1, 9.0), point(10, 2, 8.0), point(100, 2, 0.1), point(130, 2, 0.3)]
    assert recent_s(points) == pytest.approx(0.2)


def test_shares_and_speeds_are_told_by_type_of_gpu() -> None:
    cluster = mixed(2, 1)
    spec = parse({"command": ["true"], "gpus": 3})
    record = JobRecord("job-1", "ann", spec, spec.job("job-1", "ann", 0.0), None, 0.0)
    control, known = Control(shares=(0.25, 0.25, 0.5)), LearnedProfile(rates={"V100": 20.0, "A100": 50.0})
    told = types(record, attempt(1, (0, 0, 1)), control, known, cluster)
    assert told == [
        {"gpu_type": "A100", "ranks": 0, "share": 0.0, "samples_per_s": 50.0},
        {"gpu_type": "T4", "ranks": 2, "share": 0.5, "samples_per_s": None},
        {"gpu_type": "V100", "ranks": 1, "share": 0.5, "samples_per_s": 20.0},
    ]
    plain = types(record, attempt(1, (0, 0, 1)), None, None, cluster)
    assert [each["share"] for each in plain] == [pytest.approx(2 / 3), pytest.approx(1 / 3)]
    assert types(record, None, None, None, cluster) == []
