"""What became of the claims on HAS and JPS: values and checks of paper.yaml, and the few claims that need more.

A claim in which Optimus takes part is judged in each order in which it may give out workers. Values whose name
begins with an underscore are checked or said, and not drawn.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cranny.report.confidence import Estimate, estimate
from cranny.repro.claim import Claim, OpenChoice, Pair, Reading, all_or_some, judge
from cranny.repro.experiment import scaled
from cranny.repro.has.paper import ART, BELOW, JCT, JPS, LOSS, ORDERS, PAPER, PROVED, TEXT, ValueKey, in_order
from cranny.repro.has.results import HasResults
from cranny.repro.paper_file import Where

ABOUT = (0.5, 0.8)  # alphas that are about 0.7
OURS = "here"
SAME = 1e-6
Values = dict[str, Estimate]


def claims(results: HasResults) -> list[Claim]:
    """Return what became of every claim."""
    judged = [RULES[key](results) if key in RULES else _claim(results, key) for key in TEXT.claims]
    return [*judged, TEXT.not_tested]


def left_open(results: HasResults) -> list[OpenChoice]:
    """Return what the paper leaves open, and what depends on it."""
    most = list(results.of("Fig. 16", BELOW))[-1]
    orders = []
    for order, name in ORDERS.items():
        lb = in_order("optimus-lb", order)
        below = results.at(ValueKey("Fig. 16", BELOW, most, lb))
        ours = {
            "Optimus-LB over the optimum at K = 15, % (paper 15.1)": results.at(
                ValueKey("Fig. 9", LOSS, "K=15", lb)
            ),
            f"JPS below Optimus-LB at K = {most}, % (paper 5.9 at 300)": below,
        }
        orders.append(Reading(name, ours, all_or_some([below.mean > 0])))
    sets = results.fits.optimum
    facts = {
        "sets of throughputs": Estimate(len(sets), None),
        "HAS is the optimum at K = 15, % of them": estimate([100.0 * default for default, _ in sets]),
        "HAS is the optimum at K = 30, % of them": estimate([100.0 * double for _, double in sets]),
    }
    powers = [
        Reading(f"power {power}", {"mean JCT with resets, s": row["has-resets"]})
        for power, row in results.of("power", JCT).items()
    ]
    return [
        OpenChoice("which worker Optimus gives out next", orders),
        OpenChoice(
            "11 of 15 throughputs", [Reading("all sets that give the stated times, fairness and H", facts)]
        ),
        OpenChoice("ours: the power of remaining work in has-resets", [powers[2], *powers[:2], *powers[3:]]),
    ]


def _claim(results: HasResults, key: str, **more: object) -> Claim:
    """Judge a claim by the values and checks of the file, in each order of Optimus's workers if that matters."""
    claim = TEXT.claims[key]
    matters = any("optimus" in str(where[3]) for where in claim.values.values())
    readings: list[Reading] = []
    for order, name in ORDERS.items() if matters else (("listed", OURS),):
        wheres = {label: _in_order(where, order) for label, where in claim.values.items()}
        known: dict[str, Any] = {**claim.numbers}
        ours: Values = {}
        for label, where in wheres.items():
            drawn = dict(_drawn(results, label, where))
            means = [each.mean for each in drawn.values()]
            known[label] = means[0] if len(means) == 1 else means
            # Of the other orders, what is the same in all is not drawn again.
            same = bool(readings) and where == claim.values[label]
            ours |= {} if label.startswith("_") or same else drawn
        parts = [part for check in claim.holds for part in check.parts(known)]
        readings.append(Reading(name, ours, all_or_some(parts), parts) if parts else Reading(name, ours))
    said = {label[1:]: known[label] for label in known if label.startswith("_")}
    return TEXT.claim(key, readings, **said, **more)


def _in_order(where: Where, order: str) -> Where:
    """Return where the value is if Optimus gives out workers in this order."""
    figure, measure, setting, scheme = where
    return figure, measure, setting, in_order(str(scheme), order) if str(scheme).startswith("optimus") else scheme


def _drawn(results: HasResults, label: str, where: Where) -> Iterator[tuple[str, Estimate]]:
    """Yield values with their labels; those of several settings have the setting behind."""
    figure, measure, setting, scheme = where
    settings = (
        list(results.of(figure, measure)) if setting == "*" else [setting] if isinstance(setting, str) else setting
    )
    for each in settings:
        key = ValueKey(figure, measure, each, str(scheme))
        if key in results.values:
            yield label if len(settings) == 1 else f"{label} {each}", results.at(key)


def _categories(results: HasResults) -> Claim:
    places = results.values[ValueKey("Fig. 6", "place of the lowest JCT, of 364", "K=15", "has")]
    return _claim(results, "categories", there=places.count(276.0), fits=len(places))


