import json
import sys
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

import cranny
from cranny.analysis.whatif import what_if
from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.searches import best
from cranny.analysis.whatif.tables import answer_tables
from cranny.model.errors import InputError
from cranny.traces.trace import Trace

CLUSTER = cranny.Cluster.fat_tree(1, 2, 4)
# Two machines of four GPUs. Under best fit: a and b start at once and fill machine 0 and half of machine 1; c has
# to wait for 8 GPUs until a ends at 3600; d comes behind c and starts when c ends.
ROWS: dict[str, list[Any]] = {
    "job_id": ["a", "b", "c", "d"],
    "submit_s": [0.0, 0.0, 1800.0, 7200.0],
    "gpus": [4, 2, 8, 1],
    "duration_s": [3600.0, 1800.0, 3600.0, 600.0],
}
STARTS = [0.0, 60.0, 5400.0, 9000.0]


def log(starts: Sequence[float | None] | None = None, **columns: list[Any]) -> Trace:
    frame = pl.DataFrame(ROWS | columns, schema_overrides={"gpus": pl.Int32})
    return Trace(
        "log", frame if starts is None else frame.with_columns(pl.Series("start_s", starts, dtype=pl.Float64))
    )


def asked(trace: Trace, policies: Sequence[str] = ("best-fit",), **settings: Any) -> WhatIfAnswer:
    given: dict[str, Any] = {"processes": 1, "network": "instant", "search": False, **settings}
    return what_if(trace, CLUSTER, policies, price_per_gpu_hour=2.0, **given)


def test_the_log_is_measured_by_its_own_starts() -> None:
    was, best_fit = asked(log(STARTS)).cases
    assert was.waits is not None
    assert was.waits.wait.mean_s == pytest.approx((0 + 60 + 3600 + 1800) / 4)
    assert was.waits.jct.mean_s == pytest.approx((3600 + 1860 + 7200 + 2400) / 4)
    assert (was.waits.over_10_min, was.waits.over_1_h) == (2, 0)
    assert was.machines is None
    assert was.fragmentation is None
    assert was.headroom is not None
    assert was.headroom.idle_gpus is None
    # Held: 4 from 0, 6 from 60 to 1860, 4 to 3600, nothing to 5400, 8 to the last submission at 7200.
    assert was.headroom.free_gpus.mean == pytest.approx(8 - (4 * 3600 + 2 * 1800 + 8 * 1800) / 7200)
    assert best_fit.waits is not None
    assert best_fit.waits.wait.mean_s == pytest.approx(1800 / 4)


def test_of_waits_that_differ_by_rounding_alone_the_fewest_machine_hours_are_best() -> None:
    def summary(mean_wait_s: float, machine_hours: float, skipped: int = 0) -> dict[str, float]:
        return {"jobs_skipped": skipped, "mean_wait_s": mean_wait_s, "machine_hours": machine_hours}

    alike = {"many": summary(0.3, 20.0), "few": summary(0.1 + 0.2, 10.0)}
    assert best(alike) == "few"
    assert best(alike | {"short": summary(0.2, 30.0)}) == "short"
    assert best(alike | {"few": summary(0.31, 10.0)}) == "many"
    assert best(alike | {"short": summary(0.2, 30.0, skipped=1)}) == "few"


def test_both_halving_doublings_are_compared_if_asked_for() -> None:
    trace = log(submit_s=[0.0, 0.0, 1800.0, 5000.0], model=["vgg16"] * 4)  # d comes while c is on both machines
    orders = ("halving-doubling", "gloo-halving-doubling")
    found = asked(trace, ("best-fit", "best-fit-mapped"), collectives=orders)
    moved = {(each.collective, each.policy): each.mean_cross_traffic_gb for each in found.collectives}
    far, mapped = moved[orders[0], "best-fit"], moved[orders[0], "best-fit-mapped"]
    assert far == pytest.approx(4 * mapped)  # K/2 against K/8, four pairs, twice
    assert moved[orders[1], "best-fit"] == moved[orders[1], "best-fit-mapped"] == pytest.approx(mapped)
    assert [sheet.rows[0][:2] for sheet in answer_tables(found)][-1] == [orders[0], "best-fit"]
    assert len(found.facts()["collectives"]) == 4
    assert not asked(log(STARTS)).collectives


