"""What the policy cranny says about its decisions: terms that add up, the cheapest first, plain words."""

import json
import re
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.analysis.explain import explain
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.price_explanation import MachineRationale, Price, PriceRationale
from cranny.policies.cranny.promised_starts import PromisedStart
from cranny.policies.cranny.wait_explanation import WaitMemory
from cranny.scenario import Scenario

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=3, gpus_per_machine=4, oversubscription=4)
SIZES = st.lists(st.sampled_from([1, 1, 2, 3, 4, 6, 9]), max_size=12)
PRINTED = re.compile(r"^([+-][\d,]+) GPU-s: (.+)$", re.MULTILINE)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def filled(sizes: list[int], seconds: float = 1000.0) -> tuple[ClusterState, Cranny]:
    """Return a cluster on which the policy has placed jobs of some sizes."""
    state, policy = ClusterState(CLUSTER), Cranny()
    for at, gpus in enumerate(sizes):
        job = Job(id=f"job-{at}", gpus=gpus, model="vgg16", duration_s=seconds * (1 + at))
        placement = policy.place(job, state.snapshot())
        if placement is not None:
            state.place(job, placement)
    return state, policy


def rationale(placement: Placement | None) -> PriceRationale:
    assert placement is not None
    why = placement.rationale
    if isinstance(why, MachineRationale):
        return why.priced
    assert isinstance(why, PriceRationale)
    return why


@settings(max_examples=examples(60), deadline=None)
@given(SIZES, st.integers(1, 10), st.floats(1.0, 1e6))
def test_printed_terms_add_up_and_the_chosen_machines_cost_least(
    sizes: list[int], gpus: int, seconds: float
) -> None:
    state, policy = filled(sizes)
    view = state.snapshot()
    job = Job(id="new", gpus=gpus, model="vgg16", duration_s=seconds)
    found = policy._follow(view).placing.best(job, view, seconds)
    if found is None:
        return
    why = rationale(found.placement)
    assert why.price.total == pytest.approx(found.total_gpu_s, rel=1e-9, abs=1e-6)
    assert sum(why.price.terms.values()) == pytest.approx(why.price.total)
    assert all(each.total >= why.price.total - 1e-6 * max(1.0, abs(why.price.total)) for each in why.others)
    assert dict(why.price.held) == dict(found.placement.counts)
    for each in (why.price, *why.others):
        assert sum(gpus for _, gpus in each.held) == gpus
        assert all(view.free_on(machine) >= taken for machine, taken in each.held)
    text = found.placement.explain()
    (total,) = re.findall(r"^price: (-?[\d,]+) GPU-s", text, re.MULTILINE)
    assert sum(number(term) for term, _ in PRINTED.findall(text)) == number(total)
    assert abs(number(total) - why.price.total) <= 2.5
    facts = json.loads(json.dumps(found.placement.facts))["price"]  # plain values
    assert facts["total_gpu_s"] == pytest.approx(sum(facts["terms_gpu_s"].values()))
    others = {frozenset(each.held) for each in why.others} - {frozenset(why.price.held)}  # in whatever order
    assert [each["more_gpu_s"] >= -1e-3 for each in facts["next_best"]] == [True] * len(others)


@settings(max_examples=examples(40), deadline=None)
@given(SIZES, st.integers(1, 4))
def test_the_next_best_machine_is_the_cheapest_of_the_others(sizes: list[int], gpus: int) -> None:
    state, policy = filled(sizes)
    view = state.snapshot()
    job = Job(id="new", gpus=gpus, duration_s=500.0)
    at = policy._follow(view).placing
    found = at.best(job, view, 500.0)
    if found is None or len(found.placement.counts) > 1:
        return
    (machine,) = found.placement.counts
    again = at.best(job, view, 500.0, kept={machine: 0})
    others = rationale(found.placement).others
    if again is None or len(again.placement.counts) > 1:
        assert others == ()
    else:
        assert [each.total for each in others] == pytest.approx([rationale(again.placement).price.total])


def test_a_job_that_crosses_racks_says_what_that_costs_and_whom_it_slows() -> None:
    state = ClusterState(CLUSTER)
    for at, machines in enumerate([(0, 0, 3, 3), (1, 1, 1), (4, 4, 4)]):
        job = Job(id=f"old-{at}", gpus=len(machines), model="vgg16", duration_s=5000.0)
        state.place(job, Placement(machines))
    view = state.snapshot()
    job = Job(id="new", gpus=14, model="vgg16", duration_s=1000.0)
    placement = Cranny().place(job, view)
    assert placement is not None
    said = dict(reversed(each) for each in PRINTED.findall(placement.explain()))
    assert any(
        re.fullmatch(r"crosses 2 racks, which makes it [\d.]+ % longer than on one machine", why) for why in said
    )
    assert any(re.fullmatch(r"slows old-0 by [\d.]+ %", why) for why in said)
    assert "opens 2 idle machines" in said
    assert placement.facts["price"]["slowed_jobs"].keys() == {"old-0"}  # type: ignore[index]


