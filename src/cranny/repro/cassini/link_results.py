"""Results on one link: tables, verdicts and rows of files for Figs. 2, 5, 17 and 18 and Table 2."""

from collections.abc import Mapping, Sequence
from functools import partial

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.repro.cassini import cassini_plots as draw
from cranny.repro.cassini.link_shapes import BATCH, EVEN, GIVEN, H200, SETUPS
from cranny.repro.cassini.links import JITTER, Adjustments, LinkOutcome, UnifiedPair
from cranny.repro.cassini.paper import TABLE2, TEXT
from cranny.repro.cassini.precision import AnglePrecision
from cranny.repro.claim import NEAR, Claim, Holds, graded, near
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Section

FADED = 1.1  # a gain below which not much is left
MOST = 0.9  # of the links: a precision that finds right shifts for so many is fine enough
MS = 1e3
Snapshots = Mapping[int, Mapping[str, LinkOutcome]]  # of Table 2, in every set-up


def judged(gain: Estimate, paper: float) -> Holds:
    """Judge a gain: all of its confidence interval is a gain, and it is near the paper's."""
    return graded(beyond_doubt(gain), near(paper, gain.mean))


def beyond_doubt(gain: Estimate) -> bool:
    """Say whether a gain is one with all of its confidence interval."""
    return gain.mean - (gain.half or 0.0) > 1.0


def fig2(found: Mapping[str, LinkOutcome]) -> Section:
    """Show and judge Fig. 2 in every set-up."""
    text = TEXT.claims["fig2"]
    paper, p90 = text.numbers["paper"], found[GIVEN].p90_gain()
    rows = [["the paper", "", "", "", plain(text.numbers["shift_ms"]), "", times(paper)]]
    for setup, one in found.items():
        iteration, up, shift = (
            plain(each_s * MS)
            for each_s in (one.circles[0].iteration_s, one.circles[0].up_s, max(one.fit.shifts_s))
        )
        score = f"{one.fit.score:.2f}"
        rows.append([SETUPS[setup], iteration, up, score, shift, times(one.gain()), times(one.p90_gain())])
    others = ", ".join(
        text.part(name, p90=found[setup].p90_gain(), score=found[setup].fit.score)
        for setup, name in ((H200, "h200"), (BATCH, "batch"))
    )
    claim = TEXT.claim("fig2", judged(p90, paper), p90=p90, others=others, jitter=100 * JITTER)
    plots = {"fig2": partial(draw.draw_pair, found[GIVEN])}
    return Section("Fig. 2: two jobs on a link", [TEXT.table("fig2", rows)], plots, claims=[claim])


def fig5(found: UnifiedPair) -> Section:
    """Show and judge Fig. 5."""
    paper_ms = TEXT.claims["fig5"].numbers["perimeter_ms"]
    rows = [
        ["the paper", plain(paper_ms), MISSING, "1.00", MISSING],
        ["ours", plain(found.perimeter_ms), *map("{:.2f}".format, (found.before, found.at_papers, found.best))],
    ]
    right = abs(found.perimeter_ms - paper_ms) < 1e-6 and found.at_papers > 1 - 1e-6
    values = {"perimeter": found.perimeter_ms, "before": found.before, "rotated": found.at_papers}
    claim = TEXT.claim("fig5", graded(right), **values)
    return Section("Fig. 5: a unified circle", [TEXT.table("fig5", rows)], claims=[claim])


def table2(found: Snapshots) -> Section:
    """Show and judge Table 2: scores, gains, and communication times for shapes from the paper."""
    scores, jobs, times_near = [], [], []
    for snapshot in TABLE2:
        outcomes = found[snapshot.number]
        names = ", ".join(f"{job.model} ({job.batch})" for job in snapshot.jobs)
        ours = [f"{one.fit.score:.2f} {times(one.communication_gain().mean)}" for one in outcomes.values()]
        scores.append([f"{snapshot.number}: {names}", f"{snapshot.score:.2f} {times(snapshot.gain)}", *ours])
        given = outcomes[GIVEN]
        iteration_ms = given.circles[0].iteration_s * MS
        shifts_ms = [(shift_s - given.fit.shifts_s[0]) * MS % iteration_ms for shift_s in given.fit.shifts_s]
        for job, with_ms, without_ms, shift_ms in zip(
            snapshot.jobs, *given.communication_ms(), shifts_ms, strict=True
        ):
            values = (job.cassini_ms, with_ms, job.themis_ms, without_ms, job.shift_ms, shift_ms)
            jobs.append([f"{snapshot.number}: {job.model}", *map(plain, values)])
            times_near += [near(job.cassini_ms, with_ms), near(job.themis_ms, without_ms)]
    rows = [
        {
            "snapshot": number,
            "setup": setup,
            "score": one.fit.score,
            "score_unshifted": one.unshifted,
            "gain": one.communication_gain().mean,
            "gain_half_width_95": one.communication_gain().half,
            "iteration_gain": one.gain().mean,
            "shifts_ms": [shift_s * MS for shift_s in one.fit.shifts_s],
        }
        for number, outcomes in found.items()
        for setup, one in outcomes.items()
    ]
    return Section(
        "Table 2 and Fig. 15: partly compatible jobs",
        [TEXT.table("table2", scores, *SETUPS.values()), TEXT.table("table2_jobs", jobs)],
        {"fig15": draw.draw_uses},
        {"table2": rows},
        [_gain_claim(found, times_near), _score_claim(found)],
    )


