"""Tables and words from made-up results: when the numbers change, the words change."""

import json
import re

import pytest

from cranny.model.errors import InputError
from cranny.report.table import MISSING
from cranny.repro.experiment import Cell, Results
from cranny.repro.number_format import spread
from cranny.repro.titan.beyond import beyond
from cranny.repro.titan.evaluation import reproduction
from cranny.repro.titan.paper import ALL_POLICIES, TEXT
from cranny.repro.titan.replays import Setup, TraceRun, plan, sources
from cranny.repro.titan.results import claims, left_open, trace_sheet, trace_tables, verdict_sheet
from cranny.repro.titan.testbed import run_testbeds

SENTENCE = r"(?<!Fig)\.(?= [A-Z]|$)"
LIKE_THE_PAPER: dict[str, dict[str, float]] = {
    "mean_used_machines": {"titan": 174, "consolidate-idle": 334, "fragments-first": 168, "tiresias": 207},
    "mean_fragmentation": {"titan": 0.117, "consolidate-idle": 0.381, "fragments-first": 0.1, "tiresias": 0.194},
    "mean_cross_traffic_gb": {"titan": 1.65, "consolidate-idle": 0.5, "fragments-first": 7.03, "tiresias": 2.78},
    "mean_profit_rate": {"titan": 314, "consolidate-idle": 256, "fragments-first": 24, "tiresias": 71},
    "total_profit": {"titan": 65, "consolidate-idle": 46, "fragments-first": 1, "tiresias": 15.6},
    "machine_hours": {"titan": 1, "consolidate-idle": 2, "fragments-first": 2, "tiresias": 2},
}


def study(
    changes: dict[tuple[str, str], float] | None = None,
    *,
    seeds: int = 2,
    wobble: float = 0.0,
    under: str | None = None,
) -> Results[Setup, TraceRun]:
    """Return replays whose values are the paper's, but for some, perhaps under one reading alone.

    Policies that the paper lacks get Titan's, and mapped ones those of the same without a map.
    """
    runs = {}
    for cell in plan(seeds):
        here = (changes or {}) if under in (None, cell.setup.reading) else {}
        scheme = cell.scheme.removesuffix("-mapped")
        summary = {
            metric: here.get((metric, cell.scheme), values.get(scheme, values["titan"])) * (1 + wobble * cell.seed)
            for metric, values in LIKE_THE_PAPER.items()
        }
        lines = {figure.column: (1.0, None, 2.0) for figure in TEXT.figures}
        runs[cell] = TraceRun(10, summary, (0.0, 1.0, 2.0), lines)
    return Results(runs, seeds, generated=True)


def test_the_papers_own_values_confirm_every_figure() -> None:
    made = trace_tables(study(), range(1, 8))
    assert {table.figure.number for table in made} == {2, 3, 4, 5, 6, 7}
    assert all(table.verdict.confirms for table in made)
    assert {claim.holds for claim in claims(made, [])} == {"holds"}
    assert {claim.holds for claim in beyond(made)} == {"beyond the paper"}


def test_only_the_wanted_experiments_get_a_table() -> None:
    assert {table.figure.number for table in trace_tables(study(), [1])} == {2, 3}


def test_a_changed_number_changes_the_words() -> None:
    changed = study({("mean_used_machines", "consolidate-idle"): 100.0})
    claim = claims(trace_tables(changed, [1]), [])[0]
    assert claim.holds == "holds in part"
    assert "Titan is not below Elasticflow" in claim.text
    assert claim.paper["Elasticflow"] == pytest.approx(334 / 174)
    assert claim.readings[0].ours["Elasticflow"].mean == pytest.approx(100 / 174)
    assert claim.verdict == "holds in part: 4 of 8"  # two pairs of five, and two ratios of three


@pytest.mark.parametrize(
    ("machines", "words"),
    [(172.0, "about as many machines as"), (100.0, "fewer machines than"), (300.0, "more machines than")],
)
def test_true_best_fit_is_reported_by_its_numbers(machines: float, words: str) -> None:
    found = study({("mean_used_machines", "best-fit"): machines})
    (claim,) = [one for one in beyond(trace_tables(found, [1])) if one.title.startswith("On packing")]
    assert claim.readings[0].ours["best fit"].mean == machines
    assert claim.text == f"Best fit needs {words} Titan on every trace."


@pytest.mark.parametrize(("mapped", "explained"), [(1.0, True), (5.0, False)])
def test_the_rank_map_explains_the_traffic_only_if_best_fit_gains_by_it(mapped: float, *, explained: bool) -> None:
    found = study({("mean_cross_traffic_gb", "best-fit-mapped"): mapped})
    (claim,) = [one for one in beyond(trace_tables(found, [3])) if "rank map" in one.title]
    assert [each.name for each in claim.readings][:2] == [
        "Microsoft ITP",
        "Microsoft ITP, nearest rank first (gloo)",
    ]
    assert ("is its rank map" in claim.text) == explained


def test_seeds_that_differ_get_an_interval_and_those_that_do_not_get_none() -> None:
    alike = trace_tables(study(), [1])[0].ours["titan"]
    assert spread(alike) == "174.0"
    assert "±" in spread(trace_tables(study(wobble=0.1), [1])[0].ours["titan"])


