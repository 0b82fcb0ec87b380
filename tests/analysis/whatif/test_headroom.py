from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

import cranny
from cranny.analysis.whatif.headroom import headroom, idle_stretches, switched_off
from cranny.model.cluster import Machine

WINDOW = (0.0, 7200.0)
TWO = (Machine("a", 4), Machine("b", 8))
SCHEMA = {"start_s": pl.Float64, "end_s": pl.Float64, "machine": pl.Int32, "gpus": pl.UInt64}


def runs(*rows: tuple[float, float, int, int]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


# Machine a: held 0-1800 by one job and 1200-3600 by another, idle after that.
# Machine b: held 600-1800 and from 2400 s to after the window.
BUSY = runs((0, 1800, 0, 0b0011), (1200, 3600, 0, 0b0100), (600, 1800, 1, 0xFF), (2400, 9999, 1, 0x01))


def test_idle_stretches_lie_between_the_jobs_of_a_machine() -> None:
    idle = idle_stretches(BUSY, 2, WINDOW)
    assert idle.rows() == [(0, 3600, 7200), (1, 0, 600), (1, 1800, 2400)]


def test_a_machine_that_no_job_uses_is_idle_all_the_time() -> None:
    assert idle_stretches(BUSY.clear(), 2, WINDOW).rows() == [(0, 0, 7200), (1, 0, 7200)]


def test_jobs_that_follow_each_other_at_once_leave_no_idle_stretch() -> None:
    back_to_back = runs((0, 100, 0, 1), (100, 7200, 0, 1))
    assert idle_stretches(back_to_back, 1, WINDOW).is_empty()


def test_hours_add_up_and_short_stretches_are_not_switched_off() -> None:
    found = switched_off(idle_stretches(BUSY, 2, WINDOW), TWO, WINDOW)
    assert found.idle_hours == pytest.approx((3600 + 600 + 600) / 3600)
    assert found.used_hours == pytest.approx(2 * 2 - 4800 / 3600)
    assert found.used == pytest.approx(found.used_hours / 2)
    assert found.off_hours == pytest.approx(1.0)  # the hour of machine a; ten minutes are too short
    assert found.off_gpu_hours == pytest.approx(4.0)
    assert found.off == pytest.approx(0.5)


def test_the_largest_job_grows_and_shrinks_with_the_jobs() -> None:
    found = headroom(BUSY, idle_stretches(BUSY, 2, WINDOW), TWO, WINDOW)
    moments = np.array([0.0, 700.0, 1300.0, 1900.0, 2500.0, 5000.0])
    assert found.free_gpus.at(moments).tolist() == [10, 2, 1, 11, 10, 11]
    assert found.idle_gpus is not None
    assert found.idle_gpus.at(moments).tolist() == [8, 0, 0, 8, 0, 4]


@st.composite
def replays(draw: st.DrawFn) -> Any:
    """Draw a small cluster and jobs, and replay them."""
    gpus = draw(st.integers(1, 4))
    cluster = cranny.Cluster.fat_tree(draw(st.integers(1, 2)), draw(st.integers(1, 3)), gpus)
    times = sorted(draw(st.lists(st.integers(0, 20), min_size=1, max_size=8)))
    jobs = [
        cranny.Job(
            id=str(index),
            gpus=draw(st.integers(1, cluster.gpus)),
            model="resnet50",
            submit_s=float(at_s),
            duration_s=float(draw(st.integers(0, 15))),
        )
        for index, at_s in enumerate(times)
    ]
    policy = draw(st.sampled_from(["best-fit", "titan", "elasticflow", "fragments-first"]))
    return cranny.simulate(cluster, jobs, policy, "instant")


@settings(max_examples=examples(60))
@given(replays())
def test_the_largest_job_is_what_counting_gpu_by_gpu_gives(result: Any) -> None:
    machines, window = result.cluster.machines, (0.0, 30.0)
    idle = idle_stretches(result.runs, len(machines), window)
    found = headroom(result.runs, idle, machines, window)
    moments = np.linspace(0.5, 29.5, 30)
    anywhere, on_idle = [], []
    for at_s in moments:
        free = {index: machine.gpus for index, machine in enumerate(machines)}
        for row in result.runs.filter((pl.col("start_s") <= at_s) & (pl.col("end_s") > at_s)).iter_rows(
            named=True
        ):
            free[row["machine"]] -= int(row["gpus"]).bit_count()
        anywhere.append(sum(free.values()))
        on_idle.append(sum(gpus for index, gpus in free.items() if gpus == machines[index].gpus))
    assert found.idle_gpus is not None
    assert found.free_gpus.at(moments).tolist() == anywhere
    assert found.idle_gpus.at(moments).tolist() == on_idle
    assert (found.idle_gpus.at(moments) <= found.free_gpus.at(moments)).all()
    assert found.free_gpus.value.min() >= 0
    off = switched_off(idle, machines, window, hold_s=0.0)
    used = np.mean([len(machines) - sum(on_idle) / machines[0].gpus / 30])
    assert off.used == pytest.approx(used)
    assert off.off_hours == pytest.approx(off.idle_hours)
