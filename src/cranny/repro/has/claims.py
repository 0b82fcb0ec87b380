"""What became of the claims on HAS and JPS: verdicts, and values for the sentences of paper.yaml."""

from collections.abc import Callable, Mapping

from cranny.repro.claim import Claim, all_or_some
from cranny.repro.has.paper import (
    ART,
    BEST,
    BLIND,
    EXACT,
    FAIR,
    GAVEL,
    HAS,
    JCT,
    JPS,
    LAS,
    LB,
    LESS,
    LOSS,
    MORE,
    OPTIMUS,
    PAPER,
    RANDOM,
    SPAN,
    TEXT,
    ValueKey,
)
from cranny.repro.has.results import HasResults

NEAR = 1.5  # percentage points by which a loss may be off
NEAR_RESETS = 5  # and by which what resets save may be
SAME = 1e-6
J20, J40, J60 = JPS.values()


def claims(results: HasResults) -> list[Claim]:
    """Return what became of every claim."""
    return [*(RULES[key](results) for key in TEXT.claims), TEXT.not_tested]


def _example(results: HasResults) -> Claim:
    stated = {key: value for key, value in PAPER.items() if key.figure == "Table II"}
    right = [abs(results.at(key).mean - value) <= 0.1 for key, value in stated.items()]
    return TEXT.claim("example", all_or_some(right), right=sum(right), all=len(right))


def _categories(results: HasResults) -> Claim:
    least, most, fair = (
        results.mean("Fig. 5", FAIR, f"K=15, {which}", HAS) for which in ("least", "most", "lowest JCT")
    )
    lowest, highest = (results.mean("Fig. 4", JCT, f"K=15, {which}", HAS) for which in ("lowest", "highest"))
    places = results.values[ValueKey("Fig. 6", "place of the lowest JCT, of 364", "K=15", HAS)]
    return TEXT.claim(
        "categories",
        all_or_some([most - least > 0.3, fair < most]),
        lowest=lowest,
        highest=highest,
        least=least,
        most=most,
        there=places.count(276.0),
        fits=len(places),
    )


def _prioritising(results: HasResults) -> Claim:
    thirds = [results.mean("Fig. 6", JCT, f"K=15, {which} third", HAS) for which in ("first", "second", "last")]
    every, rear = (results.mean("Fig. 9", LOSS, "K=15", scheme) for scheme in (RANDOM, J20))
    holds = all_or_some([thirds[0] > thirds[1], thirds[1] > thirds[2], every > rear])
    return TEXT.claim("prioritising", holds, thirds=thirds, every=every, rear=rear)


def _quality(results: HasResults) -> Claim:
    text, right = [], []
    for setting in results.of("Fig. 9", LOSS):
        losses = results.values[ValueKey("Fig. 9", LOSS, setting, HAS)]
        best = sum(loss < SAME for loss in losses)
        has, jps, greedy = (results.mean("Fig. 9", LOSS, setting, scheme) for scheme in (HAS, J60, LB))
        right += [max(losses) < SAME, jps < greedy]
        part = TEXT.claims["quality"].part
        text.append(part("setting", setting=setting, has=has, best=best, fits=len(losses), jps=jps, greedy=greedy))
    return TEXT.claim("quality", all_or_some(right), text=" ".join(text))


def _fairness(results: HasResults) -> Claim:
    settings = results.of("Fig. 10", FAIR)
    found = [results.mean("Fig. 10", FAIR, setting, each) for setting in settings for each in (HAS, J60)]
    stated = TEXT.claims["fairness"].numbers
    low, high = stated["least"] - stated["close"], stated["most"] + stated["close"]
    return TEXT.claim("fairness", all_or_some(low <= each <= high for each in found), found=found)


def _by_jobs(results: HasResults) -> Claim:
    ahead, losses = [], []
    for setting in results.of("Fig. 11", LOSS):
        jps, greedy = (1 + results.mean("Fig. 11", LOSS, setting, scheme) / 100 for scheme in (J60, LB))
        ahead.append(100 * (1 - jps / greedy))
        losses.append(100 * (jps - 1))
    stated = TEXT.claims["by_jobs"].numbers
    near = [min(ahead) >= stated["below_least"] - NEAR, max(losses) <= stated["above_most"] + NEAR]
    return TEXT.claim("by_jobs", all_or_some([min(ahead) > 0, *near]), ahead=ahead, losses=losses)


