from hypothesis import given
from hypothesis import strategies as st

from cranny.core.machine_set import lowest, members, within
from cranny.model.cluster import mask_of

SETS = st.sets(st.integers(0, 1000))


@given(SETS)
def test_members_come_from_the_lowest_up(machines: set[int]) -> None:
    assert list(members(mask_of(machines))) == sorted(machines)


@given(SETS.filter(bool))
def test_the_lowest_is_the_least(machines: set[int]) -> None:
    assert lowest(mask_of(machines)) == min(machines)


@given(SETS, st.integers(0, 1000), st.integers(0, 1000))
def test_a_part_of_a_set_is_cut_by_its_ends(machines: set[int], first: int, more: int) -> None:
    cut = {machine for machine in machines if first <= machine < first + more}
    assert set(members(within(mask_of(machines), first, first + more))) == cut
