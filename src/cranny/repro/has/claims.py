"""What holds and what does not: the paper's claims in plain words, written from the numbers by rules."""

from collections.abc import Iterable, Sequence

from cranny.repro.claim import Claim, Holds
from cranny.repro.has.study import Study
from cranny.repro.has.values import (
    ART,
    BEST,
    BLIND,
    EXACT,
    FAIR,
    FAIRNESS_RANGE,
    GAVEL,
    H_JPS,
    H_OPTIMUS,
    HAS,
    JCT,
    JPS,
    JPS_LOSS,
    LAS,
    LB,
    LB_LOSS_OVER_JPS,
    LESS,
    LOSS,
    MORE,
    OPTIMUS,
    PAPER,
    RANDOM,
    RESET_JCT,
    RESET_MAKESPAN,
    SPAN,
    At,
)
from cranny.repro.wording import plain

NEAR = 1.5  # percentage points by which a loss may be off
SAME = 1e-6
J60 = JPS[60]


def claims(study: Study) -> list[Claim]:
    """Return what became of every claim."""
    rules = (
        _example, _categories, _prioritising, _quality, _fairness, _by_jobs, _alpha, _beta, _heterogeneity,
        _errors, _workers, _speed, _resets, _gavel, _exact, _curve, _greedy, _moving,
    )  # fmt: skip
    return [*(rule(study) for rule in rules), _untested()]


def _verdict(parts: Iterable[bool]) -> Holds:
    """Sum up whether all, some or none of the parts of a claim hold."""
    found = list(parts)
    return "holds" if all(found) else "holds in part" if any(found) else "does not hold"


def _example(study: Study) -> Claim:
    stated = {at: value for at, value in PAPER.items() if at.figure == "Table II"}
    right = [abs(study.at(at).mean - value) <= 0.1 for at, value in stated.items()]
    return Claim(
        "Table II: LAS, the three categories and the optimum of the example",
        _verdict(right),
        f"{sum(right)} of {len(right)} values come out to the last digit, with the labels of Eq. 9 put right: LAS "
        "12,776.8 s, HAS 11,225.8 s, optimum 10,592.0 s, by exhaustive search and by has-exact.",
    )


def _categories(study: Study) -> Claim:
    place = At("Fig. 6", "place of the lowest JCT, of 364", "K=15", HAS)
    least, most = (study.mean("Fig. 5", FAIR, f"K=15, {which}", HAS) for which in ("least", "most"))
    places = study.found[place]
    return Claim(
        "Figs. 4 and 5: categories differ widely in mean JCT and in fairness, and the best JCT is not the fairest",
        _verdict([most - least > 0.3, study.mean("Fig. 5", FAIR, "K=15, lowest JCT", HAS) < most]),
        f"Lowest and highest mean JCT at K = 15: {plain(study.mean('Fig. 4', JCT, 'K=15, lowest', HAS))} and "
        f"{plain(study.mean('Fig. 4', JCT, 'K=15, highest', HAS))} s. Fairness from {plain(least)} to "
        f"{plain(most)}; "
        "the paper has 0.527 to 0.994. The lowest JCT, its category and its fairness were used to choose "
        f"throughputs; what was not: with jobs in order the best category is the 276th of 364 in the paper, and "
        f"here in {places.count(276.0)} of {len(places)} fits.",
    )


def _prioritising(study: Study) -> Claim:
    thirds = [study.mean("Fig. 6", JCT, f"K=15, {which} third", HAS) for which in ("first", "second", "last")]
    loss = {scheme: study.mean("Fig. 9", LOSS, "K=15", scheme) for scheme in (RANDOM, JPS[20])}
    return Claim(
        "Fig. 6: with jobs in order of heaviness mean JCT declines, so that a sample of the rear part is better",
        _verdict([thirds[0] > thirds[1], thirds[1] > thirds[2], loss[RANDOM] > loss[JPS[20]]]),
        f"Mean JCT of the first, second and last third of the categories: {', '.join(map(plain, thirds))} s. "
        "Twenty "
        f"samples of all categories lose {plain(loss[RANDOM])} % (the paper: 7.65 %), twenty of the rear part "
        f"{plain(loss[JPS[20]])} % (2.95 %).",
    )


