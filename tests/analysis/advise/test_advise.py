"""Advice on a log: numbers that can be checked by hand, intervals that can be believed, and honest words."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cranny.analysis.advise.advice import Advice, advise, candidates
from cranny.analysis.advise.comparison import Judge
from cranny.analysis.advise.policy_outcome import METRICS, PolicyOutcome
from cranny.analysis.advise.sentences import (
    costs,
    facts_and_sentences,
    reasons,
    results_table,
    verdict,
    workload_lines,
)
from cranny.analysis.advise.workload import Workload, fitting_shape, stretch
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.run import simulate
from cranny.scenario import Scenario
from cranny.traces.generate import generate_trace
from cranny.traces.trace import Trace

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4, oversubscription=4)
SUMMARY = {
    "mean_comm_slowdown": 1.0,
    "jobs_done": 0.0,
    "jobs_skipped": 0.0,
    "jobs_unfinished": 0.0,
    "restarts": 0.0,
    "moves": 0.0,
    "mean_not_running_s": 0.0,
}


def trace(*rows: tuple[float, int, float], **columns: Any) -> Trace:
    """Return a trace of jobs: submitted when, how many GPUs, for how long."""
    named = {"job_id": [f"job-{at}" for at in range(len(rows))]}
    for at, name in enumerate(("submit_s", "gpus", "duration_s")):
        named[name] = [row[at] for row in rows]  # type: ignore[misc]
    return Trace.from_frame(pl.DataFrame(named | columns), "log")


def outcome(policy: str, jct_s: np.ndarray, order: str = "fifo", **summary: float) -> PolicyOutcome:
    count = len(jct_s)
    submit_s = np.arange(count, dtype=float)
    hours = (np.array([0.0, count - 1.0]), np.array([0.0, float(jct_s.sum())]))
    ids = tuple(f"job-{at:05}" for at in range(count))
    return PolicyOutcome(policy, order, SUMMARY | summary, ids, submit_s, jct_s, np.full(count, 50.0), hours)


def judge(*outcomes: PolicyOutcome) -> Judge:
    return Judge(outcomes, tuple(METRICS), 0, frozenset(outcomes[0].job_ids))


# -- the workload ----------------------------------------------------------------------------------------------


def test_a_workload_is_sized_up() -> None:
    log = trace((0, 8, 100), (50, 1, 100), (100, 4, 300), tenant=["a", "b", "a"], least_gpus=[None, 1, None])
    found = Workload.of(log, CLUSTER)
    assert found.several_machines_jobs == pytest.approx(1 / 3)
    assert found.several_machines_gpu_hours == pytest.approx(800 / 2100)
    assert found.load == pytest.approx((8 * 50 + 9 * 50) / 100 / 16)
    assert found.peak_load == pytest.approx(9 / 16)
    assert (found.oversubscription, found.machine_gpus, found.tenants, found.gpu_types) == (4.0, 4, 2, 0)
    assert found.elastic_jobs == pytest.approx(1 / 3)
    assert "has-resets" in candidates(found)
    assert "has-resets" not in candidates(Workload.of(trace((0, 1, 1), (1, 1, 1)), CLUSTER))


def test_a_made_up_cluster_is_loaded_to_four_fifths_and_holds_the_largest_job() -> None:
    busy = trace(*((float(at), 8, 100.0) for at in range(1000)))
    racks, machines, gpus = fitting_shape(busy)
    assert 0.7 < Workload.of(busy, Cluster.fat_tree(racks, machines, gpus)).load < 0.8
    racks, machines, gpus = fitting_shape(trace((0, 200, 1), (1000, 1, 1)))
    assert racks * machines * gpus >= 200


def test_a_stretch_has_consecutive_jobs_and_those_that_would_still_run_before_it() -> None:
    log = generate_trace("philly", jobs=1000, seed=3, load=0.8, gpus=64)
    part, carried = stretch(log, 100)
    assert len(part) == 100 + carried
    begins_s = part.frame["submit_s"][0]
    before = part.frame[:carried]
    assert (before["submit_s"] == begins_s).all()
    there = log.frame.filter(pl.col("job_id").is_in(before["job_id"].to_list()))
    ends = (there["submit_s"] + there["duration_s"]).to_numpy()
    assert (before["submit_s"] + before["duration_s"]).to_numpy() == pytest.approx(ends)
    first = log.frame["job_id"].to_list().index(part.frame["job_id"][carried])
    assert part.frame["job_id"][carried:].equals(log.frame["job_id"][first : first + 100])
    assert stretch(log, 0) == (log, 0)
    assert stretch(log, 5000) == (log, 0)


# -- the comparison --------------------------------------------------------------------------------------------


@given(st.lists(st.floats(1.0, 1e6), min_size=100, max_size=160), st.integers(4, 8))
def test_drawing_every_part_once_gives_the_values_of_the_whole(jct_s: list[float], parts: int) -> None:
    one = outcome("a", np.array(jct_s))
    part = np.arange(len(jct_s)) * parts // len(jct_s)
    drawn = one.resampled(part, np.ones((1, parts)))
    whole = one.values()
    for name in ("mean_jct_s", "machine_hours", "mean_slowdown"):
        assert drawn[name][0] == pytest.approx(whole[name])
    assert drawn["p99_jct_s"][0] == np.quantile(jct_s, 0.99, method="inverted_cdf")


def test_a_policy_that_is_better_on_every_day_leads_beyond_doubt() -> None:
    jct_s = np.random.default_rng(0).uniform(100, 1000, 500)
    judged = judge(outcome("slow", jct_s * 1.2), outcome("fast", jct_s))
    assert judged.ranking() == ["fast", "slow"]
    compared = judged.compare("slow", "fast")
    assert compared.metrics["mean_jct_s"].ratio == pytest.approx(1.2)
    assert compared.overall.certain
    assert compared.overall.low == pytest.approx(1.2)
    assert compared.overall.high == pytest.approx(1.2)


def test_policies_that_differ_only_by_chance_cannot_be_told_apart() -> None:
    rng = np.random.default_rng(1)
    found = judge(*(outcome(name, rng.lognormal(5, 2, 600)) for name in ("one", "other")))
    first, second = found.ranking()
    lead = found.compare(second, first).overall
    assert lead.low is not None
    assert lead.low < 1.0 < lead.ratio
    assert not lead.certain


def test_few_jobs_give_no_interval_and_a_policy_that_skips_jobs_is_never_first() -> None:
    jct_s = np.full(30, 100.0)
    found = judge(outcome("lazy", jct_s / 10, jobs_skipped=1.0), outcome("whole", jct_s))
    assert found.ranking() == ["whole", "lazy"]
    assert found.compare("lazy", "whole").overall.low is None
    with pytest.raises(InputError, match="no job ran under every policy"):
        Judge([outcome("a", jct_s)], tuple(METRICS), 0, frozenset())


# -- the advice ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found() -> Advice:
    log = generate_trace("itp", jobs=260, seed=0, load=0.9, gpus=CLUSTER.gpus)
    scenario = Scenario(CLUSTER, log, network="steady")
    return advise(scenario, ("cranny", "titan", "tiresias"), processes=1)


def test_values_are_those_of_the_replays(found: Advice) -> None:
    log = generate_trace("itp", jobs=260, seed=0, load=0.9, gpus=CLUSTER.gpus)
    dear = Trace(log.name, log.frame.with_columns(restart_s=pl.lit(60.0)))
    for policy in found.ranking:
        summary = simulate(CLUSTER, dear, policy, "steady").summary
        for name in ("mean_jct_s", "p99_jct_s", "machine_hours"):
            assert found.values[policy][name] == pytest.approx(summary[name])
        assert found.outcomes[policy].summary["restarts"] == summary["restarts"]
    stopped = found.outcomes["tiresias"].summary
    assert stopped["restarts"] > 0
    assert stopped["mean_not_running_s"] > 0


def test_the_words_say_what_the_numbers_say(found: Advice) -> None:
    table = results_table(found)
    assert [row[0] for row in table.rows] == list(found.ranking)
    assert table.rows[0][1] == "1.00"
    said = verdict(found)
    if found.clear:
        assert said[0] == f"{found.best} suits this log best, beyond doubt (95 %)."
    else:
        assert said[0].startswith(f"No clear winner: {found.best} comes first")
        assert all(each.policy in said[0] for each in found.rivals)
    assert any("does not lead here" in line for line in said) == (found.best != "cranny")
    assert any("on a 4:1 network" in line or "several machines" in line for line in reasons(found))
    assert any("durations of the log" in line for line in costs(found))
    assert workload_lines(found)[0].startswith("260 jobs, ")


def test_facts_are_plain_and_name_a_policy_only_where_it_is_clear(found: Advice) -> None:
    facts = json.loads(json.dumps(facts_and_sentences(found), allow_nan=False))
    assert facts["recommended"] == (found.best if found.clear else None)
    assert [each["policy"] for each in facts["policies"]] == list(found.ranking)
    assert facts["parts"] == 10
    assert facts["verdict"] == verdict(found)
    assert len(facts["compared_with_first"]) == 2


def test_one_metric_may_decide_and_a_policy_that_cannot_run_is_told() -> None:
    log = generate_trace("itp", jobs=40, seed=0, load=0.9, gpus=CLUSTER.gpus)
    scenario = Scenario(CLUSTER, log, network="instant")
    one = advise(scenario, ("titan", "best-fit"), by="machine_hours", processes=1)
    least = min(one.values, key=lambda policy: one.values[policy]["machine_hours"])
    assert one.best == least
    assert "too few to say how sure" in verdict(one)[0]
    assert not one.clear
    assert "The network is instant" in reasons(one)[0]
    with pytest.raises(InputError, match="metric"):
        advise(scenario, by="beauty")
    assert "cranny could not run: no room" in costs(replace(one, failed={"cranny": "no room"}))
    alone = advise(scenario, ("titan",), processes=1)
    assert verdict(alone) == ["titan is the only policy that ran, so there is nothing to compare it with."]
