"""One frozen value for all that decides a simulation, and many of them at once."""

from dataclasses import FrozenInstanceError, replace
from inspect import signature
from typing import get_type_hints

import pytest

import cranny
from cranny.analysis.whatif.what_if import usual_policies
from cranny.model.errors import InputError
from cranny.policies import DEFAULT_POLICY
from cranny.run import run, run_many
from cranny.scenario import Scenario, ScenarioSettings

CLUSTER = cranny.Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
TRACE = cranny.generate_trace("philly", jobs=40, seed=1)


def test_a_scenario_runs_as_simulate_does() -> None:
    scenario = Scenario(CLUSTER, TRACE, "netpack", "steady", 3, period_s=60.0)
    found = cranny.simulate(CLUSTER, TRACE, "netpack", "steady", 3, period_s=60.0)
    assert run(scenario).jobs.equals(found.jobs)
    assert run(scenario).settings == found.settings


def test_the_keywords_of_simulate_are_the_settings_of_a_scenario() -> None:
    positional = {"cluster", "trace", "policy", "network", "seed"}
    fields = {name: kind for name, kind in get_type_hints(Scenario).items() if name not in positional}
    assert get_type_hints(ScenarioSettings) == fields


def test_the_default_policy_is_the_same_wherever_one_can_be_named() -> None:
    assert Scenario(CLUSTER, TRACE).policy == DEFAULT_POLICY
    assert signature(cranny.simulate).parameters["policy"].default == DEFAULT_POLICY
    assert usual_policies(len(TRACE))[0] == DEFAULT_POLICY


def test_a_scenario_is_frozen_and_checked_when_made() -> None:
    scenario = Scenario(CLUSTER, TRACE)
    with pytest.raises(FrozenInstanceError):
        scenario.seed = 1  # type: ignore[misc]
    for wrong in ({"network": "tin cans"}, {"seed": -1}, {"price_per_gpu_hour": -1.0}, {"policy": "titen"}):
        with pytest.raises(InputError):
            replace(scenario, **wrong)


def test_options_go_to_the_policies_that_have_them() -> None:
    scenario = Scenario(CLUSTER, TRACE, options={"skew_limit": 2.0})
    assert [each.options for each in scenario.with_policies(["titan", "tiresias"])] == [{}, {"skew_limit": 2.0}]
    with pytest.raises(InputError, match="none of the policies has an option 'skew_limit'"):
        scenario.with_policies(["best-fit"])


def test_many_are_in_the_order_given_and_one_that_cannot_run_can_have_a_stand_in() -> None:
    tiny = cranny.Cluster.single_rack(1, 1)
    wide = replace(TRACE, frame=TRACE.frame.with_columns(gpus=TRACE.frame["gpus"] * 0 + 2))
    scenarios = [Scenario(CLUSTER, TRACE, "titan"), Scenario(tiny, wide), Scenario(CLUSTER, TRACE, "best-fit")]
    kept = run_many(scenarios, keep=policy_of, impossible="none", processes=1)
    assert kept == ["titan", "none", "best-fit"]
    with pytest.raises(InputError):
        run_many(scenarios, processes=1)


def policy_of(result: cranny.Result) -> str:
    return str(result.settings["policy"])


def test_scenarios_are_equal_if_all_that_decides_their_results_is() -> None:
    trace = cranny.generate_trace("philly", jobs=10, seed=0)
    one = Scenario(CLUSTER, trace, "titan")
    assert one.equals(replace(one, policy="titan"))
    assert one.has_jobs_of(replace(one, policy="best-fit"))
    for other in (
        replace(one, seed=1),
        replace(one, limits=True),
        replace(one, trace=replace(trace, notes=("another",))),
        replace(one, held_before={"a": {"m": 1}}),
    ):
        assert not one.equals(other)
    assert not one.equals(replace(one, policy="best-fit"))
    assert not one.has_jobs_of(replace(one, seed=1))


def test_compiled_scenarios_run_in_threads_as_they_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.run.COMPILE_FROM", 100)
    monkeypatch.setattr("cranny.run.WorkerPool", None)  # no processes
    trace = cranny.generate_trace("philly", jobs=200, seed=0)
    scenarios = Scenario(CLUSTER, trace, "titan", order="backfill").with_policies(["titan", "best-fit"])
    threads = run_many(scenarios, processes=2)
    for scenario, result in zip(scenarios, threads, strict=True):
        alone = run(scenario)
        assert result.summary == alone.summary
        assert result.jobs.equals(alone.jobs)
