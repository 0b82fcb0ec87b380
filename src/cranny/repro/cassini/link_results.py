"""Results on one link: tables, verdicts and rows of files for Figs. 2, 5, 17 and 18 and Table 2."""

from collections.abc import Mapping, Sequence

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.cassini.link_shapes import BATCH, EVEN, GIVEN, H200, SETUPS
from cranny.repro.cassini.links import JITTER, Adjustments, LinkOutcome, UnifiedPair
from cranny.repro.cassini.paper import (
    FIG2_P90_GAIN,
    FIG2_SHIFT_MS,
    FIG5_PERIMETER_MS,
    FIG17_MOST_A_MINUTE,
    FIG18_PRECISION_DEG,
    TABLE2,
    TEXT,
)
from cranny.repro.cassini.precision import AnglePrecision
from cranny.repro.claim import NEAR, Claim, Holds, near
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Record

FADED = 1.1  # a gain below which not much is left
MOST = 0.9  # of the links: a precision that finds right shifts for so many is fine enough
MS = 1e3
Snapshots = Mapping[int, Sequence[LinkOutcome]]  # of Table 2, in every set-up


def judged(gain: Estimate, paper: float) -> Holds:
    """Judge a gain: all of its confidence interval is a gain, and it is near the paper's."""
    if not beyond_doubt(gain):
        return "does not hold"
    return "holds" if near(paper, gain.mean) else "holds in part"


def beyond_doubt(gain: Estimate) -> bool:
    """Say whether a gain is one with all of its confidence interval."""
    return gain.mean - (gain.half or 0.0) > 1.0


def pair_sheet(found: Sequence[LinkOutcome]) -> TextTable:
    """Show Fig. 2 in every set-up."""
    rows = [["the paper", "", "", "", plain(FIG2_SHIFT_MS), "", times(FIG2_P90_GAIN)]]
    rows += [
        [
            SETUPS[one.setup],
            plain(one.circles[0].iteration_s * MS),
            plain(one.circles[0].up_s * MS),
            f"{one.fit.score:.2f}",
            plain(max(one.fit.shifts_s) * MS),
            times(one.gain()),
            times(one.p90_gain()),
        ]
        for one in found
    ]
    return TEXT.table("fig2", rows)


def pair_claim(found: Sequence[LinkOutcome]) -> Claim:
    """Judge Fig. 2."""
    by = {one.setup: one for one in found}
    p90 = by[GIVEN].p90_gain()
    part = TEXT.claims["fig2"].part
    others = [
        part(name, p90=by[setup].p90_gain(), score=by[setup].fit.score)
        for setup, name in ((H200, "h200"), (BATCH, "batch"))
        if setup in by
    ]
    holds = judged(p90, FIG2_P90_GAIN)
    return TEXT.claim("fig2", holds, paper=FIG2_P90_GAIN, p90=p90, others=", ".join(others), jitter=100 * JITTER)


def unified_sheet(found: UnifiedPair) -> TextTable:
    """Show Fig. 5."""
    ours = [f"{score:.2f}" for score in (found.before, found.at_papers, found.best)]
    rows = [
        ["the paper", plain(FIG5_PERIMETER_MS), MISSING, "1.00", MISSING],
        ["ours", plain(found.perimeter_ms), *ours],
    ]
    return TEXT.table("fig5", rows)


def unified_claim(found: UnifiedPair) -> Claim:
    """Judge Fig. 5."""
    right = abs(found.perimeter_ms - FIG5_PERIMETER_MS) < 1e-6 and found.at_papers > 1 - 1e-6
    holds: Holds = "holds" if right else "does not hold"
    return TEXT.claim("fig5", holds, perimeter=found.perimeter_ms, before=found.before, rotated=found.at_papers)


def table2_rows(found: Snapshots) -> list[Record]:
    """Return a row for each snapshot and set-up."""
    return [
        {
            "snapshot": number,
            "setup": one.setup,
            "score": one.fit.score,
            "score_unshifted": one.unshifted,
            "gain": one.communication_gain().mean,
            "gain_half_width_95": one.communication_gain().half,
            "iteration_gain": one.gain().mean,
            "shifts_ms": [shift_s * MS for shift_s in one.fit.shifts_s],
        }
        for number, outcomes in found.items()
        for one in outcomes
    ]


def table2_sheets(found: Snapshots) -> tuple[TextTable, TextTable]:
    """Show scores and gains of Table 2 in every set-up, and its communication times for shapes from the paper."""
    scores, jobs = [], []
    for snapshot in TABLE2:
        names = ", ".join(f"{job.model} ({job.batch})" for job in snapshot.jobs)
        ours = [f"{one.fit.score:.2f} {times(one.communication_gain().mean)}" for one in found[snapshot.number]]
        scores.append([f"{snapshot.number}: {names}", f"{snapshot.score:.2f} {times(snapshot.gain)}", *ours])
        given = _of(found, snapshot.number, GIVEN)
        iteration_ms = given.circles[0].iteration_s * MS
        shifts_ms = [(shift_s - given.fit.shifts_s[0]) * MS % iteration_ms for shift_s in given.fit.shifts_s]
        for job, with_ms, without_ms, shift_ms in zip(
            snapshot.jobs, *given.communication_ms(), shifts_ms, strict=True
        ):
            values = (job.cassini_ms, with_ms, job.themis_ms, without_ms, job.shift_ms, shift_ms)
            jobs.append([f"{snapshot.number}: {job.model}", *map(plain, values)])
    return TEXT.table("table2", scores, *SETUPS.values()), TEXT.table("table2_jobs", jobs)


