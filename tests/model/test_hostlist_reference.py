"""Host lists against a reference that writes them out letter by letter."""

from hypothesis import given
from hypothesis import strategies as st
from tests.reference import hostlist

from cranny.model.hostlist import expand

RANGES = st.tuples(st.integers(0, 1200), st.integers(0, 3), st.integers(1, 4)).map(
    lambda of: f"{of[0]:0{of[2]}d}" + (f"-{of[0] + of[1]:0{of[2]}d}" if of[1] else "")
)
BRACKETS = st.lists(RANGES, min_size=1, max_size=3).map(lambda ranges: f"[{','.join(ranges)}]")
PLAIN = st.sampled_from(["n", "gpu-", "rack1", "login.x"])
NAMES = st.lists(st.one_of(PLAIN, BRACKETS), min_size=1, max_size=4).map("".join)


@given(names=st.lists(NAMES, min_size=1, max_size=4))
def test_agrees_with_writing_it_out_letter_by_letter(names: list[str]) -> None:
    text = ",".join(names)
    assert list(expand(text)) == hostlist.machines(text)
