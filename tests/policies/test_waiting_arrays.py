"""Arrays of waiting jobs that are kept from one decision to the next."""

import math
from copy import deepcopy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from cranny.core.snapshot import Waiting
from cranny.model.job import Job
from cranny.policies._shared import waiting_arrays
from cranny.policies._shared.waiting_arrays import WaitingArrays

JOB = st.builds(
    lambda gpus, grows, known, typed, had: Waiting(
        Job(
            id="a",
            gpus=gpus,
            most_gpus=gpus + 1 if grows else None,
            duration_s=60.0 * gpus if known else None,
            gpu_type="h200" if typed else None,
            model="vgg16",
        ),
        had,
    ),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 5.0]),
)


@settings(max_examples=examples(50))
@given(st.lists(st.lists(JOB, max_size=6), min_size=1, max_size=4))
def test_columns_are_those_of_the_jobs_whatever_waited_before(queues: list[list[Waiting]]) -> None:
    arrays, kept, spare = WaitingArrays(), list[Waiting](), waiting_arrays.SPARE
    waiting_arrays.SPARE = 3  # so that rows are made anew now and then
    try:
        for new in queues:
            kept = [*new, *kept[::2]]
            found = arrays.columns(kept)
            assert found.gpus.tolist() == [each.job.gpus for each in kept]
            assert found.most_gpus.tolist() == [each.job.most_gpus or each.job.gpus for each in kept]
            assert found.elastic.tolist() == [each.job.most_gpus is not None for each in kept]
            assert found.attained_gpu_s.tolist() == [each.attained_gpu_s for each in kept]
            np.testing.assert_array_equal(found.duration_s, [each.job.duration_s or math.nan for each in kept])
            kinds = {(each.job.gpu_type, kind) for each, kind in zip(kept, found.kind.tolist(), strict=True)}
            assert len(kinds) == len({each.job.gpu_type for each in kept})
            arrays = deepcopy(arrays) if len(new) == 3 else arrays
    finally:
        waiting_arrays.SPARE = spare


def test_a_copy_knows_nothing_of_the_objects_of_the_other() -> None:
    arrays = WaitingArrays()
    arrays.columns([Waiting(Job(id="a", gpus=1, model="vgg16"))])
    assert not deepcopy(arrays)._row