def _quality(study: Study) -> Claim:
    told, right = [], []
    for setting in study.of("Fig. 9", LOSS):
        has = study.found[At("Fig. 9", LOSS, setting, HAS)]
        jps, greedy = (study.mean("Fig. 9", LOSS, setting, scheme) for scheme in (J60, LB))
        right += [max(has) < SAME, jps < greedy]
        told.append(
            f"{setting}: HAS loses {plain(study.mean('Fig. 9', LOSS, setting, HAS))} % and is the optimum in "
            f"{sum(loss < SAME for loss in has)} of {len(has)} fits, JPS with N = 60 loses {plain(jps)} %, "
            f"Optimus-LB {plain(greedy)} %."
        )
    return Claim(
        "Fig. 9: HAS has the mean JCT of exhaustive search, JPS loses up to 2.04 %, Optimus-LB 15.1 %",
        _verdict(right),
        " ".join(told),
    )


def _fairness(study: Study) -> Claim:
    found = [
        study.mean("Fig. 10", FAIR, setting, each) for setting in study.of("Fig. 10", FAIR) for each in (HAS, J60)
    ]
    low, high = FAIRNESS_RANGE
    return Claim(
        "Fig. 10: fairness of HAS and JPS is from 0.779 to 0.829",
        _verdict(low - 0.05 <= each <= high + 0.05 for each in found),
        f"Here from {plain(min(found))} to {plain(max(found))}; within 0.05 counts as the same.",
    )


def _by_jobs(study: Study) -> Claim:
    ahead, losses = [], []
    for setting in study.of("Fig. 11", LOSS):
        jps, greedy = (1 + study.mean("Fig. 11", LOSS, setting, scheme) / 100 for scheme in (J60, LB))
        ahead.append(100 * (1 - jps / greedy))
        losses.append(100 * (jps - 1))
    return Claim(
        "Fig. 11: for 3 to 5 jobs JPS is {} to {} % below Optimus-LB, and {} to {} % above the optimum".format(
            *LB_LOSS_OVER_JPS, *JPS_LOSS
        ),
        _verdict([min(ahead) > 0, min(ahead) >= LB_LOSS_OVER_JPS[0] - NEAR, max(losses) <= JPS_LOSS[1] + NEAR]),
        f"Below Optimus-LB by {_range(ahead)} %, above the optimum by {_range(losses)} %.",
    )


def _alpha(study: Study) -> Claim:
    best, told = [], []
    for scheme in JPS.values():
        by = {setting: study.mean("Fig. 12", JCT, setting, scheme) for setting in study.of("Fig. 12", JCT)}
        lowest = min(by, key=lambda each: by[each])
        best.append(0.5 <= float(lowest) <= 0.8)
        told.append(f"{scheme}: lowest at alpha {lowest} ({plain(by[lowest])} s), {plain(by['0.0'])} s at 0")
    return Claim(
        "Fig. 12: JPS is best with alpha about 0.7",
        _verdict(best),
        f"{'; '.join(told)}. 0.5 to 0.8 counts as about.",
    )


def _beta(study: Study) -> Claim:
    ends = {
        (measure, beta): study.mean("Fig. 13", measure, beta, J60)
        for measure in (JCT, FAIR)
        for beta in ("0", "1")
    }
    near = [
        abs(value / PAPER[At("Fig. 13", measure, beta, J60)] - 1) <= 0.1 for (measure, beta), value in ends.items()
    ]
    return Claim(
        "Fig. 13: beta from 0 to 1 lowers JPS's mean JCT from 4,301.35 to 3,944.17 s, and fairness from 0.947 "
        "to 0.821",
        _verdict([ends[JCT, "0"] > ends[JCT, "1"], ends[FAIR, "0"] > ends[FAIR, "1"], *near]),
        f"Here from {plain(ends[JCT, '0'])} to {plain(ends[JCT, '1'])} s, and from {plain(ends[FAIR, '0'])} to "
        f"{plain(ends[FAIR, '1'])}. The paper's 3,944.17 s is below the lowest of all categories, 3,948.9 s.",
    )


