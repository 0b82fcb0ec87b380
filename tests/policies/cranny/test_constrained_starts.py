"""The first start of a job with constraints, against all placements that there are."""

import math
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.constraints import kept_by_some

from cranny.core.constraints import Constraints
from cranny.model.cluster import Cluster, mask_of
from cranny.policies.cranny.constrained_starts import first_start

CLUSTER = Cluster.fat_tree(3, 2, 2)
MACHINES = len(CLUSTER.machines)
RACKS = [np.arange(*span) for span in CLUSTER.rack_spans]

times = st.sampled_from([-math.inf, 10.0, 20.0, 30.0, 40.0, math.inf])
constraints = st.builds(
    lambda excluded, racks: {"exclude": excluded, **racks},
    st.lists(st.integers(0, MACHINES - 1), max_size=3, unique=True),
    st.sampled_from([{}, {"same_rack": "required"}, {"spread": 2}, {"spread": 3}]),
)


@settings(max_examples=examples(150))
@given(st.lists(times, min_size=2 * MACHINES, max_size=2 * MACHINES), st.integers(1, 8), constraints)
def test_it_is_the_first_time_at_which_some_placement_keeps_them(
    release: list[float], gpus: int, told: dict[str, Any]
) -> None:
    excluded = told["exclude"]
    release_s = np.array(release).reshape(MACHINES, 2)
    release_s[excluded] = math.inf
    assume(gpus >= told.get("spread", 1))
    wanted = Constraints(mask_of(excluded), told.get("same_rack"), told.get("spread", 1))
    start_s, machines, gpus_on = first_start(gpus, wanted, release_s, RACKS)
    named = {**told, "exclude": [CLUSTER.machines[machine].name for machine in excluded]}

    def possible(at_s: float) -> bool:
        free = np.count_nonzero(release_s <= at_s, axis=1).tolist()
        return kept_by_some(named, gpus, free, CLUSTER)

    assert start_s == min((at_s for at_s in {*release} - {math.inf} if possible(at_s)), default=math.inf)
    assert bool(machines) == (start_s < math.inf)
    if machines:  # which suffice, with so many GPUs of each
        assert sum(gpus_on) == gpus
        needed = np.zeros(MACHINES, np.int64)
        needed[list(machines)] = gpus_on
        assert np.all(needed <= np.count_nonzero(release_s <= start_s, axis=1))
        assert kept_by_some(named, gpus, needed.tolist(), CLUSTER)
