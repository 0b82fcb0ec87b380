import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.partition import (
    crossing,
    improved,
    least_boundaries,
    least_crossing,
    least_split,
    whole_table,
)

from cranny.core import partition, partition_kernel
from cranny.core.partition import EPSILON, boundary, crossing_bound, lower_bound, order, split, weights
from cranny.core.traffic import exchange_graph, parts
from cranny.model.collective import Pattern, pattern, placed
from cranny.model.errors import InputError
from cranny.model.job import Job

COLLECTIVES = ("halving-doubling", "gloo-halving-doubling", "ring", "tree", "parameter-server", "all-to-all")


def all_caps(ranks: int) -> list[tuple[int, ...]]:
    """Every choice of up to three machines, largest first, that can hold the ranks with none left empty."""
    return [
        caps
        for parts_ in (1, 2, 3)
        for caps in itertools.combinations_with_replacement(range(ranks, 0, -1), parts_)
        if len(caps) <= ranks <= sum(caps)
    ]


def check_against_trying_everything(what: Pattern, caps: tuple[int, ...]) -> float:
    """Check a split; return how far it is from the optimum."""
    found = split(what, caps)
    best = least_crossing(what, caps)
    assert found.cross_share == pytest.approx(crossing(what, found.part))
    used = np.bincount(found.part, minlength=len(caps))
    assert (used >= 1).all()
    assert (used <= caps).all()
    assert lower_bound(what, caps)[0] <= best + EPSILON
    assert found.cross_share >= best - EPSILON
    return found.cross_share - best


@pytest.mark.parametrize("ranks", range(1, 7))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_small_splits_are_optimal(collective: str, ranks: int) -> None:
    for caps in all_caps(ranks):
        gap = check_against_trying_everything(pattern(collective, ranks), caps)
        assert gap <= EPSILON, caps


@pytest.mark.parametrize(
    "caps", [(4, 4), (5, 3), (6, 6), (7, 4), (8, 1), (3, 3, 2), (4, 2, 2), (4, 4, 4), (2, 2, 2, 2)]
)
@pytest.mark.parametrize("ranks", [7, 8])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_splits_of_eight_are_optimal(collective: str, ranks: int, caps: tuple[int, ...]) -> None:
    gap = check_against_trying_everything(pattern(collective, ranks), caps)
    assert gap <= EPSILON


@pytest.mark.parametrize(
    ("collective", "ranks", "caps"),
    [("tree", 8, (6, 2)), ("halving-doubling", 7, (3, 2, 2))],  # 4 K and 3 K without trying all splits
)
def test_uneven_fragments_are_used_in_the_best_way(collective: str, ranks: int, caps: tuple[int, ...]) -> None:
    assert split(pattern(collective, ranks), caps).cross_share == pytest.approx(2.0)


def test_the_gap_of_random_splits_is_small() -> None:
    rng = np.random.default_rng(0)
    gaps, of_few = list[float](), list[float]()
    while len(gaps) < examples(800):
        ranks, size = int(rng.integers(2, 13)), int(rng.choice([4, 8]))
        caps = tuple(sorted(rng.integers(1, size + 1, int(rng.integers(2, 7))).tolist(), reverse=True))
        if len(caps) <= ranks <= sum(caps):
            what = pattern(str(rng.choice(COLLECTIVES)), ranks)
            least = crossing(what, least_split(weights(what), caps).tolist())
            gaps.append(split(what, caps).cross_share / least - 1)
            of_few += gaps[-1:] if ranks <= partition.EXACT_RANKS else []
    assert max(of_few) < 1e-9  # exact
    assert min(gaps) > -1e-9
    assert float(np.mean(gaps)) < 0.01
    assert max(gaps) < 0.15


def test_the_oracle_of_larger_splits_tries_everything() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        ranks = int(rng.integers(3, 8))
        caps = tuple(sorted(rng.integers(1, 5, 3).tolist(), reverse=True))
        if len(caps) <= ranks <= sum(caps):
            what = pattern(str(rng.choice(COLLECTIVES)), ranks)
            found = crossing(what, least_split(weights(what), caps).tolist())
            assert found == pytest.approx(least_crossing(what, caps))


def test_fig_1_halves_four_ranks_by_who_talks_most() -> None:
    found = split(pattern("halving-doubling", 4), (3, 2))
    assert found.cross_share == 1.0
    assert found.part[0] == found.part[2]
    assert found.part[1] == found.part[3]


@pytest.mark.parametrize("ranks", [8, 16])
def test_harpers_bound_is_reached_at_powers_of_two(ranks: int) -> None:
    what = pattern("halving-doubling", ranks)
    assert boundary(what, ranks) == pytest.approx(least_boundaries(what))


