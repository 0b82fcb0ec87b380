"""Claims summed up in one sentence."""

from collections.abc import Sequence

import pytest

from cranny.report.confidence import Estimate
from cranny.repro.claim import Claim, Holds, Reading, agreed, sum_up


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


def reading(name: str, holds: Holds, parts: Sequence[bool] = ()) -> Reading:
    return Reading(name, {"a scheme": Estimate(1.0, None)}, holds, parts)


def test_a_verdict_says_under_which_reading_it_holds_and_how_much_of_it() -> None:
    readings = [reading("ours", "holds in part", [True, False, True]), reading("per worker", "holds", [True])]
    claim = Claim("a claim", agreed(readings), "why", readings=readings)
    assert claim.holds == "depends on the reading"
    assert claim.verdict == "holds in part: 2 of 3 under: ours; holds under: per worker"


@pytest.mark.parametrize(
    ("found", "holds"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "no verdict"], "holds"),
        (["holds", "does not hold"], "depends on the reading"),
        (["no verdict"], "beyond the paper"),
    ],
)
def test_readings_agree_or_the_claim_depends_on_them(found: list[Holds], holds: Holds) -> None:
    assert agreed([reading(str(at), each) for at, each in enumerate(found)]) == holds


def test_a_run_that_is_too_short_shows_values_without_a_verdict() -> None:
    readings = [reading("ours", "holds in part", [True, False])]
    short = Claim("a claim", "holds in part", "it leads", readings=readings).without_verdict()
    assert short.verdict == short.readings[0].verdict == "no verdict"
    assert short.text == ""
    assert short.readings[0].ours == readings[0].ours
    beyond = Claim("a question", "beyond the paper", "an answer")
    assert beyond.without_verdict() == beyond
