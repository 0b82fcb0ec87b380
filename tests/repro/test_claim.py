"""Claims summed up in one sentence."""

import pytest

from cranny.repro.claim import Claim, Holds, sum_up


@pytest.mark.parametrize(
    ("outcomes", "sentence"),
    [
        (["holds in part"], "1 claim of the paper (X 2024) is tested here: 1 holds in part."),
        (
            ["holds", "does not hold", "holds", "holds in part", "does not hold", "not tested"],
            "5 claims of the paper (X 2024) are tested here: 2 hold, 1 holds in part, 2 do not hold.",
        ),
        (["not tested"], "0 claims of the paper (X 2024) are tested here."),
    ],
)
def test_counts_what_holds(outcomes: list[Holds], sentence: str) -> None:
    assert sum_up("X 2024", [Claim("a claim", holds, "why") for holds in outcomes]) == sentence