def test_idle_machines_become_money() -> None:
    answer = asked(log(STARTS))
    machines = answer.policies[0].machines
    assert machines is not None
    # Machine 1 is idle from 1800 to 3600; from 3600 to 7200 c holds both.
    assert machines.idle_hours == pytest.approx(0.5)
    assert machines.used_hours == pytest.approx(3.5)
    assert machines.off_gpu_hours == pytest.approx(4 * 0.5)
    assert answer.details.off_a_day("best-fit") == pytest.approx(2.0 * 4 * 0.5 * 12)
    room = answer.policies[0].headroom
    assert room is not None
    assert room.idle_gpus is not None
    assert room.free_gpus.mean == pytest.approx((2 * 1800 + 4 * 1800) / 7200)
    assert room.idle_gpus.mean == pytest.approx(4 * 1800 / 7200)
    assert answer.sizes_to_start == (8,)
    assert room.free_gpus.share_from(4) == pytest.approx(0.25)


def test_without_starts_the_log_is_unknown() -> None:
    answer = asked(log())
    assert answer.cases[0].waits is None
    assert answer.cases[0].headroom is None
    assert any("not in the log" in line for line in findings(answer))
    assert any("not in the log" in line for line in answer.assumptions)
    assert "not in the log" in answer_tables(answer)[0].note
    assert len(answer.results) == 1


def test_only_jobs_that_ran_everywhere_are_compared() -> None:
    answer = asked(log([0.0, None, 5400.0, 7000.0]))
    was, best_fit = answer.cases
    assert was.waits is not None
    assert best_fit.waits is not None
    assert was.waits.jobs == best_fit.waits.jobs == 2
    assert best_fit.waits.wait.mean_s == pytest.approx(1800 / 2)
    told = " ".join(answer.assumptions)
    assert "without a start in the log: 1 job" in told
    assert "started before their submission by the log's clock: 1 job" in told


def test_a_few_starts_are_not_enough_to_compare_with() -> None:
    answer = asked(log([0.0, None, None, None]))
    assert answer.cases[0].waits is None
    assert any("The start of 3 of 4 jobs is not in the log" in line for line in answer.assumptions)


def test_held_gpus_of_a_log_need_nearly_all_starts() -> None:
    answer = asked(log([0.0, 60.0, 5400.0, None]))
    assert answer.cases[0].waits is not None
    assert answer.cases[0].headroom is None


def test_nothing_to_compare_is_an_error() -> None:
    trace = log([None, None, 1800.0, 9000.0], gpus=[4, 2, 99, 99])
    with pytest.raises(InputError, match="no job ran in the log and under every policy"):
        asked(trace)


def test_a_log_for_a_larger_cluster_is_warned_of() -> None:
    answer = asked(log([0.0, 0.0, 1800.0, 9000.0], duration_s=[9000.0, 9000.0, 3600.0, 600.0]))
    told = " ".join(answer.warnings)
    assert "up to 14 GPUs were held at once, the cluster has 8" in told
    assert "The log asks for 12 GPUs on average" in told


def test_a_job_larger_than_the_cluster_is_named() -> None:
    answer = asked(log(gpus=[4, 2, 9, 1]))
    assert any("larger than the cluster" in line for line in answer.warnings)
    assert any("best-fit 1 job; such as c: needs 9 GPUs, the cluster has 8" in line for line in answer.assumptions)


def test_longer_running_times_than_in_the_log_are_warned_of() -> None:
    spread_log = log(STARTS, model=["vgg16"] * 4)
    assert any("--network instant" in line for line in asked(spread_log, network="isolated").warnings)
    assert not asked(spread_log).warnings


