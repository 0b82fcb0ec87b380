"""What became of the claims on HAS and JPS that are more than values and checks in paper.yaml."""

from collections.abc import Callable, Mapping

from cranny.repro.claim import Claim, all_or_some
from cranny.repro.has.paper import ART, FAIR, JCT, JPS, LOSS, PAPER, TEXT, ValueKey
from cranny.repro.has.results import HasResults

NEAR = 1.5  # percentage points by which a loss may be off
SAME = 1e-6


def claims(results: HasResults) -> list[Claim]:
    """Return what became of every claim."""
    judged = [RULES[key](results) if key in RULES else TEXT.judge(key, results.read) for key in TEXT.claims]
    return [*judged, TEXT.not_tested]


def _example(results: HasResults) -> Claim:
    stated = {key: value for key, value in PAPER.items() if key.figure == "Table II"}
    right = [abs(results.at(key).mean - value) <= 0.1 for key, value in stated.items()]
    return TEXT.claim("example", all_or_some(right), right=sum(right), all=len(right))


def _categories(results: HasResults) -> Claim:
    values = TEXT.values("categories", results.read)
    places = results.values[ValueKey("Fig. 6", "place of the lowest JCT, of 364", "K=15", "has")]
    holds = all_or_some([values["most"] - values["least"] > 0.3, values["fair"] < values["most"]])
    return TEXT.claim("categories", holds, there=places.count(276.0), fits=len(places), **values)


def _quality(results: HasResults) -> Claim:
    rows, right = [], []
    for setting in results.of("Fig. 9", LOSS):
        losses = results.values[ValueKey("Fig. 9", LOSS, setting, "has")]
        has, jps, greedy = results.read("Fig. 9", LOSS, setting, ("has", "jps-60", "optimus-lb"))
        right += [max(losses) < SAME, jps < greedy]
        best, fits = sum(loss < SAME for loss in losses), len(losses)
        rows.append({"setting": setting, "best": best, "fits": fits, "has": has, "jps": jps, "greedy": greedy})
    return TEXT.claim("quality", all_or_some(right), text=TEXT.claims["quality"].listed("setting", rows, " "))


def _by_jobs(results: HasResults) -> Claim:
    jps, greedy = (
        [1 + loss / 100 for loss in results.read("Fig. 11", LOSS, "*", scheme)]
        for scheme in ("jps-60", "optimus-lb")
    )
    ahead = [100 * (1 - ours / theirs) for ours, theirs in zip(jps, greedy, strict=True)]
    losses = [100 * (each - 1) for each in jps]
    stated = TEXT.claims["by_jobs"].numbers
    near = [min(ahead) >= stated["below_least"] - NEAR, max(losses) <= stated["above_most"] + NEAR]
    return TEXT.claim("by_jobs", all_or_some([min(ahead) > 0, *near]), ahead=ahead, losses=losses)


def _alpha(results: HasResults) -> Claim:
    best, rows = [], []
    for scheme in JPS.values():
        by = dict(zip(results.of("Fig. 12", JCT), results.read("Fig. 12", JCT, "*", scheme), strict=True))
        lowest = min(by, key=lambda each: by[each])
        best.append(0.5 <= float(lowest) <= 0.8)
        rows.append({"scheme": scheme, "lowest": lowest, "jct": by[lowest], "none": by["0.0"]})
    return TEXT.claim("alpha", all_or_some(best), text=TEXT.claims["alpha"].listed("scheme", rows))


def _beta(results: HasResults) -> Claim:
    keys = [ValueKey("Fig. 13", measure, beta, "jps-60") for measure in (JCT, FAIR) for beta in ("0", "1")]
    ends = [results.at(key).mean for key in keys]
    near = [abs(value / PAPER[key] - 1) <= 0.1 for key, value in zip(keys, ends, strict=True)]
    values = dict(zip(("jct_0", "jct_1", "fair_0", "fair_1"), ends, strict=True))
    return TEXT.claim("beta", all_or_some([ends[0] > ends[1], ends[2] > ends[3], *near]), **values)


