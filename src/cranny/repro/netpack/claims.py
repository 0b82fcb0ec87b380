"""What became of NetPack's claims, in sentences that rules make from the numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isclose

from cranny.model.validate import percent
from cranny.repro.claim import NEAR, Claim, Holds, Ratio, near
from cranny.repro.netpack.paper import COMB, NETPACK, PAPER_NAMES, RIVALS, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.setups import IN_ORDER, PRINTED
from cranny.repro.netpack.tables import PanelTable, PolicyPoint
from cranny.repro.number_format import times

CLEAR = 0.01  # by which reductions must differ to count
NAMED = 4  # comparisons that NetPack loses and that are named one by one
Tables = Sequence[PanelTable]


def claims(made: Tables, seconds: Mapping[int, float], rates: Sequence[JobRates]) -> list[Claim]:
    """Return what became of every claim."""
    by: dict[str, list[PanelTable]] = {}
    for table in made:
        by.setdefault(table.experiment.key, []).append(table)
    figures: dict[str, Callable[[Tables], Claim]] = {
        "7": _jct,
        "8": _efficiency,
        "9": _scale,
        "10": lambda _: _speed(seconds),
        "11": _memory,
        "12": _oversubscription,
        "13": _comb,
        "15": lambda _: _rates(rates),
        "load": _load,
        "queue": _queue,
        "sign": _sign,
    }
    run = {*by, *(["10"] if seconds else []), *(["15"] if rates else [])}
    found = [rule(by.get(key, [])) for key, rule in figures.items() if key in run]
    return [*found, *_ours(made), TEXT.not_tested]


def _ahead(entries: Iterable[PolicyPoint], *sizes: bool) -> Holds:
    """Return the verdict: NetPack is ahead everywhere, ahead more often than behind, or not even that."""
    count = Counter(entry.standing for entry in entries)
    if count["ahead"] == count.total() and all(sizes):
        return "holds"
    return "holds in part" if count["ahead"] > count["behind"] else "does not hold"


def _against(tables: Tables, *schemes: str) -> list[PolicyPoint]:
    """Return the comparisons of NetPack with some policies, or with all baselines of the paper."""
    return [entry for table in tables for entry in table.entries if entry.scheme in (schemes or RIVALS)]


def _standings(found: Sequence[PolicyPoint]) -> str:
    """Say how often NetPack is ahead, and where it is behind."""
    count = Counter(entry.standing for entry in found)
    text = (
        f"Of {count.total()} comparisons NetPack is ahead in {count['ahead']}, level in {count['level']} and "
        f"behind in {count['behind']}"
    )
    lost = sorted((each for each in found if each.standing == "behind"), key=lambda each: each.advantage.mean)
    if not lost:
        return f"{text}."
    named = "; ".join(f"{each.where}: {times(each.advantage.mean)}" for each in lost[:NAMED])
    return f"{text} ({'most so ' if len(lost) > NAMED else ''}{named})."


def _span(values: Sequence[float]) -> str:
    """Write the range of some shares."""
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _each_point(tables: Tables, *schemes: str) -> str:
    """Write NetPack's reductions at each point of every panel."""
    panels = []
    for table in tables:
        found = _against([table], *schemes)
        points = [
            f"{point}: {_span([entry.reduction for entry in found if entry.point == point])}"
            for point in table.points
        ]
        panels.append(f"{table.panel} ({', '.join(points)})")
    return "; ".join(panels)


def _means(tables: Tables) -> str:
    """Write NetPack's mean reduction at each point of every panel."""
    panels = []
    for table in tables:
        points = ", ".join(f"{percent(table.mean_reduction(point))} at {point}" for point in table.points)
        panels.append(f"{table.panel} ({points})")
    return "; ".join(panels)


def _overall(
    key: str, found: Sequence[PolicyPoint], value: Callable[[PolicyPoint], float]
) -> tuple[PolicyPoint, float, float, Holds]:
    """Return what Figs. 7 and 8 are judged by.

    The comparison with the largest value in the simulator, the range of the testbed's with the real trace, and the
    verdict by whether these are near the paper's.
    """
    most = max((each for each in found if each.panel == "simulator"), key=value)
    testbed = [value(each) for each in found if (each.panel, each.point) == ("testbed", "real trace")]
    ours = {"simulator_most": value(most), "testbed_least": min(testbed), "testbed_most": max(testbed)}
    sizes = [near(TEXT.claims[key].numbers[name], ours[name]) for name in ours]
    return most, min(testbed), max(testbed), _ahead(found, *sizes)


def _jct(tables: Tables) -> Claim:
    found = _against(tables)
    most, _, _, holds = _overall("7", found, lambda entry: entry.reduction)
    points, standings = _each_point(tables), _standings(found)
    return TEXT.claim("7", holds, points=points, most=most.reduction, where=most.where, standings=standings)


def _efficiency(tables: Tables) -> Claim:
    found = _against(tables)
    most, low, high, holds = _overall("8", found, lambda entry: entry.advantage.mean)
    best, standings = most.advantage.mean, _standings(found)
    return TEXT.claim("8", holds, low=low, high=high, most=best, where=most.where, standings=standings)


def _scale(tables: Tables) -> Claim:
    (table,) = tables
    found, last = _against(tables), table.points[-1]
    mean = sum(table.mean_reduction(point) for point in table.points) / len(table.points)
    text = _standings(found)
    if table.mean_reduction(last) < 0:
        ours, theirs = (table.at(last)[scheme].machines for scheme in (NETPACK, RIVALS[0]))
        rival = PAPER_NAMES[RIVALS[0]]
        text += " " + TEXT.claims["9"].part("behind", last=last, ours=ours, rival=rival, theirs=theirs)
    holds = _ahead(found, near(TEXT.claims["9"].numbers["mean"], mean)) if mean > 0 else "does not hold"
    return TEXT.claim("9", holds, found=mean, means=_means(tables), standings=text)