def _heterogeneity(study: Study) -> Claim:
    table = study.of("Fig. 14", LOSS)
    loss = {
        scheme: [study.mean("Fig. 14", LOSS, setting, scheme) for setting in table]
        for scheme in (OPTIMUS, HAS, J60)
    }
    degrees = [study.mean("Fig. 14", "H, Eq. 35", setting, EXACT) for setting in table]
    jct = [study.mean("Fig. 14", JCT, setting, EXACT) for setting in table]
    return Claim(
        f"Fig. 14: with more V100 the mean JCT falls; Optimus loses {H_OPTIMUS[0]} to {H_OPTIMUS[1]} %, "
        f"HAS at most 1.28 %, JPS {H_JPS[0]} to {H_JPS[1]} %",
        _verdict(
            [
                jct == sorted(jct, reverse=True),
                max(loss[OPTIMUS]) <= H_OPTIMUS[1] + NEAR,
                max(loss[HAS]) <= 1.28 + NEAR,
                max(loss[J60]) <= H_JPS[1] + NEAR,
            ]
        ),
        f"With 3, 5, 7 and 9 V100 of 15, H is {', '.join(plain(each) for each in degrees)} (the paper: 1.1, 1.15, "
        f"1.21 and 1.26). Losses: Optimus {_range(loss[OPTIMUS])} %, HAS {_range(loss[HAS])} %, JPS "
        f"{_range(loss[J60])} %.",
    )


def _errors(study: Study) -> Claim:
    more = {scheme: study.mean("Fig. 15", MORE, "30", scheme) for scheme in (HAS, J60, EXACT)}
    return Claim(
        "Fig. 15: throughputs that are wrong by up to 30 % cost HAS 3.75 % and JPS 4.3 %",
        _verdict([abs(more[HAS] - 3.75) <= NEAR, abs(more[J60] - 4.3) <= NEAR]),
        f"HAS {plain(more[HAS])} %, JPS {plain(more[J60])} %, has-exact {plain(more[EXACT])} %.",
    )


def _workers(study: Study) -> Claim:
    table = study.of("Fig. 16", JCT)
    below = {
        setting: 100 * (1 - study.mean("Fig. 16", JCT, setting, JPS[40]) / study.mean("Fig. 16", JCT, setting, LB))
        for setting in table
    }
    last = list(table)[-1]
    parts = ", ".join(
        f"{scheme} {plain(study.mean('Fig. 16', 'communication, s', last, scheme))} s and "
        f"{plain(study.mean('Fig. 16', 'computation, s', last, scheme))} s"
        for scheme in (JPS[40], LB, EXACT)
    )
    return Claim(
        "Fig. 16: JPS is below Optimus and Optimus-LB for 50 to 300 workers",
        _verdict(each > 0 for each in below.values()),
        f"JPS with N = 40 against Optimus-LB: {', '.join(f'K = {k} {plain(v)} %' for k, v in below.items())} "
        "lower "
        f"(below zero: higher). Communication and computation at K = {last}: {parts}; the paper at K = 300: JPS "
        "68.86 and 201.30 s, Optimus-LB 69.13 and 217.96 s.",
    )


def _speed(study: Study) -> Claim:
    told = []
    for setting in study.of("Table V", ART):
        at = At("Table V", ART, setting, JPS[40])
        if at in PAPER:
            told.append(f"K = {setting}: {PAPER[at] / study.at(at).mean:,.0f} times")
    small = study.of("Table IV", ART)
    faster = [
        study.mean("Table IV", ART, setting, HAS) < study.mean("Table IV", ART, setting, BEST)
        for setting, row in small.items()
        if BEST in row
    ]
    return Claim(
        "Tables IV and V: running times grow with the categories looked at; exhaustive search is far slower",
        _verdict(faster),
        "The order holds, the times are others: JPS with N = 40 here is faster than in the paper by "
        f"{'; '.join(told)}. "
        "Workers of a type on a machine are alike, so markets are small, and they are compiled.",
    )


def _resets(study: Study) -> Claim:
    schemes = [scheme for scheme in study.of("Fig. 17", LESS)["with resets"] if scheme != LAS]
    less, span = (
        [study.mean("Fig. 17", measure, "with resets", scheme) for scheme in schemes] for measure in (LESS, SPAN)
    )
    return Claim(
        "Fig. 17: resets lower mean JCT by {} to {} % and makespan by {} to {} %".format(
            *RESET_JCT, *RESET_MAKESPAN
        ),
        _verdict(
            [min(less) > 0, min(span) > 0, RESET_JCT[0] - 5 <= min(less), RESET_MAKESPAN[0] - 5 <= min(span)]
        ),
        f"Here mean JCT by {_range(less)} % and makespan by {_range(span)} %, over {', '.join(schemes)}. Five "
        "points "
        "below the paper's range count as within.",
    )


