"""CASSINI's traces: what is replayed, what remains of it, and the sentences about it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cranny.model.job import Job
from cranny.network.networks import RECORDED_PHASES
from cranny.network.phases.iteration_log import IterationStats
from cranny.report.confidence import estimate
from cranny.repro.cassini import setups as setup
from cranny.repro.cassini.evaluation import KEYS, reproduction, run, run_links
from cranny.repro.cassini.paper import ALIKE, GAP, TEXT, TRACES, CassiniTrace
from cranny.repro.cassini.replays import ALIKE_S, PAIRS, CassiniReplays, CassiniRun, alike, plan, scenario
from cranny.repro.cassini.trace_results import (
    gain_claims,
    gain_sheet,
    host_gains,
    mark_claims,
    mark_reductions,
    own_claims,
    trace_rows,
    trace_sheet,
)
from cranny.repro.claim import Claim
from cranny.repro.experiment import Cell
from cranny.run import Result, simulate
from cranny.run import run as run_scenario

FIGURES = tuple(dict.fromkeys(work.figure for work in TRACES))
RUN = CassiniRun(
    {
        "mean_s": 1.0,
        "p99_s": 2.0,
        "over_alone": 1.1,
        "p99_over_alone": 1.8,
        "iterations": 100.0,
        "mean_jct_s": 10.0,
    },
    (1.0,) * 100,
    (1.0,) * 100,
    {"dlrm": (50.0, 50.0), "vgg16": (10.0, 50.0)},
    (("vgg16", 0.0, 60.0, 0.3),),
)


def study(
    mean: float = 1.5,
    p99: float = 2.2,
    relief: float = 1.2,
    *,
    shares: bool = True,
    traces: Sequence[CassiniTrace] = TRACES,
) -> CassiniReplays:
    """Return replays in which CASSINI makes every host so many times better; 1 if nothing is said."""
    runs = {}
    for cell in plan(FIGURES, 3):
        one = RUN if shares else RUN._replace(marks={"dlrm": (0.0, 50.0)})
        if cell.scheme not in PAIRS.values():
            one = one._replace(
                measures={**one.measures, "mean_s": mean, "p99_s": 2.0 * p99, "over_alone": 1.1 * relief},
                marks={model: (27 * gbit, count) for model, (gbit, count) in one.marks.items()},
            )
        if cell.setup in traces:
            runs[cell] = one
    return CassiniReplays(runs, 3)


def recorded(jobs: Sequence[Job]) -> Result:
    return simulate(setup.testbed(), jobs, "best-fit", RECORDED_PHASES)


def ours(replays: CassiniReplays) -> dict[str, Claim]:
    """Return the answers to questions of ours, by title."""
    return {claim.title: claim for claim in own_claims(replays, host_gains(replays))}


def test_every_figure_has_a_trace_and_every_trace_a_paper_or_a_question() -> None:
    assert {work.figure for work in TRACES} == {"11", "12", "13", "14", "16", ALIKE, GAP}
    assert {gain.trace for gain in TEXT.gains} <= {work.key for work in TRACES}


def test_a_replay_does_all_iterations_of_all_jobs() -> None:
    jobs = setup.dynamic(0)
    result = recorded(jobs)
    found = IterationStats(result.intervals)
    assert found.count == pytest.approx(sum((job.duration_s or 0.0) / job.profile.iteration_s for job in jobs))
    first = IterationStats(each for each in result.intervals if each.job_id == jobs[0].id)
    assert first.count < found.count
    assert found.quantiles_s([0.01])[0] <= found.mean_s <= found.quantiles_s([1.0])[0]
    assert found.over_alone >= 1.0


def test_jobs_that_share_no_link_take_as_long_as_alone() -> None:
    found = IterationStats(recorded(setup.dynamic(0)[:1]).intervals)
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
    work = next(each for each in TRACES if each.key == "dynamic-2")
    runs = CassiniRun.of(run_scenario(scenario(Cell(work, scheme, 0), quick=True)))
    assert runs.measures["mean_s"] > 0
    assert list(runs.quantiles_s) == sorted(runs.quantiles_s)
    assert runs.measures["p99_s"] == runs.quantiles_s[98]
    assert runs.measures["iterations"] == pytest.approx(sum(count for _, count in runs.marks.values()))
    assert bool(runs.outcomes) == (scheme in ("themis", "themis+cassini"))


def test_the_papers_own_gains_confirm_its_figure() -> None:
    found = study()
    claims = {claim.title: claim for claim in gain_claims(host_gains(found))}
    assert claims["Fig. 13: dynamic trace, themis with CASSINI is faster"].holds == "holds"
    assert claims["Fig. 12: Poisson trace, model parallel, themis with CASSINI is faster"].holds == "holds in part"
    (mark,) = mark_claims(mark_reductions(found))
    assert mark.holds == "holds"


@pytest.mark.parametrize(
    ("relief", "holds"), [(1.0, "does not hold"), (1.05, "does not hold"), (1.2, "holds in part")]
)
def test_without_a_gain_it_matters_whether_sharing_costs_half(relief: float, holds: str) -> None:
    found = study(1.0, 1.0, relief)
    assert {claim.holds for claim in gain_claims(host_gains(found))} == {holds}


def test_where_no_link_is_shared_the_words_say_so() -> None:
    found = study(1.0, 1.0, 1.0, shares=False)
    assert all("nothing to gain" in claim.text for claim in gain_claims(host_gains(found)))
    assert "Loops settled against dropped, and shifts alone" not in ours(found)


def test_gains_are_taken_seed_by_seed() -> None:
    found = study()
    assert found.ratio(TRACES[0], "themis", "themis+cassini", "mean_s") == estimate([1.5] * 3)
    assert found.marks(TRACES[0], "themis+cassini") == pytest.approx({"": 0.6, "dlrm": 1.0, "vgg16": 0.2})


def test_tables_have_a_row_for_each_scheme() -> None:
    found = study()
    assert len(gain_sheet(host_gains(found)).rows) == sum(len(PAIRS.keys() & set(work.schemes)) for work in TRACES)
    assert len(trace_sheet(found, TRACES[0]).rows) == len(TRACES[0].schemes)
    assert len(trace_rows(found)) == sum(len(work.schemes) for work in TRACES)
    assert "400 ms" in ours(found)["Where all iterations take equally long"].text


def test_every_step_of_the_gap_is_reported_for_both_hosts() -> None:
    found = study()
    text = ours(found)["Why gains are smaller than the paper's"].text
    steps = [work for work in TRACES if work.figure == GAP]
    assert all(f"{work.title}, {host}: mean 1.50x" in text for work in steps for host in ("themis", "pollux"))
    assert "Why gains are smaller than the paper's" not in ours(study(traces=TRACES[:1]))


def test_drawn_placements_make_more_jobs_share_links_and_are_the_same_for_the_same_seed() -> None:
    first, drawn = TRACES[4], next(work for work in TRACES if work.drawn)
    assert (first.key, first.fours) == ("dynamic", True)
    cells = [Cell(work, "themis", seed) for work in (first, drawn, drawn) for seed in range(3)]
    costs = [CassiniRun.of(run_scenario(scenario(cell))).measures["over_alone"] for cell in cells]
    shares = [sum(costs[start : start + 3]) for start in (0, 3, 6)]
    assert shares[0] < shares[1] == shares[2]


def test_two_jobs_fit_on_servers_with_two_gpus() -> None:
    jobs = setup.dynamic(0, gpus=12)
    assert max(job.gpus for job in jobs) <= 6


def test_the_page_has_every_figure_with_its_picture_and_the_files_beside_it(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `repro`")
    links = run_links([key for key in KEYS if key not in FIGURES], quick=True)
    found = reproduction(links, study(traces=TRACES[3:4]), quick=True)
    page = found.write(tmp_path).read_text(encoding="utf-8")
    assert page.count("<img") == 4 + 2  # of links, and CDFs and marks of the dynamic trace
    for claim in found.claims:
        assert claim.title in page
    values = json.loads((tmp_path / "cassini.json").read_text(encoding="utf-8"))
    assert [each["title"] for each in values["claims"]] == [claim.title for claim in found.claims]
    assert {path.name for path in tmp_path.glob("*.csv")} == {"traces.csv", "table2.csv", "fig17.csv", "fig18.csv"}
    assert len(values["tables"]) == len(found.shown)


def test_what_was_not_asked_for_is_not_reported() -> None:
    found = run(["5"], 1, 1, quick=True)
    assert [claim.title[:6] for claim in found.claims[:-1]] == ["Fig. 5"]
    assert found.claims[-1].holds == "not tested"
    assert len(found.shown) == 1