def test_a_small_job_names_the_machine_that_would_be_next_and_the_term_that_decides() -> None:
    state = ClusterState(CLUSTER)
    state.place(Job(id="old", gpus=2, duration_s=5000.0), Placement((4, 4)))
    placement = Cranny().place(Job(id="new", gpus=2, duration_s=1000.0), state.snapshot())
    assert placement is not None
    price, following = placement.explain().splitlines()[-2:]
    assert price.startswith("price: 0 GPU-s if it takes 1,000 s on one machine, as expected: it takes nothing")
    assert following == (
        "next best: rack1-machine0: 4,000 GPU-s, 4,000 more; opening idle machines decides (+4,000 against +0)"
    )


def test_equal_prices_say_what_decides_between_them() -> None:
    job, free = Job(id="new", gpus=4), ClusterState(CLUSTER).snapshot().machines
    inside, across = Price(((0, 2), (1, 2)), own=10.0), Price(((0, 2), (3, 2)), own=10.0)
    why = PriceRationale(job, CLUSTER, free, 100.0, inside, (across, Price(((0, 2), (4, 2)), own=10.4)))
    lines = why.text(Placement((0, 0, 1, 1))).splitlines()
    fewer = "the chosen set is in fewer racks (1 against 2)"
    assert lines[-2] == f"next best: rack0-machine0, rack1-machine0: 10 GPU-s, the same; {fewer}"
    assert lines[-1].startswith("after that: rack0-machine0, rack1-machine1: 10 GPU-s, less than 1 more;")
    alone = why._replace(others=()).text(Placement((0, 0, 1, 1)))
    assert alone.endswith("next best: none, no other set was found")


# -- why a job waits -------------------------------------------------------------------------------------------


def told(job_id: str, *promises: PromisedStart, short: str | None = None, **known: object) -> str:
    given = {"since_s": {}, "due_s": {}, "stopped": frozenset(), **known}
    return WaitMemory(CLUSTER, promises, **given).why(job_id, 1000.0, short)  # type: ignore[arg-type]


def test_a_waiting_job_says_what_it_was_promised() -> None:
    short = "needs 8 GPUs, 3 free"
    own, kept = PromisedStart("a", 8, 12_345.0), PromisedStart("a", 4, 1_500.0, (2,), chosen=True)
    assert told("a", own, short=short) == f"{short}; is promised a start at 12,345 s at the latest"
    assert told("a", kept, since_s={"a": 900.0}, due_s={"a": 1900.0}) == (
        "waits for rack0-machine2, with room expected at 1,500 s: on one machine it takes 1,000 s less"
    )
    for machines, where in (((3, 4), "in one rack"), ((2, 4), "on fewer machines")):
        waits = told("a", kept._replace(machines=machines), since_s={"a": 900.0}, due_s={"a": 1900.0})
        assert waits.endswith(f"{where} it takes 1,000 s less")
    assert told("a", kept) == "waits for rack0-machine2, with room expected at 1,500 s"  # after a restart
    assert told("a", kept._replace(chosen=False)) == "is promised a start at 1,500 s at the latest"
    assert told("a", kept, stopped=frozenset({"a"})) == (
        "was stopped for another job, and is promised a start at 1,500 s at the latest"
    )
    assert (
        told("b", own)
        == "behind job 'a', which is promised a start at 12,345 s at the latest; it might delay that"
    )
    assert told("a", own._replace(start_s=500.0)) == (
        "should have started at 500 s, but running jobs take longer than expected"
    )
    assert told("a") == "can start now"
    assert told("a", short=short) == short


def test_a_policy_that_has_decided_nothing_yet_says_what_it_would_decide() -> None:
    state = ClusterState(CLUSTER)
    for machine in range(6):
        job = Job(id=f"old-{machine}", gpus=4, duration_s=100.0 * (machine + 1))
        state.place(job, Placement((machine,) * 4))
    large, policy = Job(id="large", gpus=12), Cranny()
    view = state.snapshot(0.0, [Waiting(large)])
    expected = "needs 12 GPUs, 0 free; is promised a start at 300 s at the latest"
    assert policy.why_wait(large, view) == expected
    policy.plan(view)
    assert policy.why_wait(large, view) == expected
    assert deepcopy(policy).why_wait(large, view) == expected


def test_explain_tells_how_a_job_waited_and_what_its_machines_cost() -> None:
    jobs = [Job(id="first", gpus=20, duration_s=500.0), Job(id="second", gpus=8, submit_s=10.0, duration_s=5000.0)]
    text = explain(Scenario(CLUSTER, jobs, "cranny"), "second").text()
    assert re.search(
        r"from 10 s it waited: needs 8 GPUs, 4 free; is promised a start at [\d,]+ s at the latest", text
    )
    assert "price: " in text
