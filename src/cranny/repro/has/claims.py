"""What became of the claims on HAS and JPS, in sentences that rules make from the numbers."""

from collections.abc import Iterable, Sequence

from cranny.repro.claim import Claim, all_or_some, beyond, untested
from cranny.repro.has.paper import (
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
    UNTESTED,
    ValueKey,
)
from cranny.repro.has.results import HasResults
from cranny.repro.number_format import plain

NEAR = 1.5  # percentage points by which a loss may be off
SAME = 1e-6
J20, J40, J60 = JPS.values()


def claims(results: HasResults) -> list[Claim]:
    """Return what became of every claim."""
    rules = (
        _example, _categories, _prioritising, _quality, _fairness, _by_jobs, _alpha, _beta, _heterogeneity,
        _errors, _workers, _speed, _resets, _gavel, _exact, _curve, _greedy, _moving,
    )  # fmt: skip
    return [*(rule(results) for rule in rules), untested(UNTESTED)]


def _range(values: Sequence[float]) -> str:
    return f"{plain(min(values))} to {plain(max(values))}"


def _listed(values: Iterable[float]) -> str:
    return ", ".join(map(plain, values))


def _example(results: HasResults) -> Claim:
    stated = {key: value for key, value in PAPER.items() if key.figure == "Table II"}
    right = [abs(results.at(key).mean - value) <= 0.1 for key, value in stated.items()]
    return Claim(
        "Table II: LAS, the three categories and the optimum of the example",
        all_or_some(right),
        f"{sum(right)} of {len(right)} values come out to the last digit, with the labels of Eq. 9 put right: LAS "
        "12,776.8 s, HAS 11,225.8 s, optimum 10,592.0 s, by exhaustive search and by has-exact.",
    )


def _categories(results: HasResults) -> Claim:
    least, most, fair = (
        results.mean("Fig. 5", FAIR, f"K=15, {which}", HAS) for which in ("least", "most", "lowest JCT")
    )
    lowest, highest = (results.mean("Fig. 4", JCT, f"K=15, {which}", HAS) for which in ("lowest", "highest"))
    places = results.values[ValueKey("Fig. 6", "place of the lowest JCT, of 364", "K=15", HAS)]
    return Claim(
        "Figs. 4 and 5: categories differ widely in mean JCT and in fairness, and the best JCT is not the fairest",
        all_or_some([most - least > 0.3, fair < most]),
        f"Lowest and highest mean JCT at K = 15: {plain(lowest)} and {plain(highest)} s. Fairness from "
        f"{plain(least)} to {plain(most)}; the paper has 0.527 to 0.994. The lowest JCT, its category and its "
        "fairness were used to choose throughputs; what was not: with jobs in order the best category is the "
        f"276th of 364 in the paper, and here in {places.count(276.0)} of {len(places)} fits.",
    )


def _prioritising(results: HasResults) -> Claim:
    thirds = [results.mean("Fig. 6", JCT, f"K=15, {which} third", HAS) for which in ("first", "second", "last")]
    every, rear = (results.mean("Fig. 9", LOSS, "K=15", scheme) for scheme in (RANDOM, J20))
    return Claim(
        "Fig. 6: with jobs in order of heaviness mean JCT declines, so that a sample of the rear part is better",
        all_or_some([thirds[0] > thirds[1], thirds[1] > thirds[2], every > rear]),
        f"Mean JCT of the first, second and last third of the categories: {_listed(thirds)} s. Twenty samples of "
        f"all categories lose {plain(every)} % (the paper: 7.65 %), twenty of the rear part {plain(rear)} % "
        "(2.95 %).",
    )


