"""Events of one instant: the policy is asked once all of them are in."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.model.event import Event, MachineFailed, MachineRepaired

ONE = cranny.Cluster.single_rack(1, 1)


def job(name: str, submit_s: float, duration_s: float, gpus: int = 1) -> cranny.Job:
    return cranny.Job(name, gpus, "resnet50", submit_s=submit_s, duration_s=duration_s)


def starts(result: cranny.Result) -> dict[str, float]:
    return dict(result.jobs.select("job_id", "start_s").iter_rows())


def test_the_shortest_of_jobs_that_come_together_is_first() -> None:
    result = cranny.simulate(ONE, [job("long", 0.0, 100.0), job("short", 0.0, 1.0)], "best-fit", order="sjf")
    assert starts(result) == {"short": 0.0, "long": 1.0}


def test_a_job_that_comes_just_when_another_ends_is_counted_in() -> None:
    jobs = [job("first", 0.0, 10.0), job("long", 1.0, 100.0), job("short", 10.0, 1.0)]
    assert starts(cranny.simulate(ONE, jobs, "best-fit", order="sjf")) == {
        "first": 0.0,
        "short": 10.0,
        "long": 11.0,
    }


def test_a_machine_that_is_back_just_when_another_fails_takes_its_job_and_not_an_arriving_one() -> None:
    events: list[tuple[float, Event]] = [
        (0.0, MachineFailed(1)),
        (5.0, MachineRepaired(1)),
        (5.0, MachineFailed(0)),
    ]
    jobs = [job("early", 1.0, 10.0), job("late", 5.0, 1.0)]
    result = cranny.simulate(cranny.Cluster.single_rack(2, 1), jobs, "best-fit", machine_events=events)
    assert result.runs.filter(result.runs["end_s"] > 5.0).rows() == [
        ("early", 5.0, 15.0, 1, 1),
        ("late", 15.0, 16.0, 1, 1),
    ]


def test_values_at_arrivals_count_every_arrival_of_an_instant() -> None:
    cluster = cranny.Cluster.single_rack(3, 1)
    result = cranny.simulate(cluster, [job("a", 0.0, 10.0), job("b", 0.0, 10.0), job("c", 5.0, 5.0)], "best-fit")
    assert result.timeline["used_machines"].to_list() == [2, 2, 3]
    assert result.summary["mean_used_machines"] == pytest.approx(7 / 3)
    assert result.timeline["total_profit"][-1] == pytest.approx(result.summary["total_profit"])


def test_jobs_of_no_length_end_where_they_begin_and_make_room_at_once() -> None:
    result = cranny.simulate(ONE, [job("a", 3.0, 0.0), job("b", 3.0, 0.0), job("c", 3.0, 5.0)], "best-fit")
    assert starts(result) == {"a": 3.0, "b": 3.0, "c": 3.0}


@st.composite
def bursts(draw: st.DrawFn) -> tuple[list[cranny.Job], list[cranny.Job]]:
    """Jobs of different durations that come in bursts, and the same with each burst in another order."""
    durations_s = draw(st.lists(st.integers(1, 60), min_size=1, max_size=20, unique=True))
    now_s, listed = 0.0, []
    for number, duration_s in enumerate(durations_s):
        now_s += draw(st.sampled_from([0.0, 0.0, 1.0, 20.0]))
        listed.append(job(f"j{number}", now_s, duration_s, draw(st.integers(1, 8))))
    shuffled = sorted(draw(st.permutations(listed)), key=lambda each: each.submit_s)
    return listed, shuffled


def outcome(jobs: Sequence[cranny.Job], order: str) -> list[tuple[object, ...]]:
    result = cranny.simulate(cranny.Cluster.single_rack(2, 4), jobs, "best-fit", order=order)
    return [*result.jobs.sort("job_id").rows(), *result.timeline.rows(), tuple(result.summary.items())]


@settings(max_examples=examples(60))
@given(bursts())
def test_the_order_of_rows_of_one_instant_decides_nothing_that_the_queue_order_decides(
    both: tuple[list[cranny.Job], list[cranny.Job]],
) -> None:
    for order in ("sjf", "srtf"):
        assert outcome(both[0], order) == outcome(both[1], order)
