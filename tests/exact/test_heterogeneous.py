from dataclasses import replace

import numpy as np
import pytest
from tests.policies.heterogeneous.drawn import EXAMPLE, drawn
from tests.reference import has as book

from cranny.exact.heterogeneous import exhaustive
from cranny.model.errors import InputError


def test_knows_the_optimum_of_the_motivating_example() -> None:
    shares = exhaustive(EXAMPLE)
    assert shares.totals.tolist() == [[0, 2], [2, 0]]
    assert shares.mean_jct_s == pytest.approx(10_592.0, abs=0.05)
    assert shares.proved


def test_finds_what_looking_at_single_workers_finds() -> None:
    rng = np.random.default_rng(0)
    looked = 0
    while looked < 15:
        problem = drawn(rng, int(rng.integers(1, 4)), 2, 2, 2)
        problem = replace(problem, jobs=tuple(replace(job, weight=1) for job in problem.jobs))
        if problem.size <= 6:
            assert exhaustive(problem).mean_jct_s == pytest.approx(book.optimum_s(problem))
            looked += 1


def test_leaves_workers_idle_only_if_it_may() -> None:
    jobs = tuple(replace(job, model_bytes=1e12) for job in EXAMPLE.jobs)
    apart = replace(EXAMPLE, jobs=jobs, workers=[[1, 1], [1, 1]], inside_gbps=100, between_gbps=1)
    assert exhaustive(apart).workers.sum() < 4
    assert exhaustive(apart, all_workers=True).workers.sum() == 4
    assert exhaustive(apart).mean_jct_s < exhaustive(apart, all_workers=True).mean_jct_s


def test_refuses_more_ways_than_anybody_waits_for() -> None:
    with pytest.raises(InputError, match="too many to enumerate"):
        exhaustive(drawn(np.random.default_rng(0), 4, 3, 10, 5))