@pytest.mark.parametrize("ranks", range(2, 14))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_no_ranks_send_less_than_the_bound(collective: str, ranks: int) -> None:
    what = pattern(collective, ranks)
    bounds, least = boundary(what, ranks), least_boundaries(what)
    assert len(bounds) == ranks + 1
    assert all(bound <= real + 1e-9 for bound, real in zip(bounds, least, strict=True))
    assert boundary(what, 2) == bounds[:3]  # of few ranks it is the same, and takes less


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2), (2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_bounds_hold_for_jobs_with_tensor_and_pipeline_parallelism(collective: str, tp: int, pp: int) -> None:
    job = Job(id="a", gpus=8, model="gpt2", collective=collective, tp=tp, pp=pp)
    apart = [what for what, _ in parts(job, ()) if what.phases]
    for what in (*apart, exchange_graph(job)):
        for caps in ((4, 4), (8, 1), (3, 3, 2), (2, 2, 2, 2)):
            check_against_trying_everything(what, caps)


@pytest.mark.parametrize("seats", [(0, 0, 1, 1), (0, 1, 2, 0, 1, 2), (0, 0, 0, 1, 2)])
def test_bounds_hold_for_hierarchical_reductions(seats: tuple[int, ...]) -> None:
    for caps in all_caps(len(seats)):
        check_against_trying_everything(placed("hierarchical", seats), caps)


@pytest.mark.parametrize("caps", [(32, 32, 24, 16), (8,) * 9 + (4,) * 6, (8, 7, 6, 5, 4) * 3 + (3, 3)])
@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("most_choices", [0, 4096])
def test_large_jobs_stay_between_the_bound_and_ranks_in_order(
    collective: str, caps: tuple[int, ...], most_choices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "MOST_CHOICES", most_choices)
    caps = tuple(sorted(caps, reverse=True))
    what = pattern(collective, 96)
    found = split.__wrapped__(what, caps)
    in_order = [part for part, cap in enumerate(caps) for _ in range(cap)][:96]
    assert lower_bound(what, caps)[0] - 1e-9 <= found.cross_share <= crossing(what, in_order) + 1e-9


@given(data=st.data())
def test_bounds_are_those_of_the_whole_table(data: st.DataObject) -> None:
    """Only sums that can still become a division are kept: bound and sizes are the same to the last bit."""
    what = pattern(data.draw(st.sampled_from(COLLECTIVES)), data.draw(st.integers(1, 24)))
    caps = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=8).filter(lambda c: sum(c) >= what.ranks))
    caps = caps[: what.ranks]
    if sum(caps) < what.ranks:
        caps = [*caps[:-1], what.ranks]
    sizes = lower_bound(what, tuple(caps))[1]
    sums, chosen = whole_table(boundary(what, min(max(caps), what.ranks)), what.ranks, caps)
    assert sizes == chosen
    assert lower_bound(what, tuple(caps))[0] == crossing_bound(what, tuple(caps)) >= sums / 2


@pytest.mark.parametrize("collective", [each for each in COLLECTIVES if each != "all-to-all"])
def test_bounds_of_ten_thousand_ranks_take_little_memory(collective: str) -> None:
    what = pattern(collective, 10_000)
    assert what.edges  # counted before
    tracemalloc.start()
    try:
        bound = crossing_bound(what, (8,) * 1_300)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert bound > 0.0
    assert peak < 64e6  # a matrix of the ranks takes 800 MB


class AddedBackwards(np.ndarray):
    """A matrix whose products add from the last to the first, as another library of algebra may."""

    def __matmul__(self, other: Any) -> Any:
        total = np.zeros((len(self), other.shape[1]))
        for k in reversed(range(len(other))):
            total += np.outer(self[:, k], other[k])
        return total


@given(data=st.data())
def test_compiled_swaps_and_moves_are_the_same_whatever_the_order_of_adding(data: st.DataObject) -> None:
    ranks = data.draw(st.integers(2, 16))
    tp, pp = data.draw(st.sampled_from([(1, 1), (2, 1), (1, 2), (3, 1), (2, 3)]))
    collective = data.draw(st.sampled_from(COLLECTIVES))
    job = Job(id="a", gpus=ranks * tp * pp, model="bert-large", collective=collective, tp=tp, pp=pp)
    matrix, ranks = weights(exchange_graph(job)), job.gpus
    count = data.draw(st.integers(1, min(ranks, 6)))
    part = np.array(data.draw(st.permutations([*range(count), *(i % count for i in range(ranks - count))])))
    room = np.array(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    caps, slack = np.bincount(part) + room, EPSILON * float(matrix.sum())
    slow = improved(matrix.view(AddedBackwards), part, caps, slack)
    partition_kernel.improve(matrix, part, caps, slack)
    assert part.tolist() == slow.tolist()


@pytest.mark.parametrize("ranks", range(1, 40))
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_an_order_names_each_rank_once(collective: str, ranks: int) -> None:
    assert sorted(order(pattern(collective, ranks))) == list(range(ranks))


def test_halving_doubling_keeps_the_first_partners_together() -> None:
    assert order(pattern("halving-doubling", 8)) == (0, 4, 2, 6, 1, 5, 3, 7)


def test_a_tree_keeps_its_branches_together() -> None:
    assert order(pattern("tree", 7)) == (0, 1, 3, 4, 2, 5, 6)


def test_weights_are_symmetric_and_cannot_be_written() -> None:
    matrix = weights(pattern("all-to-all", 4))
    assert (matrix == matrix.T).all()
    assert matrix[0, 1] == 0.5  # a quarter each way
    with pytest.raises(ValueError, match="read-only"):
        matrix[0, 0] = 1.0


@pytest.mark.parametrize("caps", [(1, 1), (2, 2, 2, 2, 2), (4, 0)])
def test_refuses_parts_that_cannot_hold_the_ranks(caps: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="4 ranks cannot be split into parts"):
        split(pattern("ring", 4), caps)
