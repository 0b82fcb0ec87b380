"""Drafts of compiled placers: what they cost is what `core.traffic` says, to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.fast import memo
from cranny.core.fast.communication_cost import communication_cost
from cranny.core.fast.memo import Memo
from cranny.core.fast.placement_arrays import (
    COMM_S,
    CROSS_BYTES,
    LINKS,
    PARTS,
    PEAK_BYTES,
    PlacementRequest,
    add_pattern,
    build_arrays,
)
from cranny.core.traffic import communication, footprint, renumber
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES, PLACED, pattern
from cranny.model.job import Job
from cranny.policies.best_fit import BestFit

EVEN = Cluster.fat_tree(racks=6, machines_per_rack=2, gpus_per_machine=8, oversubscription=3, racks_per_pod=2)
UNEVEN = Cluster.of(
    Switch(
        "top",
        (
            Machine("a", 8),
            Switch("rack", (Machine("b", 8), Machine("c", 8)), (30.0, 70.0)),
            Switch(
                "pod", (Machine("d", 8), Switch("deep", (Machine("e", 8), Machine("f", 8)), (9.0, 11.0))), (7, 13)
            ),
        ),
        (25.0, 40.0, 60.0),
    )
)


@settings(max_examples=examples(100))
@given(
    cluster=st.sampled_from([EVEN, UNEVEN]),
    collective=st.sampled_from([name for name in COLLECTIVES if name not in PLACED]),
    machines=st.data(),
    model=st.sampled_from(["resnet50", "vgg16"]),
)
def test_a_draft_costs_what_traffic_says(
    cluster: Cluster, collective: str, machines: st.DataObject, model: str
) -> None:
    some = st.lists(st.integers(0, len(cluster.machines) - 1), min_size=2, max_size=40)
    ranks = tuple(machines.draw(some.filter(lambda drawn: len(set(drawn)) > 1)))
    job = Job("job", len(ranks), model, collective)
    arrays = build_arrays(cluster, BestFit(), Memo(9, 0).table, 1, 0.0)
    arrays = arrays._replace(patterns=add_pattern(arrays.patterns, 0, pattern(collective, job.gpus)))
    distinct = list(dict.fromkeys(ranks))
    draft = arrays.draft
    draft.machine[: len(distinct)] = distinct
    draft.part[: len(ranks)] = renumber(ranks)
    draft.at[PARTS] = len(distinct)

    communication_cost(arrays, PlacementRequest(job.gpus, 0, job.profile.grad_bytes, job.profile.iteration_s, 0))

    expected = communication(cluster, job, ranks)
    links = draft.links[: draft.at[LINKS]].tolist()
    rates = dict(zip(links, draft.gbps.tolist(), strict=False))
    assert {link: gbps for link, gbps in rates.items() if gbps} == expected.link_gbps
    assert draft.cost[CROSS_BYTES] == expected.cross_bytes
    assert draft.cost[COMM_S] == expected.comm_s
    ((cost, k_bytes),) = footprint(cluster, job, ranks).costs
    assert draft.cost[PEAK_BYTES] == cost.peak * k_bytes
    assert sorted(links) == sorted(footprint(cluster, job, ranks).links)


def test_a_memory_finds_what_it_learnt_and_forgets_all_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MOST_ROWS", 3)
    memory = Memo(2, 2)

    def look_up(*key: int) -> list[int] | None:
        row = int(memory.table.slot[memo._slot(memory.table, np.array(key))])
        start = int(memory.table.start[row])
        return memory.table.entry[start : start + 2].tolist() if row >= 0 else None

    for number in range(3):
        memory.add(np.array([number, 7]), [number, number + 1])
    assert [look_up(number, 7) for number in range(3)] == [[0, 1], [1, 2], [2, 3]]
    assert look_up(7, 0) is None
    memory.add(np.array([3, 7]), [3, 4])
    assert look_up(3, 7) == [3, 4]
    assert look_up(0, 7) is None