def _quality(results: HasResults) -> Claim:
    text, right = [], []
    for setting in results.of("Fig. 9", LOSS):
        has = results.values[ValueKey("Fig. 9", LOSS, setting, HAS)]
        mean, jps, greedy = (results.mean("Fig. 9", LOSS, setting, scheme) for scheme in (HAS, J60, LB))
        right += [max(has) < SAME, jps < greedy]
        text.append(
            f"{setting}: HAS loses {plain(mean)} % and is the optimum in {sum(loss < SAME for loss in has)} of "
            f"{len(has)} fits, JPS with N = 60 loses {plain(jps)} %, Optimus-LB {plain(greedy)} %."
        )
    return Claim(
        "Fig. 9: HAS has the mean JCT of exhaustive search, JPS loses up to 2.04 %, Optimus-LB 15.1 %",
        all_or_some(right),
        " ".join(text),
    )


def _fairness(results: HasResults) -> Claim:
    settings = results.of("Fig. 10", FAIR)
    found = [results.mean("Fig. 10", FAIR, setting, each) for setting in settings for each in (HAS, J60)]
    low, high = FAIRNESS_RANGE
    return Claim(
        "Fig. 10: fairness of HAS and JPS is from 0.779 to 0.829",
        all_or_some(low - 0.05 <= each <= high + 0.05 for each in found),
        f"Here from {_range(found)}; within 0.05 counts as the same.",
    )


def _by_jobs(results: HasResults) -> Claim:
    ahead, losses = [], []
    for setting in results.of("Fig. 11", LOSS):
        jps, greedy = (1 + results.mean("Fig. 11", LOSS, setting, scheme) / 100 for scheme in (J60, LB))
        ahead.append(100 * (1 - jps / greedy))
        losses.append(100 * (jps - 1))
    return Claim(
        "Fig. 11: for 3 to 5 jobs JPS is {} to {} % below Optimus-LB, and {} to {} % above the optimum".format(
            *LB_LOSS_OVER_JPS, *JPS_LOSS
        ),
        all_or_some([min(ahead) > 0, min(ahead) >= LB_LOSS_OVER_JPS[0] - NEAR, max(losses) <= JPS_LOSS[1] + NEAR]),
        f"Below Optimus-LB by {_range(ahead)} %, above the optimum by {_range(losses)} %.",
    )


def _alpha(results: HasResults) -> Claim:
    best, text = [], []
    for scheme in JPS.values():
        by = {setting: results.mean("Fig. 12", JCT, setting, scheme) for setting in results.of("Fig. 12", JCT)}
        lowest = min(by, key=lambda each: by[each])
        best.append(0.5 <= float(lowest) <= 0.8)
        text.append(f"{scheme}: lowest at alpha {lowest} ({plain(by[lowest])} s), {plain(by['0.0'])} s at 0")
    about = "0.5 to 0.8 counts as about."
    return Claim("Fig. 12: JPS is best with alpha about 0.7", all_or_some(best), f"{'; '.join(text)}. {about}")


def _beta(results: HasResults) -> Claim:
    keys = [ValueKey("Fig. 13", measure, beta, J60) for measure in (JCT, FAIR) for beta in ("0", "1")]
    ends = [results.at(key).mean for key in keys]
    near = [abs(value / PAPER[key] - 1) <= 0.1 for key, value in zip(keys, ends, strict=True)]
    return Claim(
        "Fig. 13: beta from 0 to 1 lowers JPS's mean JCT from 4,301.35 to 3,944.17 s, and fairness from 0.947 to "
        "0.821",
        all_or_some([ends[0] > ends[1], ends[2] > ends[3], *near]),
        f"Here from {plain(ends[0])} to {plain(ends[1])} s, and from {plain(ends[2])} to {plain(ends[3])}. The "
        "paper's 3,944.17 s is below the lowest of all categories, 3,948.9 s.",
    )