def _gavel(study: Study) -> Claim:
    names = ("mean JCT less than Gavel's, %", "makespan less than Gavel's, %")
    jct, span = (study.mean("Fig. 17", name, "with resets", HAS) for name in names)
    by_scale = [study.mean("Fig. 18", JCT, setting, GAVEL) for setting in study.of("Fig. 18", JCT)]
    return Claim(
        "Figs. 17 and 18: HAS with resets is 21.2 % below Gavel in mean JCT and 71.3 % in makespan; Gavel is "
        "best if "
        "every job asks for five GPUs",
        _verdict(
            [jct > 0, abs(jct - 21.2) <= 5, abs(span - 71.3) <= 5, by_scale == sorted(by_scale, reverse=True)]
        ),
        f"Mean JCT {plain(jct)} % and makespan {plain(span)} % below Gavel's. Gavel's mean JCT when one job "
        "asks for 1 "
        f"to 5 GPUs: {', '.join(plain(each) for each in by_scale)} s. The paper does not say which of Gavel's "
        "policies it runs; this is its first, max-min fairness, with rounds of six minutes.",
    )


def _exact(study: Study) -> Claim:
    searched = [row[BEST] for row in study.of("Fig. 11", LOSS).values()]
    better = max(-loss for at in searched for loss in study.found[at])
    large = list(study.of("Table V", ART))[-1]
    times = [study.mean("Table IV", ART, setting, EXACT) for setting in study.of("Table IV", ART)]
    return Claim(
        "has-exact: the optimum itself, in milliseconds",
        "beyond the paper",
        f"It proves the optimum in {1e3 * min(times):.1f} to {1e3 * max(times):.1f} ms on the small clusters and "
        f"takes {1e3 * study.mean('Table V', ART, large, EXACT):.1f} ms at K = {large}. Exhaustive search, run at "
        f"K = 15 for 3 to 5 jobs, finds {'nothing better' if better < 1e-6 else f'{better:.2g} % less'}.",
    )


def _curve(study: Study) -> Claim:
    table = study.of("Fig. 13", JCT)
    points = [
        f"beta {beta}: {plain(study.mean('Fig. 13', JCT, beta, EXACT))} s, "
        f"{plain(study.mean('Fig. 13', FAIR, beta, EXACT))}"
        for beta in ("1", "0.8", "0.5", "0.2", "0")
        if beta in table
    ]
    return Claim(
        "The price of fairness: has-exact from lowest mean JCT to fairest",
        "beyond the paper",
        f"Mean JCT and fairness at {'; '.join(points)}. JPS has such a choice only among the categories of its "
        "sample.",
    )


def _greedy(study: Study) -> Claim:
    by = {
        scheme: study.mean("Fig. 17", JCT, "with resets", scheme) for scheme in (HAS, J60, EXACT, LB, LAS, GAVEL)
    }
    first = min(by, key=lambda each: by[each])
    listed = ", ".join(
        f"{scheme} {plain(value)} s" for scheme, value in sorted(by.items(), key=lambda pair: pair[1])
    )
    return Claim(
        "With resets the best single decision need not be the best in the end",
        "beyond the paper",
        f"Mean JCT with resets: {listed}. The lowest has {first}. P1 weighs jobs as if shares stayed for ever; "
        "with "
        "resets it pays to let short jobs end early, since others get their workers then.",
    )


def _moving(study: Study) -> Claim:
    told = [
        f"{setting} s: {plain(study.mean('moving', JCT, setting, EXACT))} s with "
        f"{plain(study.mean('moving', 'moves', setting, EXACT))} moves, "
        f"{plain(study.mean('moving', JCT, setting, BLIND))} s with "
        f"{plain(study.mean('moving', 'moves', setting, BLIND))} if nobody minds"
        for setting in study.of("moving", JCT)
    ]
    return Claim(
        "What moving costs: has-exact that minds it, and one that does not",
        "beyond the paper",
        f"Mean JCT if a move takes {'; '.join(told)}.",
    )


def _untested() -> Claim:
    return Claim(
        "What is not tested",
        "not tested",
        "The paper's throughputs, which it shows in a figure only (Fig. 2): those here are chosen so that its "
        "default "
        "set-up comes out, and several fit. The Transformer's, which no such number depends on, are drawn from a "
        "range of ours. Training itself, its testbed and validation accuracy (Table III). Marks in figures "
        "without a "
        "number in the text.",
    )


def _range(values: Sequence[float]) -> str:
    return f"{plain(min(values))} to {plain(max(values))}"
