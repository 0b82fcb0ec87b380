"""What holds and what does not: sentences made by rules from the numbers."""

from collections.abc import Mapping, Sequence

from cranny.report.confidence import Estimate
from cranny.repro.cassini.links import JITTER, Adjusting, Outcome, Unifying
from cranny.repro.cassini.precision import Precision
from cranny.repro.cassini.shapes import BATCH, EVEN, GIVEN, H200
from cranny.repro.cassini.study import ALIKE, ALIKE_S, BEYOND, DROP, GAP, PAIRS, SHIFTS_ONLY, Study, Workload
from cranny.repro.cassini.tables import Faster, Fewer, cost, heading
from cranny.repro.cassini.values import (
    FIG2_P90_GAIN,
    FIG5_PERIMETER_MS,
    FIG17_MOST_A_MINUTE,
    FIG18_PRECISION_DEG,
    TABLE2,
)
from cranny.repro.claim import Claim, Holds
from cranny.repro.verdict import NEAR, Ratio
from cranny.repro.wording import plain, times

FADED = 1.1  # a gain below which not much is left
MOST = 0.9  # of the links: a precision that finds right shifts for so many is fine enough


def pair_claim(found: Sequence[Outcome]) -> Claim:
    """Judge Fig. 2."""
    by = {one.setup: one for one in found}
    p90 = by[GIVEN].p90_gain()
    told = ", ".join(
        f"{name} {times(by[setup].p90_gain())} (score {by[setup].fit.score:.2f})"
        for setup, name in ((H200, "our profiles as measured"), (BATCH, "our profiles at a batch of 1,400"))
        if setup in by
    )
    text = (
        f"The paper: the 90th percentile of iteration times is {times(FIG2_P90_GAIN)} better with the shift. "
        f"Here, with shapes from the paper: {times(p90)}; {told}. All with {100 * JITTER:g} % jitter, and jobs "
        "held to their beat. A shift brings the more, the larger the share of an iteration that is communication, "
        "as long as both jobs fit."
    )
    return Claim("Fig. 2: a shift makes two VGG19 jobs faster", _judged(p90, FIG2_P90_GAIN), text)


def fig5_claim(found: Unifying) -> Claim:
    """Judge Fig. 5."""
    right = abs(found.perimeter_ms - FIG5_PERIMETER_MS) < 1e-6 and found.at_papers > 1 - 1e-6
    text = (
        f"The unified circle is {plain(found.perimeter_ms)} ms; the score is {found.before:.2f} as jobs come, and "
        f"{found.at_papers:.2f} with the paper's rotation of 30 degrees. Up phases are ours: the paper gives none."
    )
    return Claim("Fig. 5: jobs of 40 and 60 ms fit on one circle", "holds" if right else "does not hold", text)


def table2_claims(found: Mapping[int, Sequence[Outcome]]) -> list[Claim]:
    """Judge Table 2: gains against scores, and scores from profiles."""
    given = {number: _of(each, GIVEN) for number, each in found.items()}
    gains = {number: one.talking_gain() for number, one in given.items()}
    best = [snapshot.number for snapshot in TABLE2 if snapshot.score >= 1.0]
    worst = min(TABLE2, key=lambda snapshot: snapshot.score).number
    fades = min(gains[number].mean for number in best) > gains[worst].mean and gains[worst].mean < FADED
    off = [snapshot.number for snapshot in TABLE2 if Ratio(snapshot.gain, gains[snapshot.number].mean).off > NEAR]
    near = _near(given)
    listed = "; ".join(
        f"score {snapshot.score:.1f}: {times(snapshot.gain)} in the paper, {times(gains[snapshot.number])} here"
        for snapshot in TABLE2
    )
    first = Claim(
        "Table 2: the gain fades with the score, and is gone at 0.6",
        ("holds" if not off else "holds in part") if fades else "does not hold",
        f"Shapes from the paper, with iteration times chosen to have its scores. Gains in communication: "
        f"{listed}. {near[0]} of {near[1]} communication times, with CASSINI and without, are within 25 % of the "
        "paper's. Without shifts our jobs start at random.",
    )
    return [first, _score_claim(found)]


