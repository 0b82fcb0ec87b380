"""What a policy saves, and how much of it is its own: by hand, and on the log of a scheduler that spreads jobs."""

import json
from dataclasses import replace

import jsonschema
import numpy as np
import polars as pl
import pytest
from tests.analysis.whatif.test_calibration import CLUSTER
from tests.analysis.whatif.test_calibration import log as crowded_log

from cranny.analysis.whatif.answer import WhatIfAnswer
from cranny.analysis.whatif.answer_sections import answer_sections
from cranny.analysis.whatif.baseline import AS_IT_WAS
from cranny.analysis.whatif.calibration import REPLAYED
from cranny.analysis.whatif.export import export_tables, json_schema
from cranny.analysis.whatif.findings import findings
from cranny.analysis.whatif.money import MachineCost
from cranny.analysis.whatif.resampling import WEEK_S
from cranny.analysis.whatif.savings import savings
from cranny.analysis.whatif.tables import answer_tables
from cranny.analysis.whatif.what_if import answer
from cranny.run import run
from cranny.scenario import Scenario

WINDOW = 0.0, 2 * WEEK_S  # 14 days


def cost(total: float, held: float = 100.0) -> MachineCost:
    none = np.zeros(2)
    week = np.array([total / 2, total / 2])
    return MachineCost(week, none, none, none, none, none, none, none, np.array([held, 0.0]))


def test_a_saving_is_the_sum_of_two_steps_and_the_second_is_the_policys() -> None:
    costs = {AS_IT_WAS: cost(1400.0), REPLAYED: cost(1050.0), "a": cost(700.0), "b": cost(1190.0)}
    found = savings(costs, AS_IT_WAS, REPLAYED, "", WINDOW, 0)
    assert found.of_replay is not None
    assert found.of_replay.a_day == pytest.approx(25.0)
    assert list(found.of_case) == ["a", "b"]  # not the replay, which is no policy
    by_name = {name: (each.whole.a_day, each.shown.a_day) for name, each in found.of_case.items()}
    assert by_name["a"] == pytest.approx((50.0, 25.0))
    assert by_name["b"] == pytest.approx((15.0, -10.0))  # cheaper than the log, but not than its scheduler
    assert not found.why_whole


def test_without_a_replay_the_whole_difference_is_shown_and_why() -> None:
    found = savings({AS_IT_WAS: cost(1400.0), "a": cost(700.0)}, AS_IT_WAS, REPLAYED, "too few jobs", WINDOW, 0)
    assert found.of_case["a"].credited is None
    assert found.of_case["a"].shown.a_day == pytest.approx(50.0)
    assert found.why_whole == "too few jobs"
    assert found.of_replay is None


def test_without_machines_in_the_log_there_is_no_saving() -> None:
    found = savings({REPLAYED: cost(1.0), "a": cost(1.0)}, AS_IT_WAS, REPLAYED, "", WINDOW, 0)
    assert (found.of_case, found.why_none) == ({}, "on which machines jobs ran is not in the log")


def test_what_puts_work_off_saves_nothing() -> None:
    costs = {AS_IT_WAS: cost(1400.0), "a": cost(700.0, 98.9), "b": cost(700.0, 99.1)}
    found = savings(costs, AS_IT_WAS, REPLAYED, "", WINDOW, 0)
    assert (list(found.of_case), found.late) == (["b"], ["a"])
    # A replay that does more than the log: a policy must do that much too.
    more = savings({**costs, REPLAYED: cost(1400.0, 101.0)}, AS_IT_WAS, REPLAYED, "", WINDOW, 0)
    assert (list(more.of_case), more.late) == ([], ["a", "b"])
    # A replay that puts work off is no measure.
    late = savings({**costs, REPLAYED: cost(900.0, 50.0)}, AS_IT_WAS, REPLAYED, "", WINDOW, 0)
    assert late.of_replay is None
    assert late.of_case["b"].shown.a_day == pytest.approx(50.0)
    assert late.why_whole == f"{REPLAYED!r} runs fewer GPU-hours of jobs in the window than the log"


def written_by(policy: str) -> Scenario:
    """Return a log as a scheduler would have written it that places jobs by a policy, with where they ran."""
    trace = crowded_log()
    trace = replace(trace, frame=trace.frame.drop("priority"))
    scenario = Scenario(CLUSTER, trace, policy, "instant", order="backfill", limits=True, price_per_gpu_hour=2.0)
    ran = run(scenario)
    names = pl.Series([machine.name for machine in CLUSTER.machines])
    held = ran.runs["gpus"].bitwise_count_ones().cast(pl.String)
    on = ran.runs.select("job_id", on=names.gather(ran.runs["machine"]) + ":" + held)
    lists = on.group_by("job_id", maintain_order=True).agg(ran_on=pl.col("on").str.join(" "))
    starts = ran.jobs.select("job_id", "start_s", end_s="finish_s").join(lists, on="job_id")
    return replace(
        scenario, trace=replace(trace, frame=trace.frame.join(starts, on="job_id", maintain_order="left"))
    )


