"""What became of NetPack's claims, in sentences that rules make from the numbers."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isclose

from cranny.model.validate import percent
from cranny.repro.claim import NEAR, Claim, Holds, Ratio, beyond, near, untested
from cranny.repro.netpack.paper import COMB, NETPACK, ONE_FLOW, PAPER, PAPER_NAMES, RIVALS, UNTESTED
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
    return [*found, *_ours(made), untested(UNTESTED)]


def _claim(key: str, holds: Holds, *text: str) -> Claim:
    return Claim(f"Fig. {key}: {PAPER[key].claim}", holds, " ".join([f"The paper: {PAPER[key].text}.", *text]))


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
    sizes = [near(PAPER[key].numbers[name], ours[name]) for name in ours]
    return most, min(testbed), max(testbed), _ahead(found, *sizes)


def _jct(tables: Tables) -> Claim:
    found = _against(tables)
    most, _, _, holds = _overall("7", found, lambda entry: entry.reduction)
    return _claim(
        "7",
        holds,
        f"Here NetPack's JCT is lower by: {_each_point(tables)}.",
        f"The largest reduction in the simulator is {percent(most.reduction)} ({most.where}).",
        _standings(found),
    )


def _efficiency(tables: Tables) -> Claim:
    found = _against(tables)
    most, low, high, holds = _overall("8", found, lambda entry: entry.advantage.mean)
    return _claim(
        "8",
        holds,
        f"Here it is {times(low)} to {times(high)} the baselines' on the testbed's servers with the real trace, "
        f"and up to {times(most.advantage.mean)} in the simulator ({most.where}).",
        _standings(found),
    )


def _scale(tables: Tables) -> Claim:
    (table,) = tables
    found, last = _against(tables), table.points[-1]
    mean = sum(table.mean_reduction(point) for point in table.points) / len(table.points)
    ours, theirs = (table.at(last)[scheme].machines for scheme in (NETPACK, RIVALS[0]))
    why_behind = (
        "The same jobs come to all clusters, so large ones are nearly empty and there is little to gain. At "
        f"{last} servers NetPack's jobs on several machines take {ours:.1f} of them, those of "
        f"{PAPER_NAMES[RIVALS[0]]} {theirs:.1f}. Where the memory of a switch is used up, each of them is one "
        "more flow to the parameter server, which NetPack does not count when it chooses."
    )
    return _claim(
        "9",
        _ahead(found, near(PAPER["9"].numbers["mean"], mean)) if mean > 0 else "does not hold",
        f"Here {percent(mean)} on average over the scales, by servers: {_means(tables)}.",
        _standings(found),
        *([why_behind] if table.mean_reduction(last) < 0 else []),
    )


def _speed(seconds: Mapping[int, float]) -> Claim:
    paper = {int(servers): value for servers, value in PAPER["10"].numbers.items() if int(servers) in seconds}
    small, large = min(seconds), max(seconds)
    growth = seconds[large] / seconds[small]
    listed = ", ".join(f"{ours:.2g} s at {servers:,} servers" for servers, ours in seconds.items())
    faster = " and ".join(f"{paper[servers] / ours:.0f}" for servers, ours in seconds.items() if servers in paper)
    linear = growth <= large / small
    return _claim(
        "10",
        "holds" if linear and all(seconds[each] <= value for each, value in paper.items()) else "holds in part",
        f"Here {listed}: {faster} times as fast. From {small:,} to {large:,} servers a job takes {growth:.1f} "
        f"times as long, {'less' if linear else 'more'} than linear.",
    )


def _grows(tables: Tables) -> list[str]:
    """Return the panels in which the advantage is clearly larger at the last point than at the first."""
    return [
        table.panel
        for table in tables
        if table.mean_reduction(table.points[-1]) > table.mean_reduction(table.points[0]) + CLEAR
    ]


def _memory(tables: Tables) -> Claim:
    found, grows = _against(tables), _grows(tables)
    none = [entry.reduction for entry in found if entry.point == "0"]
    sizes = bool(none) and all(near(PAPER["11"].numbers["none_least"], value) for value in none)
    return _claim(
        "11",
        _ahead(found, len(grows) == len(tables), sizes) if grows else "does not hold",
        f"Here the mean reduction by PAT in Gbps is: {_means(tables)}.",
        f"It grows from the most memory to none on: {', '.join(grows) or 'no panel'}.",
        _standings(found),
        *([ONE_FLOW] if any(entry.standing == "behind" for entry in found) else []),
    )


def _oversubscription(tables: Tables) -> Claim:
    numbers, found, grows = PAPER["12"].numbers, _against(tables), _grows(tables)
    sizes = [
        near(numbers[key], table.mean_reduction(table.points[at]))
        for table in tables
        for key, at in (("first", 0), ("last", -1))
    ]
    return _claim(
        "12",
        _ahead(found, *sizes) if grows else "does not hold",
        f"Here the mean reduction is: {_means(tables)}.",
        f"It grows from the first ratio to the last on: {', '.join(grows) or 'none'}.",
        _standings(found),
    )


def _comb(tables: Tables) -> Claim:
    found = _against(tables, COMB)
    return _claim(
        "13",
        _ahead(found, near(PAPER["13"].numbers["most"], max(entry.reduction for entry in found))),
        f"Here NetPack's JCT is lower by: {_each_point(tables, COMB)}.",
        _standings(found),
    )


def _rates(rates: Sequence[JobRates]) -> Claim:
    same = max(abs(each.estimate_gbps / each.steady_gbps - 1.0) for each in rates)
    phases = [each.phases_gbps / each.estimate_gbps for each in rates]
    fits = max(Ratio(each.estimate_gbps, each.phases_gbps).off for each in rates) <= NEAR
    both = [
        _change(one.estimate_gbps, other.estimate_gbps) == _change(one.phases_gbps, other.phases_gbps)
        for one, other in pairwise(sorted(rates, key=lambda each: (each.job, each.from_s)))
        if one.job == other.job
    ]
    return _claim(
        "15",
        "holds" if fits else "holds in part",
        f"The network `steady` is the same water-filling as the estimate (they differ by {same:.0e}), so it does "
        f"not test it. The network `phases`, which simulates iterations, gives jobs {min(phases):.2f} to "
        f"{max(phases):.2f} times the average that follows from the estimate: there gradients are sent while the "
        f"job still computes, and jobs are interleaved. At {sum(both)} of {len(both)} events that a job sees, "
        "both rise, both fall or both stay. A comparison with real traffic needs an emulated network.",
    )


def _change(before: float, after: float) -> int:
    """Say whether a rate rises (1), falls (-1) or stays."""
    return 0 if isclose(before, after) else 1 if after > before else -1


def _load(tables: Tables) -> Claim:
    return beyond(
        "How the advantage depends on load, which the paper does not state",
        f"NetPack's mean reduction by load: {_means(tables)}.",
    )


def _queue(tables: Tables) -> Claim:
    text = []
    for table in tables:
        own, fifo = (percent(table.mean_reduction(order)) for order in table.points)
        text.append(
            f"{table.panel}: against baselines with NetPack's own queue (knapsack) {own}, against baselines that "
            f"are served first come, first served {fifo}; NetPack's placement with that order has "
            f"{times(table.at('fifo')[IN_ORDER].advantage.mean)} NetPack's JCT."
        )
    head = "The paper does not say in which order its baselines took jobs. NetPack's mean reduction"
    return beyond("How much of the gain may be the queue", f"{head}, {' '.join(text)}")


def _sign(tables: Tables) -> Claim:
    (printed,) = ([table.at(point)[PRINTED] for point in table.points] for table in tables)
    listed = ", ".join(f"{each.point} {times(each.advantage)}" for each in printed)
    head = (
        "Eq. 1 subtracts the share of the most crowded link, which draws jobs to crowded links; we add it."
        if any(each.standing == "ahead" for each in printed)
        else "Eq. 1 subtracts the share of the most crowded link; we add it. Here that makes no clear difference."
    )
    return beyond("Eq. 1 with its sign as printed", f"{head} Mean JCT with the printed sign over ours: {listed}.")


def _ours(made: Tables) -> Iterator[Claim]:
    """Compare two policies that the paper does not have, over all experiments with JCT."""
    tables = [
        each for each in made if each.experiment.measure == "jct" and each.experiment.key not in ("13", "sign")
    ]
    for scheme, title in (
        ("netpack-lean", "NetPack that counts bandwidth once (ours) against NetPack"),
        ("best-fit", "True best fit against NetPack"),
    ):
        found = [(entry, table) for table in tables for entry in _against([table], scheme)]
        if found:
            count = Counter(entry.standing for entry, _ in found)
            best, worst = (
                f"{times(entry.advantage.mean)} ({entry.panel}, {entry.point} {table.experiment.axis})"
                for entry, table in (end(found, key=lambda each: each[0].advantage.mean) for end in (min, max))
            )
            yield beyond(
                title,
                f"Of {len(found)} set-ups {scheme} has a lower mean JCT in {count['behind']}, about the same in "
                f"{count['level']} and a higher one in {count['ahead']}. Its JCT is between {best} and {worst} "
                f"that of {NETPACK}.",
            )
