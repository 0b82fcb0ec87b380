"""Moves that pay, and those that are taken back."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.fewer_moves import MethodTerms, MoveCosts, fewer_moves
from cranny.policies._shared.heterogeneous.instance import Instance

QUIET = ModelProfile("quiet", grad_bytes=1.0, iteration_ms=100.0)
LOUD = ModelProfile("loud", grad_bytes=4e8, iteration_ms=100.0)


def cluster(*machines: tuple[str, int]) -> Cluster:
    made = tuple(Machine(f"m{at}", gpus, gpu_type) for at, (gpu_type, gpus) in enumerate(machines))
    return Cluster.of(Switch("core", made, (10.0,) * len(made)))


def job(name: str, duration_s: float = 1_000.0, model: ModelProfile = QUIET, **fields: float) -> Job:
    given = {"least_gpus": 1, "most_gpus": 8, **fields}
    return Job(name, 1, model, duration_s=duration_s, speeds={"T4": 1.0, "V100": 2.0}, **given)  # type: ignore[arg-type]


def costs(jobs: list[Job], where: Cluster, has: list[list[int]], price_s: float) -> MoveCosts:
    instance = Instance.of(jobs, where, JobEstimates(), None, 0.0)
    divisible = np.array([machine.gpus for machine in where.machines])
    none = np.full(len(jobs), np.inf)
    terms = MethodTerms(lambda seconds: float(seconds.sum()), none, none, np.ones(len(jobs)), none)
    return MoveCosts(
        instance, range(len(jobs)), np.array(has), np.full(len(has), price_s), np.zeros(len(has)), divisible, terms
    )


@pytest.mark.parametrize("price_s", [0.0, 30.0])
def test_jobs_that_are_alike_do_not_change_places(price_s: float) -> None:
    by = costs([job("a"), job("b")], cluster(("T4", 2), ("V100", 2)), [[2, 0], [0, 2]], price_s)
    assert fewer_moves(by, np.array([[0, 2], [2, 0]])).tolist() == [[2, 0], [0, 2]]


@pytest.mark.parametrize("price_s", [0.0, 30.0])
def test_a_job_keeps_its_machine_if_it_gets_another_just_like_it(price_s: float) -> None:
    by = costs([job("a", model=LOUD), job("b")], cluster(("T4", 2), ("T4", 2)), [[2, 0], [0, 1]], price_s)
    assert fewer_moves(by, np.array([[0, 2], [2, 0]])).tolist() == [[2, 0], [0, 2]]


def test_a_move_that_pays_takes_no_others_along() -> None:
    # c gains a lot by the free GPU; what a and b would exchange gains nothing.
    where = cluster(("T4", 2), ("T4", 2), ("V100", 2))
    by = costs([job("a"), job("b"), job("c", 10_000.0)], where, [[2, 0, 0], [0, 2, 0], [0, 0, 1]], 30.0)
    assert fewer_moves(by, np.array([[1, 1, 0], [1, 1, 0], [0, 0, 2]])).tolist() == [
        [2, 0, 0],
        [0, 2, 0],
        [0, 0, 2],
    ]


def test_who_wanted_a_stayers_workers_gets_those_it_would_have_had() -> None:
    # The new job would get the V100, which gains it 250 s; a, which runs there, would lose 400 s.
    by = costs([job("a", 800.0), job("new", 500.0)], cluster(("T4", 1), ("V100", 1)), [[0, 1]], 30.0)
    assert fewer_moves(by, np.array([[1, 0], [0, 1]])).tolist() == [[0, 1], [1, 0]]


def test_a_job_that_moves_for_nothing_goes_where_the_method_wants_it() -> None:
    by = costs([job("a", 800.0), job("new", 500.0)], cluster(("T4", 1), ("V100", 1)), [[0, 1]], 0.0)
    assert fewer_moves(by, np.array([[1, 0], [0, 1]])).tolist() == [[1, 0], [0, 1]]


def test_the_first_of_ways_that_cost_the_same_but_for_rounding_is_the_cheapest() -> None:
    # The jobs are alike, so it is all one which of them has the V100; but sums depend on the order of adding.
    jobs = [job(name, 1_000.3) for name in "abc"]
    by = costs(jobs, cluster(("T4", 5), ("V100", 1)), [[3, 0]] * 3, 0.0)
    ways = [np.array(rows) for rows in itertools.permutations([[3, 0], [1, 0], [1, 1]])]
    assert len({by.cost_s(held) for held in ways}) > 1
    for at in range(len(ways)):
        assert by.cheapest(ways[at:]) is ways[at]
    worse = np.array([[1, 0]] * 3)
    assert by.cheapest([worse, *ways]) is ways[0]


@settings(max_examples=examples(100))
@given(st.data())
def test_fewer_moves_cost_no_more_and_keep_to_limits(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(["T4", "V100"]), min_size=1, max_size=4))
    where = cluster(*((kind, 4) for kind in types))
    count = data.draw(st.integers(1, 4))
    running = data.draw(st.integers(0, count))

    def shares() -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        """Draw workers for all jobs, one at least."""
        left = list(range(4 * len(types)))
        mixed = data.draw(st.permutations(left))
        ends = sorted(data.draw(st.sets(st.integers(1, len(left)), min_size=count, max_size=count)))
        found = np.zeros((count, len(types)), dtype=np.int64)
        for at, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            for gpu in mixed[first:last]:
                found[at, gpu // 4] += 1
        return found

    has, held = shares()[:running], shares()
    jobs = [job(f"j{at}", data.draw(st.floats(10, 1e5)), LOUD, most_gpus=16) for at in range(count)]
    by = costs(jobs, where, has.tolist(), data.draw(st.sampled_from([0.0, 10.0, 1000.0])))
    by = by._replace(has=has)
    found = fewer_moves(by, held)
    assert by.cost_s(found) <= by.cost_s(held) * (1 + 1e-6)
    assert set(by.moves(found)) <= set(by.moves(held))
    assert (found.sum(axis=0) <= by.divisible).all()
    assert (found >= 0).all()
    assert (found.sum(axis=1) >= 1).all()
    assert (found.sum(axis=1) <= np.maximum(held.sum(axis=1), [*has.sum(axis=1), *[0] * (count - running)])).all()


def test_arrivals_do_not_make_everybody_restart() -> None:
    # A job comes every half minute, and moving takes five minutes: shared anew each time, no job would get on.
    jobs = [
        Job(
            f"j{at}", 1, LOUD, submit_s=30.0 * at, duration_s=1_500.0 + 200 * (at % 5), least_gpus=1, most_gpus=6,
            speeds={"T4": 1.0, "V100": 2.0 + 0.1 * (at % 3)}, restart_s=300.0,
        )
        for at in range(30)
    ]  # fmt: skip
    where = cluster(("T4", 4), ("T4", 4), ("V100", 4), ("V100", 4))
    found = cranny.simulate(where, jobs, "has-exact").summary
    # With everything shared anew whenever a job needs divisible it was 39 moves and 2,311 s.
    assert found["moves"] <= 30
    assert found["mean_jct_s"] < 1_900


def test_a_job_without_workers_takes_for_ever() -> None:
    instance = Instance.of([job("a"), job("b")], cluster(("T4", 2)), JobEstimates(), None, 0.0)
    assert instance.seconds(np.array([[2], [0]])).tolist() == [500.0, np.inf]
