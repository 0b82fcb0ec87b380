"""The evaluation of HAS and JPS, rebuilt: values that must come out, and the command on little work."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from tests.policies.heterogeneous.drawn import with_resets
from typer.testing import CliRunner

from cranny.cli.repro import app
from cranny.exact.heterogeneous import exhaustive
from cranny.policies._shared.heterogeneous.problem import Floats, Problem, Shares, equal_s, fairness
from cranny.policies.has.has_exact import has_exact
from cranny.policies.has.has_jps import categories, has
from cranny.policies.has.has_resets import has_resets
from cranny.repro.has import resets, static
from cranny.repro.has.paper import JCT, LOSS, PAPER, TITLES, ValueKey
from cranny.repro.has.static import QUICK, scores_of
from cranny.repro.has.throughputs import counts, fits, heterogeneity, problem, source


@pytest.fixture(scope="module")
def fit() -> Floats:
    return fits(1).rates[0]


def values(found: Iterable[static.Value]) -> dict[ValueKey, float]:
    return {ValueKey(*where): value for *where, value in found}


def test_a_fit_has_the_four_known_throughputs(fit: Floats) -> None:
    known = source("has-jps").models
    assert fit[1, [0, 2]].tolist() == [known["resnet18"]["t4"], known["resnet18"]["v100"]]
    assert fit[2, [0, 2]].tolist() == [known["vgg19"]["t4"], known["vgg19"]["v100"]]
    assert (np.diff(fit, axis=1) >= 0).all()


def test_a_fit_gives_what_the_paper_says_of_its_default(fit: Floats) -> None:
    scores = scores_of(fit, 15)
    psi = list(categories(15, 4))
    lowest = int(scores[:, 0].argmin())
    assert psi[lowest] == (6, 5, 2, 2)
    assert lowest + 1 == 94  # as Section V-B numbers it
    assert scores[lowest] == pytest.approx([3_948.9, 0.824], rel=0.05)
    assert heterogeneity(fit[:4], counts(15)) == pytest.approx(1.15, abs=0.03)


def test_a_fit_has_the_optimum_where_the_paper_says_so() -> None:
    found = fits(2)
    assert len(found.rates) == 2 < len(found.drawn)
    for rates in found.rates:
        for workers in (15, 30):
            task = problem(rates[:4], counts(workers))
            assert has(task).mean_jct_s == pytest.approx(has_exact(task).mean_jct_s)
    refused = next(each for each, optimum in zip(found.drawn, found.optimum, strict=True) if not optimum[0])
    task = problem(refused[:4], counts(15))
    assert has(task).mean_jct_s > 1.0001 * exhaustive(task).mean_jct_s


def test_remaining_work_squared_cuts_mean_jct_with_resets() -> None:
    # The first ten sets that give the stated times, whether or not HAS is the optimum with them.
    methods: dict[str, Callable[[Problem], Shares]] = {
        "has-exact": has_exact,
        "has-resets, no limit": lambda now: has_resets(now, 2.0, np.inf),
        "has-resets": has_resets,
    }
    tasks = [problem(rates[:4], counts(15)) for rates in fits(10).drawn[:10]]
    mean_s = {
        name: np.mean([with_resets(task, solve).mean() for task in tasks]) for name, solve in methods.items()
    }
    expected = {"has-exact": 3_450.1, "has-resets, no limit": 2_693.2, "has-resets": 2_698.2}
    assert mean_s == pytest.approx(expected, abs=0.1)
    fair = [fairness(with_resets(task, has_resets), equal_s(task)) for task in tasks]
    assert min(fair) > 0.97


def test_heterogeneity_is_one_if_all_workers_are_alike() -> None:
    assert heterogeneity(np.array([[2.0, 2.0], [5.0, 5.0]]), [[3, 1]]) == 1.0
    # Eq. 35 by hand: workers do 3, 3 and 6 samples/s in all, which is 12 of 3 times 3.
    assert heterogeneity(np.array([[1.0, 2.0], [2.0, 4.0]]), [[2, 1]]) == pytest.approx(12 / 9)


def test_table_ii_comes_out_to_the_last_digit() -> None:
    found = values(static.example())
    for at, value in PAPER.items():
        if at.figure == "Table II":
            assert found[at] == pytest.approx(value, abs=0.1), at


def test_resets_and_moving_costs_never_make_has_exact_worse_than_staying(fit: Floats) -> None:
    found = values(resets.with_resets(fit, QUICK))
    static_s, moving_s = (
        found[ValueKey("Fig. 17", JCT, which, "has-exact")] for which in ("static", "with resets")
    )
    assert moving_s < static_s
    by_cost = values(resets.by_cost(fit, QUICK))
    for restart_s in resets.MOVE_S:
        assert by_cost[ValueKey("moving", JCT, f"{restart_s:g}", "has-exact")] <= static_s * 1.001
    assert by_cost[ValueKey("moving", "moves", "3600", "has-exact")] == 0


def test_the_simulator_agrees_with_the_shares_when_nothing_moves(fit: Floats) -> None:
    # Inside a machine the simulator's ring costs nothing, 300 Gbps cost very little.
    static_s = values(resets.with_resets(fit, QUICK))[ValueKey("Fig. 17", JCT, "static", "has")]
    assert static_s == pytest.approx(scores_of(fit, 15)[:, 0].min(), rel=0.002)


@pytest.mark.usefixtures("blank_pictures")
def test_the_command_reports_every_figure(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
    given = ["has", "--quick", "--fits", "1", "--processes", "1", "--out", str(tmp_path), "--json"]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 0, found.output
    values = json.loads(found.stdout)
    assert values["paper"] == "HAS and JPS, TPDS 2024"
    assert len(values["throughputs"]) == 1
    assert {row["figure"] for row in values["values"]} == set(TITLES)
    losses = [row for row in values["values"] if (row["figure"], row["measure"]) == ("Fig. 9", LOSS)]
    assert min(row["ours"] for row in losses) == pytest.approx(0.0, abs=1e-6)
    assert all(row["ours"] == pytest.approx(0.0, abs=1e-6) for row in losses if row["scheme"] == "has-exact")
    assert values["quick"] == "1 set of throughputs, 3 repetitions"
    assert {claim["holds"] for claim in values["claims"]} == {"no verdict", "beyond the paper", "not tested"}
    readings = [each["name"] for each in values["left_open"][0]["readings"]]
    assert readings == ["workers as listed", "fastest type first", "slowest type first"]
    page = (tmp_path / "has.html").read_text()
    assert "What holds and what does not" in page
    pictures = {path.stem for path in tmp_path.glob("*.svg")}
    assert page.count("data:image/svg+xml") == len(pictures)
    assert {
        f"claim-{number:02}" for number in range(1, sum(bool(claim["readings"]) for claim in values["claims"]) + 1)
    } < pictures
    assert {"fig4", "fig9-0", "fig13", "fig17-1", "moving"} < pictures
    assert all(f"{figure}: {title}" in page for figure, title in TITLES.items())
    assert (tmp_path / "values.csv").read_text().startswith("figure,measure,setting,scheme")
