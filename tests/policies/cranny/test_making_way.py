"""A large job makes way for many small ones; and the fewest machines that are free first, against all sets."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.engine import Engine
from cranny.core.protocol import UNRESTRICTED
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.model.plan import Action, Start, Stop
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.machine_kernel import first_rack_ready

CLUSTER = Cluster.fat_tree(1, 4, 4, 100_000.0)  # communication takes next to no time
LARGE = Job("large", 16, duration_s=10_000.0, restart_s=60.0)
NOW_S = 1000.0
INF = math.inf


def come(small: int, policy: Cranny, duration_s: float = 600.0, large: Job = LARGE) -> tuple[Engine, list[Action]]:
    """Return what is done when so many small jobs come at once while a large one has all GPUs."""
    engine = Engine(ClusterState(CLUSTER), policy)
    engine.handle(Submitted(large), 0.0)
    jobs = [Job(f"small-{number}", 1, submit_s=NOW_S, duration_s=duration_s) for number in range(small)]
    return engine, list(engine.handle_all([Submitted(job) for job in jobs], NOW_S))


def stopped(actions: list[Action]) -> list[str]:
    return [each.job_id for each in actions if isinstance(each, Stop)]


def test_a_large_job_makes_way_for_all_that_wait() -> None:
    engine, done = come(4, Cranny())
    assert stopped(done) == ["large"]
    assert sorted(each.job_id for each in done if isinstance(each, Start)) == [f"small-{i}" for i in range(4)]
    assert "promised" in engine.why_wait("large", NOW_S)
    # It goes on when the small ones have ended.
    for number in range(4):
        done = list(engine.finish(f"small-{number}", NOW_S + 600.0))
    assert [each.job_id for each in done if isinstance(each, Start)] == ["large"]


def test_it_does_not_if_they_gain_less_than_it_loses() -> None:
    assert not stopped(come(1, Cranny(), duration_s=9500.0)[1])


def test_those_that_come_later_start_as_well_while_it_waits() -> None:
    engine, _ = come(4, Cranny())
    later = [Job(f"later-{number}", 1, submit_s=NOW_S + 10.0, duration_s=900.0) for number in range(12)]
    done = engine.handle_all([Submitted(job) for job in later], NOW_S + 10.0)
    assert len([each for each in done if isinstance(each, Start)]) == 12


def test_it_does_not_lose_more_than_four_times_as_long_as_it_runs() -> None:
    assert stopped(come(16, Cranny(margin=0.0), duration_s=10_500.0)[1])
    assert not stopped(come(16, Cranny(margin=0.0), duration_s=40_500.0)[1])


def test_it_does_not_if_its_restart_is_long() -> None:
    assert stopped(come(16, Cranny(), large=replace(LARGE, restart_s=2000.0))[1])
    assert not stopped(come(16, Cranny(), large=replace(LARGE, restart_s=20_000.0))[1])


def test_it_does_not_if_it_may_not_be_stopped() -> None:
    held = UNRESTRICTED._replace(may_stop=lambda job_id: job_id != "large")
    assert not stopped(come(4, Cranny().with_rules(held))[1])
    assert not stopped(come(4, Cranny(preempt=False))[1])


times = st.sampled_from([-INF, 1.0, 2.0, 3.0, 4.0, 5.0])


@settings(max_examples=examples(200))
@given(st.lists(st.lists(times, min_size=3, max_size=3), min_size=1, max_size=5), st.integers(1, 15))
def test_no_other_set_of_as_many_machines_is_free_earlier(releases: list[list[float]], gpus: int) -> None:
    release_s, machines = np.sort(np.array(releases), axis=1), np.arange(len(releases))
    rack = np.array([0, len(releases)])
    best, order = np.zeros((2, len(releases)), np.int64)
    used, ready_s = first_rack_ready(release_s, np.full(len(releases), 3), machines, rack, gpus, INF, best, order)
    count = -(-gpus // 3)
    if count > len(releases):
        assert (used, ready_s) == (0, INF)
        return
    assert len(set(best[:used].tolist())) == used == count
    rest = gpus - 3 * (count - 1)
    least = min(
        max([release_s[last, rest - 1], *(release_s[machine, 2] for machine in chosen if machine != last)])
        for chosen in combinations(range(len(releases)), count)
        for last in chosen
    )
    assert ready_s == least
