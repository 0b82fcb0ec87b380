"""How long a large job would wait: against a slow reference, and against replays that have such a job."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.large_jobs import Held, wait_s

import cranny
from cranny.analysis.whatif.large_jobs import LargestPool, held_by_result, large_job_waits, sizes_to_ask
from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.errors import InputError

SCHEMA = {"submit_s": pl.Float64, "start_s": pl.Float64, "end_s": pl.Float64, "gpus": pl.Float64}
POOL = LargestPool(None, frozenset({0}), 8, 8)


def frame(held: list[Held]) -> pl.DataFrame:
    return pl.DataFrame(held, schema=SCHEMA, orient="row")


def trace(jobs: list[tuple[int, int, int]]) -> cranny.Trace:
    columns = ("submit_s", "gpus", "duration_s")
    table = pl.DataFrame(sorted(jobs), schema=columns, orient="row").with_columns(
        job_id=pl.format("j{}", pl.int_range(pl.len()))
    )
    return cranny.Trace.from_frame(table)


@st.composite
def stretches(draw: st.DrawFn) -> Held:
    submit_s = draw(st.integers(0, 20))
    start_s = submit_s + draw(st.integers(0, 10))
    return Held(submit_s, start_s, start_s + draw(st.integers(0, 12)), draw(st.integers(1, 8)))


@given(st.lists(stretches(), max_size=8), st.integers(1, 8), st.integers(0, 25))
def test_the_wait_is_that_of_the_reference(held: list[Held], size: int, now_s: int) -> None:
    (found,) = large_job_waits(frame(held), POOL, [size], (now_s - 0.0, now_s + 0.0), moments=1)
    assert found.mean_s == wait_s(held, 8, size, now_s)


def test_moments_are_spread_evenly_over_the_window() -> None:
    # All 8 GPUs are held from 0 to 60 s: submitted at 15, 45, 75 and 105 s, a job waits 45, 15, 0 and 0 s.
    (found,) = large_job_waits(frame([Held(0, 0, 60, 8)]), POOL, [1], (0.0, 120.0), moments=4)
    assert found.mean_s == 15.0
    assert found.p90_s == pytest.approx(np.quantile([45, 15, 0, 0], 0.9))
    assert found.at_once == 0.5


def test_a_job_waits_behind_what_waits_already_but_not_behind_what_comes_later() -> None:
    held = [Held(0, 0, 100, 8), Held(10, 100, 200, 8), Held(60, 200, 300, 8)]
    at_50, at_70 = (
        large_job_waits(frame(held), POOL, [4], (now_s, now_s), moments=1)[0].mean_s for now_s in (50.0, 70.0)
    )
    assert (at_50, at_70) == (150.0, 230.0)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 12), st.integers(1, 200)), min_size=1, max_size=12),
    st.integers(1, 12),
    st.integers(0, 400),
)
def test_a_replay_with_such_a_job_agrees_under_conservative_backfill(
    jobs: list[tuple[int, int, int]], size: int, second: int
) -> None:
    """No job submitted later starts before the large one, and none submitted before is delayed by others."""
    cluster = Cluster.fat_tree(1, 3, 4)
    now_s = second + 0.5  # between submissions
    without = cranny.simulate(cluster, trace(jobs), "best-fit", "instant", order="conservative")
    table = pl.concat(
        [
            trace(jobs).frame.select("job_id", "submit_s", "gpus", "duration_s"),
            pl.DataFrame({"job_id": ["large"], "submit_s": [now_s], "gpus": [size], "duration_s": [1e6]}).cast(
                {"gpus": pl.Int32}
            ),
        ]
    )
    ran = cranny.simulate(cluster, cranny.Trace.from_frame(table), "best-fit", "instant", order="conservative")
    waited_s = ran.jobs.filter(pl.col("job_id") == "large")["wait_s"].item()
    pool = LargestPool.of(cluster)
    (found,) = large_job_waits(held_by_result(without, pool), pool, [size], (now_s, now_s), moments=1)
    assert found.mean_s == pytest.approx(waited_s)


MIXED = Cluster.of(
    Switch(
        "lab",
        (
            Switch("r0", (Machine("a", 8, "h100"), Machine("b", 8, "h100")), (100.0, 100.0)),
            Switch("r1", (Machine("c", 8, "h100"), Machine("d", 8, "v100")), (100.0, 100.0)),
        ),
        (400.0, 400.0),
    )
)


def test_gpus_are_those_of_the_type_that_has_most() -> None:
    assert LargestPool.of(MIXED) == LargestPool("h100", frozenset({0, 1, 2}), 24, 16)
    assert LargestPool.of(Cluster.fat_tree(2, 2, 4)) == LargestPool(None, frozenset(range(4)), 16, 8)


def test_what_other_types_hold_is_not_looked_at() -> None:
    table = pl.DataFrame(
        {
            "job_id": ["a", "b"],
            "submit_s": [0.0, 0.0],
            "gpus": [8, 24],
            "duration_s": [900.0, 60.0],
            "gpu_type": ["v100", "h100"],
        }
    )
    ran = cranny.simulate(MIXED, cranny.Trace.from_frame(table), "best-fit", "instant")
    pool = LargestPool.of(MIXED)
    (found,) = large_job_waits(held_by_result(ran, pool), pool, [24], (10.0, 10.0), moments=1)
    assert found.mean_s == 50.0
    assert found.gpu_type == "h100"


def test_sizes_are_multiples_of_the_largest_common_one_and_a_rack() -> None:
    jobs = trace([(0, 2, 10)] * 150 + [(0, 4, 10)] * 2 + [(0, 16, 10)])
    assert sizes_to_ask(jobs, dataclasses.replace(POOL, gpus=64, rack=32)) == [16, 32, 64]
    jobs = trace([(0, 2, 10)] * 250 + [(0, 4, 10)] * 2 + [(0, 16, 10)])
    assert sizes_to_ask(jobs, dataclasses.replace(POOL, gpus=15, rack=12)) == [4, 8, 12]
    assert sizes_to_ask(jobs, POOL, [8, 3, 8]) == [3, 8]
    with pytest.raises(InputError, match="a job of 9 GPUs: there are 8"):
        sizes_to_ask(jobs, POOL, [9])
    with pytest.raises(InputError, match="GPUs of a large job"):
        sizes_to_ask(jobs, POOL, [0])