def _near(given: Mapping[int, Outcome]) -> tuple[int, int]:
    """Count the communication times that are near the paper's, and all of them."""
    near = []
    for snapshot in TABLE2:
        with_ms, without_ms = given[snapshot.number].talking_ms()
        for row, shifted, unshifted in zip(snapshot.rows, with_ms, without_ms, strict=True):
            near += [Ratio(row.cassini_ms, shifted).off <= NEAR, Ratio(row.themis_ms, unshifted).off <= NEAR]
    return sum(near), len(near)


def _score_claim(found: Mapping[int, Sequence[Outcome]]) -> Claim:
    """Judge the scores that follow from our profiles."""

    def listed(setup: str) -> str:
        return ", ".join(f"{_of(found[snapshot.number], setup).fit.score:.2f}" for snapshot in TABLE2)

    worst = {setup: _furthest(found, setup) for setup in (H200, BATCH, EVEN)}
    papers = ", ".join(f"{snapshot.score:.1f}" for snapshot in TABLE2)
    return Claim(
        "Table 2: the scores themselves",
        "holds" if worst[BATCH] <= 0.1 else "holds in part" if worst[BATCH] <= NEAR else "does not hold",
        f"The paper: {papers}. From our profiles at the paper's batches: {listed(BATCH)}; as measured on an H200: "
        f"{listed(H200)}. Jobs of different iteration times can hardly be kept apart: one runs through the other, "
        f"whatever the shift. With batches such that the jobs of a snapshot take equally long: {listed(EVEN)}.",
    )


def _furthest(found: Mapping[int, Sequence[Outcome]], setup: str) -> float:
    return max(abs(_of(found[each.number], setup).fit.score - each.score) for each in TABLE2)


def _of(outcomes: Sequence[Outcome], setup: str) -> Outcome:
    return next(one for one in outcomes if one.setup == setup)


def adjusting_claim(found: Sequence[Adjusting]) -> Claim:
    """Judge Fig. 17."""
    few = {
        hold: [each for each in found if each.hold == hold and each.a_minute.mean < FIG17_MOST_A_MINUTE]
        for hold in (False, True)
    }
    held = [each for each in found if each.hold]
    alone = [each for each in found if not each.hold]
    holds: Holds = "does not hold"
    if len(few[True]) == len(held):
        holds = "holds" if len(few[False]) == len(alone) else "holds in part"
    listed = ", ".join(
        f"snapshot {each.snapshot} at {100 * each.jitter:g} % jitter {plain(each.a_minute.mean)}" for each in alone
    )
    text = (
        f"The paper: fewer than {FIG17_MOST_A_MINUTE:g} a minute. Jobs held to their beat need "
        f"{max(each.a_minute.mean for each in held):.2g} at most, and pay with iterations of "
        f"{times(max(each.slowdown.mean for each in held))} those alone at most. With the paper's rule alone, "
        f"which waits until a job is 5 % off: {listed}. In snapshot 3 the link is full: a job that is off once "
        "has no room to come back."
    )
    return Claim("Fig. 17: fewer than two adjustments a minute", holds, text)


def precision_claim(found: Sequence[Precision]) -> Claim:
    """Judge Fig. 18."""
    at = next(each for each in found if each.degrees == FIG18_PRECISION_DEG)
    coarser = [each for each in found if each.degrees > FIG18_PRECISION_DEG]
    finer = [each for each in found if each.degrees < FIG18_PRECISION_DEG]
    sweet = at.right >= MOST and all(each.right < MOST for each in coarser)
    slower = max((each.time_ms.mean for each in finer), default=at.time_ms.mean) / at.time_ms.mean
    text = (
        f"At 5 degrees {100 * at.right:.0f} % of the links have right shifts, in {plain(at.time_ms.mean)} ms "
        f"each; at {coarser[0].degrees:g} degrees {100 * coarser[0].right:.0f} %, at {finer[0].degrees:g} degree "
        f"{100 * finer[0].right:.0f} % in {times(slower)} the time."
    )
    return Claim("Fig. 18: 5 degrees are the sweet spot", "holds" if sweet else "holds in part", text)


