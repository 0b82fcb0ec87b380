"""Jobs that keep their number of workers, on GPUs of several types: which type they run on."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.cranny.test_promises_hold import machines, starts_later_than_promised

from cranny.core.constraints import Constraints
from cranny.core.engine import Engine
from cranny.core.protocol import JobRules
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import Submitted
from cranny.model.job import Job
from cranny.policies.cranny import Cranny
from cranny.run import simulate

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
    # A GPU of type A is worth three times as much to it: (4 + 2) x 600 GPU-seconds in place of (4 + 6) x 200.
    (other,) = [each for each in price["next_best"] if each["gpus_on"] == {"B-1": 4}]
    assert other["terms_gpu_s"]["types"] == pytest.approx(1600.0)
    assert other["why"]["types"] == "has 4 B GPUs, and those of another type would suit it better"
    assert "GPUs of other types decides (+1,600 against +0)" in text


def test_all_machines_of_a_type_are_compared_and_seconds_are_those_on_gpus_of_speed_1() -> None:
    engine = engine_of("AA")
    engine.handle(Submitted(job("a", 3.0, 1.0)), 0.0)
    placement = engine.state.running["a"].placement
    assert placement.rationale is not None
    text = placement.rationale.text(placement)
    assert "if it takes 600 s on one machine with GPUs of speed 1" in text
    assert "next best: A-1: 800 GPU-s, the same" in text


@pytest.mark.parametrize(("speed", "duration_s"), [(None, 300.0), ({"B": 4.0}, 1200.0)])
def test_a_job_starts_before_a_promised_one_if_it_ends_in_time_on_its_gpus(
    speed: dict[str, float] | None, duration_s: float
) -> None:
    engine = engine_of("B")
    engine.handle(Submitted(Job("first", 3, duration_s=900.0)), 0.0)
    engine.handle(Submitted(Job("all", 4, duration_s=9000.0)), 1.0)
    engine.handle(Submitted(Job("short", 1, duration_s=duration_s, speeds=speed)), 2.0)
    assert set(engine.state.running) == {"first", "short"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"speeds": {"B": 1.0}},
        {"speeds": {"B": 1.0, "Z": 0.05}},
        {"speeds": {"A": 0.05, "B": 1.0}, "gpu_type": "B"},
    ],
)
def test_a_stopped_job_may_go_on_only_on_types_that_are_there_and_that_it_asks_for(given: dict[str, Any]) -> None:
    engine = engine_of("BB")
    engine.handle(Submitted(Job("long", 4, duration_s=5000.0, restart_s=1.0, **given)), 0.0)
    engine.handle(Submitted(Job("other", 4, duration_s=9000.0, restart_s=1.0)), 1.0)
    engine.handle(Submitted(Job("all", 8, duration_s=90_000.0, submit_s=2.0)), 2.0)
    engine.handle(Submitted(Job("short", 4, duration_s=20.0, submit_s=1000.0)), 1000.0)
    assert set(engine.state.running) == {"other", "short"}


def test_a_job_does_not_wait_for_slower_gpus() -> None:
    """On links of 10 Gbps it takes twenty times as long on two machines of type A, and so it would on one of B."""
    kinds = tuple(Machine(f"{kind}-{number}", 4, kind) for number, kind in enumerate("AAB"))
    engine = Engine(ClusterState(Cluster.of(Switch("core", kinds, (10.0,) * 3))), Cranny())
    for name, gpus, kind, duration_s in (("x", 2, "A", 1e5), ("y", 3, "A", 1e5), ("z", 4, "B", 20_000.0)):
        engine.handle(Submitted(Job(name, gpus, duration_s=duration_s, gpu_type=kind)), 0.0)
    wide = Job("wide", 3, duration_s=3000.0, speeds={"A": 10.0, "B": 1.0})
    engine.handle(Submitted(wide), 1.0)
    assert set(engine.state.running["wide"].held) == {0, 1}


@pytest.mark.parametrize("same_rack", [None, "preferred", "required"])
def test_types_do_not_spread_a_job_over_racks_that_prefers_one(same_rack: Any) -> None:
    racks = [
        Switch(f"r{rack}", tuple(Machine(f"r{rack}{kind}", 4, kind) for kind in "AB"), (1e6, 1e6))
        for rack in (0, 1)
    ]
    cluster = Cluster.of(Switch("core", tuple(racks), (1e6, 1e6)))
    wanted = None if same_rack is None else Constraints(same_rack=same_rack)
    rules = JobRules(constraints_of=lambda _: wanted, may_stop=lambda _: True)
    engine = Engine(ClusterState(cluster), Cranny().with_rules(rules))
    engine.handle(Submitted(job("wide", 10.0, 1.0, gpus=8)), 0.0)
    used = {cluster.rack_of[machine] for machine in engine.state.running["wide"].held}
    assert len(used) == (2 if same_rack is None else 1)


def test_prices_are_learned_from_jobs_that_come_at_once_and_a_copy_knows_them() -> None:
    engine, policy = engine_of("AAB"), Cranny()
    engine.policy = policy
    engine.handle_all([Submitted(job(f"seen-{number}", 4.0, 1.0, gpus=1)) for number in range(4)], 0.0)
    (known,) = {tuple(each.gpu_prices.each({"A": 8, "B": 4}).items()) for each in (policy, policy.going_on())}
    assert dict(known) == pytest.approx({"A": 4.0 / 3.0, "B": 1.0 / 3.0})


def test_types_that_a_job_does_not_ask_for_are_worth_nothing_to_it() -> None:
    engine = engine_of("AB")
    engine.handle(Submitted(job("b", 9.0, 1.0, gpu_type="B")), 0.0)
    assert engine.policy.gpu_prices.each({"A": 4, "B": 4}) == {"A": 0.0, "B": 2.0}  # type: ignore[attr-defined]


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
    """In 2 of the first 750 such worlds one does."""
    late = starts_later_than_promised(
        seed,
        lambda rng: {"speeds": {"A": float(rng.choice([1.0, 2.0])), "B": float(rng.choice([0.5, 1.0, 3.0]))}},
    )
    assert not late


def test_jobs_that_keep_their_size_complete_sooner_than_on_any_type() -> None:
    """Idle machines cost nothing here, or a job would take the one that it needs for a shorter time anyway."""
    jobs = [job(f"job-{number}", 1.0, 3.0, submit_s=300.0 * number) for number in range(20)]
    jct_s = [
        simulate(machines("A", "B"), jobs, Cranny(types=types, machines=False), "instant").summary["mean_jct_s"]
        for types in (True, False)
    ]
    assert jct_s[0] < 0.6 * jct_s[1]