def _alpha(results: HasResults) -> Claim:
    best, text = [], []
    for scheme in JPS.values():
        by = {setting: results.mean("Fig. 12", JCT, setting, scheme) for setting in results.of("Fig. 12", JCT)}
        lowest = min(by, key=lambda each: by[each])
        best.append(0.5 <= float(lowest) <= 0.8)
        part = TEXT.claims["alpha"].part
        text.append(part("scheme", scheme=scheme, lowest=lowest, jct=by[lowest], none=by["0.0"]))
    return TEXT.claim("alpha", all_or_some(best), text="; ".join(text))


def _beta(results: HasResults) -> Claim:
    keys = [ValueKey("Fig. 13", measure, beta, J60) for measure in (JCT, FAIR) for beta in ("0", "1")]
    ends = [results.at(key).mean for key in keys]
    near = [abs(value / PAPER[key] - 1) <= 0.1 for key, value in zip(keys, ends, strict=True)]
    values = dict(zip(("jct_0", "jct_1", "fair_0", "fair_1"), ends, strict=True))
    return TEXT.claim("beta", all_or_some([ends[0] > ends[1], ends[2] > ends[3], *near]), **values)


def _heterogeneity(results: HasResults) -> Claim:
    table, stated = results.of("Fig. 14", LOSS), TEXT.claims["heterogeneity"].numbers
    losses = {
        name: [results.mean("Fig. 14", LOSS, setting, scheme) for setting in table]
        for name, scheme in (("optimus", OPTIMUS), ("has", HAS), ("jps", J60))
    }
    degrees, jct = (
        [results.mean("Fig. 14", measure, setting, EXACT) for setting in table] for measure in ("H, Eq. 35", JCT)
    )
    near = [max(each) <= stated[f"{name}_most"] + NEAR for name, each in losses.items()]
    holds = all_or_some([jct == sorted(jct, reverse=True), *near])
    return TEXT.claim("heterogeneity", holds, degrees=degrees, **losses)


def _errors(results: HasResults) -> Claim:
    has, jps, exact = (results.mean("Fig. 15", MORE, "30", scheme) for scheme in (HAS, J60, EXACT))
    stated = TEXT.claims["errors"].numbers
    holds = all_or_some([abs(has - stated["has_cost"]) <= NEAR, abs(jps - stated["jps_cost"]) <= NEAR])
    return TEXT.claim("errors", holds, has=has, jps=jps, exact=exact)


def _workers(results: HasResults) -> Claim:
    part, below = TEXT.claims["workers"].part, {}
    for setting in results.of("Fig. 16", JCT):
        jps, greedy = (results.mean("Fig. 16", JCT, setting, scheme) for scheme in (J40, LB))
        below[setting] = 100 * (1 - jps / greedy)
    last = list(below)[-1]
    times = {
        scheme: {
            name: results.mean("Fig. 16", f"{name}, s", last, scheme) for name in ("communication", "computation")
        }
        for scheme in (J40, LB, EXACT)
    }
    return TEXT.claim(
        "workers",
        all_or_some(each > 0 for each in below.values()),
        below=", ".join(part("below", workers=workers, below=share) for workers, share in below.items()),
        last=last,
        parts=", ".join(part("times", scheme=scheme, **each) for scheme, each in times.items()),
    )


def _speed(results: HasResults) -> Claim:
    keys = [ValueKey("Table V", ART, setting, J40) for setting in results.of("Table V", ART)]
    part = TEXT.claims["speed"].part
    faster = [
        part("faster", workers=key.setting, factor=PAPER[key] / results.at(key).mean)
        for key in keys
        if key in PAPER
    ]
    slower = [
        results.at(row[HAS]).mean < results.at(row[BEST]).mean
        for row in results.of("Table IV", ART).values()
        if BEST in row
    ]
    return TEXT.claim("speed", all_or_some(slower), faster="; ".join(faster))