def _gain_claim(found: Snapshots, times_near: Sequence[bool]) -> Claim:
    """Judge gains against scores."""
    gains = {number: outcomes[GIVEN].communication_gain() for number, outcomes in found.items()}
    best = [gains[snapshot.number].mean for snapshot in TABLE2 if snapshot.score >= 1.0]
    worst = gains[min(TABLE2, key=lambda snapshot: snapshot.score).number].mean
    right = all(near(snapshot.gain, gains[snapshot.number].mean) for snapshot in TABLE2)
    part = TEXT.claims["table2"].part
    listed = [part("gain", score=each.score, paper=each.gain, ours=gains[each.number]) for each in TABLE2]
    values = {"gains": "; ".join(listed), "near": sum(times_near), "all": len(times_near)}
    return TEXT.claim("table2", graded(worst < min(*best, FADED), right), **values)


def _score_claim(found: Snapshots) -> Claim:
    """Judge the scores that follow from our profiles."""
    scores = {
        setup: [found[snapshot.number][setup].fit.score for snapshot in TABLE2] for setup in (H200, BATCH, EVEN)
    }
    h200, batch, even = (", ".join(f"{score:.2f}" for score in each) for each in scores.values())
    furthest = max(abs(score - snapshot.score) for score, snapshot in zip(scores[BATCH], TABLE2, strict=True))
    papers = ", ".join(f"{snapshot.score:.1f}" for snapshot in TABLE2)
    holds = graded(furthest <= NEAR, furthest <= 0.1)
    return TEXT.claim("scores", holds, paper=papers, batch=batch, h200=h200, even=even)


def fig17(found: Sequence[Adjustments]) -> Section:
    """Show and judge Fig. 17."""
    text = TEXT.claims["fig17"]
    rows = [
        [
            f"snapshot {each.snapshot}, {'paced' if each.hold else 'the 5 % rule alone'}",
            f"{100 * each.jitter:g} %",
            spread(each.a_minute),
            times(each.slowdown.mean),
        ]
        for each in found
    ]
    records = [
        {
            "snapshot": each.snapshot,
            "jitter": each.jitter,
            "held": each.hold,
            "adjustments_a_minute": each.a_minute.mean,
            "half_width_95": each.a_minute.half,
            "slowdown": each.slowdown.mean,
        }
        for each in found
    ]
    paced, alone = ([each for each in found if each.hold == hold] for hold in (True, False))
    few = [all(each.a_minute.mean < text.numbers["paper"] for each in cases) for cases in (paced, alone)]
    claim = TEXT.claim(
        "fig17",
        graded(*few),
        paced=max(each.a_minute.mean for each in paced),
        slowdown=max(each.slowdown.mean for each in paced),
        alone=", ".join(
            text.part("alone", snapshot=each.snapshot, jitter=100 * each.jitter, a_minute=each.a_minute.mean)
            for each in alone
        ),
    )
    plots = {"fig17": partial(draw.draw_adjustments, found)}
    tables = [TEXT.table("fig17", rows, paper=text.numbers["paper"])]
    return Section("Fig. 17: adjustments", tables, plots, {"fig17": records}, [claim])


def fig18(found: Sequence[AnglePrecision]) -> Section:
    """Show and judge Fig. 18."""
    rows = [
        [f"{each.degrees:g}", spread(each.time_ms), spread(each.lost), f"{100 * each.right:.0f} %"]
        for each in found
    ]
    records = [
        {"degrees": each.degrees, "cpu_ms": each.time_ms.mean, "score_lost": each.lost.mean, "right": each.right}
        for each in found
    ]
    paper_deg = TEXT.claims["fig18"].numbers["precision_deg"]
    at = next(each for each in found if each.degrees == paper_deg)
    coarser = [each for each in found if each.degrees > paper_deg]
    finer = [each for each in found if each.degrees < paper_deg]
    sweet = at.right >= MOST and all(each.right < MOST for each in coarser)
    claim = TEXT.claim(
        "fig18",
        "holds" if sweet else "holds in part",
        right=100 * at.right,
        ms=at.time_ms.mean,
        coarser=coarser[0].degrees,
        coarser_right=100 * coarser[0].right,
        finer=finer[0].degrees,
        finer_right=100 * finer[0].right,
        slower=max(each.time_ms.mean for each in finer) / at.time_ms.mean,
    )
    plots = {"fig18": partial(draw.draw_precision, found)}
    return Section("Fig. 18: precision", [TEXT.table("fig18", rows)], plots, {"fig18": records}, [claim])
