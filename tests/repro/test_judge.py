import math

import pytest

from cranny.repro.claim import Ratio, judge

PAPER = {"titan": 100.0, "a": 200.0, "b": 300.0}


def test_the_same_values_hold_in_order_and_ratio() -> None:
    verdict = judge(PAPER, PAPER)
    assert verdict.confirms
    assert verdict.word == "order and ratios hold"
    assert verdict.kept == (("titan", "a"), ("titan", "b"), ("a", "b"))


def test_absolute_values_do_not_matter() -> None:
    assert judge({name: value / 7 for name, value in PAPER.items()}, PAPER).confirms


@pytest.mark.parametrize(
    ("ours", "words"),
    [(2.0, "within 10 %"), (2.19, "within 10 %"), (2.4, "within 25 %"), (1.62, "within 25 %"), (4.0, "off 2x")],
)
def test_a_ratio_says_how_near_it_is(ours: float, words: str) -> None:
    assert Ratio(paper=2.0, ours=ours).words == words


def test_a_ratio_without_a_value_cannot_be_compared() -> None:
    assert Ratio(paper=2.0, ours=0.0).words == "not comparable"
    assert math.isinf(Ratio(paper=2.0, ours=0.0).off)


def test_ratios_may_fail_while_the_order_holds() -> None:
    verdict = judge({"titan": 100.0, "a": 110.0, "b": 900.0}, PAPER)
    assert verdict.word == "order holds, ratios do not"
    assert not verdict.confirms


def test_a_swapped_pair_is_named() -> None:
    verdict = judge({"titan": 100.0, "a": 400.0, "b": 300.0}, PAPER)
    assert verdict.swapped == (("a", "b"),)
    assert verdict.word == "order holds in part"


def test_nothing_holds_when_all_is_the_other_way_round() -> None:
    verdict = judge({"titan": 3.0, "a": 2.0, "b": 1.0}, PAPER)
    assert verdict.word == "order does not hold"
    assert not verdict.kept


def test_equal_values_keep_no_order() -> None:
    assert judge({"titan": 1.0, "a": 1.0}, PAPER).swapped == (("titan", "a"),)


def test_values_that_are_nearly_alike_in_the_paper_make_no_order() -> None:
    verdict = judge({"titan": 165.0, "a": 158.0}, {"titan": 168.0, "a": 174.0})
    assert not verdict.swapped
    assert verdict.ratios["a"].words == "within 10 %"


def test_an_order_in_words_needs_no_values() -> None:
    assert judge({"titan": 1.0, "a": 2.0}, {}, [("titan", "a")]).word == "order holds"
    assert judge({"titan": 1.0, "a": 2.0}, {}, [("a", "titan")]).word == "order does not hold"
    assert judge({"titan": 1.0}, {}, [("a", "titan")]).word == "no claim"


def test_a_reversal_of_values_that_are_alike_in_the_paper_is_not_hidden() -> None:
    paper = {"titan": 8.7, "elasticflow": 8.4, "hived": 12.0}  # Fig. 11(b)
    verdict = judge({"titan": 1.0, "elasticflow": 1.69, "hived": 1.78}, paper)
    assert verdict.swapped == (("elasticflow", "titan"),)
    assert verdict.word == "order holds in part"
    assert not judge({"titan": 1.0, "elasticflow": 1.04, "hived": 1.4}, paper).swapped  # alike here too
    assert not judge({"titan": 1.0, "elasticflow": 2.0}, {"titan": 8.0, "elasticflow": 8.0}).swapped