def table2_claims(found: Snapshots) -> list[Claim]:
    """Judge Table 2: gains against scores, and scores from profiles."""
    given = {number: _of(found, number, GIVEN) for number in found}
    gains = {number: one.communication_gain() for number, one in given.items()}
    best = [snapshot.number for snapshot in TABLE2 if snapshot.score >= 1.0]
    worst = min(TABLE2, key=lambda snapshot: snapshot.score).number
    fades = min(gains[number].mean for number in best) > gains[worst].mean and gains[worst].mean < FADED
    right = all(near(snapshot.gain, gains[snapshot.number].mean) for snapshot in TABLE2)
    times_near = [
        near(paper_ms, ours_ms)
        for snapshot in TABLE2
        for job, with_ms, without_ms in zip(snapshot.jobs, *given[snapshot.number].communication_ms(), strict=True)
        for paper_ms, ours_ms in ((job.cassini_ms, with_ms), (job.themis_ms, without_ms))
    ]
    part = TEXT.claims["table2"].part
    listed = [part("gain", score=each.score, paper=each.gain, ours=gains[each.number]) for each in TABLE2]
    holds: Holds = ("holds" if right else "holds in part") if fades else "does not hold"
    values = {"gains": "; ".join(listed), "near": sum(times_near), "all": len(times_near)}
    return [TEXT.claim("table2", holds, **values), _score_claim(found)]


def _score_claim(found: Snapshots) -> Claim:
    """Judge the scores that follow from our profiles."""
    scores = {
        setup: [_of(found, snapshot.number, setup).fit.score for snapshot in TABLE2]
        for setup in (H200, BATCH, EVEN)
    }
    h200, batch, even = (", ".join(f"{score:.2f}" for score in each) for each in scores.values())
    furthest = max(abs(score - snapshot.score) for score, snapshot in zip(scores[BATCH], TABLE2, strict=True))
    papers = ", ".join(f"{snapshot.score:.1f}" for snapshot in TABLE2)
    holds: Holds = "holds" if furthest <= 0.1 else "holds in part" if furthest <= NEAR else "does not hold"
    return TEXT.claim("scores", holds, paper=papers, batch=batch, h200=h200, even=even)


def _of(found: Snapshots, number: int, setup: str) -> LinkOutcome:
    return next(one for one in found[number] if one.setup == setup)


def adjustment_rows(found: Sequence[Adjustments]) -> list[Record]:
    """Return a row for each case of Fig. 17."""
    return [
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


def adjustment_sheet(found: Sequence[Adjustments]) -> TextTable:
    """Show Fig. 17."""
    rows = [
        [
            f"snapshot {each.snapshot}, {'paced' if each.hold else 'the 5 % rule alone'}",
            f"{100 * each.jitter:g} %",
            spread(each.a_minute),
            times(each.slowdown.mean),
        ]
        for each in found
    ]
    return TEXT.table("fig17", rows, paper=FIG17_MOST_A_MINUTE)


def adjustment_claim(found: Sequence[Adjustments]) -> Claim:
    """Judge Fig. 17."""
    paced, alone = ([each for each in found if each.hold == hold] for hold in (True, False))
    few_paced, few_alone = (
        all(each.a_minute.mean < FIG17_MOST_A_MINUTE for each in cases) for cases in (paced, alone)
    )
    part = TEXT.claims["fig17"].part
    holds: Holds = ("holds" if few_alone else "holds in part") if few_paced else "does not hold"
    return TEXT.claim(
        "fig17",
        holds,
        paper=FIG17_MOST_A_MINUTE,
        paced=max(each.a_minute.mean for each in paced),
        slowdown=max(each.slowdown.mean for each in paced),
        alone=", ".join(
            part("alone", snapshot=each.snapshot, jitter=100 * each.jitter, a_minute=each.a_minute.mean)
            for each in alone
        ),
    )


def precision_rows(found: Sequence[AnglePrecision]) -> list[Record]:
    """Return a row for each precision of Fig. 18."""
    return [
        {"degrees": each.degrees, "cpu_ms": each.time_ms.mean, "score_lost": each.lost.mean, "right": each.right}
        for each in found
    ]


def precision_sheet(found: Sequence[AnglePrecision]) -> TextTable:
    """Show Fig. 18."""
    rows = [
        [f"{each.degrees:g}", spread(each.time_ms), spread(each.lost), f"{100 * each.right:.0f} %"]
        for each in found
    ]
    return TEXT.table("fig18", rows)


def precision_claim(found: Sequence[AnglePrecision]) -> Claim:
    """Judge Fig. 18."""
    at = next(each for each in found if each.degrees == FIG18_PRECISION_DEG)
    coarser = [each for each in found if each.degrees > FIG18_PRECISION_DEG]
    finer = [each for each in found if each.degrees < FIG18_PRECISION_DEG]
    sweet = at.right >= MOST and all(each.right < MOST for each in coarser)
    slower = max((each.time_ms.mean for each in finer), default=at.time_ms.mean) / at.time_ms.mean
    return TEXT.claim(
        "fig18",
        "holds" if sweet else "holds in part",
        right=100 * at.right,
        ms=at.time_ms.mean,
        coarser=coarser[0].degrees,
        coarser_right=100 * coarser[0].right,
        finer=finer[0].degrees,
        finer_right=100 * finer[0].right,
        slower=slower,
    )
