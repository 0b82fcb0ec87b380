"""Jobs that may join the queue only when others have ended."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import admission as reference

import cranny
from cranny.model.job import Job
from cranny.run import run
from cranny.scenario import Scenario
from cranny.sim.admission import Admission, After
from cranny.sim.result import Result

CLUSTER = cranny.Cluster.fat_tree(1, 2, 4)


def replayed(jobs: list[Job], admission: Admission, order: str = "fifo") -> Result:
    return run(Scenario(CLUSTER, jobs, "best-fit", "instant", order=order, admission=admission))


def times(result: Result) -> dict[str, tuple[float, float]]:
    return {
        name: (submit_s, start_s)
        for name, submit_s, start_s in result.jobs["job_id", "submit_s", "start_s"].rows()
    }


def job(name: str, gpus: int, submit_s: float, duration_s: float) -> Job:
    return Job(name, gpus, "vgg16", submit_s=submit_s, duration_s=duration_s)


def test_an_attempt_is_submitted_as_long_after_the_end_of_the_one_before_as_in_the_log() -> None:
    """In the log the first attempt ran from 0 to 100; here it waits until 500 for a job that takes all GPUs."""
    jobs = [job("all", 8, 0.0, 500.0), job("a", 8, 0.0, 100.0), job("a@2", 8, 130.0, 50.0)]
    found = replayed(jobs, Admission(after={"a@2": After("a", 30.0)}))
    assert times(found) == {"all": (0.0, 0.0), "a": (0.0, 500.0), "a@2": (630.0, 630.0)}
    assert found.summary["mean_wait_s"] == pytest.approx(500 / 3)


def test_an_attempt_never_comes_before_its_time_in_the_log() -> None:
    jobs = [job("a", 1, 0.0, 10.0), job("a@2", 1, 130.0, 50.0)]
    found = replayed(jobs, Admission(after={"a@2": After("a", 30.0)}))
    assert times(found)["a@2"] == (130.0, 130.0)


def test_an_attempt_whose_first_is_not_there_or_can_never_run_is_not_held() -> None:
    rules = Admission(after={"a@2": After("a", 30.0), "b@2": After("b", 0.0)})
    jobs = [job("b", 9, 0.0, 10.0), job("a@2", 1, 5.0, 50.0), job("b@2", 1, 6.0, 1.0)]
    found = times(replayed(jobs, rules))
    assert (found["a@2"], found["b@2"]) == ((5.0, 5.0), (6.0, 6.0))


def test_a_group_holds_no_more_than_its_limit_and_that_is_waiting() -> None:
    """Four tasks of two GPUs, of which two may run at once, while half of the cluster is free."""
    tasks = [job(f"7_{k}", 2, 0.0, 100.0) for k in range(4)]
    rules = Admission(group_of={each.id: "7" for each in tasks}, most_gpus={"7": 4})
    found = replayed([*tasks, job("other", 4, 10.0, 100.0)], rules)
    assert times(found) == {
        "7_0": (0.0, 0.0),
        "7_1": (0.0, 0.0),
        "7_2": (0.0, 100.0),
        "7_3": (0.0, 100.0),
        "other": (10.0, 10.0),
    }


def test_a_job_larger_than_its_limit_runs_alone() -> None:
    jobs = [job("a", 6, 0.0, 100.0), job("b", 1, 1.0, 10.0)]
    rules = Admission(group_of={"a": "ann", "b": "ann"}, most_gpus={"ann": 4})
    assert times(replayed(jobs, rules)) == {"a": (0.0, 0.0), "b": (1.0, 100.0)}


def test_arrivals_are_counted_when_they_arrive_also_if_they_must_wait_outside() -> None:
    tasks = [job(f"7_{k}", 2, 10.0 * k, 100.0) for k in range(3)]
    rules = Admission(group_of={each.id: "7" for each in tasks}, most_gpus={"7": 2})
    assert replayed(tasks, rules).timeline["time_s"].to_list() == [0.0, 10.0, 20.0]


@st.composite
def held_back(draw: st.DrawFn) -> tuple[list[Job], Admission]:
    """Draw jobs at times that never coincide, some of which come after others or share a limit."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 12))
    submits_s = np.sort(rng.uniform(0.0, 50.0, count))
    jobs = [
        job(str(k), int(rng.integers(1, 9)), float(submits_s[k]), float(rng.uniform(1.0, 40.0)))
        for k in range(count)
    ]
    after, group_of = {}, {}
    for k in range(1, count):
        if rng.random() < 0.4:
            after[str(k)] = After(str(int(rng.integers(0, k))), float(rng.choice([0.0, rng.uniform(0.0, 20.0)])))
    for each in jobs:
        if rng.random() < 0.6:
            group_of[each.id] = str(rng.choice(["ann", "bob"]))
    return jobs, Admission(after, group_of, {"ann": int(rng.integers(1, 8)), "bob": int(rng.integers(1, 8))})


@settings(max_examples=examples(200), deadline=None)
@given(held_back())
def test_starts_are_those_of_the_literal_reference(drawn: tuple[list[Job], Admission]) -> None:
    jobs, rules = drawn
    expected = reference.starts(CLUSTER, jobs, rules.after, rules.group_of, rules.most_gpus)
    found = times(replayed(jobs, rules))
    assert found.keys() == expected.keys()
    for name, both_s in expected.items():
        assert found[name] == pytest.approx(both_s), name


def test_a_job_that_ran_before_counts_in_its_group_and_holds_the_next_attempt_back() -> None:
    jobs = [job("a", 4, 0.0, 100.0), job("b", 1, 0.0, 10.0), job("a@2", 1, 5.0, 10.0)]
    rules = Admission({"a@2": After("a", 7.0)}, dict.fromkeys(("a", "b"), "ann"), {"ann": 2})
    held = {"a": {CLUSTER.machines[0].name: 4}}
    scenario = Scenario(CLUSTER, jobs, "best-fit", "instant", admission=rules, held_before=held)
    assert times(run(scenario)) == {"a": (0.0, 0.0), "b": (0.0, 100.0), "a@2": (107.0, 107.0)}