def _heterogeneity(results: HasResults) -> Claim:
    table = results.of("Fig. 14", LOSS)
    optimus, has, jps = (
        [results.mean("Fig. 14", LOSS, setting, scheme) for setting in table] for scheme in (OPTIMUS, HAS, J60)
    )
    degrees, jct = (
        [results.mean("Fig. 14", measure, setting, EXACT) for setting in table] for measure in ("H, Eq. 35", JCT)
    )
    most = ((optimus, H_OPTIMUS[1]), (has, 1.28), (jps, H_JPS[1]))
    return Claim(
        f"Fig. 14: with more V100 the mean JCT falls; Optimus loses {H_OPTIMUS[0]} to {H_OPTIMUS[1]} %, "
        f"HAS at most 1.28 %, JPS {H_JPS[0]} to {H_JPS[1]} %",
        all_or_some([jct == sorted(jct, reverse=True), *(max(losses) <= limit + NEAR for losses, limit in most)]),
        f"With 3, 5, 7 and 9 V100 of 15, H is {_listed(degrees)} (the paper: 1.1, 1.15, 1.21 and 1.26). Losses: "
        f"Optimus {_range(optimus)} %, HAS {_range(has)} %, JPS {_range(jps)} %.",
    )


def _errors(results: HasResults) -> Claim:
    has, jps, exact = (results.mean("Fig. 15", MORE, "30", scheme) for scheme in (HAS, J60, EXACT))
    return Claim(
        "Fig. 15: throughputs that are wrong by up to 30 % cost HAS 3.75 % and JPS 4.3 %",
        all_or_some([abs(has - 3.75) <= NEAR, abs(jps - 4.3) <= NEAR]),
        f"HAS {plain(has)} %, JPS {plain(jps)} %, has-exact {plain(exact)} %.",
    )


def _workers(results: HasResults) -> Claim:
    below = {}
    for setting in results.of("Fig. 16", JCT):
        jps, greedy = (results.mean("Fig. 16", JCT, setting, scheme) for scheme in (J40, LB))
        below[setting] = 100 * (1 - jps / greedy)
    last = list(below)[-1]
    parts = ", ".join(
        f"{scheme} {plain(results.mean('Fig. 16', 'communication, s', last, scheme))} s and "
        f"{plain(results.mean('Fig. 16', 'computation, s', last, scheme))} s"
        for scheme in (J40, LB, EXACT)
    )
    return Claim(
        "Fig. 16: JPS is below Optimus and Optimus-LB for 50 to 300 workers",
        all_or_some(each > 0 for each in below.values()),
        f"JPS with N = 40 against Optimus-LB: {', '.join(f'K = {k} {plain(v)} %' for k, v in below.items())} "
        f"lower (below zero: higher). Communication and computation at K = {last}: {parts}; the paper at K = "
        "300: JPS 68.86 and 201.30 s, Optimus-LB 69.13 and 217.96 s.",
    )


def _speed(results: HasResults) -> Claim:
    keys = [ValueKey("Table V", ART, setting, J40) for setting in results.of("Table V", ART)]
    text = [f"K = {key.setting}: {PAPER[key] / results.at(key).mean:,.0f} times" for key in keys if key in PAPER]
    faster = [
        results.at(row[HAS]).mean < results.at(row[BEST]).mean
        for row in results.of("Table IV", ART).values()
        if BEST in row
    ]
    return Claim(
        "Tables IV and V: running times grow with the categories looked at; exhaustive search is far slower",
        all_or_some(faster),
        "The order holds, the times are others: JPS with N = 40 here is faster than in the paper by "
        f"{'; '.join(text)}. Workers of a type on a machine are alike, so markets are small, and they are "
        "compiled.",
    )


def _resets(results: HasResults) -> Claim:
    schemes = [scheme for scheme in results.of("Fig. 17", LESS)["with resets"] if scheme != LAS]
    less, span = (
        [results.mean("Fig. 17", measure, "with resets", scheme) for scheme in schemes] for measure in (LESS, SPAN)
    )
    return Claim(
        "Fig. 17: resets lower mean JCT by {} to {} % and makespan by {} to {} %".format(
            *RESET_JCT, *RESET_MAKESPAN
        ),
        all_or_some(
            [min(less) > 0, min(span) > 0, RESET_JCT[0] - 5 <= min(less), RESET_MAKESPAN[0] - 5 <= min(span)]
        ),
        f"Here mean JCT by {_range(less)} % and makespan by {_range(span)} %, over {', '.join(schemes)}. Five "
        "points below the paper's range count as within.",
    )


