"""Lists of machines as Slurm writes them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import hostlist

from cranny.model.errors import InputError
from cranny.traces.hostlist import expand

RANGES = st.tuples(st.integers(0, 1200), st.integers(0, 3), st.integers(1, 4)).map(
    lambda of: f"{of[0]:0{of[2]}d}" + (f"-{of[0] + of[1]:0{of[2]}d}" if of[1] else "")
)
BRACKETS = st.lists(RANGES, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
NAMES = st.lists(
    st.one_of(st.sampled_from(["n", "gpu-", "rack1", "login.x"]), BRACKETS), min_size=1, max_size=4
).map("".join)


@pytest.mark.parametrize(
    ("text", "machines"),
    [
        ("n1", ["n1"]),
        ("node[001-004,007],login1", ["node001", "node002", "node003", "node004", "node007", "login1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
        ("gpu[1,3]-ib", ["gpu1-ib", "gpu3-ib"]),
        ("a,b", ["a", "b"]),
    ],
)
def test_writes_out_a_list(text: str, machines: list[str]) -> None:
    assert expand(text) == machines
    assert hostlist.machines(text) == machines


@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_agrees_with_writing_it_out_letter_by_letter(names: list[str]) -> None:
    text = ",".join(names)
    assert expand(text) == hostlist.machines(text)


@pytest.mark.parametrize(
    "text", ["", ",", "n1,", ",n1", "n[1-2", "n]1", "n[]", "n[2-1]", "n[a]", "n 1", "n[1,,2]"]
)
def test_refuses_what_is_no_list(text: str) -> None:
    with pytest.raises(InputError, match=r"not a (list|range)"):
        expand(text)


@pytest.mark.parametrize("text", ["n[1-999999999999]", "n[1-60000]m[1-60000]", "n[0-9][0-9][0-9][0-9][0-9]"])
def test_a_short_text_cannot_stand_for_endless_machines(text: str) -> None:
    with pytest.raises(InputError, match="more than 65,536 machines"):
        expand(text)


def test_bounds_what_is_read() -> None:
    assert expand("n[1-4]", most=4) == ["n1", "n2", "n3", "n4"]
    with pytest.raises(InputError, match="stands for more than"):
        expand("n[1-4],m", most=4)
    with pytest.raises(InputError, match="at most 1,000,000 are read"):
        expand("n" * 1_000_001)


@given(text=st.text(alphabet="n1-[],0 ", max_size=20))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        found = expand(text)
    except InputError:
        return
    assert found
    assert all(found)
