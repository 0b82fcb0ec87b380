"""Sets of machines that the compiled search finds, against the literal one that takes one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import machine_sets

from cranny.policies.cranny import candidate_sets_kernel as sets_kernel
from cranny.policies.cranny import machine_kernel as kernel

NOW_S, SECONDS = 5.0, 20.0


@st.composite
def clusters(draw: st.DrawFn) -> machine_sets.Machines:
    """Machines of some sizes in some racks, with jobs on some of them."""
    machine = st.tuples(st.sampled_from([1, 2, 4, 8]), st.floats(0, 1), st.integers(0, 4), st.integers(0, 3))
    drawn = draw(st.lists(machine, min_size=1, max_size=14))
    size = [each[0] for each in drawn]
    free = [round(share * gpus) for gpus, share, _, _ in drawn]
    until_s = [
        -np.inf if left == gpus else 10.0 * end for left, (gpus, _, end, _) in zip(free, drawn, strict=True)
    ]
    rack = sorted([each[3] for each in drawn])
    on_links = draw(st.lists(st.integers(0, 2), min_size=len(drawn), max_size=len(drawn)))
    waste = draw(st.lists(st.integers(0, 3).map(float), min_size=9, max_size=9))
    return machine_sets.Machines(free, size, until_s, rack, on_links, waste)


def arrays(at: machine_sets.Machines) -> kernel.ClusterArrays:
    racks = max(at.rack) + 1
    return kernel.ClusterArrays(
        np.array(at.free),
        np.array(at.size),
        np.array(at.size, dtype=np.float64),
        np.array(at.until_s),
        np.array(at.rack),
        np.arange(len(at.rack)),
        np.searchsorted(at.rack, np.arange(racks + 1)),
        np.array([at.rack_free(rack) for rack in range(racks)]),
        np.array(at.on_links),
        np.array(at.waste),
    )


def room(machines: int) -> kernel.MachineSet:
    taken, gpus = np.zeros((2, machines), np.int64)
    return kernel.MachineSet(taken, gpus, np.zeros(9, np.int64))


def found(into: kernel.MachineSet, used: int) -> machine_sets.Taken | None:
    return list(zip(into.machines[:used].tolist(), into.gpus[:used].tolist(), strict=True)) or None


@pytest.mark.parametrize("kind", kernel.KINDS)
@settings(max_examples=examples(60), deadline=None)
@given(clusters(), st.integers(1, 40))
def test_it_takes_the_machines_that_the_literal_search_takes(
    kind: int, at: machine_sets.Machines, gpus: int
) -> None:
    count = len(at.free)
    into, trial = room(count), room(count)
    used = kernel.anywhere(arrays(at), kind, gpus, NOW_S, SECONDS, into)
    assert found(into, used) == machine_sets.take(at, range(count), kind, gpus, NOW_S, SECONDS)
    used = kernel.in_one_rack(arrays(at), kind, gpus, NOW_S, SECONDS, into, trial)
    assert found(into, used) == machine_sets.in_one_rack(at, kind, gpus, NOW_S, SECONDS)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.integers(1, 40))
def test_all_sets_at_once_are_those_of_each_search_and_cost_what_their_machines_do(
    at: machine_sets.Machines, gpus: int
) -> None:
    count, given_arrays = len(at.free), arrays(at)
    sets, used = np.zeros((sets_kernel.MOST_SETS, 2, count), np.int64), np.zeros(sets_kernel.MOST_SETS, np.int64)
    racks = np.zeros(max(at.rack) + 1, np.int64)
    number = sets_kernel.candidate_sets(
        given_arrays, sets_kernel.RACKS_TOO, gpus, NOW_S, SECONDS, room(count), racks, sets, used
    )
    each_set = [list(zip(*sets[i, :, : used[i]].tolist(), strict=True)) for i in range(number)]
    inside = [machine_sets.in_one_rack(at, kind, gpus, NOW_S, SECONDS) for kind in kernel.KINDS]
    everywhere = [machine_sets.take(at, range(count), kind, gpus, NOW_S, SECONDS) for kind in kernel.KINDS]
    over_racks = [] if inside[0] or not everywhere[0] else each_set[:1]
    assert each_set == [each for each in (*inside, *over_racks, *everywhere) if each]
    assert all(sum(taken for _, taken in each) == gpus for each in each_set)

    terms = np.empty((number, 4))
    chosen = np.array([pair for each in each_set for pair in each], np.int64).reshape(-1, 2)
    past = np.cumsum([len(each) for each in each_set], dtype=np.int64)
    sets_kernel.set_terms(given_arrays, chosen, past, NOW_S, np.full(number, SECONDS), terms)
    for each, (cost, *parts) in zip(each_set, terms.tolist(), strict=True):
        assert cost == sum(at.cost(machine, taken, NOW_S, SECONDS) for machine, taken in each)
        assert sum(parts) == pytest.approx(cost)
