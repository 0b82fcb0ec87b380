from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from tests.examples import examples
from tests.policies.heterogeneous.drawn import EXAMPLE, drawn
from tests.reference import has as book

from cranny.model.errors import InputError
from cranny.policies._shared.heterogeneous.greedy_baselines import optimus, optimus_lb
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares, Training
from cranny.policies.gavel import fractions, gavel, next_round, scales, throughput
from cranny.policies.has.has_jps import categories, category, draw, has, heaviness, jps, size
from cranny.policies.has.las import las
from cranny.policies.has.market import Market, clear, market
from cranny.policies.optimus import OptimusLb


def prices(cleared: Market) -> Floats:
    """Return the prices at which every job holds what it prefers, the lowest 0; (types,)."""
    return np.asarray(cleared.price.max() - cleared.price)


def test_categories_come_in_the_papers_order() -> None:
    assert list(categories(5, 3)) == [(3, 1, 1), (2, 2, 1), (1, 3, 1), (2, 1, 2), (1, 2, 2), (1, 1, 3)]


@pytest.mark.parametrize(("workers", "jobs", "count"), [(15, 4, 364), (30, 4, 3654), (15, 3, 91), (15, 5, 1001)])
def test_there_are_as_many_categories_as_in_table_iv(workers: int, jobs: int, count: int) -> None:
    assert size(workers, jobs) == count
    assert sum(1 for _ in categories(workers, jobs)) == count


@pytest.mark.parametrize(
    ("number", "sizes"),
    [(1, (12, 1, 1, 1)), (18, (6, 6, 2, 1)), (94, (6, 5, 2, 2)), (159, (5, 5, 2, 3)), (364, (1, 1, 1, 12))],
)
def test_categories_have_the_numbers_that_section_v_names(number: int, sizes: tuple[int, ...]) -> None:
    # The paper writes 11 for the 12 of the first and the last one, which would leave a worker over.
    assert category(15, 4, number - 1) == sizes


@settings(max_examples=examples(50))
@given(st.integers(1, 5), st.integers(0, 7))
def test_categories_are_algorithm_1_word_by_word(jobs: int, more: int) -> None:
    found = list(categories(jobs + more, jobs))
    assert found == book.categories(jobs + more, jobs)
    assert found == [category(jobs + more, jobs, place) for place in range(size(jobs + more, jobs))]


@settings(max_examples=examples(100))  # the first time compiles
@given(st.data())
def test_a_market_has_the_throughput_of_the_best_assignment(data: st.DataObject) -> None:
    kinds = data.draw(st.integers(1, 5))
    totals = np.array(data.draw(st.lists(st.integers(1, 6), min_size=kinds, max_size=kinds)))
    jobs = data.draw(st.integers(1, min(5, int(totals.sum()))))
    sizes = np.array(
        category(int(totals.sum()), jobs, data.draw(st.integers(0, size(int(totals.sum()), jobs) - 1)))
    )
    row = st.lists(st.integers(1, 50) | st.floats(1, 500), min_size=kinds, max_size=kinds)
    rates = np.array(data.draw(st.lists(row, min_size=jobs, max_size=jobs)), dtype=np.float64)
    stall = market(jobs, kinds)
    clear(stall, rates, sizes, totals)
    hold = stall.hold
    assert hold.sum(axis=0).tolist() == totals.tolist()
    assert hold.sum(axis=1).tolist() == sizes.tolist()
    single = rates[np.ix_(np.repeat(np.arange(jobs), sizes), np.repeat(np.arange(kinds), totals))]
    assert (hold * rates).sum() == pytest.approx(single[linear_sum_assignment(-single)].sum())
    # Eq. 31: at these prices no job would rather have another type than one that it holds.
    value = rates - prices(stall)
    for job in range(jobs):
        for kind in np.flatnonzero(hold[job]):
            assert (value[job, kind] >= value[job] - 1e-6 * (1 + np.abs(rates).max())).all()


def test_a_market_agrees_with_algorithm_2_where_that_ends() -> None:
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(60):
        kinds = np.repeat(np.arange(3), rng.integers(1, 4, 3))
        sizes = np.array(category(len(kinds), 3, int(rng.integers(size(len(kinds), 3)))))
        rates = rng.integers(10, 500, (3, 3)).astype(np.float64)
        try:
            graph = book.market(rates[:, kinds].tolist(), sizes.tolist())
        except book.EndlessError:
            continue
        ended += 1
        stall = market(3, 3)
        clear(stall, rates, sizes, np.bincount(kinds, minlength=3))
        assert (stall.hold * rates).sum() == pytest.approx(
            sum(rates[job, kinds[k]] for job in range(3) for k in graph[job])
        )
    assert ended > 30