def _resets(results: HasResults) -> Claim:
    schemes = [scheme for scheme in results.of("Fig. 17", LESS)["with resets"] if scheme != LAS]
    less, span = (
        [results.mean("Fig. 17", measure, "with resets", scheme) for scheme in schemes] for measure in (LESS, SPAN)
    )
    stated = TEXT.claims["resets"].numbers
    near = [stated["jct_least"] - NEAR_RESETS <= min(less), stated["span_least"] - NEAR_RESETS <= min(span)]
    holds = all_or_some([min(less) > 0, min(span) > 0, *near])
    return TEXT.claim("resets", holds, less=less, span=span, schemes=", ".join(schemes))


def _gavel(results: HasResults) -> Claim:
    names = ("mean JCT less than Gavel's, %", "makespan less than Gavel's, %")
    jct, span = (results.mean("Fig. 17", name, "with resets", HAS) for name in names)
    scales = [results.mean("Fig. 18", JCT, setting, GAVEL) for setting in results.of("Fig. 18", JCT)]
    stated = TEXT.claims["gavel"].numbers
    near = [abs(jct - stated["jct_less"]) <= NEAR_RESETS, abs(span - stated["span_less"]) <= NEAR_RESETS]
    holds = all_or_some([jct > 0, *near, scales == sorted(scales, reverse=True)])
    return TEXT.claim("gavel", holds, jct=jct, span=span, scales=scales)


def _exact(results: HasResults) -> Claim:
    searched = [row[BEST] for row in results.of("Fig. 11", LOSS).values()]
    better = max(-loss for key in searched for loss in results.values[key])
    workers = list(results.of("Table V", ART))[-1]
    times = [1e3 * results.mean("Table IV", ART, setting, EXACT) for setting in results.of("Table IV", ART)]
    large = 1e3 * results.mean("Table V", ART, workers, EXACT)
    found = TEXT.claims["exact"].part("same" if better < SAME else "less", less=better)
    return TEXT.claim("exact", least=min(times), most=max(times), large=large, workers=workers, better=found)


def _curve(results: HasResults) -> Claim:
    points = []
    for beta in ("1", "0.8", "0.5", "0.2", "0"):
        if beta in results.of("Fig. 13", JCT):
            jct, fair = (results.mean("Fig. 13", measure, beta, EXACT) for measure in (JCT, FAIR))
            points.append(TEXT.claims["curve"].part("point", beta=beta, jct=jct, fair=fair))
    return TEXT.claim("curve", points="; ".join(points))


def _greedy(results: HasResults) -> Claim:
    schemes = (HAS, J60, EXACT, LB, LAS, GAVEL)
    by = {scheme: results.mean("Fig. 17", JCT, "with resets", scheme) for scheme in schemes}
    ordered = sorted(by, key=lambda scheme: by[scheme])
    part = TEXT.claims["greedy"].part
    listed = ", ".join(part("scheme", scheme=scheme, jct=by[scheme]) for scheme in ordered)
    return TEXT.claim("greedy", schemes=listed, lowest=ordered[0])


def _moving(results: HasResults) -> Claim:
    text = []
    for setting in results.of("moving", JCT):
        values = {
            name: results.mean("moving", measure, setting, scheme)
            for name, measure, scheme in (
                ("jct", JCT, EXACT),
                ("moves", "moves", EXACT),
                ("blind_jct", JCT, BLIND),
                ("blind_moves", "moves", BLIND),
            )
        }
        text.append(TEXT.claims["moving"].part("setting", setting=setting, **values))
    return TEXT.claim("moving", settings="; ".join(text))


RULES: Mapping[str, Callable[[HasResults], Claim]] = {
    "example": _example,
    "categories": _categories,
    "prioritising": _prioritising,
    "quality": _quality,
    "fairness": _fairness,
    "by_jobs": _by_jobs,
    "alpha": _alpha,
    "beta": _beta,
    "heterogeneity": _heterogeneity,
    "errors": _errors,
    "workers": _workers,
    "speed": _speed,
    "resets": _resets,
    "gavel": _gavel,
    "exact": _exact,
    "curve": _curve,
    "greedy": _greedy,
    "moving": _moving,
}
