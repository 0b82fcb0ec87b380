"""GPUs to divide among jobs that can use only some of them, checked by trying every way to hand them out."""

from itertools import product
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.snapshot import ALL
from cranny.policies._shared.promises import GpuPool

FREE = st.lists(st.integers(0, 3), min_size=4, max_size=4)
SETS = st.sampled_from([ALL, 0b0001, 0b0011, 0b0110, 0b1100, 0b1010, 0b0111])


def can_have(wants: list[tuple[int, int]], free: list[int]) -> bool:
    """Say whether GPUs can be handed out one by one so that everybody has what it wants."""
    if not wants:
        return True
    (machines, gpus), rest = wants[0], wants[1:]
    usable = [min(count, gpus) if machines >> at & 1 else 0 for at, count in enumerate(free)]
    return any(
        sum(taken) == gpus and can_have(rest, [count - less for count, less in zip(free, taken, strict=True)])
        for taken in product(*[range(count + 1) for count in usable])
    )


@settings(max_examples=examples(150))
@given(FREE, st.lists(st.tuples(SETS, st.integers(1, 4)), max_size=3), SETS)
def test_what_is_left_is_all_that_can_still_be_handed_out(
    free: list[int], wants: list[tuple[int, int]], machines: int
) -> None:
    pool = GpuPool(free)
    promised: list[tuple[int, int]] = []
    for suited, gpus in wants:
        fits = can_have([*promised, (suited, gpus)], free)
        assert (gpus <= pool.left(suited)) == fits
        if fits:
            pool.take(suited, gpus)
            promised.append((suited, gpus))
    assert pool.short() == 0
    most = max(gpus for gpus in range(sum(free) + 1) if not gpus or can_have([*promised, (machines, gpus)], free))
    assert pool.left(machines) == most


def test_the_fewest_machines_that_are_short_are_named() -> None:
    pool = GpuPool([4, 4, 4])
    pool.take(ALL, 8)
    assert pool.short() == 0
    pool.take(0b001, 6)
    assert pool.short() == 0b001  # of all machines, too, two GPUs more are wanted than there are
    pool.add({0: 2})
    assert pool.short() == 0
    pool.take(0b001, 1)
    assert pool.short() == 0b001


def test_gpus_that_come_free_count_where_they_are_and_a_copy_goes_its_own_way() -> None:
    pool = GpuPool([0, 2])
    other = pool.copy()
    other.add({0: 3})
    other.take(0b10, 1)
    assert (other.left(0b01), other.left(0b10), other.left(ALL)) == (3, 1, 4)
    assert (pool.left(0b01), pool.left(0b10), pool.left(ALL)) == (0, 2, 2)


def test_many_mixtures_of_types_are_not_looked_at_for_ever() -> None:
    types = 20
    pool = GpuPool([10] * types)
    for one in range(types):
        for other in range(one):
            pool.take(1 << one | 1 << other, 1)
    begin_s = process_time()
    assert not pool.short()
    assert process_time() - begin_s < 20.0  # all of 2**20 sets would take minutes