def _quality(results: HasResults) -> Claim:
    sets = results.fits.optimum
    default, double = (sum(each) for each in zip(*sets, strict=True))
    return _claim(results, "quality", sets=len(sets), default=default, double=double, fits=len(results.fits.rates))


def _alpha(results: HasResults) -> Claim:
    ours = {}
    for number, scheme in JPS.items():
        by = dict(zip(results.of("Fig. 12", JCT), results.read("Fig. 12", JCT, "*", scheme), strict=True))
        ours[f"N = {number}"] = Estimate(float(min(by, key=lambda each: by[each])), None)
    parts = [ABOUT[0] <= each.mean <= ABOUT[1] for each in ours.values()]
    return TEXT.claim("alpha", [Reading(OURS, ours, all_or_some(parts), parts)])


def _heterogeneity(results: HasResults) -> Claim:
    return _claim(results, "heterogeneity", degrees=results.read("Fig. 14", "H, Eq. 35", "*", "has-exact"))


def _speed(results: HasResults) -> Claim:
    """Judge the order of running times, setting by setting; schemes that take nearly as long make no order."""
    ours: Values = {}
    parts: list[bool] = []
    swapped: set[Pair] = set()
    for table in ("Table IV", "Table V"):
        for setting, row in results.of(table, ART).items():
            keys = {key.scheme: key for key in PAPER if (key.figure, key.setting) == (table, setting)}
            stated = {scheme: PAPER[key] for scheme, key in keys.items() if scheme in row}
            found = judge({scheme: row[scheme].mean for scheme in stated}, stated, base="")
            swapped |= {*found.swapped}
            parts += found.parts
            label = setting if table == "Table IV" else f"K={setting}"
            ours[label] = Estimate(100 * len(found.kept) / max(len(found.parts), 1), None)
    optimus = sum(any(scheme.startswith("optimus") for scheme in pair) for pair in swapped)
    art = [1e3 * each for each in results.read("Table V", ART, "*", JPS[40])]
    readings = [Reading(OURS, ours, all_or_some(parts), parts)]
    bars = dict.fromkeys(ours, 100.0)
    art_ms = {"fastest": min(art), "slowest": max(art)}
    return TEXT.claim("speed", readings, bars, swapped=len(swapped), optimus=optimus, **art_ms)


def _exact(results: HasResults) -> Claim:
    searched = [ValueKey("Fig. 11", LOSS, setting, "exhaustive") for setting in results.of("Fig. 11", LOSS)]
    better = max(-loss for key in searched for loss in results.values[key])
    ours = {}
    for table, name in (("Table IV", "{}"), ("Table V", "K={}, S=4")):
        for setting in results.of(table, ART):
            ours[name.format(setting)] = scaled(results.at(ValueKey(table, ART, setting, "has-exact")), 1e3)
    found = TEXT.claims["exact"].part("same" if better < SAME else "less", less=better)
    proved = results.read("Table IV", PROVED, "*", "has-exact")
    return TEXT.claim("exact", [Reading(OURS, ours)], better=found, proved=sum(proved) / len(proved))


def _moving(results: HasResults) -> Claim:
    names = {
        "has-exact": "has-exact",
        "has-exact-blind": "has-exact as if moves cost nothing",
        "has-resets": "has-resets",
    }
    table = results.of("moving", JCT)
    readings = [
        Reading(name, {f"{setting} s": row[scheme] for setting, row in table.items()})
        for scheme, name in names.items()
    ]
    exact, resets = (results.read("moving", "moves", "*", scheme) for scheme in ("has-exact", "has-resets"))
    return TEXT.claim("moving", readings, exact=exact, resets=resets)


def _extreme(key: str, name: str, choose: Callable[..., str]) -> Callable[[HasResults], Claim]:
    """Return what judges a question of ours, and names the scheme with the lowest or highest value."""

    def judged(results: HasResults) -> Claim:
        values = {
            label: results.mean(figure, measure, str(setting), str(scheme))
            for label, (figure, measure, setting, scheme) in TEXT.claims[key].values.items()
            if not label.startswith("_") and label != "bound"
        }
        return _claim(results, key, **{name: choose(values, key=lambda label: values[label])})

    return judged


RULES: Mapping[str, Callable[[HasResults], Claim]] = {
    "categories": _categories,
    "quality": _quality,
    "alpha": _alpha,
    "heterogeneity": _heterogeneity,
    "speed": _speed,
    "exact": _exact,
    "moving": _moving,
    "with_resets": _extreme("with_resets", "lowest", min),
    "fair_resets": _extreme("fair_resets", "highest", max),
}
