"""Results on one link: tables, verdicts and rows of files for Figs. 2, 5, 17 and 18 and Table 2."""

from collections.abc import Mapping, Sequence
from functools import partial

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.repro.cassini import cassini_plots as draw
from cranny.repro.cassini.link_shapes import BATCH, EVEN, GIVEN, H200, SETUPS
from cranny.repro.cassini.links import SNAPSHOTS, Adjustments, LinkOutcome, UnifiedPair
from cranny.repro.cassini.paper import TABLE2, TEXT, LinkSnapshot
from cranny.repro.cassini.precision import AnglePrecision
from cranny.repro.cassini.setups import JITTER
from cranny.repro.claim import CLOSE, Claim, Holds, Reading, Stated, all_or_some, near
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Section

LEAST_GAIN = 1.02  # less is none
FADED = 1.1  # a gain below which not much is left
MOST = 0.9  # of the links: a precision that finds right shifts for so many is fine enough
MS = 1e3
Snapshots = Mapping[int, Mapping[str, LinkOutcome]]  # of Table 2, in every set-up


def gained(values: Mapping[str, Estimate], stated: Mapping[str, Stated]) -> tuple[Holds, list[bool]]:
    """Judge gains: whether each is one beyond doubt, and near the paper's, of which it must be half at least.

    A claim of which no gain is one beyond doubt does not hold.
    """
    parts = []
    for name, paper in stated.items():
        if not isinstance(paper, tuple) and name in values:
            ours = values[name].mean
            parts += [beyond_doubt(values[name]), near(paper, ours) and ours - 1.0 >= (paper - 1.0) / 2]
    if not parts:
        return "no verdict", []
    return (all_or_some(parts) if any(parts[::2]) else "does not hold"), parts


def beyond_doubt(gain: Estimate) -> bool:
    """Say whether a gain is one with all of its confidence interval, and not too small to speak of."""
    return gain.mean >= LEAST_GAIN and gain.mean - (gain.half or 0.0) > 1.0


def fig2(found: Mapping[str, LinkOutcome]) -> Section:
    """Show and judge Fig. 2 in every set-up."""
    text = TEXT.claims["fig2"]
    rows = [["the paper", "", "", "", plain(text.numbers["shift_ms"]), "", times(text.numbers["paper"])]]
    readings = []
    for setup, one in found.items():
        iteration, up, shift = (
            plain(each_s * MS)
            for each_s in (one.circles[0].iteration_s, one.circles[0].up_s, max(one.fit.shifts_s))
        )
        score = f"{one.fit.score:.2f}"
        rows.append([SETUPS[setup], iteration, up, score, shift, times(one.gain()), times(one.p90_gain())])
        values = {"90th percentile": one.p90_gain()}
        readings.append(Reading(SETUPS[setup], values, *gained(values, text.bars)))
    claim = TEXT.claim("fig2", readings, jitter=100 * JITTER)
    plots = {"fig2": partial(draw.draw_pair, found[GIVEN])}
    return Section("Fig. 2: two jobs on a link", [TEXT.table("fig2", rows)], plots, claims=[claim])


def fig5(found: UnifiedPair) -> Section:
    """Show and judge Fig. 5."""
    paper_ms = TEXT.claims["fig5"].numbers["perimeter_ms"]
    rows = [
        ["the paper", plain(paper_ms), MISSING, "1.00", MISSING],
        ["ours", plain(found.perimeter_ms), *map("{:.2f}".format, (found.before, found.at_papers, found.best))],
    ]
    parts = [abs(found.perimeter_ms - paper_ms) < 1e-6, found.at_papers > 1 - 1e-6]
    values = {
        "perimeter, ms": Estimate(found.perimeter_ms, None),
        "score, %": Estimate(100 * found.at_papers, None),
    }
    claim = TEXT.claim("fig5", [Reading("ours", values, all_or_some(parts), parts)], before=found.before)
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
    """Judge gains against scores: those of the paper's shapes, whose scores are the paper's."""
    stated = {_snapshot(each): each.gain for each in TABLE2}
    readings = []
    for setup, name in SETUPS.items():
        values = {_snapshot(each): found[each.number][setup].communication_gain() for each in TABLE2}
        reading = Reading(name, values)
        if setup == GIVEN:
            means = {each.score: values[_snapshot(each)].mean for each in TABLE2}
            fades = means[min(means)] < min(FADED, *(values[_snapshot(each)].mean for each in TABLE2[:2]))
            parts = [fades, *(near(each.gain, values[_snapshot(each)].mean) for each in TABLE2)]
            reading = Reading(name, values, all_or_some(parts) if fades else "does not hold", parts)
        readings.append(reading)
    return TEXT.claim("table2", readings, stated, near=sum(times_near), all=len(times_near))


def _snapshot(snapshot: LinkSnapshot) -> str:
    return f"{snapshot.number}: score {snapshot.score:g}"


def _score_claim(found: Snapshots) -> Claim:
    """Judge the scores that follow from our profiles."""
    readings = []
    for setup in (BATCH, H200, EVEN):
        scores = {each: found[each.number][setup].fit.score for each in TABLE2}
        parts = [abs(score - each.score) <= CLOSE for each, score in scores.items()]
        values = {f"snapshot {each.number}": Estimate(score, None) for each, score in scores.items()}
        readings.append(Reading(SETUPS[setup], values, all_or_some(parts), parts))
    return TEXT.claim("scores", readings, {f"snapshot {each.number}": each.score for each in TABLE2}, close=CLOSE)


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
    readings = []
    for hold, name in ((True, "paced"), (False, "the 5 % rule alone")):
        cases = [each for each in found if each.hold == hold and each.jitter == JITTER]
        parts = [each.a_minute.mean < text.numbers["paper"] for each in cases]
        values = {f"snapshot {each.snapshot}": each.a_minute for each in cases}
        readings.append(Reading(name, values, all_or_some(parts), parts))
    slowdown = max(each.slowdown.mean for each in found if each.hold and each.jitter == JITTER)
    stated = {f"snapshot {number}": text.numbers["paper"] for number in SNAPSHOTS}
    claim = TEXT.claim("fig17", readings, stated, jitter=100 * JITTER, slowdown=slowdown)
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
    finer = [each for each in found if each.degrees < paper_deg]
    parts = [at.right >= MOST, *(each.right < MOST for each in found if each.degrees > paper_deg)]
    values = {f"{each.degrees:g}": Estimate(100 * each.right, None) for each in found}
    claim = TEXT.claim(
        "fig18",
        [Reading("ours", values, all_or_some(parts) if parts[0] else "does not hold", parts)],
        ms=at.time_ms.mean,
        finer=finer[0].degrees,
        slower=max(each.time_ms.mean for each in finer) / at.time_ms.mean,
        most=100 * MOST,
    )
    plots = {"fig18": partial(draw.draw_precision, found)}
    return Section("Fig. 18: precision", [TEXT.table("fig18", rows)], plots, {"fig18": records}, [claim])