def _gavel(results: HasResults) -> Claim:
    names = ("mean JCT less than Gavel's, %", "makespan less than Gavel's, %")
    jct, span = (results.mean("Fig. 17", name, "with resets", HAS) for name in names)
    scales = [results.mean("Fig. 18", JCT, setting, GAVEL) for setting in results.of("Fig. 18", JCT)]
    return Claim(
        "Figs. 17 and 18: HAS with resets is 21.2 % below Gavel in mean JCT and 71.3 % in makespan; Gavel is "
        "best if every job asks for five GPUs",
        all_or_some(
            [jct > 0, abs(jct - 21.2) <= 5, abs(span - 71.3) <= 5, scales == sorted(scales, reverse=True)]
        ),
        f"Mean JCT {plain(jct)} % and makespan {plain(span)} % below Gavel's. Gavel's mean JCT when one job asks "
        f"for 1 to 5 GPUs: {_listed(scales)} s. The paper does not say which of Gavel's policies it runs; this "
        "is its first, max-min fairness, with rounds of six minutes.",
    )


def _exact(results: HasResults) -> Claim:
    searched = [row[BEST] for row in results.of("Fig. 11", LOSS).values()]
    better = max(-loss for key in searched for loss in results.values[key])
    large = list(results.of("Table V", ART))[-1]
    times = [results.mean("Table IV", ART, setting, EXACT) for setting in results.of("Table IV", ART)]
    return beyond(
        "has-exact: the optimum itself, in milliseconds",
        f"It proves the optimum in {1e3 * min(times):.1f} to {1e3 * max(times):.1f} ms on the small clusters and "
        f"takes {1e3 * results.mean('Table V', ART, large, EXACT):.1f} ms at K = {large}. Exhaustive search, run "
        f"at K = 15 for 3 to 5 jobs, finds {'nothing better' if better < SAME else f'{better:.2g} % less'}.",
    )


def _curve(results: HasResults) -> Claim:
    points = "; ".join(
        f"beta {beta}: {plain(results.mean('Fig. 13', JCT, beta, EXACT))} s, "
        f"{plain(results.mean('Fig. 13', FAIR, beta, EXACT))}"
        for beta in ("1", "0.8", "0.5", "0.2", "0")
        if beta in results.of("Fig. 13", JCT)
    )
    return beyond(
        "The price of fairness: has-exact from lowest mean JCT to fairest",
        f"Mean JCT and fairness at {points}. JPS has such a choice only among the categories of its sample.",
    )


def _greedy(results: HasResults) -> Claim:
    schemes = (HAS, J60, EXACT, LB, LAS, GAVEL)
    by = {scheme: results.mean("Fig. 17", JCT, "with resets", scheme) for scheme in schemes}
    ordered = sorted(by, key=lambda scheme: by[scheme])
    listed = ", ".join(f"{scheme} {plain(by[scheme])} s" for scheme in ordered)
    return beyond(
        "With resets the best single decision need not be the best in the end",
        f"Mean JCT with resets: {listed}. The lowest has {ordered[0]}. P1 weighs jobs as if shares stayed for "
        "ever; with resets it pays to let short jobs end early, since others get their workers then.",
    )


def _moving(results: HasResults) -> Claim:
    text = []
    for setting in results.of("moving", JCT):
        jct, moves = (
            [plain(results.mean("moving", measure, setting, scheme)) for scheme in (EXACT, BLIND)]
            for measure in (JCT, "moves")
        )
        text.append(
            f"{setting} s: {jct[0]} s with {moves[0]} moves, {jct[1]} s with {moves[1]} if the cost is ignored"
        )
    return beyond(
        "What moving costs: has-exact that considers it, and one that does not",
        f"Mean JCT if a move takes {'; '.join(text)}.",
    )