def gain_claims(study: Study, made: Sequence[Faster]) -> list[Claim]:
    """Judge the iteration times on the traces, a claim for each figure and host that the paper has numbers for.

    Judged is the first reading of the topology in which the host's jobs share links at all.
    """
    groups: dict[tuple[str, str], list[Faster]] = {}
    for each in made:
        if each.paper is not None and each.paper.mean is not None:
            groups.setdefault((each.workload.key, each.host), []).append(each)
    return [_gain_claim(study, group) for group in groups.values()]


def _gain_claim(study: Study, group: Sequence[Faster]) -> Claim:
    sharing = [each for each in group if study.marks(each.workload, each.host)[""] > 0]
    judged = (sharing or group)[0]
    paper = judged.paper
    if paper is None or paper.mean is None or paper.p99 is None:
        raise ValueError("a figure without numbers cannot be judged")
    both = {_judged(judged.mean, paper.mean), _judged(judged.p99, paper.p99)}
    holds: Holds = both.pop() if len(both) == 1 else "holds in part"
    if holds == "does not hold" and _halved(judged):
        holds = "holds in part"
    told = " ".join(_gain_text(study, each) for each in group)
    return Claim(
        f"Fig. {judged.workload.figure}: {paper.title}, {judged.host} with CASSINI is faster",
        holds,
        f"The paper ({paper.place}): mean {times(paper.mean)} and 99th percentile {times(paper.p99)} better than "
        f"{judged.host}. {told}",
    )


def _gain_text(study: Study, each: Faster) -> str:
    """Tell of one reading of the topology."""
    where = "On switches of four" if each.workload.fours else "Here"
    if not study.marks(each.workload, each.host)[""]:
        return f"{where} jobs share no link that is too small for them: there is nothing to gain."
    return (
        f"{where}: {times(each.mean)} and {times(each.p99)}. Sharing links makes iterations "
        f"{cost(each.before.mean)} longer with {each.host}, which is all that could be gained, and "
        f"{cost(each.after.mean)} with CASSINI."
    )


def _halved(each: Faster) -> bool:
    """Say whether sharing costs half of what it did or less, beyond doubt."""
    return _beyond_doubt(each.relief) and each.after.mean - 1.0 <= (each.before.mean - 1.0) / 2


def mark_claim(made: Sequence[Fewer]) -> Claim | None:
    """Judge what is offered above capacity."""
    if not made:
        return None
    told = []
    for each in made:
        here = "nothing is left" if each.gone else times(each.times) if each.times else "none in either"
        told.append(
            f"{heading(each.workload)}, {each.model} under {each.host}: {times(each.paper)} fewer in the paper, "
            f"here {here} ({plain(each.before)} and {plain(each.after)} Gbit in an iteration)"
        )
    some = [each for each in made if each.gone or each.times]
    right = [each.gone or (each.times or 0.0) >= each.paper * (1 - NEAR) for each in some]
    fewer = [each.before > each.after for each in some]
    holds: Holds = "does not hold"
    if some and all(fewer):
        holds = "holds" if all(right) else "holds in part"
    text = f"{'; '.join(told)}. A fluid has no packets: bytes offered above capacity stand for those with marks."
    return Claim("Figs. 13 and 14: fewer marked packets", holds, text)


def _judged(found: Estimate, paper: float) -> Holds:
    """Judge a gain: it is there beyond doubt, and near the paper's."""
    if not _beyond_doubt(found):
        return "does not hold"
    return "holds" if Ratio(paper, found.mean).off <= NEAR else "holds in part"


