import itertools

import pytest
from tests.reference.collectives import (
    Flow,
    WrongFlowError,
    directed,
    run_halving_doubling,
    run_ring,
    run_whole,
    sent_by,
)

from cranny.model.collective import COLLECTIVES, PLACED, Pattern, Phase, pattern, placed
from cranny.model.errors import InputError

SIZES = range(1, 34)


def test_halving_doubling_of_four_is_the_papers() -> None:
    far, near = ((0, 2), (1, 3)), ((0, 1), (2, 3))
    assert pattern("halving-doubling", 4).phases == (
        Phase(far, 1 / 2, exchange=True),
        Phase(near, 1 / 4, exchange=True),
        Phase(near, 1 / 4, exchange=True),
        Phase(far, 1 / 2, exchange=True),
    )


def test_halving_doubling_of_five_folds_one_rank_before_and_after() -> None:
    phases = pattern("halving-doubling", 5).phases
    assert phases[0] == Phase(((1, 0),), 1.0, exchange=False)
    assert phases[-1] == Phase(((0, 1),), 1.0, exchange=False)
    assert phases[1].pairs == ((0, 3), (2, 4))
    assert len(phases) == 6


@pytest.mark.parametrize("n", [3, 4, 7, 16])
def test_a_ring_passes_a_share_to_the_next_twice_round(n: int) -> None:
    (phase,) = pattern("ring", n).phases
    assert phase.times == 2 * (n - 1)
    assert phase.share == 1 / n
    assert set(phase.pairs) == {(i, (i + 1) % n) for i in range(n)}
    assert not phase.exchange


def test_a_ring_of_two_is_an_exchange() -> None:
    assert pattern("ring", 2).phases == (Phase(((0, 1),), 1 / 2, exchange=True, times=2),)


@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name not in PLACED])
def test_one_rank_sends_nothing(collective: str) -> None:
    assert pattern(collective, 1).phases == ()


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_leaves_every_rank_with_every_gradient(n: int) -> None:
    assert run_ring(pattern("ring", n)).done()


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("collective", ["halving-doubling", "gloo-halving-doubling"])
def test_halving_doubling_leaves_every_rank_with_every_gradient(collective: str, n: int) -> None:
    assert run_halving_doubling(pattern(collective, n), 1 << (n.bit_length() - 1)).done()


def test_gloos_halving_doubling_sends_most_to_the_nearest_rank() -> None:
    near, far = ((0, 1), (2, 3)), ((0, 2), (1, 3))
    assert pattern("gloo-halving-doubling", 4).phases == (
        Phase(near, 1 / 2, exchange=True),
        Phase(far, 1 / 4, exchange=True),
        Phase(far, 1 / 4, exchange=True),
        Phase(near, 1 / 2, exchange=True),
    )


def test_gloos_halving_doubling_of_seven_has_blocks_of_four_two_and_one() -> None:
    phases = pattern("gloo-halving-doubling", 7).phases
    assert [(phase.pairs, phase.share, phase.exchange) for phase in phases[:4]] == [
        (((0, 1), (2, 3), (4, 5)), 1 / 2, True),
        (((0, 2), (1, 3)), 1 / 4, True),
        (((6, 4), (6, 5)), 1 / 2, False),
        (((4, 0), (5, 1), (4, 2), (5, 3)), 1 / 4, False),
    ]
    assert [phase.share for phase in phases] == [1 / 2, 1 / 4, 1 / 2, 1 / 4, 1 / 4, 1 / 2, 1 / 4, 1 / 2]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("collective", ["tree", "parameter-server"])
def test_whole_vectors_leave_every_rank_with_every_gradient(collective: str, n: int) -> None:
    assert run_whole(pattern(collective, n)).done()


