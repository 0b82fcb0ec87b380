"""The simulator against a replay with nothing clever in it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference import replay as literal

from cranny.model.cluster import Cluster, Machine, Switch
from cranny.model.collective import COLLECTIVES, PLACED
from cranny.model.job import Job
from cranny.run import Result, simulate
from cranny.traces.generate import generate_trace

EVEN = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, link_gbps=25, oversubscription=2)
UNEVEN = Cluster.of(
    Switch(
        "top",
        (
            Machine("head", 1),
            Switch("r0", (Machine("a", 6, "h200"), Machine("b", 6, "h200")), (100.0, 100.0)),
            Switch("r1", (Machine("c", 2, "t4"), Machine("d", 3, "t4")), (25.0, 10.0)),
        ),
        (10.0, 50.0, 25.0),
    )
)
MODELS = ("resnet50", "vgg16", "gpt2", "bert-large")


def same(result: Result, expected: dict[str, Any]) -> None:
    """Compare starts, finishes, the jobs skipped, the timeline and the summary."""
    jobs = {row["job_id"]: row for row in result.jobs.iter_rows(named=True)}
    done = {name: row for name, row in jobs.items() if row["status"] == "done"}
    assert set(done) == set(expected["finish_s"])
    assert {name for name, row in jobs.items() if row["status"] == "skipped"} == set(expected["skipped"])
    for name, row in done.items():
        for column in ("start_s", "finish_s", "slowdown"):
            assert row[column] == pytest.approx(expected[column][name], rel=1e-9, abs=1e-9), (name, column)
    rows = expected["timeline"]
    assert result.timeline.height == len(rows)
    for column in result.timeline.columns:
        found = result.timeline[column].to_list()
        assert found == pytest.approx([row[column] for row in rows], rel=1e-9, abs=1e-9), column
    assert set(result.summary) == set(expected["summary"])
    for name, value in expected["summary"].items():
        assert result.summary[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name


@st.composite
def logs(draw: st.DrawFn) -> list[Job]:
    """Jobs that come in bursts and queue up; some too large for any cluster."""
    jobs = []
    now_s = draw(st.sampled_from([0.0, 100.0]))
    for number in range(draw(st.integers(1, 25))):
        now_s += draw(st.sampled_from([0.0, 0.0, 1.0, 30.0, 250.5]))
        # The slow replay adds up messages, of which aggregation by switches makes none.
        collective = draw(st.sampled_from([name for name in COLLECTIVES if name != "ina"]))
        tp, pp = draw(st.sampled_from([(1, 1), (1, 1), (1, 1), (2, 1), (1, 2)]))
        flat = "ring" if collective in PLACED and tp * pp > 1 else collective
        jobs.append(
            Job(
                id=f"j{number}",
                gpus=tp * pp * draw(st.integers(1, 9)),
                model=draw(st.sampled_from(MODELS)),
                collective=flat,
                submit_s=now_s,
                duration_s=draw(st.sampled_from([0.0, 1.0, 30.0, 77.5, 600.0, 5000.0])),
                tp=tp,
                pp=pp,
                gpu_type=draw(st.sampled_from([None, None, None, None, "h200", "t4"])),
            )
        )
    return jobs


def fits(cluster: Cluster, jobs: Sequence[Job]) -> bool:
    """Say whether any of the jobs can run at all."""
    return any(
        job.gpus <= sum(m.gpus for m in cluster.machines if job.gpu_type in (None, m.gpu_type)) for job in jobs
    )


@pytest.mark.parametrize("cluster", [EVEN, UNEVEN], ids=["even", "uneven"])
def test_equals_the_slow_replay_on_random_logs(cluster: Cluster) -> None:
    @settings(max_examples=examples(120))
    @given(logs(), st.sampled_from([0.0, 1.0, 2.5]))
    def run(jobs: list[Job], price: float) -> None:
        if fits(cluster, jobs):
            result = simulate(cluster, jobs, "best-fit", price_per_gpu_hour=price)
            same(result, literal.replay(cluster, jobs, price))

    run()


def test_equals_the_slow_replay_on_a_generated_trace() -> None:
    cluster = Cluster.fat_tree(racks=2, machines_per_rack=8, gpus_per_machine=4, oversubscription=2.0)
    trace = generate_trace("itp", jobs=300, seed=3, load=1.1, gpus=cluster.gpus)
    result = simulate(cluster, trace, "best-fit", seed=3)
    assert result.summary["mean_wait_s"] > 0  # the queue was put to the test
    assert result.summary["mean_cross_traffic_gb"] > 0
    same(result, literal.replay(cluster, list(trace.jobs(3))))
