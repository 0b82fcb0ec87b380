"""Options of policies: whatever value is given, it is taken or refused with one line, when the policy is made."""

import re

import pytest

from cranny.model.errors import InputError
from cranny.policies import TABLE, options_of, policy
from cranny.policy_choice import seeded_policy

WRONG: tuple[object, ...] = ("a word", float("nan"), -1, [1], True, {}, None, "", 1e400)
OPTIONS = [(name, option) for name in TABLE for option in sorted(options_of(name) - {"rng"})]
# Python's own messages, which do not say what to do.
PYTHON = re.compile(
    r"not supported between|unexpected keyword|'(int|str|float|list|NoneType)' (object|and)|argument"
)


def refusal(name: str, option: str, value: object) -> str:
    """Return what is said about a value; nothing if it is taken."""
    try:
        seeded_policy(name, 0, {option: value})
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("name", "option"), OPTIONS)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_a_value_is_taken_or_refused_with_one_line(name: str, option: str, value: object) -> None:
    said = refusal(name, option, value)
    if said:
        assert not PYTHON.search(said)
        assert re.fullmatch(r".+ must be .+, not .*", said)
        assert option.partition("_")[0] in said


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_no_option_of_any_policy_can_be_a_word(name: str, option: str) -> None:
    with pytest.raises(InputError, match="must be"):
        policy(name, **{option: "maybe"})


@pytest.mark.parametrize(
    ("name", "option", "value", "message"),
    [
        ("has-exact", "beta", "x", "has-exact: beta must be a number from 0 to 1, not 'x'"),
        ("jps", "elastic", "nan", "jps: elastic must be a number from 1 to 1000000, not 'nan'"),
        ("jps", "samples", 0, "jps: samples must be a whole number from 1 to 1000000, not 0"),
        ("jps", "alpha", 5, "jps: alpha must be a number from 0 to 1, not 5"),
        ("jps", "beta", 2, "jps: beta must be a number from 0 to 1, not 2"),
        ("las", "probe_error", 1, "las: probe_error must be a number from 0 to less than 1, not 1"),
        ("gavel", "between_gbps", -1, "gavel: between_gbps must be a positive number, not -1"),
        ("netpack", "printed", "maybe", "netpack: printed must be true or false, not 'maybe'"),
        ("netpack+cassini", "printed", 1, "netpack: printed must be true or false, not 1"),
        ("netpack", "ina", "x", "netpack: ina must be one of always, per-job, per-rack, again, not 'x'"),
        ("netpack", "ties", 1, "netpack: ties must be one of lowest, tightest, most-memory, random, not 1"),
        ("titan", "search_nodes", 0.5, "titan: search_nodes must be a whole number from 0 to 1000000, not 0.5"),
        ("themis", "slowdowns", 3, "themis: slowdowns must be three numbers, not 3"),
        ("themis", "slowdowns", [1, 1, "x"], "themis: each of slowdowns must be a number from 1 to 1000, not 'x'"),
        ("themis", "fairness", 1, "themis: fairness must be a number from 0 to less than 1, not 1"),
        ("tiresias", "skew_limit", "x", "tiresias: skew_limit must be a number, zero or more, not 'x'"),
        ("hived", "vcs", 1, 'hived: vcs must be tenants and their shares, such as {"a": 0.5}, not 1'),
        ("hived", "vcs", {"a": "x"}, "hived: the share of 'a' must be a number from 0 to 1, not 'x'"),
        ("exact", "time_limit_s", "x", "exact: time_limit_s must be a positive number, not 'x'"),
    ],
)
def test_says_which_option_of_which_policy_is_wrong(name: str, option: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        policy(name, **{option: value})


def test_a_fault_inside_a_policy_is_not_taken_for_a_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_budget_s: float) -> None:
        raise TypeError("a fault of ours")

    monkeypatch.setattr("cranny.policies.titan.Bandwidth", broken)
    with pytest.raises(TypeError, match="a fault of ours"):
        policy("titan")


def test_knows_the_options_of_a_host_and_of_what_a_policy_builds_upon() -> None:
    assert options_of("best-fit") == set()
    assert options_of("titan+cassini") == {
        "candidates",
        "precision_deg",
        "loops",
        "rank",
        "phase_budget_s",
        "search_nodes",
    }
    assert {"samples", "alpha", "beta", "elastic", "restart_s", "margin", "rng"} < options_of("jps")