def test_algorithm_2_as_printed_does_not_end_on_two_equal_workers() -> None:
    # Both jobs want worker 0, its price rises; then both want worker 1, its price rises; and so on.
    price = [0, 0]
    for _ in range(1000):
        wanted = [0 if price[0] <= price[1] else 1 for _ in range(2)]
        assert wanted[0] == wanted[1]
        price[wanted[0]] += max(1, abs(price[0] - price[1]))


def test_has_finds_the_shares_of_the_motivating_example() -> None:
    shares = has(EXAMPLE)
    assert shares.totals.tolist() == [[2, 1], [0, 1]]
    assert shares.mean_jct_s == pytest.approx(11_225.8, abs=0.05)


def test_las_shares_equally_in_the_motivating_example() -> None:
    shares = las(EXAMPLE)
    assert shares.totals.tolist() == [[1, 1], [1, 1]]
    assert shares.mean_jct_s == pytest.approx(12_776.8, abs=0.05)


def test_has_is_algorithm_2_word_by_word_without_a_network() -> None:
    rng = np.random.default_rng(1)
    for _ in range(8):
        problem = replace(drawn(rng, 3, 2, 2, 2), inside_gbps=float("inf"), between_gbps=float("inf"))
        assert has(problem).mean_jct_s == pytest.approx(book.has_s(problem))


def test_has_leaves_no_worker_idle_and_refuses_too_many_categories() -> None:
    problem = drawn(np.random.default_rng(2), 4, 3, 3, 2)
    assert has(problem).workers.sum() == problem.size
    many = drawn(np.random.default_rng(0), 20, 2, 20, 5)
    with pytest.raises(InputError, match="has would evaluate"):
        has(many)


def test_jps_sorts_light_jobs_first_so_that_heavy_ones_get_more() -> None:
    assert heaviness(EXAMPLE).argsort().tolist() == [1, 0]
    # Rear part of {3, 1}, {2, 2}, {1, 3} for VGG-19, ResNet-18: only the last category is left by alpha 0.7.
    shares = jps(EXAMPLE, np.random.default_rng(0))
    assert shares.workers.sum(axis=(1, 2)).tolist() == [3, 1]
    assert shares.mean_jct_s == pytest.approx(11_225.8, abs=0.05)


def test_jps_with_all_categories_is_has() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        problem = drawn(rng, 3, 3, 2, 2)
        everything = jps(problem, rng, samples=10**6, alpha=0.0)
        assert everything.mean_jct_s == pytest.approx(has(problem).mean_jct_s)


def test_jps_gives_the_same_for_the_same_seed_and_more_samples_are_no_worse_on_average() -> None:
    problem = drawn(np.random.default_rng(4), 4, 3, 4, 3)
    once, again = (jps(problem, np.random.default_rng(7)) for _ in range(2))
    assert once.workers.tolist() == again.workers.tolist()
    few, many = (
        np.mean([jps(problem, np.random.default_rng(s), n).mean_jct_s for s in range(20)]) for n in (5, 60)
    )
    assert many <= few


def test_jps_is_fairer_with_a_lower_beta() -> None:
    problem = drawn(np.random.default_rng(5), 4, 3, 4, 3)
    found = [jps(problem, np.random.default_rng(0), 10**4, 0.0, beta) for beta in (1.0, 0.5, 0.0)]
    assert found[0].mean_jct_s <= found[1].mean_jct_s <= found[2].mean_jct_s
    assert found[0].fairness <= found[1].fairness <= found[2].fairness


@pytest.mark.parametrize("count", [100, 2**41, comb(999, 49)])
def test_draws_places_of_the_rear_part_and_none_twice(count: int) -> None:
    places = draw(np.random.default_rng(0), count, 20, 0.7)
    assert len(set(places)) == 20
    assert all(0.6999 * count <= place < count for place in places)
    assert draw(np.random.default_rng(0), 5, 20, 0.7) == [3, 4]


