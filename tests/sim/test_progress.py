"""Jobs that change each other's speed, and which of them ends first."""

import math

import numpy as np
import pytest

from cranny.core.protocol import SharedSlowdowns
from cranny.model.job import Job
from cranny.sim.progress import FIRST, SharedProgress
from cranny.sim.record import SimulatedJob


def simulated(name: str, duration_s: float) -> SimulatedJob:
    return SimulatedJob(Job(name, 2, duration_s=duration_s), duration_s)


def shared(ids: dict[int, str], slowdown: dict[int, float], started: int | None = None) -> SharedSlowdowns:
    return SharedSlowdowns(np.array(list(slowdown)), np.array(list(slowdown.values())), ids, started)


def test_the_first_to_end_changes_with_the_speeds() -> None:
    pace, simulated_jobs = SharedProgress(), {"a": simulated("a", 100.0), "b": simulated("b", 60.0)}
    ids = {0: "a", 1: "b"}
    pace.set(shared(ids, {0: 1.0}, started=0), simulated_jobs, 0.0)
    assert (pace.first.job.id, pace.next_s) == ("a", 100.0)
    simulated_jobs["b"].since_s = 10.0
    pace.set(shared(ids, {0: 2.0, 1: 1.5}, started=1), simulated_jobs, 10.0)  # a has 90 s left, and takes 180
    assert (pace.first.job.id, pace.next_s) == ("b", 100.0)
    pace.set(shared(ids, {1: 6.0}), simulated_jobs, 40.0)  # b has done 20 of 60 s, and takes 240 for the rest
    assert (pace.first.job.id, pace.next_s) == ("a", 190.0)


def test_a_job_that_leaves_knows_how_far_it_is() -> None:
    pace, simulated_jobs = SharedProgress(), {"a": simulated("a", 100.0), "b": simulated("b", 60.0)}
    ids = {0: "a", 1: "b"}
    pace.set(shared(ids, {0: 2.0}, started=0), simulated_jobs, 0.0)
    pace.set(shared(ids, {0: 4.0, 1: 3.0}, started=1), simulated_jobs, 50.0)
    pace.remove(simulated_jobs["a"])
    assert (simulated_jobs["a"].remaining_s, simulated_jobs["a"].since_s, simulated_jobs["a"].slowdown) == (
        75.0,
        50.0,
        4.0,
    )
    assert pace.first is simulated_jobs["b"]
    pace.remove_all()
    assert pace.next_s == math.inf
    pace.remove(simulated_jobs["b"])  # it is gone already


def test_there_is_room_for_any_number_of_jobs() -> None:
    pace = SharedProgress()
    simulated_jobs = {f"job-{number}": simulated(f"job-{number}", 1000.0 - number) for number in range(5 * FIRST)}
    ids = dict(enumerate(simulated_jobs))
    for number in ids:
        pace.set(shared(ids, {number: 1.0}, started=number), simulated_jobs, 0.0)
    assert pace.first.job.id == f"job-{5 * FIRST - 1}"
    assert pace.next_s == pytest.approx(1001.0 - 5 * FIRST)


def test_slowdowns_can_be_gone_through_by_job() -> None:
    assert dict(shared({3: "a", 5: "b"}, {5: 2.0, 3: 1.5})) == {"b": 2.0, "a": 1.5}
