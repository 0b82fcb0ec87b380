"""On mixed GPUs: which workers are worth what they cost, and what GPUs are worth to the jobs seen."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.engine import Engine
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.event import MachineDrained, MachineFailed, MachineRepaired, Submitted
from cranny.model.job import Job
from cranny.model.plan import Start, Stop
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.gpu_prices import GpuPrices
from cranny.policies.cranny.shortest_first import ShortestFirst
from cranny.policies.cranny.worker_sets import EVERY, more_and_more
from cranny.run import simulate

speeds = st.sampled_from([0.2, 0.5, 1.0, 1.5, 2.0, 4.0])


def mixed(*types: str, gbps: float = 1e9) -> Cluster:
    """Machines of four GPUs, each of a type; on the fastest links communication takes no time."""
    machines = tuple(Machine(f"{kind}-{number}", 4, kind) for number, kind in enumerate(types))
    return Cluster.of(Switch("core", machines, (gbps,) * len(machines)))


def elastic(name: str, on_a: float, on_b: float, most_gpus: int = 8) -> Job:
    """A job of four workers that can have one or more, with its speed on a GPU of each type."""
    on = {"A": on_a, "B": on_b}
    return Job(name, 4, duration_s=300.0, least_gpus=1, most_gpus=most_gpus, speeds=on, restart_s=1.0)


def workers(policy: ShortestFirst, view: Snapshot, *, sharing: bool = True) -> dict[int, int]:
    """Return how many workers the first job gets on each machine."""
    (start,) = policy.plan(view, sharing=sharing).actions
    assert isinstance(start, Start)
    return start.placement.counts


def waiting(cluster: Cluster, *jobs: Job) -> Snapshot:
    """Return an idle cluster for which jobs wait."""
    return ClusterState(cluster).snapshot(0.0, [Waiting(each) for each in jobs])


def test_slow_gpus_that_would_save_little_stay_idle_where_restarts_are_short() -> None:
    """Four fast GPUs take 300 s: (4 + 4) x 300 GPU-s. Four slow ones beside them would save 50 s: 12 x 250."""
    view = waiting(mixed("A", "B"), elastic("a", 1.0, 0.2))
    policy = ShortestFirst(10.0)
    policy._seen._prices.see({"A": 1.0, "B": 1.0}, {"A": 4, "B": 4})  # GPUs are worth the same to all jobs seen
    policy._seen._there = {"a"}
    assert workers(policy, view) == {0: 4}
    assert workers(policy, view, sharing=False) == {0: 4, 1: 4}


def test_gpus_on_a_second_machine_are_not_taken_if_communication_eats_up_what_they_gain() -> None:
    job = elastic("a", 1.0, 1.0)
    assert workers(ShortestFirst(10.0), waiting(mixed("A", "B"), job)) == {0: 4, 1: 4}
    assert workers(ShortestFirst(10.0), waiting(mixed("A", "B", gbps=0.1), job)) == {0: 4}


def test_a_job_that_is_as_fast_everywhere_leaves_the_gpus_that_others_gain_most_on() -> None:
    policy, cluster = ShortestFirst(10.0), mixed("A", "B")
    any_gpu = elastic("any", 1.0, 1.0, most_gpus=4)
    assert workers(policy, waiting(cluster, any_gpu)) == {0: 4}  # nothing is known of others
    policy.plan(waiting(cluster, *[elastic(f"picky-{i}", 2.0, 1.0) for i in range(3)]), sharing=True)
    assert workers(policy, waiting(cluster, any_gpu)) == {1: 4}


def test_each_job_counts_once_in_prices_however_often_it_is_seen() -> None:
    once, often, cluster = ShortestFirst(10.0), ShortestFirst(10.0), mixed("A", "B")
    jobs = [elastic("a", 2.0, 1.0), elastic("b", 1.0, 3.0)]
    once.plan(waiting(cluster, *jobs), sharing=True)
    for _ in range(3):
        often.plan(waiting(cluster, *jobs), sharing=True)
    assert once._seen._prices._worth == often._seen._prices._worth


def test_prices_are_what_gpus_give_to_the_jobs_seen_and_1_on_average() -> None:
    prices, gpus = GpuPrices(), {"A": 4, "B": 4}
    assert prices.each(gpus) == {"A": 1.0, "B": 1.0}
    prices.see({"A": 3.0, "B": 1.0}, gpus)
    assert prices.each(gpus) == pytest.approx({"A": 1.5, "B": 0.5})
    prices.see({"A": 0.0, "B": 0.0}, gpus)  # runs nowhere
    assert prices.each(gpus) == pytest.approx({"A": 1.5, "B": 0.5})
    for _ in range(5000):
        prices.see({"A": 2.0, "B": 6.0}, gpus)
    assert prices.each(gpus) == pytest.approx({"A": 0.5, "B": 1.5}, abs=1e-3)  # what was long ago is forgotten
    assert prices.each({"B": 2, "C": 9}) == pytest.approx({"B": 1.0, "C": 1.0})  # nothing is known of C
    assert prices.each({"C": 9}) == {"C": 1.0}


def test_prices_belong_to_types_of_gpus_whatever_machines_there_are() -> None:
    policy = ShortestFirst(10.0)
    policy.plan(waiting(mixed("A", "B"), *[elastic(f"picky-{i}", 2.0, 1.0) for i in range(3)]), sharing=True)
    any_gpu = elastic("any", 1.0, 1.0, most_gpus=4)
    assert workers(policy, waiting(mixed("B", "A"), any_gpu)) == {0: 4}
    assert workers(policy, waiting(mixed("A", "A", "B"), any_gpu)) == {2: 4}


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(speeds, speeds), min_size=1, max_size=4), st.lists(st.sampled_from("AB"), max_size=5))
def test_no_other_number_of_machines_of_each_type_costs_less(
    on: list[tuple[float, float]], types: list[str]
) -> None:
    """Against all numbers of machines of each type, where communication takes no time and no job is limited."""
    cluster = mixed("A", "B", *types)
    policy = ShortestFirst(10.0)
    *before, job = [elastic(str(number), *each, most_gpus=64) for number, each in enumerate(on)]
    if before:
        policy.plan(waiting(cluster, *before), sharing=True)
    found = workers(policy, waiting(cluster, job), sharing=True)
    assert job.speeds is not None
    speed = np.array([job.speeds[machine.gpu_type] for machine in cluster.machines])
    gpus = {kind: 4 * count for kind, count in Counter(each.gpu_type for each in cluster.machines).items()}
    by_type = policy._seen._prices.each(gpus)
    prices = [by_type[machine.gpu_type] for machine in cluster.machines]

    def cost(held: dict[int, int]) -> float:
        price = sum(prices[machine] * count for machine, count in held.items())
        together = sum(speed[machine] * count for machine, count in held.items())
        return float((job.gpus + price) * 300.0 * job.gpus / together)

    of = {kind: [at for at, machine in enumerate(cluster.machines) if machine.gpu_type == kind] for kind in "AB"}
    others = [
        dict.fromkeys([*of["A"][:on_a], *of["B"][:on_b]], 4)
        for on_a, on_b in product(range(len(of["A"]) + 1), range(len(of["B"]) + 1))
        if on_a + on_b
    ]
    assert cost(found) <= min(map(cost, others)) * (1.0 + 1e-6)


def test_on_many_machines_some_numbers_of_them_are_tried_and_all_of_a_type_among_them() -> None:
    """Of 50 fast and 50 slow machines, all fast ones are worth their cost, and no slow one."""
    cluster = mixed(*["A"] * 50, *["B"] * 50)
    policy, job = ShortestFirst(10.0), elastic("a", 1.0, 0.2, most_gpus=400)
    policy._seen._prices.see({"A": 1.0, "B": 1.0}, {"A": 200, "B": 200})
    policy._seen._there = {"a"}
    assert workers(policy, waiting(cluster, job)) == dict.fromkeys(range(50), 4)
    ones, room = np.ones(100), np.full(100, 4)
    tried = [int(each.sum()) // 4 for each in more_and_more(np.arange(100), ones, room, 1, 400)]
    assert tried == [*range(1, EVERY + 1), 2 * EVERY, 4 * EVERY, 8 * EVERY, 100]


def test_a_job_takes_an_idle_machine_rather_than_rests_of_others_that_it_must_talk_to() -> None:
    cluster = mixed("A", "A", gbps=1.0)
    state = ClusterState(cluster)
    other = Job("other", 3)
    state.place(other, state.snapshot().placement(other, (0, 0, 0)))
    job = elastic("a", 1.0, 1.0, most_gpus=4)
    assert workers(ShortestFirst(10.0), state.snapshot(0.0, [Waiting(job)])) == {1: 4}


def test_the_first_leaves_those_of_its_gpus_to_the_second_that_suit_it_better() -> None:
    """On A the second gains more by comparison, on B the first, which is worth its cost on both by itself."""
    cluster = mixed("A", "B")
    first, second = elastic("first", 1.0, 1.0), elastic("second", 2.0, 0.5)
    assert workers(ShortestFirst(10.0), waiting(cluster, first)) == {0: 4, 1: 4}
    assert workers(ShortestFirst(10.0), waiting(cluster, first, second)) == {1: 4}
    assert workers(ShortestFirst(10.0), waiting(cluster, first, second), sharing=False) == {0: 4, 1: 4}


@pytest.mark.parametrize(("types", "jct_s"), [("AB", 3080.0), ("ABB", 3060.0), ("AAB", 1550.0)])
def test_once_no_job_waits_one_moves_to_gpus_that_are_better_also_if_they_are_no_more(
    types: str, jct_s: float
) -> None:
    """The first takes a machine of type A for 100 s; on B the other is a fifth as fast."""
    first = replace(elastic("first", 1.0, 1.0, most_gpus=4), duration_s=100.0, least_gpus=4)
    other = replace(elastic("other", 1.0, 0.2), duration_s=3000.0, submit_s=1.0)
    result = simulate(mixed(*types), [first, other], "cranny", "instant")
    found = dict(result.jobs.select("job_id", "jct_s").iter_rows())
    assert found["other"] == pytest.approx(jct_s, rel=0.02)


def fixed(name: str, kind: str, duration_s: float, submit_s: float = 0.0, most_gpus: int = 4) -> Job:
    """A job that runs on one type of GPU only, on one to four of them."""
    return Job(
        name,
        4,
        submit_s=submit_s,
        duration_s=duration_s,
        least_gpus=1,
        most_gpus=most_gpus,
        speeds={kind: 1.0},
        restart_s=1.0,
    )


def test_a_job_on_a_machine_that_takes_no_more_jobs_stays_there() -> None:
    engine = Engine(ClusterState(mixed("A", "A", "B")), Cranny())
    engine.handle_all(
        [Submitted(fixed("first", "A", 100.0)), Submitted(fixed("grows", "A", 1000.0, most_gpus=8))], 0.0
    )
    (machine,) = engine.state.find("grows").held
    engine.handle_all([MachineDrained(machine)], 50.0)
    engine.finish("first", 100.0)
    assert set(engine.state.find("grows").held) == {machine}
    engine.handle_all([MachineRepaired(machine)], 200.0)
    assert len(engine.state.find("grows").held) == 2


def test_a_job_whose_gpus_are_down_stops_no_others_and_lets_them_start() -> None:
    engine = Engine(ClusterState(mixed("A", "B")), Cranny())
    engine.handle_all([MachineFailed(0)], 0.0)
    engine.handle_all([Submitted(fixed("on-b", "B", 1e5))], 1.0)
    engine.handle_all([Submitted(fixed("needs-a", "A", 10.0, 1000.0))], 1000.0)
    assert list(engine.state.running) == ["on-b"]
    engine.finish("on-b", 2000.0)
    engine.handle_all([Submitted(fixed("also-b", "B", 1e5, 2001.0))], 2001.0)
    assert list(engine.state.running) == ["also-b"]
    engine.handle_all([MachineRepaired(0)], 3000.0)
    assert set(engine.state.running) == {"also-b", "needs-a"}


def test_only_a_job_that_holds_gpus_that_the_first_can_use_is_stopped_for_it() -> None:
    engine = Engine(ClusterState(mixed("A", "B")), Cranny())
    engine.handle_all([Submitted(fixed("on-a", "A", 20.0)), Submitted(fixed("on-b", "B", 1e5))], 0.0)
    engine.handle_all([Submitted(fixed("needs-a", "A", 30.0, 5.0))], 5.0)
    assert set(engine.state.running) == {"on-a", "on-b"}


def test_jobs_of_a_partition_run_on_its_machines() -> None:
    machines = tuple(Machine(f"m{number}", 4, kind) for number, kind in enumerate("ABAB"))
    cluster = Cluster.of(Switch("core", machines, (1e9,) * 4), partitions={"p": ("m2", "m3")})
    job = replace(elastic("a", 1.0, 1.0, most_gpus=16), partition="p")
    assert set(workers(ShortestFirst(10.0), waiting(cluster, job))) == {2, 3}


def test_a_job_gets_no_fewer_workers_than_it_needs_although_fewer_would_cost_less() -> None:
    job = replace(elastic("a", 1.0, 0.2), gpus=8, least_gpus=6)
    assert sum(workers(ShortestFirst(10.0), waiting(mixed("A", "B"), job)).values()) >= 6
    result = simulate(mixed("A", "B"), [job], "cranny", "instant")
    assert result.summary["jobs_done"] == 1


@pytest.mark.parametrize(
    ("on_b", "restart_s", "stops"),
    [
        (0.2, 1.0, True),  # on slow GPUs it would take 1500 s
        (0.2, 100.0, True),
        (0.2, 700.0, False),  # longer restarts cost more than that
        (0.9, 1.0, False),  # it would gain 33 s, and the other lose half of 300 s
    ],
)
def test_a_long_job_gives_its_gpus_to_a_short_one_that_gains_more_by_them_than_it_loses(
    on_b: float, restart_s: float, *, stops: bool
) -> None:
    long = replace(elastic("long", 1.0, 0.5, most_gpus=4), duration_s=1e5, restart_s=restart_s)
    short = replace(elastic("short", 1.0, on_b, most_gpus=4), submit_s=100.0, restart_s=restart_s)
    result = simulate(mixed("A", "B"), [long, short], "cranny", "instant")
    found = {
        job_id: (jct_s, restarts)
        for job_id, jct_s, restarts in result.jobs.select("job_id", "jct_s", "restarts").rows()
    }
    if not stops:
        assert found == {"long": (pytest.approx(1e5), 0), "short": (pytest.approx(300.0 / on_b), 0)}
        return
    # It goes on at half its speed, at once, and restarts again when it gets its GPUs back.
    assert found["short"] == (pytest.approx(300.0), 0)
    assert found["long"][0] == pytest.approx(1e5 + 150.0 + 1.5 * restart_s, abs=restart_s)


def test_no_job_gives_its_gpus_to_one_that_comes_later_with_what_it_has_left() -> None:
    running = replace(elastic("running", 1.0, 0.2, most_gpus=4), duration_s=400.0)
    later = replace(elastic("later", 1.0, 0.2, most_gpus=4), duration_s=4000.0, submit_s=100.0)
    result = simulate(mixed("A", "B"), [running, later], "cranny", "instant")
    assert dict(result.jobs.select("job_id", "jct_s").rows())["running"] == pytest.approx(400.0)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(speeds, speeds, st.floats(10.0, 1e4), st.floats(0.0, 3000.0)), min_size=2, max_size=12))
def test_jobs_that_give_way_to_each_other_all_end_and_no_instant_goes_on_for_ever(
    drawn: list[tuple[float, float, float, float]],
) -> None:
    jobs = [
        replace(elastic(f"job-{number}", on_a, on_b), duration_s=duration_s, submit_s=at_s)
        for number, (on_a, on_b, duration_s, at_s) in enumerate(sorted(drawn, key=lambda each: each[3]))
    ]
    result = simulate(mixed("A", "B", "A"), jobs, "cranny", "instant")
    assert result.summary["jobs_done"] == len(jobs)
    assert result.summary["restarts"] <= 4 * len(jobs)


class ByPriority(Cranny):
    """The policy with the queue of a service: by priority first."""

    def key(self, waiting: Waiting) -> tuple[float, float]:  # type: ignore[override]
        return -waiting.job.priority, super().key(waiting)


@pytest.mark.parametrize(("priority", "stopped"), [(0.0, True), (5.0, False)])
def test_no_job_of_higher_priority_gives_its_gpus_to_another(priority: float, *, stopped: bool) -> None:
    """It would come first again, and take them back."""
    engine = Engine(ClusterState(mixed("A", "B")), ByPriority())
    long = replace(elastic("long", 1.0, 0.5, most_gpus=4), duration_s=1e5, restart_s=100.0, priority=priority)
    engine.handle(Submitted(long), 0.0)
    short = replace(elastic("short", 1.0, 0.2, most_gpus=4), submit_s=1000.0)
    done = engine.handle(Submitted(short), 1000.0)
    assert any(isinstance(each, Stop) for each in done) == stopped
    assert set(engine.state.running) == {"long", "short"}


def test_jobs_that_are_about_as_long_do_not_stop_each_other_in_turn() -> None:
    """One of 36 long jobs makes way for a short one; each of the others is seconds longer than the one before."""
    engine = Engine(ClusterState(mixed(*"AB" * 20)), Cranny(lookahead=False))
    for number in range(36):
        long = replace(elastic(f"long-{number}", 2.0, 1.0, most_gpus=4), duration_s=1e5 + number)
        engine.handle(Submitted(long), float(number))
    engine.tick(5000.0)
    short = replace(elastic("short", 2.0, 1.0, most_gpus=4), submit_s=6000.0)
    done = engine.handle(Submitted(short), 6000.0)
    assert sum(isinstance(each, Stop) for each in done) == 1