def _beyond_doubt(gain: Estimate) -> bool:
    """Say whether a gain is one with all of its confidence interval."""
    return gain.mean - (gain.half or 0.0) > 1.0


def host_claim(study: Study, made: Sequence[Faster]) -> Claim | None:
    """Tell what CASSINI does for hosts that its paper does not have."""
    told = [
        f"{each.workload.title}, {each.host}: {times(each.mean)}, from {cost(each.before.mean)} to "
        f"{cost(each.after.mean)}"
        for each in made
        if each.host in BEYOND and study.marks(each.workload, each.host)[""] > 0
    ]
    if not told:
        return None
    text = (
        "Mean iteration time of the host over that with CASSINI, and what sharing costs with either. "
        f"{'; '.join(told)}."
    )
    return Claim("CASSINI on top of Titan and NetPack", "beyond the paper", text)


def alike_claim(made: Sequence[Faster]) -> Claim | None:
    """Tell what becomes of the dynamic trace when all iterations take equally long."""
    told = [
        f"{each.host}: mean {times(each.mean)}, 99th percentile {times(each.p99)}, and what sharing costs from "
        f"{cost(each.before.mean)} to {cost(each.after.mean)}"
        for each in made
        if each.workload.key == ALIKE
    ]
    if not told:
        return None
    text = (
        "Jobs as in the dynamic trace, with batches such that every iteration takes "
        f"{1e3 * ALIKE_S:g} ms alone, and numbers of workers that stay. {'; '.join(told)}. Shifts need jobs that "
        "go round in step. Those of the other traces hardly do: there CASSINI can mostly choose who meets whom."
    )
    return Claim("Where all iterations take equally long", "beyond the paper", text)


def gap_claim(study: Study, made: Sequence[Faster]) -> Claim | None:
    """Tell what becomes of the gains if other things are, one by one, as they might have been in the paper."""
    told = [
        f"{each.workload.title}, {each.host}: mean {times(each.mean)}, 99th percentile {times(each.p99)}, what "
        f"sharing costs from {cost(each.before.mean)} to {cost(each.after.mean)}, mean of random placement over "
        f"ideal {times(study.gain(each.workload, 'random', 'ideal', 'mean_s').mean)}"
        for each in made
        if each.workload.figure == GAP
    ]
    if not told:
        return None
    text = (
        "The dynamic trace on switches of four, changed step by step. Hosts draw among places that are equal to "
        "them, where they took the first ones; leases end after a minute, and jobs may have half of their "
        f"workers; computing is as fast as on an H200, so that jobs talk more. {'; '.join(told)}."
    )
    return Claim("Why gains are smaller than the paper's", "beyond the paper", text)


def variant_claim(study: Study) -> Claim | None:
    """Tell what settling loops and choosing among candidates bring."""
    told = [words for work in study.workloads for words in _variants(study, work)]
    if not told:
        return None
    text = (
        "What sharing costs with themis+cassini as it is, which settles loops; with candidates dropped that have "
        f"one; and with one candidate only, so with shifts alone. {'; '.join(told)}."
    )
    return Claim("Loops settled against dropped, and shifts alone", "beyond the paper", text)


def _variants(study: Study, work: Workload) -> list[str]:
    if not study.marks(work, "themis").get("") or not study.of(work, DROP):
        return []
    costs = [cost(study.value(work, form, "over_alone").mean) for form in (PAIRS["themis"], DROP, SHIFTS_ONLY)]
    return [f"{work.title}: {', '.join(costs)}"]


def untested() -> Claim:
    """Name what a simulation cannot show."""
    return Claim(
        "What is not tested",
        "not tested",
        "Real training: RoCE with DCQCN, PFC and ECN is a fluid here that shares links fairly at once; agents, "
        "stragglers and data loading are a jitter of computing times. The paper's own circles and traces are not "
        "published: batches, workers and iterations are drawn from the ranges that it gives.",
    )