def _speed(seconds: Mapping[int, float]) -> Claim:
    text = TEXT.claims["10"]
    paper = {int(servers): value for servers, value in text.numbers.items() if int(servers) in seconds}
    small, large = min(seconds), max(seconds)
    growth = seconds[large] / seconds[small]
    linear = growth <= large / small
    fast = all(seconds[servers] <= value for servers, value in paper.items())
    return TEXT.claim(
        "10",
        "holds" if linear and fast else "holds in part",
        listed=", ".join(text.part("servers", seconds=ours, servers=servers) for servers, ours in seconds.items()),
        faster=" and ".join(
            f"{paper[servers] / ours:.0f}" for servers, ours in seconds.items() if servers in paper
        ),
        small=small,
        large=large,
        growth=growth,
        compared="less" if linear else "more",
    )


def _grows(tables: Tables) -> list[str]:
    """Return the panels in which the advantage is clearly larger at the last point than at the first."""
    return [
        table.panel
        for table in tables
        if table.mean_reduction(table.points[-1]) > table.mean_reduction(table.points[0]) + CLEAR
    ]


def _memory(tables: Tables) -> Claim:
    found, grows, stated = _against(tables), _grows(tables), TEXT.claims["11"]
    none = [entry.reduction for entry in found if entry.point == "0"]
    sizes = bool(none) and all(near(stated.numbers["none_least"], value) for value in none)
    holds = _ahead(found, len(grows) == len(tables), sizes) if grows else "does not hold"
    text = _standings(found)
    if any(entry.standing == "behind" for entry in found):
        text += " " + stated.part("behind")
    return TEXT.claim("11", holds, means=_means(tables), grows=", ".join(grows) or "no panel", standings=text)


def _oversubscription(tables: Tables) -> Claim:
    numbers, found, grows = TEXT.claims["12"].numbers, _against(tables), _grows(tables)
    sizes = [
        near(numbers[key], table.mean_reduction(table.points[at]))
        for table in tables
        for key, at in (("first", 0), ("last", -1))
    ]
    holds, standings = _ahead(found, *sizes) if grows else "does not hold", _standings(found)
    return TEXT.claim("12", holds, means=_means(tables), grows=", ".join(grows) or "none", standings=standings)


def _comb(tables: Tables) -> Claim:
    found = _against(tables, COMB)
    holds = _ahead(found, near(TEXT.claims["13"].numbers["most"], max(entry.reduction for entry in found)))
    return TEXT.claim("13", holds, points=_each_point(tables, COMB), standings=_standings(found))


def _rates(rates: Sequence[JobRates]) -> Claim:
    same = max(abs(each.estimate_gbps / each.steady_gbps - 1.0) for each in rates)
    phases = [each.phases_gbps / each.estimate_gbps for each in rates]
    fits = max(Ratio(each.estimate_gbps, each.phases_gbps).off for each in rates) <= NEAR
    both = [
        _change(one.estimate_gbps, other.estimate_gbps) == _change(one.phases_gbps, other.phases_gbps)
        for one, other in pairwise(sorted(rates, key=lambda each: (each.job, each.from_s)))
        if one.job == other.job
    ]
    return TEXT.claim(
        "15",
        "holds" if fits else "holds in part",
        same=same,
        least=min(phases),
        most=max(phases),
        both=sum(both),
        events=len(both),
    )


def _change(before: float, after: float) -> int:
    """Say whether a rate rises (1), falls (-1) or stays."""
    return 0 if isclose(before, after) else 1 if after > before else -1


def _load(tables: Tables) -> Claim:
    return TEXT.claim("load", means=_means(tables))


def _queue(tables: Tables) -> Claim:
    text = []
    for table in tables:
        own, fifo = (table.mean_reduction(order) for order in table.points)
        ratio = table.at("fifo")[IN_ORDER].advantage.mean
        text.append(TEXT.claims["queue"].part("panel", panel=table.panel, own=own, fifo=fifo, ratio=ratio))
    return TEXT.claim("queue", panels=" ".join(text))


def _sign(tables: Tables) -> Claim:
    (printed,) = ([table.at(point)[PRINTED] for point in table.points] for table in tables)
    worse = any(each.standing == "ahead" for each in printed)
    head = TEXT.claims["sign"].part("worse" if worse else "level")
    return TEXT.claim(
        "sign", head=head, listed=", ".join(f"{each.point} {times(each.advantage)}" for each in printed)
    )


def _ours(made: Tables) -> Iterator[Claim]:
    """Compare two policies that the paper does not have, over all experiments with JCT."""
    tables = [
        each for each in made if each.experiment.measure == "jct" and each.experiment.key not in ("13", "sign")
    ]
    for scheme in ("netpack-lean", "best-fit"):
        found = [(entry, table) for table in tables for entry in _against([table], scheme)]
        if found:
            count = Counter(entry.standing for entry, _ in found)
            best, worst = (
                f"{times(entry.advantage.mean)} ({entry.panel}, {entry.point} {table.experiment.axis})"
                for entry, table in (end(found, key=lambda each: each[0].advantage.mean) for end in (min, max))
            )
            yield TEXT.claim(
                scheme,
                all=len(found),
                scheme=scheme,
                lower=count["behind"],
                level=count["level"],
                higher=count["ahead"],
                best=best,
                worst=worst,
            )