def test_a_sheet_has_a_row_a_policy_and_the_networks_side_by_side() -> None:
    both = [table for table in trace_tables(study(), [1]) if table.figure.number == 2 and table.trace.key == "itp"]
    sheet = trace_sheet(both)
    assert [row[0].split()[0] for row in sheet.rows] == list(ALL_POLICIES)
    literal = sheet.rows[ALL_POLICIES.index("titan-literal")]
    assert literal[3:] == ["174.0", "1.00x", MISSING, MISSING, MISSING, MISSING]  # with one network only
    assert [head for head in sheet.head if head.startswith("ours")] == ["ours, instant", "ours, isolated"]
    assert sheet.rows[1][:3] == ['consolidate-idle ("Elasticflow")', "334.0", "1.92x"]
    assert {len(row) for row in sheet.rows} == {len(sheet.head)}
    assert len(trace_sheet(both, brief=True).head) == 6
    assert verdict_sheet(both, []).rows == [
        ["Fig. 2, used machines", "instant *", "holds"],
        ["Fig. 2, used machines", "isolated", "holds"],
    ]


def test_ratios_are_taken_seed_by_seed_so_that_a_common_swing_cancels() -> None:
    table = trace_tables(study(wobble=0.5), [1])[0]
    assert table.ours["tiresias"].half is not None
    assert table.ours["tiresias"].half > 100
    assert table.ratios["tiresias"].half == pytest.approx(0.0, abs=1e-9)


def test_a_claim_that_one_reading_upsets_depends_on_it() -> None:
    changes = {("mean_cross_traffic_gb", "consolidate-idle"): 9.0}
    made = trace_tables(study(changes, under="gloo"), [3])
    (claim,) = [one for one in claims(made, []) if one.title.startswith("Fig. 5")]
    assert claim.holds == "depends on the reading"
    assert "holds under: instant network" in claim.verdict
    assert "holds in part: 5 of 6 under: nearest rank first (gloo), instant network" in claim.verdict
    gloo = next(choice for choice in left_open(made, []) if choice.question.startswith("Order of halving"))
    assert [each.holds for each in gloo.readings] == ["holds", "holds in part"]
    assert claim.text == (
        "On Microsoft ITP: order and ratios hold."
        " The paper's whole order holds on 3 of 3 other traces and under 4 of 5 other readings."
    )
    assert gloo.readings[1].ours["Elasticflow"].mean == pytest.approx(9.0 / 1.65)


def test_systems_and_the_baselines_of_their_names_are_compared_in_one_sentence() -> None:
    found = study({("mean_used_machines", "elasticflow"): 167.0, ("mean_used_machines", "hived"): 84.0})
    (claim,) = [one for one in beyond(trace_tables(found, [1])) if one.title.startswith("The baselines")]
    assert "elasticflow uses 0.5x to 0.5x the machines of consolidate-idle and hived uses 0.5x to" in claim.text


def test_no_text_has_more_than_two_sentences() -> None:
    testbeds = run_testbeds()
    for found in (study(), study({("mean_cross_traffic_gb", "consolidate-idle"): 9.0}, under="gloo")):
        shown = reproduction(found, testbeds, range(1, 8)).claims
        assert {len(re.findall(SENTENCE, claim.text)) for claim in shown} <= {1, 2}


def test_mapped_baselines_are_a_reading_of_their_own() -> None:
    made = trace_tables(study({("mean_cross_traffic_gb", "fragments-first-mapped"): 1.0}), [3])
    mapped = next(choice for choice in left_open(made, []) if choice.question.startswith("Ranks of"))
    assert [each.ours["HiveD"].mean for each in mapped.readings] == pytest.approx([7.03 / 1.65, 1.0 / 1.65])


def test_ratios_pair_only_the_seeds_that_both_have() -> None:
    found = study(wobble=0.5, seeds=3)
    itp = Setup("itp", "instant")
    del found.runs[Cell(itp, "tiresias", 0)]  # type: ignore[attr-defined]
    assert found.ratio(itp, "tiresias", "titan", "mean_used_machines").mean == pytest.approx(207 / 174)


def test_everything_that_is_reported_is_plain_json() -> None:
    values = reproduction(study(), None, [1, 2, 3, 4]).as_json()
    assert json.loads(json.dumps(values, allow_nan=False)) == values


def test_the_whole_acme_trace_runs_only_where_communication_takes_no_time_and_slow_policies_once() -> None:
    cells = [cell for cell in plan(5) if cell.setup.trace == "acme"]
    assert {cell.setup.network for cell in cells} == {"instant"}
    assert len([cell for cell in cells if cell.scheme == "titan"]) == 5
    assert len([cell for cell in cells if cell.scheme == "hived"]) == 1


def test_a_folder_without_the_files_is_refused_with_their_names(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(InputError, match=r"no elasticflow_itp\.parquet and no philly\.parquet in this folder"):
        sources(tmp_path_factory.mktemp("empty"), quick=False)
    assert not any(source.file for source in sources(None, quick=True).values())
