"""Screening of rivals: which go on with all seeds, and what an interrupted run leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.regret import judgement, screening
from benchmarks.regret.replays import (
    HELD_OUT,
    TUNED,
    Found,
    RegretCell,
    in_folder,
    of_whole_seeds,
    plan,
    replay_all,
)
from benchmarks.regret.world import Contender
from benchmarks.regret.worlds import WORLDS
from hypothesis import given
from hypothesis import strategies as st

from cranny.analysis.sweep.cell import CellOutcome

WORLD = WORLDS["over-4to1-itp"]  # of no paper
OWN, BEST, NEAR, FAR = map(Contender, ("cranny", "tiresias", "best-fit", "random"))
WHOLE = {"jobs_skipped": 0.0, "jobs_unfinished": 0.0, "mean_wait_s": 0.0}


def row(values: Mapping[Contender, Sequence[float]]) -> judgement.Row:
    """Return a row of policies that have these judged metrics with one seed."""
    measures = {
        each: {0: WHOLE | dict(zip(WORLD.metrics, metrics, strict=True))} for each, metrics in values.items()
    }
    return judgement.Row(WORLD, TUNED, measures)


def test_a_rival_goes_on_if_one_metric_is_near_the_best_other() -> None:
    found = row({OWN: [1.0] * 4, BEST: [1.0] * 4, NEAR: [2.0, 2.0, 1.149, 2.0], FAR: [1.16] * 4})
    assert screening.near(found, OWN) == {OWN, BEST, NEAR}


def test_how_far_the_judged_policy_is_ahead_does_not_matter() -> None:
    found = row({OWN: [0.1] * 4, BEST: [1.0] * 4, NEAR: [1.1] * 4, FAR: [1.2] * 4})
    assert screening.near(found, OWN) == {OWN, BEST, NEAR}


def test_a_rival_that_leaves_jobs_does_not_go_on_and_does_not_decide() -> None:
    found = row({OWN: [1.0] * 4, BEST: [0.1] * 4, NEAR: [1.0] * 4, FAR: [1.2] * 4})
    left = {**found.measures, BEST: {0: {**found.measures[BEST][0], "jobs_unfinished": 1.0}}}
    assert screening.near(found._replace(measures=left), OWN) == {OWN, NEAR}


def test_the_system_of_the_paper_always_goes_on() -> None:
    found = row({OWN: [1.0] * 4, BEST: [1.0] * 4, Contender("netpack"): [9.0] * 4, Contender("titan"): [9.0] * 4})
    assert screening.near(found, OWN) == {OWN, BEST}
    of_netpack = found._replace(world=WORLDS["netpack-poisson"])
    assert screening.near(of_netpack, OWN) == {OWN, BEST, Contender("netpack")}


@given(st.lists(st.lists(st.floats(0.1, 10.0), min_size=4, max_size=4), min_size=2, max_size=5))
def test_the_best_other_policies_of_the_first_seeds_always_go_on(values: list[list[float]]) -> None:
    found = row(dict(zip((OWN, BEST, NEAR, FAR, Contender("titan")), values, strict=False)))
    kept = {each.label for each in screening.near(found, OWN)}
    assert {cell.best for cell in judgement.judge(found, OWN)} <= kept


def test_only_those_that_are_near_are_replayed_with_all_seeds() -> None:
    asked: list[RegretCell] = []

    def replayed(cells: Sequence[RegretCell]) -> Found:
        asked.extend(cells)
        behind = {cell: 1.0 if cell.contender in (OWN, BEST) or cell.seed == 10 else 5.0 for cell in cells}
        return {cell: CellOutcome(WHOLE | dict.fromkeys(WORLD.metrics, value)) for cell, value in behind.items()}

    found = screening.replay_world(WORLD, 4, OWN, replayed)
    assert list(found) == asked  # each once
    everyone = set(WORLD.contenders())
    for seed in (0, 1, 10, 11):
        assert {cell.contender for cell in asked if cell.seed == seed} == everyone
    for seed in (2, 3, 12, 13):  # over 10 and 11 the others are 2.2 times as far
        assert {cell.contender for cell in asked if cell.seed == seed} == {OWN, BEST}


def test_an_interrupted_run_leaves_whole_seeds(tmp_path: Path) -> None:
    small = replace(WORLD, jobs=10)
    cells = plan([small], [OWN, BEST], 2, [HELD_OUT])
    assert [cell.seed for cell in cells] == [10, 10, 11, 11]  # seed by seed
    replay_all(cells[:3], None, tmp_path)
    known = in_folder(cells, None, tmp_path)
    assert list(known) == cells[:3]
    assert list(of_whole_seeds(cells, known)) == cells[:2]
    done: list[int] = []
    assert list(replay_all(cells, None, tmp_path, progress=done.append)) == cells
    assert done == [1]  # goes on where it ended
