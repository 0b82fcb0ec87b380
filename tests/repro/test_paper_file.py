"""The files of the papers: what is in them is valid, every claim has its rule, and mistakes are refused."""

import pytest
from pydantic import ValidationError

from cranny.repro.has.claims import RULES
from cranny.repro.has.paper import TEXT as HAS
from cranny.repro.paper_file import Check, ClaimText, fill
from cranny.repro.titan.paper import TEXT as TITAN


@pytest.mark.parametrize("key", HAS.claims)
def test_every_claim_has_its_rule_or_values_that_its_checks_name(key: str) -> None:
    claim = HAS.claims[key]
    assert claim.values or key in RULES
    known = {*claim.values, *claim.numbers}
    for check in claim.holds:
        bounds = (check.value, check.above, check.least, check.most, check.near)
        assert {each for each in bounds if isinstance(each, str)} <= known


@pytest.mark.parametrize(
    ("check", "parts"),
    [
        ({"value": "some", "above": 1}, [False]),
        ({"value": "some", "above": "low"}, [True]),
        ({"value": "some", "least": 2, "by": 1}, [True]),
        ({"value": "some", "most": 2, "by": 0.5}, [False]),
        ({"value": "some", "most": 2, "each": True}, [False, True, True]),
        ({"value": "low", "near": 1, "by": 0.5}, [True]),
        ({"value": "some", "falls": True}, [True]),
        ({"value": "low", "falls": True, "above": 5}, [False]),
    ],
)
def test_a_check_says_which_parts_hold(check: dict[str, object], parts: list[bool]) -> None:
    found = Check.model_validate(check).parts({"some": [3.0, 2.0, 1.0], "low": 0.5})
    assert list(found) == parts


def test_titans_values_are_those_of_its_schemes() -> None:
    assert list(TITAN.names) == ["titan", "consolidate-idle", "fragments-first", "tiresias"]
    for figure in (*TITAN.figures, *TITAN.testbed):
        assert set(figure.values) <= set(TITAN.names), figure.number


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a:plain} s", "12.35 s"),
        ("{a:.1f}", "12.3"),
        ("{a:times}", "12.3x"),
        ("{some:extent} and {some:listed}", "1.00 to 3.00 and 3.00, 1.00"),
        ("{{6, 5}}", "{6, 5}"),
    ],
)
def test_a_text_is_filled_in(template: str, text: str) -> None:
    assert fill(template, a=12.345, some=[3.0, 1.0]) == text


@pytest.mark.parametrize(
    "fields", [{"title": "a {} b"}, {"title": "{6, 5}"}, {"title": "a {b"}, {"title": "a", "txt": "b"}, {}]
)
def test_a_wrong_claim_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ClaimText.model_validate(fields)
