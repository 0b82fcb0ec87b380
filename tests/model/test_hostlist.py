import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.model.errors import InputError
from cranny.model.hostlist import expand, fold

NAMES = st.lists(
    st.one_of(
        st.from_regex(r"(n|gpu-|r[12]n)[0-9]{1,3}(-ib|)", fullmatch=True),
        st.text(st.characters(exclude_characters=",[]", exclude_categories=["Z", "C"]), min_size=1, max_size=8),
    ),
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("node7", ("node7",)),
        ("a,b", ("a", "b")),
        ("node[1-3]", ("node1", "node2", "node3")),
        ("node[001-003,007]", ("node001", "node002", "node003", "node007")),
        ("node[08-11]", ("node08", "node09", "node10", "node11")),
        ("node[9-10],login1", ("node9", "node10", "login1")),
        ("login,node[1,3]", ("login", "node1", "node3")),
        ("rack[1-2]n[0-1]", ("rack1n0", "rack1n1", "rack2n0", "rack2n1")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
        ("[1-2]", ("1", "2")),
        (" n[3]\n", ("n3",)),
    ],
)
def test_known_lists(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n[1-", "cannot be read from '[1-' on"),
        ("n1]", "cannot be read from ']' on"),
        ("n[[1]]", "cannot be read from '[[1]]' on"),
        ("n[]", "'' is neither a number nor a range"),
        ("n[a-b]", "'a-b' is neither a number nor a range"),
        ("n[3-1]", "the range 3-1 ends before it begins"),
        ("a,,b", "has an empty name"),
        ("n[1],", "has an empty name"),
        (",n[1]", "has an empty name"),
        ("a b", "has an empty name or a space"),
        ("None assigned", "has an empty name or a space"),
        ("n[0-999999999999]", "stands for more than 1000000 machines"),
        ("n[0-999999],m", "stands for more than"),
        ("n[1-2000]m[1-2000]", "stands for more than"),
    ],
)
def test_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        expand(text)


def test_a_list_may_be_bounded_further() -> None:
    assert len(expand("n[1-3]", most=3)) == 3
    for text in ("n[1-4]", "a,b,c,d", "n[1-3],m[1]"):
        with pytest.raises(InputError, match="more than"):
            expand(text, most=3)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("node7",), "node7"),
        (("n1", "n2", "n3"), "n[1-3]"),
        (("n01", "n02", "n4"), "n[01-02,4]"),
        (("n09", "n10"), "n[09-10]"),
        (("login", "n9", "n10", "n12-ib"), "login,n[9-10],n12-ib"),
        (("r1n0", "r1n1", "r2n0"), "r1n[0-1],r2n0"),
    ],
)
def test_known_folds(names: tuple[str, ...], text: str) -> None:
    assert fold(names) == text


@given(NAMES)
def test_what_is_folded_expands_to_the_same(names: list[str]) -> None:
    assert expand(fold(names)) == tuple(names)


@pytest.mark.parametrize("name", ["a,b", "a[1]", "a b", ""])
def test_a_name_that_no_list_can_hold_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot stand in a host list"):
        fold(["n1", name])
