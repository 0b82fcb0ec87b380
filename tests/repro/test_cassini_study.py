"""CASSINI's traces: what is replayed, what is kept, and what the words say of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cranny.report.confidence import estimate
from cranny.repro.cassini import setup
from cranny.repro.cassini.claims import alike_claim, gain_claims, gap_claim, mark_claim, variant_claim
from cranny.repro.cassini.run import KEYS, run
from cranny.repro.cassini.study import (
    ALIKE,
    ALIKE_S,
    GAP,
    PAIRS,
    WORKLOADS,
    Cell,
    Kept,
    Study,
    alike,
    plan,
    run_cell,
)
from cranny.repro.cassini.tables import faster, fewer, gain_sheet, records, trace_sheet
from cranny.repro.cassini.values import GAINS
from cranny.repro.cassini.watch import watch
from cranny.repro.cassini.write import write

KEPT = Kept(
    100.0,
    1.0,
    2.0,
    1.1,
    1.8,
    (1.0,) * 100,
    (1.0,) * 100,
    {"dlrm": (50.0, 50.0), "vgg16": (10.0, 50.0)},
    10.0,
    (("vgg16", 0.0, 60.0, 0.3),),
)


def study(mean: float = 1.5, p99: float = 2.2, relief: float = 1.2, *, shares: bool = True) -> Study:
    """Return a study in which CASSINI makes every host so many times better; 1 if nothing is said."""
    kept = {}
    for cell in plan(WORKLOADS, 3, quick=True):
        one = KEPT if shares else replace(KEPT, marks={"dlrm": (0.0, 50.0)})
        if cell.scheme not in PAIRS.values():
            one = replace(one, mean_s=mean, p99_s=2.0 * p99, over_alone=1.1 * relief)
            one = replace(one, marks={model: (27 * gbit, count) for model, (gbit, count) in one.marks.items()})
        kept[cell] = one
    return Study(WORKLOADS, kept, 3)


def test_every_figure_has_a_trace_and_every_trace_a_paper_or_a_question() -> None:
    assert {work.figure for work in WORKLOADS} == {"11", "12", "13", "14", "16", ALIKE, GAP}
    assert {gain.trace for gain in GAINS} <= {work.key for work in WORKLOADS}


def test_a_replay_does_all_iterations_of_all_jobs() -> None:
    jobs = setup.dynamic(0)
    found = watch(setup.testbed(), jobs, "best-fit")
    assert found.count == pytest.approx(sum((job.duration_s or 0.0) / job.profile.iteration_s for job in jobs))
    first = found.of([jobs[0].id])
    assert first.count < found.count
    assert found.quantiles_s([0.01])[0] <= found.mean_s <= found.quantiles_s([1.0])[0]
    assert found.over_alone >= 1.0


def test_jobs_that_meet_nobody_take_as_long_as_alone() -> None:
    found = watch(setup.testbed(), setup.dynamic(0)[:1], "best-fit")
    assert found.over_alone == pytest.approx(1.0)
    assert found.quantiles_over_alone([0.99]) == pytest.approx([1.0])
    assert found.above_gbit == 0.0


def test_alike_jobs_have_one_iteration_time_and_as_many_iterations() -> None:
    for job in setup.dynamic(1, arriving=())[:4]:
        made = alike(job)
        iterations = (job.duration_s or 0.0) / job.profile.iteration_s
        assert (made.duration_s or 0.0) / made.profile.iteration_s == pytest.approx(iterations)
        assert setup.alone_s(made) / iterations == pytest.approx(ALIKE_S, rel=1e-3)
        assert (made.gpus, made.most_gpus) == (job.gpus, None)


@pytest.mark.parametrize("scheme", ["themis", "themis+cassini", "themis+cassini, loops dropped"])
def test_a_replay_keeps_quantiles_marks_and_courses(scheme: str) -> None:
    work = next(each for each in WORKLOADS if each.key == "dynamic-2")
    kept = run_cell(Cell(work, scheme, 0, quick=True))
    assert kept.mean_s > 0
    assert list(kept.quantiles_s) == sorted(kept.quantiles_s)
    assert kept.p99_s == kept.quantiles_s[98]
    assert kept.iterations == pytest.approx(sum(count for _, count in kept.marks.values()))
    assert bool(kept.courses) == (scheme in ("themis", "themis+cassini"))


def test_the_papers_own_gains_confirm_its_figure() -> None:
    found = study()
    claims = {claim.title: claim for claim in gain_claims(found, faster(found))}
    assert claims["Fig. 13: dynamic trace, themis with CASSINI is faster"].holds == "holds"
    assert claims["Fig. 12: Poisson trace, model parallel, themis with CASSINI is faster"].holds == "holds in part"
    mark = mark_claim(fewer(found))
    assert mark is not None
    assert mark.holds == "holds"


@pytest.mark.parametrize(
    ("relief", "holds"), [(1.0, "does not hold"), (1.05, "does not hold"), (1.2, "holds in part")]
)
def test_without_a_gain_it_matters_whether_sharing_costs_half(relief: float, holds: str) -> None:
    found = study(1.0, 1.0, relief)
    assert {claim.holds for claim in gain_claims(found, faster(found))} == {holds}


def test_where_no_link_is_shared_the_words_say_so() -> None:
    found = study(1.0, 1.0, 1.0, shares=False)
    assert all("nothing to gain" in claim.text for claim in gain_claims(found, faster(found)))
    assert variant_claim(found) is None


def test_gains_are_taken_seed_by_seed() -> None:
    found = study()
    assert found.gain(WORKLOADS[0], "themis", "themis+cassini", "mean_s") == estimate([1.5] * 3)
    assert found.marks(WORKLOADS[0], "themis+cassini") == pytest.approx({"": 0.6, "dlrm": 1.0, "vgg16": 0.2})


def test_tables_have_a_row_for_each_scheme() -> None:
    found = study()
    assert len(gain_sheet(faster(found)).rows) == sum(len(PAIRS.keys() & set(work.schemes)) for work in WORKLOADS)
    assert len(trace_sheet(found, WORKLOADS[0]).rows) == len(found.schemes(WORKLOADS[0]))
    assert len(records(found)) == sum(len(work.schemes) for work in WORKLOADS)
    told = alike_claim(faster(found))
    assert told is not None
    assert "400 ms" in told.text


def test_every_step_of_the_gap_is_told_for_both_hosts() -> None:
    found = study()
    told = gap_claim(found, faster(found))
    assert told is not None
    steps = [work for work in WORKLOADS if work.figure == GAP]
    assert all(f"{work.title}, {host}: mean 1.50x" in told.text for work in steps for host in ("themis", "pollux"))
    assert (
        gap_claim(replace(found, workloads=WORKLOADS[:1]), faster(replace(found, workloads=WORKLOADS[:1]))) is None
    )


def test_drawn_places_let_more_jobs_meet_and_are_the_same_for_the_same_seed() -> None:
    first, drawn = WORKLOADS[4], next(work for work in WORKLOADS if work.lot)
    assert (first.key, first.fours) == ("dynamic", True)
    kept = [run_cell(Cell(work, "themis", seed)) for work in (first, drawn, drawn) for seed in range(3)]
    shares = [sum(each.over_alone for each in kept[start : start + 3]) for start in (0, 3, 6)]
    assert shares[0] < shares[1] == shares[2]


def test_two_jobs_find_room_on_servers_with_two_gpus() -> None:
    jobs = setup.dynamic(0, gpus=12)
    assert max(job.gpus for job in jobs) <= 6


def test_the_page_has_every_figure_with_its_picture_and_the_files_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
    links = [key for key in KEYS if key not in {work.figure for work in WORKLOADS}]
    found = replace(run(links, 1, 1, quick=True), study=replace(study(), workloads=WORKLOADS[3:4]))
    page = write(found, tmp_path).read_text(encoding="utf-8")
    assert page.count("<img") == 4 + 2  # of links, and CDFs and marks of the dynamic trace
    for claim in found.claims:
        assert claim.title in page
    told = json.loads((tmp_path / "cassini.json").read_text(encoding="utf-8"))
    assert [each["title"] for each in told["claims"]] == [claim.title for claim in found.claims]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"traces.csv", "table2.csv", "fig17.csv", "fig18.csv"}
    assert len(told["tables"]) == len(found.sheets())


def test_what_was_not_asked_for_is_not_told() -> None:
    found = run(["5"], 1, 1, quick=True)
    assert [claim.title[:6] for claim in found.claims[:-1]] == ["Fig. 5"]
    assert found.claims[-1].holds == "not tested"
    assert len(found.sheets()) == 1
