"""What the policy keeps of a cluster in two arrays, against what follows from the jobs that run."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.accounting import Running
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.policies.cranny import machine_kernel as kernel
from cranny.policies.cranny.free_gpus import FreeGpus

SIZES = (8, 64, 2)  # of machines; the last GPU of 64 is the sign of a whole number


def mixed_cluster() -> Cluster:
    racks = [
        Switch(f"rack-{at}", tuple(Machine(f"m-{at}-{size}", size) for size in SIZES), (100.0,) * len(SIZES))
        for at in range(2)
    ]
    return Cluster.of(Switch("core", tuple(racks), (100.0, 100.0)))


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 70)), max_size=12), st.data())
def test_it_follows_jobs_that_start_and_end(wanted: list[tuple[int, int, int]], data: st.DataObject) -> None:
    cluster = mixed_cluster()
    state, known = ClusterState(cluster), FreeGpus(cluster)
    ends: dict[str, tuple[Running, float]] = {}
    for number, (first, second, gpus) in enumerate(wanted):
        free = state.free
        ranks = ([first] * int(free[first]) + [second] * int(free[second] * (first != second)))[:gpus]
        if ranks:
            state.place(Job(f"job-{number}", len(ranks)), Placement(tuple(ranks)))
            ends[f"job-{number}"] = state.find(f"job-{number}"), 10.0 * number + 1.0
            known.set(*ends[f"job-{number}"])
        one_ends = data.draw(st.booleans())
        if ends and one_ends:
            job_id = data.draw(st.sampled_from(sorted(ends)))
            known.set(ends.pop(job_id)[0], -math.inf)
            state.release(job_id)
    release_s = np.where(known.there, -math.inf, math.inf)
    for running, end_s in ends.values():
        for machine, held in running.held.items():
            release_s[machine, [k for k in range(64) if held >> k & 1]] = end_s
    assert np.array_equal(known.release_s, release_s)
    assert known.free.tolist() == state.free.tolist()
    assert known.total == sum(known.free)
    assert known.rack_free.tolist() == [sum(known.free[:3]), sum(known.free[3:])]
    assert known.until_s.tolist() == np.where(known.there, release_s, -math.inf).max(axis=1).tolist()
    for gpus in (1, 2, 5, 64):
        packed = kernel.cheapest_of_all(known.ints, known.floats, gpus, 5.0, 20.0)
        assert packed == kernel.cheapest_machines(known.arrays, gpus, 5.0, 20.0)