def _workers(results: HasResults) -> Claim:
    part, below = TEXT.claims["workers"].part, {}
    for setting in results.of("Fig. 16", JCT):
        jps, greedy = results.read("Fig. 16", JCT, setting, ("jps-40", "optimus-lb"))
        below[setting] = 100 * (1 - jps / greedy)
    last = list(below)[-1]
    times = []
    for scheme in ("jps-40", "optimus-lb", "has-exact"):
        names = ("communication", "computation")
        values = {name: results.mean("Fig. 16", f"{name}, s", last, scheme) for name in names}
        times.append(part("times", scheme=scheme, **values))
    return TEXT.claim(
        "workers",
        all_or_some(each > 0 for each in below.values()),
        below=", ".join(part("below", workers=workers, below=share) for workers, share in below.items()),
        last=last,
        parts=", ".join(times),
    )


def _speed(results: HasResults) -> Claim:
    keys = [ValueKey("Table V", ART, setting, "jps-40") for setting in results.of("Table V", ART)]
    rows = [{"workers": key.setting, "factor": PAPER[key] / results.at(key).mean} for key in keys if key in PAPER]
    small = [row for row in results.of("Table IV", ART).values() if "exhaustive" in row]
    holds = all_or_some(row["has"].mean < row["exhaustive"].mean for row in small)
    return TEXT.claim("speed", holds, faster=TEXT.claims["speed"].listed("faster", rows))


def _exact(results: HasResults) -> Claim:
    searched = [ValueKey("Fig. 11", LOSS, setting, "exhaustive") for setting in results.of("Fig. 11", LOSS)]
    better = max(-loss for key in searched for loss in results.values[key])
    workers = list(results.of("Table V", ART))[-1]
    times = [1e3 * each_s for each_s in results.read("Table IV", ART, "*", "has-exact")]
    large = 1e3 * results.mean("Table V", ART, workers, "has-exact")
    found = TEXT.claims["exact"].part("same" if better < SAME else "less", less=better)
    return TEXT.claim("exact", least=min(times), most=max(times), large=large, workers=workers, better=found)


def _curve(results: HasResults) -> Claim:
    betas = ("1", "0.8", "0.5", "0.2", "0")
    jct, fair = (results.read("Fig. 13", measure, betas, "has-exact") for measure in (JCT, FAIR))
    points = [{"beta": betas[at], "jct": jct[at], "fair": fair[at]} for at in range(len(betas))]
    return TEXT.claim("curve", points=TEXT.claims["curve"].listed("point", points))


def _greedy(results: HasResults) -> Claim:
    schemes = ("has", "jps-60", "has-exact", "optimus-lb", "las", "gavel")
    by = dict(zip(schemes, results.read("Fig. 17", JCT, "with resets", schemes), strict=True))
    rows = [{"scheme": scheme, "jct": by[scheme]} for scheme in sorted(by, key=lambda scheme: by[scheme])]
    listed = TEXT.claims["greedy"].listed("scheme", rows, ", ")
    return TEXT.claim("greedy", schemes=listed, lowest=rows[0]["scheme"])


def _moving(results: HasResults) -> Claim:
    text = []
    for setting in results.of("moving", JCT):
        (jct, blind_jct), (moves, blind_moves) = (
            results.read("moving", measure, setting, ("has-exact", "has-exact-blind"))
            for measure in (JCT, "moves")
        )
        values = {"jct": jct, "moves": moves, "blind_jct": blind_jct, "blind_moves": blind_moves}
        text.append(TEXT.claims["moving"].part("setting", setting=setting, **values))
    return TEXT.claim("moving", settings="; ".join(text))


RULES: Mapping[str, Callable[[HasResults], Claim]] = {
    "example": _example,
    "categories": _categories,
    "quality": _quality,
    "by_jobs": _by_jobs,
    "alpha": _alpha,
    "beta": _beta,
    "workers": _workers,
    "speed": _speed,
    "exact": _exact,
    "curve": _curve,
    "greedy": _greedy,
    "moving": _moving,
}