@pytest.mark.parametrize("n", SIZES)
def test_a_hierarchical_reduction_leaves_every_rank_with_every_gradient(n: int) -> None:
    for machines in (1, 2, 3, 5):
        for seats in (
            tuple(rank % machines for rank in range(n)),
            tuple(rank * machines // n for rank in range(n)),
        ):
            leaders = len(set(seats))
            what = placed("hierarchical", seats)
            assert run_halving_doubling(what, 1 << (leaders.bit_length() - 1)).done()


@pytest.mark.parametrize("n", SIZES)
def test_only_one_rank_of_a_machine_talks_to_other_machines(n: int) -> None:
    seats = tuple(rank % 4 for rank in range(n))
    crossing = {
        rank
        for phase in placed("hierarchical", seats).phases
        for pair in phase.pairs
        for rank in pair
        if seats[pair[0]] != seats[pair[1]]
    }
    assert crossing <= set(range(min(n, 4)))


@pytest.mark.parametrize("n", SIZES)
def test_all_to_all_delivers_from_each_to_each_once(n: int) -> None:
    what = pattern("all-to-all", n)
    sent = sorted(pair for phase in what.phases for pair in directed(phase) for _ in range(phase.times))
    assert sent == sorted(itertools.permutations(range(n), 2))
    assert all(phase.share == 1 / n for phase in what.phases)
    for phase in what.phases:  # each rank sends to one and hears from one at a time
        assert len({a for a, _ in phase.pairs}) == len({b for _, b in phase.pairs}) == n


@pytest.mark.parametrize("n", SIZES)
def test_a_ring_is_optimal_in_what_each_rank_sends(n: int) -> None:
    assert sent_by(pattern("ring", n)) == pytest.approx([2 * (n - 1) / n] * n)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("collective", ["halving-doubling", "gloo-halving-doubling"])
def test_halving_doubling_is_optimal_at_powers_of_two(collective: str, n: int) -> None:
    assert sent_by(pattern(collective, n)) == pytest.approx([2 * (n - 1) / n] * n)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("collective", [name for name in COLLECTIVES if name not in PLACED])
def test_edges_add_up_to_all_that_is_exchanged(collective: str, n: int) -> None:
    what = pattern(collective, n)
    pairs, shares = what.edges
    assert pairs.shape == (len(shares), 2)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    in_phases = sum(phase.share * phase.times * len(phase.pairs) for phase in what.phases)
    assert shares.sum() == pytest.approx(in_phases)


def test_phases_can_be_renamed_to_other_ranks() -> None:
    (phase,) = pattern("ring", 3).over([7, 5, 9])
    assert phase == Phase(((7, 5), (5, 9), (9, 7)), 1 / 3, exchange=False, times=4)


def test_an_unknown_collective_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown collective 'rings'; did you mean 'ring'\?"):
        pattern("rings", 4)


def test_the_data_flow_notices_a_gradient_counted_twice() -> None:
    flow = Flow(3, 1)
    flow.send([(0, 1, range(1)), (2, 1, range(1))])
    with pytest.raises(WrongFlowError, match="twice"):
        flow.send([(1, 0, range(1)), (1, 2, range(1)), (0, 1, range(1)), (2, 0, range(1))])


def test_the_data_flow_notices_a_wrong_volume_and_a_wrong_partner() -> None:
    with pytest.raises(WrongFlowError, match="chunks move"):
        run_whole(Pattern("tree", 2, (Phase(((1, 0),), 0.5, exchange=False),)))
    swapped = Pattern(
        "halving-doubling",
        4,
        (
            Phase(((0, 2), (1, 3)), 1 / 2, exchange=True),
            Phase(((0, 3), (1, 2)), 1 / 4, exchange=True),
        )
        * 2,
    )
    with pytest.raises(WrongFlowError, match="different chunks"):
        run_halving_doubling(swapped, 4)


def test_the_data_flow_notices_a_missing_phase() -> None:
    whole = pattern("tree", 6)
    assert not run_whole(Pattern("tree", 6, whole.phases[:-1])).done()