@pytest.fixture(scope="module")
def spread() -> WhatIfAnswer:
    """A log of a scheduler that spreads jobs, replayed by one that packs them, by the same queue."""
    return answer(written_by("gpu-balance"), ["best-fit", "gpu-balance"], search=False, processes=1)


def test_what_a_replay_does_otherwise_than_the_log_is_credited_to_no_policy(spread: WhatIfAnswer) -> None:
    found = spread.details.savings
    assert found.of_replay is not None
    assert found.of_replay.a_day > 1.0
    best_fit, balanced = found.of_case["best-fit"], found.of_case["gpu-balance"]
    assert best_fit.credited is not None
    # The replay of the log's scheduler is best fit with the same queue: as a policy it adds nothing.
    assert best_fit.credited.a_day == pytest.approx(0.0, abs=1e-9)
    assert best_fit.whole.a_day == pytest.approx(found.of_replay.a_day)
    assert balanced.whole.a_day == pytest.approx(0.0, abs=1e-9)  # it is the log
    assert balanced.shown.a_day == pytest.approx(-found.of_replay.a_day)


def test_every_place_shows_the_same_saving(spread: WhatIfAnswer) -> None:
    found = spread.details.savings
    assert found.of_replay is not None
    said = " ".join(findings(spread))
    step = f"${found.of_replay.a_day:,.0f}"
    assert (
        f"no policy costs less than {REPLAYED!r}. The whole difference to the log is {step} a day: {step} of"
        in said
    )
    table = next(sheet for sheet in answer_tables(spread) if sheet.title == "What policies save")
    assert table.rows[0] == ["best-fit", step, "$0", step, "$0"]
    assert table.rows[1] == ["gpu-balance", step, f"-{step}", "$0", f"-${found.of_replay.a_year:,.0f}"]
    cases = {case["name"]: case["money"] for case in spread.facts()["cases"]}
    assert cases["best-fit"]["saved_a_day"] == pytest.approx(found.of_replay.a_day)
    assert cases["best-fit"]["credited_a_day"] == pytest.approx(0.0, abs=1e-9)
    assert cases[REPLAYED]["saved_a_day"] is None
    money = export_tables(spread)["money"]
    assert money.filter(pl.col("case") == "gpu-balance")["credited_a_day"].item() == pytest.approx(
        -found.of_replay.a_day
    )


def test_the_summary_praises_policies_only(spread: WhatIfAnswer) -> None:
    """Of all rows the replay of the log's scheduler is cheapest, and it is no policy that one could choose."""
    only = answer(written_by("gpu-balance"), ["gpu-balance"], search=False, processes=1)
    paid = {name: float(each.total.sum()) for name, each in only.details.costs.items()}
    assert min(paid, key=lambda name: paid[name]) == REPLAYED
    page = answer_sections(only, [], [])
    tile = page.split("<dt>Saved a year</dt>")[1].split("</div>")[0].replace("&#x27;", "'")
    assert tile.startswith("<dd>no clear saving</dd>")
    assert f"with gpu-balance against '{REPLAYED}'" in tile
    assert "with best-fit against" in answer_sections(spread, [], [])


def test_waits_are_credited_by_size_partition_and_user(spread: WhatIfAnswer) -> None:
    table = next(sheet for sheet in answer_tables(spread) if sheet.title.startswith("Mean waits that policies"))
    assert list(table.head) == ["", "jobs", "logged", "replayed", "best-fit", "gpu-balance"]
    groups = [row[0] for row in table.rows]
    assert groups[0] == "all jobs"
    for name in ("size of job 1", "size of job 16", "partition small", "partition large", "user ann", "user bob"):
        assert (name in groups) is (name != "size of job 16")  # sizes are 9-63 there
    for row in table.rows:
        assert row[2] == row[4]  # best fit waits as the replay does: the log keeps its waits
    assert spread.was.waits is not None
    assert spread.credited_wait_s(spread.policies[0]) == pytest.approx(spread.was.waits.wait.mean_s)


def test_json_has_the_calibration_and_keeps_to_its_schema(spread: WhatIfAnswer) -> None:
    facts = json.loads(json.dumps(spread.facts(), allow_nan=False))
    jsonschema.validate(facts, json_schema())
    assert [case["kind"] for case in facts["cases"]] == ["log", "scheduler", "policy", "policy"]
    calibration = facts["calibration"]
    assert calibration["order"] == "backfill"
    assert set(calibration["by_partition"]) == {"small", "large"}
    assert calibration["second_half"]["jobs"] == sum(each["jobs"] for each in calibration["by_size"].values())
    assert min(calibration["models_tried"], key=lambda each: each["miss_s"])["model"] == calibration["model"]
    assert facts["why_not_calibrated"] is None
    assert {row["by"] for row in facts["details"]["credited"]} == {"user", "partition", "size"}
    titles = {sheet.title for sheet in answer_tables(spread)}
    assert {"How well your scheduler is replayed", "Models of your scheduler"} <= titles