@pytest.mark.parametrize(("option", "value"), [("alpha", 1.5), ("beta", -0.1), ("samples", 0)])
def test_jps_refuses_settings_out_of_range(option: str, value: float) -> None:
    with pytest.raises(InputError, match=option):
        jps(EXAMPLE, np.random.default_rng(0), **{option: value})  # type: ignore[arg-type]


def test_optimus_gives_out_workers_in_the_clusters_order() -> None:
    # T4 each; then both V100 to ResNet-18, which gains most. Split equally, they would wait for its T4.
    assert optimus_lb(EXAMPLE).totals.tolist() == [[1, 2], [1, 0]]
    assert optimus_lb(EXAMPLE).mean_jct_s == pytest.approx((2e7 / 1563 + 1e7 / 884) / 2)
    assert optimus(EXAMPLE).jct_s.tolist() == pytest.approx([2e7 / 3 / 275, 1e7 / 884])


def test_optimus_gives_out_workers_by_type_where_that_is_asked_for() -> None:
    # V100 each, then both T4 to ResNet-18, which gains most; or as the cluster has them, T4 first.
    assert optimus_lb(EXAMPLE, "fastest").totals.tolist() == [[2, 1], [0, 1]]
    assert optimus_lb(EXAMPLE, "slowest").totals.tolist() == [[1, 2], [1, 0]]
    turned = replace(EXAMPLE, gpu_types=("V100", "T4"), throughput=[[644, 275], [1754, 884]])
    assert optimus_lb(turned).totals.tolist() == [[1, 2], [1, 0]]
    assert optimus_lb(turned, "fastest").totals.tolist() == [[1, 2], [1, 0]]
    assert optimus_lb(turned, "slowest").totals.tolist() == [[2, 1], [0, 1]]
    with pytest.raises(InputError, match="order must be one of listed, fastest, slowest, not 'fast'"):
        OptimusLb(order="fast")


def test_optimus_stops_where_a_worker_would_make_every_job_slower() -> None:
    problem = Problem((Training("a", 1000, 1, 1e12),), ("T4",), [[1], [1]], [[100]], 100, 1)
    assert optimus_lb(problem).workers.sum() == 1


@pytest.mark.parametrize("policy", [has, las, optimus, optimus_lb])
def test_policies_keep_jobs_off_types_that_cannot_run_them(policy: object) -> None:
    problem = replace(EXAMPLE, throughput=[[None, 644], [884, None]])
    shares = policy(problem)  # type: ignore[operator]
    assert isinstance(shares, Shares)
    assert shares.totals.tolist() == [[0, 2], [2, 0]]


def test_has_says_so_if_every_category_gives_some_job_a_worker_that_cannot_run_it() -> None:
    problem = replace(EXAMPLE, throughput=[[None, 644], [None, 1754]])
    with pytest.raises(InputError, match="no category"):
        has(problem)


def test_gavel_runs_a_job_on_one_type_in_a_round() -> None:
    # With two GPUs each, one of the jobs has both V100 in every round, and the other both T4.
    wanted = scales(EXAMPLE, None)
    speed = throughput(EXAMPLE, wanted)
    share = fractions(EXAMPLE, wanted, speed, np.array([True, True]))
    assert share.sum(axis=1).tolist() == pytest.approx([1, 1])
    assert (share.sum(axis=0) * 2 <= EXAMPLE.totals + 1e-9).all()
    chosen = next_round(share, np.zeros_like(share), 0, wanted, EXAMPLE.totals)
    assert sorted(chosen.tolist()) == [0, 1]


def test_gavel_is_fair_over_rounds_and_takes_over_what_others_leave() -> None:
    one = Problem(EXAMPLE.jobs[:1], EXAMPLE.gpu_types, EXAMPLE.workers, EXAMPLE.throughput[:1])
    assert gavel(one).jct_s.tolist() == pytest.approx([2e7 / 1288])  # alone: both V100 all the time
    both = gavel(EXAMPLE)
    assert (both.jct_s > [2e7 / 1288, 1e7 / 3508]).all()
    assert both.rounds == pytest.approx(both.jct_s.max() / 360, abs=1)


def test_gavel_refuses_a_scale_that_no_type_has() -> None:
    with pytest.raises(InputError, match="job 'VGG-19': no GPU type that can run it has 3 workers"):
        gavel(EXAMPLE, [2, 3])
    with pytest.raises(InputError, match="1 scales for 2 jobs"):
        gavel(EXAMPLE, [2])
