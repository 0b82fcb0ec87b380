"""Jobs that keep their number of workers, on GPUs of several types: which type they run on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_promises_hold import machines
from tests.policies.cranny.test_stops import Recorded

from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.policies.cranny import Cranny
from cranny.run import simulate
from cranny.sim.record import DONE
from cranny.sim.replay import Replay

SEEN = {"A": 4.0, "B": 1.0}  # speeds of jobs that gain much on GPUs of type A


def job(name: str, on_a: float, on_b: float, gpus: int = 4, **given: Any) -> Job:
    """Return a job that keeps its size, with its speed on a GPU of each type."""
    return Job(name, gpus, duration_s=600.0, speeds={"A": on_a, "B": on_b}, **given)


def types_of_last(engine: Engine, *jobs: Job) -> str:
    """Return the types of GPU of the last of jobs that come one after the other."""
    for now_s, each in enumerate(jobs):
        engine.handle(Submitted(each), float(now_s))
    where = engine.state.running[jobs[-1].id].placement.machines
    return "".join(sorted(engine.state.cluster.machines[machine].gpu_type for machine in where))


def engine_of(kinds: str, **options: Any) -> Engine:
    return Engine(ClusterState(machines(*kinds)), Cranny(**options))


@pytest.mark.parametrize("kinds", ["AB", "BA", "AAB"])
def test_a_job_runs_where_it_is_fastest_while_nothing_is_known_of_others(kinds: str) -> None:
    assert types_of_last(engine_of(kinds), job("a", 1.0, 3.0)) == "BBBB"
    assert types_of_last(engine_of(kinds), job("a", 3.0, 1.0)) == "AAAA"
    assert types_of_last(engine_of(kinds), job("a", 1.0, 3.0, gpu_type="A")) == "AAAA"


def test_a_job_that_is_as_fast_everywhere_leaves_the_type_that_others_gain_most_on() -> None:
    before = [job(f"seen-{number}", on_a=4.0, on_b=1.0, gpus=1) for number in range(4)]
    assert types_of_last(engine_of("AAB"), *before, job("any", 1.0, 1.0)) == "BBBB"
    assert types_of_last(engine_of("AAB"), *before, job("gains", 4.0, 1.0)) == "AAAA"
    assert types_of_last(engine_of("AAB", types=False), *before, job("any", 1.0, 1.0)) == "AAAA"


def test_a_job_takes_slow_gpus_or_several_types_if_no_others_are_free() -> None:
    assert types_of_last(engine_of("AB"), job("first", 3.0, 1.0), job("next", 3.0, 1.0)) == "BBBB"
    assert types_of_last(engine_of("AB"), job("wide", 3.0, 1.0, gpus=6)) in ("AAAABB", "AABBBB")


def test_a_job_is_priced_by_how_long_it_takes_on_the_gpus_that_it_gets() -> None:
    """On the slow type it takes 1200 s, so it may not start before one that is promised all GPUs in 900 s."""
    engine = engine_of("B")
    engine.handle(Submitted(Job("first", 3, duration_s=900.0)), 0.0)
    engine.handle(Submitted(Job("all", 4, duration_s=9000.0)), 1.0)
    engine.handle(Submitted(job("slow", 1.0, 0.5, gpus=1)), 2.0)
    assert set(engine.state.running) == {"first"}
    engine.handle(Submitted(job("fast", 1.0, 1.0, gpus=1)), 3.0)
    assert set(engine.state.running) == {"first", "fast"}


def test_explanations_say_what_other_types_cost_more() -> None:
    engine = engine_of("AB")
    engine.handle(Submitted(job("a", 3.0, 1.0)), 0.0)
    placement = engine.state.running["a"].placement
    assert placement.rationale is not None
    text, price = (
        placement.rationale.text(placement),
        dict[str, Any](placement.rationale.facts(placement))["price"],
    )
    assert price["terms_gpu_s"]["types"] == 0.0
    # As long as nothing is known of others: (4 + 4) GPUs for 600 s in place of 200.
    (other,) = [each for each in price["next_best"] if each["gpus_on"] == {"B-1": 4}]
    assert other["terms_gpu_s"]["types"] == pytest.approx(8 * 400.0)
    assert other["why"]["types"] == "has 4 B GPUs, and those of another type would suit it better"
    assert "GPUs of other types decides (+3,200 against +0)" in text


speeds = st.sampled_from([0.2, 0.5, 1.0, 1.5, 2.0, 4.0])


@settings(max_examples=examples(100))
@given(
    st.lists(st.tuples(speeds, speeds, speeds), min_size=1, max_size=6),
    st.lists(st.sampled_from("ABC"), min_size=1, max_size=6),
    st.lists(st.integers(0, 4), min_size=6, max_size=6),
    st.integers(1, 4),
)
def test_no_other_machine_costs_less(
    on: list[tuple[float, float, float]], kinds: list[str], taken: list[int], gpus: int
) -> None:
    """Against all machines with room, by the GPUs that it holds at their price, and those that it asks for."""
    engine = Engine(ClusterState(machines(*kinds)), Cranny(machines=False, holes=False, preempt=False))
    for machine, count in enumerate(taken[: len(kinds)]):
        if count:
            name = f"taken-{machine}"
            engine.state.place(
                Job(name, count, duration_s=1e6),
                engine.state.snapshot().placement(Job(name, count), (machine,) * count),
            )
    engine.tick(0.0)
    seen = [dict(zip("ABC", each, strict=True)) for each in on]
    for number, each in enumerate(seen[:-1]):
        engine.handle(Submitted(Job(f"seen-{number}", 99, duration_s=1.0, speeds=each)), 0.0)
    last = Job("last", gpus, duration_s=600.0, speeds=seen[-1])
    free = engine.state.snapshot().free.tolist()
    engine.handle(Submitted(last), 0.0)
    there = [machine for machine, left in enumerate(free) if left >= gpus]
    assume(there)
    worth = dict.fromkeys(kinds, 0.0)
    for each in seen:
        total = sum(each[kind] for kind in kinds)
        worth = {kind: 0.998 * known + each[kind] / total for kind, known in worth.items()}
    mean = sum(worth[kind] for kind in kinds) / len(kinds)

    def cost(held: tuple[int, ...]) -> float:
        price = sum(worth[kinds[machine]] / mean for machine in held)
        return (gpus + price) / sum(seen[-1][kinds[machine]] for machine in held)

    chosen = engine.state.running["last"].placement.machines
    assert cost(chosen) <= min(cost((machine,) * gpus) for machine in there) * (1.0 + 1e-9)


@pytest.mark.parametrize("seed", range(16))
def test_no_job_starts_later_than_promised(seed: int) -> None:
    """In 3 of 250 such worlds one does, as in 3 of 250 in which each job names its type."""
    rng = np.random.default_rng(seed)
    submit_s = np.cumsum(rng.choice([0.0, 5.0, 120.0, 600.0], 40)).tolist()
    jobs = [
        replace(
            job(f"job-{number}", float(rng.choice([1.0, 2.0])), float(rng.choice([0.5, 1.0, 3.0]))),
            gpus=int(rng.choice([1, 1, 2, 3, 4, 5, 8, 12])),
            submit_s=at_s,
            duration_s=float(rng.choice([1.0, 60.0, 600.0, 3000.0, 7200.0])),
            restart_s=float(rng.choice([0.0, 60.0, 600.0])),
        )
        for number, at_s in enumerate(submit_s)
    ]
    policy = Recorded()
    result = Replay(machines("A", "A", "B", "A", "B", "B"), policy).run(jobs)
    assert not policy.late
    assert set(result.jobs["status"].to_list()) == {DONE}


def test_jobs_that_keep_their_size_complete_sooner_than_on_any_type() -> None:
    jobs = [job(f"job-{number}", 1.0, 3.0, submit_s=300.0 * number) for number in range(20)]
    jct_s = [
        simulate(machines("A", "B"), jobs, Cranny(types=types), "instant").summary["mean_jct_s"]
        for types in (True, False)
    ]
    assert jct_s[0] < 0.6 * jct_s[1]
