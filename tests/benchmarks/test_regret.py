"""Regret: ratios to the best other policy, worlds that replay, results that are kept, and the tables."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.regret import __main__ as command
from benchmarks.regret import ablation, judgement, tables
from benchmarks.regret.chance import chance
from benchmarks.regret.log_world import failures
from benchmarks.regret.named_best import TITLE, named_best
from benchmarks.regret.replays import (
    HELD_OUT,
    PARTS,
    TUNED,
    Found,
    RegretCell,
    plan,
    replay,
    replay_all,
    seeds_of,
)
from benchmarks.regret.world import Contender, World
from benchmarks.regret.worlds import WORLDS
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from cranny.analysis.sweep.cell import CellOutcome
from cranny.model.errors import InputError
from cranny.model.event import MachineFailed, MachineRepaired
from cranny.model.job import Job
from cranny.policies import TABLE
from cranny.report.table import MISSING

ITP = WORLDS["titan-ring-itp"]
A, B, C = Contender("best-fit"), Contender("titan"), Contender("netpack")
WHOLE = {"jobs_skipped": 0.0, "jobs_unfinished": 0.0, "mean_wait_s": 0.0}


def measures(value: float, **others: float) -> dict[str, float]:
    judged = dict.fromkeys(ITP.metrics, value)
    return WHOLE | judged | others


def row(values: dict[Contender, list[float]], world: World = ITP) -> judgement.Row:
    found: Found = {
        RegretCell(world, contender, seed): CellOutcome(measures(value))
        for contender, each in values.items()
        for seed, value in enumerate(each)
    }
    (made,) = judgement.rows(found)
    return made


def test_a_ratio_is_to_the_best_of_the_others() -> None:
    made = row({A: [2.0], B: [4.0], C: [8.0]})
    for contender, ratio in ((A, 0.5), (B, 2.0), (C, 4.0)):
        assert [cell.value for cell in judgement.judge(made, contender)] == pytest.approx([ratio] * 4)
    assert {cell.best for cell in judgement.judge(made, C)} == {"best-fit"}
    assert {cell.high for cell in judgement.judge(made, C)} == {None}


def test_seeds_are_paired_and_the_interval_is_of_their_logarithms() -> None:
    cell = judgement.judge(row({A: [2.0, 20.0], B: [1.0, 10.0], C: [3.0, 30.0]}), A)[0]
    assert (cell.value, cell.low, cell.high) == pytest.approx((2.0, 2.0, 2.0))
    spread = judgement.judge(row({A: [2.0, 8.0], B: [1.0, 1.0]}), A)[0]
    half = (
        12.7062 * math.log(2.0) * math.sqrt(2.0) / math.sqrt(2.0)
    )  # deviation of log 2 and log 8 is sqrt 2 log 2
    assert spread.value == pytest.approx(4.0)
    assert spread.high == pytest.approx(4.0 * math.exp(half))
    assert spread.low == pytest.approx(4.0 * math.exp(-half))


def test_a_policy_that_leaves_jobs_may_not_be_the_best() -> None:
    made = row({A: [2.0], B: [4.0], C: [8.0]})
    left = {A: {0: measures(2.0, jobs_skipped=1.0)}, B: made.measures[B], C: made.measures[C]}
    assert judgement.judge(made._replace(measures=left), C)[0].best == "titan"
    own = judgement.judge(made._replace(measures=left), A)
    assert all(math.isinf(cell.value) for cell in own)  # and what it finished does not count
    assert tables.ratio_text(own[0].value) == "failed"


def test_waiting_does_not_flatter_means_at_arrivals() -> None:
    roomy = WORLDS["titan-room-isolated-itp"]
    values = dict.fromkeys(roomy.metrics, 1.0)
    waits = {A: {0: WHOLE | values | {"mean_wait_s": 50.0}}, B: {0: WHOLE | dict.fromkeys(values, 2.0)}}
    own = {C: {0: WHOLE | dict.fromkeys(values, 4.0)}}
    best = {cell.metric: cell.best for cell in judgement.judge(judgement.Row(roomy, TUNED, {**waits, **own}), C)}
    assert best["mean_jct_s"] == "best-fit"
    assert best["mean_used_machines"] == "titan"


def test_more_fairness_is_better() -> None:
    world = WORLDS["has-batch"]
    values = {
        each: {0: WHOLE | dict.fromkeys(world.metrics, 1.0) | {"fairness": fairness}}
        for each, fairness in ((A, 0.5), (B, 0.8))
    }
    cells = {cell.metric: cell.value for cell in judgement.judge(judgement.Row(world, TUNED, values), A)}
    assert cells["fairness"] == pytest.approx(1.6)


def test_waiting_does_not_buy_iterations() -> None:
    world = WORLDS["cassini-dynamic"]
    values = dict.fromkeys(world.metrics, 1.0)
    waits = WHOLE | values | {"mean_jct_s": 1.2, "mean_iteration_s": 0.5}
    found = judgement.Row(world, TUNED, {A: {0: waits}, B: {0: WHOLE | values}, C: {0: WHOLE | values}})
    assert {cell.metric: cell.best for cell in judgement.judge(found, C)}["mean_iteration_s"] == "titan"
    late = found._replace(measures={**found.measures, A: {0: waits | {"mean_jct_s": 1.1}}})
    assert {cell.metric: cell.best for cell in judgement.judge(late, C)}["mean_iteration_s"] == "best-fit"


def test_the_bound_of_cassini_is_no_rival() -> None:
    assert judgement.judge(row({A: [2.0], Contender("ideal"): [1.0], B: [4.0]}), A)[0].best == "titan"


@given(st.lists(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=2), min_size=2, max_size=5))
def test_only_one_policy_is_ahead_of_all_others(values: list[list[float]]) -> None:
    made = row({Contender(name): each for name, each in zip(TABLE, values, strict=False)})
    ratios = [judgement.judge(made, each)[0].value for each in made.measures]
    assert sum(ratio < 1.0 - 1e-9 for ratio in ratios) <= 1
    assert min(ratios) <= 1.0 + 1e-9


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_every_world_replays(world: World) -> None:
    small = replace(world, jobs=min(world.jobs, 30))
    seed = seeds_of(small, HELD_OUT, 1)[0]
    found = replay(RegretCell(small, Contender("netpack-lean"), seed), None).summary
    assert found is not None
    assert {*small.metrics} <= found.keys()
    assert found["jobs_done"] == 30 or world.key.startswith(("cassini", "has"))
    assert not found["jobs_skipped"]


def test_a_replay_repeats() -> None:
    cell = RegretCell(replace(ITP, jobs=30), A, 1)
    first, again = (dict(replay(cell, None).summary or {}) for _ in range(2))
    assert first | {"cpu_s": 0.0} == again | {"cpu_s": 0.0}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_every_job_has_its_restart_cost(world: World) -> None:
    small = replace(world, jobs=min(world.jobs, 30))
    jobs = small.scenario(Contender("titan"), 11, None).jobs()
    assert {job.restart_s for job in jobs if isinstance(job, Job)} == {world.restart_s}


def test_a_seed_has_its_own_part_of_a_log(shared: Path) -> None:
    ids = [set(ITP.scenario(A, seed, shared / "traces").whole_trace.frame["job_id"]) for seed in (0, 10)]
    assert len(ids[0]) == len(ids[1]) == ITP.jobs
    assert not ids[0] & ids[1]


def test_policies_left_out_have_a_reason_and_exist() -> None:
    for world in WORLDS.values():
        assert all(reason for reason in world.left_out.values())
        assert world.left_out.keys() <= TABLE.keys()
        assert Contender("best-fit") in world.contenders()
        assert Contender("exact") not in world.contenders()


def test_mixes_that_are_held_out_have_no_seeds_to_tune_on() -> None:
    assert list(seeds_of(ITP, TUNED, 3)) == [0, 1, 2]
    assert list(seeds_of(ITP, HELD_OUT, 3)) == [10, 11, 12]
    assert list(seeds_of(ITP, TUNED, 50)) == list(range(10))
    assert list(seeds_of(ITP, HELD_OUT, 50)) == list(range(10, 60))
    assert not seeds_of(WORLDS["titan-ring-philly"], TUNED, 3)
    cells = plan(WORLDS.values(), [A], 2, PARTS)
    assert all(cell.seed >= 10 for cell in cells if cell.world.held_out)


def test_failures_are_repaired() -> None:
    events = failures(8, 30 * 86_400.0, seed=1)
    failed = [event.machine for _, event in events if isinstance(event, MachineFailed)]
    repaired = [event.machine for _, event in events if isinstance(event, MachineRepaired)]
    assert failed
    assert sorted(failed) == sorted(repaired)


def test_results_are_kept_and_the_judged_policy_is_replayed(tmp_path: Path) -> None:
    world = replace(ITP, jobs=20)
    cells = plan([world], [A, B], 1, [TUNED])
    first = replay_all(cells, None, tmp_path)
    assert len(list((tmp_path / "cells").iterdir())) == 2
    done: list[int] = []
    second = replay_all(cells, None, tmp_path, anew=lambda cell: cell.contender == B, progress=done.append)
    assert done == [1]  # of which only one ran
    assert second[cells[0]] == first[cells[0]]
    assert replay_all(plan([replace(world, jobs=21)], [A], 1, [TUNED]), None, tmp_path, progress=done.append)
    assert done == [1, 1]  # another world


def test_a_policy_that_fails_is_named_and_not_kept(tmp_path: Path) -> None:
    cell = RegretCell(replace(ITP, jobs=5), Contender("titan", options=(("no-such", True),)), 0)
    found = replay_all([cell], None, tmp_path)
    assert "no-such" in str(found[cell].reason)
    assert not (tmp_path / "cells").exists()
    found |= {RegretCell(cell.world, A, 0): CellOutcome(measures(1.0))}
    (made,) = judgement.rows(found)
    assert all(math.isinf(each.value) for each in judgement.judge(made, cell.contender))  # not hidden
    assert len(judgement.judge(made, cell.contender)) == 4


def test_a_contender_may_have_another_order() -> None:
    assert Contender.read("titan@backfill") == Contender("titan", "backfill")
    assert Contender("titan", "backfill").label == "titan@backfill"
    scenario = replace(ITP, jobs=5).scenario(Contender("titan", "backfill"), 0, None)
    assert scenario.order == "backfill"


def test_switches_are_the_options_that_are_on() -> None:
    assert ablation.switches("netpack")["rack_plans"] is True
    assert ablation.switched_off(C) == {"rack_plans": Contender("netpack", options=(("rack_plans", False),))}


def test_other_settings_are_those_that_a_policy_has() -> None:
    assert not ablation.other_settings(C)
    labels = [each.label for each in ablation.other_settings(Contender("cranny"))]
    assert "cranny patience=3.0" in labels
    assert len(labels) == 6


def test_the_command_prints_every_cell_and_whether_limits_are_held(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "WORLDS", {"titan-ring-itp": replace(ITP, jobs=20)})
    kept = ["--generated", "--out", str(tmp_path), "--seeds", "1"]
    words = ["--worlds", "titan-ring", "--policies", "titan,best-fit,random", "--judge", "random"]
    command.main([*kept, *words, "--json", str(tmp_path / "all.json"), "--picture"])
    told = capsys.readouterr().out
    assert "titan-ring-itp" in told
    assert "worst_tuned" in told
    assert "held" in told
    facts = json.loads((tmp_path / "all.json").read_text())
    assert {cell["policy"] for cell in facts["cells"]} == {"titan", "best-fit", "random"}
    assert len(facts["cells"]) == 3 * 4 * 2
    assert (tmp_path / "regret.png").is_file()
    command.main([*kept, *words, "--markdown", "--reuse", "--bounds"])
    told = capsys.readouterr().out
    assert "| titan-ring-itp | 1 tuned |" in told
    assert "**What could be had: random, and any policy**" in told
    assert "| all cells | tuned |" in told
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- worlds --><!-- end of worlds -->\n<!-- results -->\nold\n<!-- end of results -->\nafter\n"
    )
    for _ in range(2):
        command.main([*kept, *words, "--reuse", "--page", str(page)])
    assert page.read_text().count("**Worlds**") == 1  # not once for each run
    assert "old" not in page.read_text()
    assert page.read_text().endswith("after\n")
    page.write_text(page.read_text() + "<!-- bounds --><!-- end of bounds -->\n")
    command.main([*kept, *words, "--reuse", "--bounds", "--page", str(page)])
    assert "--seeds 1 --bounds`" in page.read_text()
    assert "What no policy can be below" in page.read_text()
    capsys.readouterr()
    command.main(["--list"])
    assert "ITP mix" in capsys.readouterr().out
    command.main([*kept, "--judge", "netpack", "--ablations", "--tuned"])
    assert "rack_plans" in capsys.readouterr().out


def test_cells_are_above_the_limit_beyond_doubt_if_their_whole_interval_is() -> None:
    for values, counts in (([2.0, 2.1], (4, 4)), ([1.0, 2.0], (4, 0)), ([1.02, 1.021], (0, 0))):
        found = judgement.score(judgement.judge(row({A: [1.0, 1.0], B: values}), B))
        assert found is not None
        assert (found.above, found.surely_above) == counts


def cell(value: float, low: float | None, high: float | None, seeds: int = 10) -> judgement.Ratio:
    return judgement.Ratio("world", TUNED, "mean_jct_s", value, low, high, "other", seeds)


def test_cells_are_above_the_limit_by_chance_as_often_as_their_intervals_say() -> None:
    # An interval whose end is the limit leaves it with 2.5 %; what is measured beyond 1 counts as 1.
    at_limit = cell(1.0, 1.0 / 1.03, 1.03)
    assert chance([at_limit]) == pytest.approx((0.025, 0.975))
    assert chance([cell(1.2, 1.2 / 1.03, 1.2 * 1.03)]) == pytest.approx((0.025, 0.975))
    assert chance([at_limit, at_limit]) == pytest.approx((0.05, 0.975**2))
    assert chance([cell(0.9, 0.8, 0.9**2 / 0.8)]).above < chance([cell(1.0, 0.9, 1.0 / 0.9)]).above
    assert chance([cell(1.0, None, None, 1), cell(1.0, 1.0, 1.0)]) == (0.0, 1.0)  # all seeds alike, or one


def test_chance_is_what_draws_say() -> None:
    """Ten seeds are drawn again and again for a ratio that is truly 1; the interval is of as much noise."""
    rng = np.random.default_rng(0)
    means = 0.05 * rng.normal(size=(20_000, 10)).mean(axis=1)
    half = 0.05 / math.sqrt(10) * t.ppf(0.975, 9)
    found = chance([cell(1.0, math.exp(-half), math.exp(half))]).above
    assert found == pytest.approx((means > math.log(judgement.WORST)).mean(), abs=0.02)


def test_only_the_policies_that_a_page_names_as_the_best_are_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = {"titan-ring-itp": replace(ITP, jobs=20), "cassini-poisson": WORLDS["cassini-poisson"]}
    monkeypatch.setattr(command, "WORLDS", worlds)
    page = tmp_path / "page.md"
    page.write_text("<!-- worlds --><!-- end of worlds -->\n<!-- results --><!-- end of results -->\n")
    words = ["--generated", "--out", str(tmp_path), "--seeds", "1", "--judge", "random"]
    with pytest.raises(InputError, match="no table"):
        command.main([*words, "--best-of", str(page)])
    command.main([*words, "--worlds", "titan", "--policies", "best-fit,hived", "--rivals", "--page", str(page)])
    named = named_best(page)
    assert set(named) == {("titan-ring-itp", part) for part in PARTS}
    best = {each.label for found in named.values() for each in found}
    assert best <= {"best-fit", "hived"}
    facts = tmp_path / "facts.json"
    words += ["--best-of", str(page), "--rivals", "--page", str(page)]  # the page that is read is filled in anew
    command.main([*words, "--json", str(facts)])
    assert named_best(page) == named
    replays = json.loads(facts.read_text())["replays"]
    assert {replay["policy"] for replay in replays} == {"random", "titan", *best}  # titan's is the world's paper
    assert {replay["world"] for replay in replays} == {"titan-ring-itp"}  # it names none in other worlds
    assert "4 tuned cells above 1.03, 0 beyond doubt" in capsys.readouterr().out


@pytest.mark.parametrize("other", ["--policies=hived", "--ablations"])
def test_one_choice_of_policies_is_not_passed_over_for_another(
    other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["--best-of", "page.md", other])
    assert "not allowed with argument --best-of" in capsys.readouterr().err


def test_policies_are_read_from_what_only_some_worlds_judge_too(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    head = "| world | seeds | JCT | also judged here |\n| --- | --- | ---: | ---: |\n"
    line = f"| cassini-poisson | 10 tuned | {MISSING} | iteration titan+cassini, p99 iteration hived@srtf |\n"
    page.write_text(f"{TITLE}\n\n{head}{line}\nafter\n")
    assert named_best(page) == {
        ("cassini-poisson", TUNED): [Contender("titan+cassini"), Contender("hived", "srtf")]
    }


def test_budgets_are_worst_and_mean() -> None:
    cells = judgement.judge(row({A: [2.0], B: [4.0]}), B)
    found = judgement.score(cells)
    assert found is not None
    assert (found.worst.value, found.mean, found.cells, found.ahead) == (2.0, 2.0, 4, 0)
    assert (found.above, found.surely_above) == (4, 0)  # one seed has no interval
    assert [budget.ok for budget in judgement.budgets(TUNED, found)] == [False, False]
    assert judgement.score([]) is None