def test_the_search_tells_how_many_machines_could_go() -> None:
    answer = asked(
        log(gpus=[1, 1, 1, 1]), search=True, policies=["best-fit", "titan"], search_policy="titan", add=1
    )
    assert {search.policy for search in answer.searches} == {"best-fit", "titan"}
    assert all(search.removal.machines == 1 for search in answer.searches)
    assert all(search.addition.after_s == {"1": 0.0} for search in answer.searches)
    told = " ".join(findings(answer))
    assert (
        "With titan 1 machine could be removed: the mean wait would be 0 s instead of 0 s (they cost $192 a day)."
        in told
    )
    assert "With titan and 1 more machine no size of job would start clearly sooner." in told


def test_many_jobs_are_searched_with_a_policy_whose_replay_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"search": True, "policies": ["cranny", "best-fit"]}
    assert "cranny" in {search.policy for search in asked(log(gpus=[1, 1, 1, 1]), **settings).searches}
    monkeypatch.setattr(sys.modules["cranny.analysis.whatif.what_if"], "SEARCHED_WITH_ALL", 1)
    assert {search.policy for search in asked(log(gpus=[1, 1, 1, 1]), **settings).searches} == {"best-fit"}
    named = asked(log(gpus=[1, 1, 1, 1]), search_policy="cranny", **settings).searches
    assert {search.policy for search in named} == {"best-fit", "cranny"}


def test_several_processes_find_the_same() -> None:
    settings: dict[str, Any] = {"search": True, "policies": ["best-fit", "titan"]}
    one, two = (asked(log(STARTS), **settings, processes=count) for count in (1, 2))
    assert one.facts() == two.facts()


def test_the_policy_to_search_with_must_be_replayed() -> None:
    with pytest.raises(InputError, match="policy to search with"):
        asked(log(), search_policy="titan")


@pytest.mark.parametrize("settings", [{"add": 0}, {"add": -1}, {"add": 10**9}])
def test_a_wrong_number_of_machines_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="machines to add"):
        asked(log(), **settings)


def test_facts_are_plain_json() -> None:
    facts = asked(log(STARTS), search=True).facts()
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert [case["name"] for case in facts["cases"]] == ["as it was", "best-fit"]
    assert facts["cases"][0]["largest_job"]["on_idle_machines"] is None
    assert facts["cases"][1]["money"]["off"] == pytest.approx(4.0)
    assert facts["search"][0]["removal"]["machines"] == 0


def test_all_jobs_at_once_are_measured_to_the_last_end() -> None:
    answer = asked(log(submit_s=[0.0] * 4))
    assert answer.window == (0.0, 3600.0 + 3600.0)  # the short job backfills


def test_waiting_to_go_on_counts_and_a_stop_costs_a_restart() -> None:
    columns: dict[str, list[Any]] = {"job_id": ["long", "short"], "gpus": [8, 8], "submit_s": [0.0, 4_000.0]}
    trace = Trace("log", pl.DataFrame(columns | {"duration_s": [10_000.0, 500.0]}).cast({"gpus": pl.Int32}))
    answer = asked(trace, ("cranny", "best-fit"), search=True)
    cranny_waits, best_fit_waits = (case.waits for case in answer.policies)
    assert cranny_waits is not None
    assert best_fit_waits is not None
    assert cranny_waits.wait.mean_s == pytest.approx((500.0 + 0.0) / 2)  # the long job waits for the short one
    assert cranny_waits.jct.mean_s == pytest.approx((10_000.0 + 500.0 + 60.0 + 500.0) / 2)
    assert best_fit_waits.wait.mean_s == pytest.approx(6_000.0 / 2)
    said = "Jobs are stopped and go on later, this often: cranny 1. Each time a job loses 60 s and waits again"
    assert any(said in line for line in answer.assumptions)
    assert [each.policy for each in answer.searches] == ["cranny"]
    assert answer.searches[0].removal.limit_s == pytest.approx(250.0 + 60.0)
    free = asked(trace, ("cranny",), restart_s=0.0).policies[0].waits
    assert free is not None
    assert free.jct.mean_s == pytest.approx((10_000.0 + 500.0 + 500.0) / 2)
    with pytest.raises(InputError, match="restart_s"):
        asked(trace, restart_s=-1.0)
