"""What holds and what does not: the paper's claims in plain words, written from the numbers by rules."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import isclose

from cranny.model.validate import percent
from cranny.repro.claim import Claim, Holds
from cranny.repro.netpack.study import IN_ORDER, PRINTED
from cranny.repro.netpack.tables import Entry, Table
from cranny.repro.netpack.values import COMB, NETPACK, PAPER, PAPER_NAMES, RIVALS
from cranny.repro.netpack.watch import Watched
from cranny.repro.verdict import NEAR, Ratio
from cranny.repro.wording import times

BLIND = (
    "A reason to be behind: when NetPack chooses machines and the place of the parameter server (Eq. 1), it "
    "counts one flow to the server, as if switches always merged. Memory enters in step 4 only, which moves "
    "no job. Without memory the server's link carries a flow from every other machine of the job."
)
CLEAR = 0.01  # by which reductions must differ to count
NAMED = 4  # comparisons that NetPack loses and that are named one by one
Place = tuple[Table, Entry]


def claims(made: Sequence[Table], seconds: Mapping[int, float], watched: Sequence[Watched]) -> list[Claim]:
    """Return what became of every claim."""
    by: dict[str, list[Table]] = {}
    for table in made:
        by.setdefault(table.experiment.key, []).append(table)
    rules = {"7": _jct, "8": _de, "9": _scale, "11": _memory, "12": _oversubscription, "13": _comb}
    told = {key: rule(by[key]) for key, rule in rules.items() if key in by}
    if seconds:
        told["10"] = _speed(seconds)
    if watched:
        told["15"] = _watched(watched)
    beyond = {"load": _load, "queue": _queue, "sign": _sign}
    figures = [told[key] for key in sorted(told, key=int)]
    more = [rule(by[key]) for key, rule in beyond.items() if key in by]
    return [*figures, *more, *_ours(made), _untested()]


def outcome(entries: Iterable[Entry], *sizes: bool) -> Holds:
    """Sum up: whether NetPack is ahead everywhere, ahead more often than behind, or not even that."""
    count = Counter(entry.standing for entry in entries)
    if count["ahead"] == count.total() and all(sizes):
        return "holds"
    return "holds in part" if count["ahead"] > count["behind"] else "does not hold"


def near(paper: float, ours: float) -> bool:
    """Say whether a number is near the paper's."""
    return Ratio(paper, ours).off <= NEAR


def against(tables: Iterable[Table], schemes: Sequence[str] = RIVALS) -> list[Place]:
    """Return the comparisons of NetPack with some policies."""
    return [(table, entry) for table in tables for entry in table.entries if entry.scheme in schemes]


def standings(found: Sequence[Place]) -> str:
    """Say how often NetPack is ahead, and where it is behind."""
    count = Counter(entry.standing for _, entry in found)
    text = (
        f"Of {count.total()} comparisons NetPack is ahead in {count['ahead']}, level in {count['level']} and "
        f"behind in {count['behind']}"
    )
    lost = sorted(
        (place for place in found if place[1].standing == "behind"), key=lambda place: place[1].advantage.mean
    )
    named = "; ".join(f"{where(*place)}: {times(place[1].advantage.mean)}" for place in lost[:NAMED])
    if not lost:
        return f"{text}."
    return f"{text} ({'most so ' if len(lost) > NAMED else ''}{named})."


def _behind(found: Sequence[Place]) -> bool:
    return any(entry.standing == "behind" for _, entry in found)


def where(table: Table, entry: Entry) -> str:
    """Name one comparison."""
    return f"{PAPER_NAMES.get(entry.scheme, entry.scheme)}, {table.panel.title}, {entry.point}"


def span(values: Iterable[float]) -> str:
    """Write the range of some shares."""
    low, high = (percent(value) for value in _ends(values))
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


def _ends(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def _said(key: str) -> str:
    return f"The paper: {PAPER[key].text}."


def _claim(key: str, holds: Holds, *told: str) -> Claim:
    return Claim(f"Fig. {key}: {PAPER[key].claim}", holds, " ".join([_said(key), *told]))


def _each_point(table: Table, schemes: Sequence[str] = RIVALS) -> str:
    """Write NetPack's reductions at each point of a panel."""
    points = ", ".join(
        f"{point}: {span(entry.reduction for scheme, entry in table.at(point).items() if scheme in schemes)}"
        for point in table.points
    )
    return f"{table.panel.title} ({points})"


def _means(table: Table) -> str:
    """Write NetPack's mean reduction at each point of a panel."""
    points = ", ".join(f"{percent(table.mean_reduction(point))} at {point}" for point in table.points)
    return f"{table.panel.title} ({points})"


def _overall(
    key: str, tables: Sequence[Table], value: Callable[[Entry], float]
) -> tuple[list[Place], Place, tuple[float, float], list[bool]]:
    """Return what Figs. 7 and 8 are judged by.

    All comparisons, the largest value in the simulator, the range of the testbed's with the real trace, and
    whether these are near the paper's.
    """
    numbers, found = PAPER[key].numbers, against(tables)
    most = max((place for place in found if place[0].panel.title == "simulator"), key=lambda p: value(p[1]))
    low, high = _ends(value(e) for t, e in found if (t.panel.title, e.point) == ("testbed", "real trace"))
    ours = {"simulator_most": value(most[1]), "testbed_least": low, "testbed_most": high}
    return found, most, (low, high), [near(numbers[name], ours[name]) for name in ours]


def _jct(tables: Sequence[Table]) -> Claim:
    found, most, _, sizes = _overall("7", tables, lambda entry: entry.reduction)
    return _claim(
        "7",
        outcome((entry for _, entry in found), *sizes),
        f"Here NetPack's JCT is lower by: {'; '.join(map(_each_point, tables))}.",
        f"The largest reduction in the simulator is {percent(most[1].reduction)} ({where(*most)}).",
        standings(found),
    )


def _de(tables: Sequence[Table]) -> Claim:
    found, most, (low, high), sizes = _overall("8", tables, lambda entry: entry.advantage.mean)
    return _claim(
        "8",
        outcome((entry for _, entry in found), *sizes),
        f"Here it is {times(low)} to {times(high)} the baselines' on the testbed's servers with the real trace, "
        f"and up to {times(most[1].advantage.mean)} in the simulator ({where(*most)}).",
        standings(found),
    )


def _scale(tables: Sequence[Table]) -> Claim:
    (table,) = tables
    found = against(tables)
    mean = sum(table.mean_reduction(point) for point in table.points) / len(table.points)
    holds = outcome((entry for _, entry in found), near(PAPER["9"].numbers["mean"], mean))
    return _claim(
        "9",
        holds if mean > 0 else "does not hold",
        f"Here {percent(mean)} on average over the scales, by servers: {_means(table)}.",
        standings(found),
        *([_empty(table)] if table.mean_reduction(table.points[-1]) < 0 else []),
    )


def _empty(table: Table) -> str:
    """Say why NetPack may lose on the largest cluster."""
    found = table.at(table.points[-1])
    ours, theirs = (found[scheme].machines for scheme in (NETPACK, RIVALS[0]))
    return (
        "The same jobs come to all clusters, so large ones are nearly empty and there is little to gain. At "
        f"{table.points[-1]} servers NetPack's jobs on several machines take {ours:.1f} of them, those of "
        f"{PAPER_NAMES[RIVALS[0]]} {theirs:.1f}. Where the memory of a switch is used up, each of them is one "
        "more flow to the parameter server, which NetPack does not count when it chooses."
    )


def _speed(seconds: Mapping[int, float]) -> Claim:
    paper = PAPER["10"].numbers
    both = {servers: (paper[str(servers)], ours) for servers, ours in seconds.items() if str(servers) in paper}
    small, large = min(seconds), max(seconds)
    growth = seconds[large] / seconds[small]
    told = ", ".join(f"{ours:.2g} s at {servers:,} servers" for servers, ours in seconds.items())
    faster = " and ".join(f"{theirs / ours:.0f}" for theirs, ours in both.values())
    linear = growth <= large / small
    return _claim(
        "10",
        "holds" if linear and all(ours <= theirs for theirs, ours in both.values()) else "holds in part",
        f"Here {told}: {faster} times as fast. From {small:,} to {large:,} servers a job takes {growth:.1f} times "
        f"as long, {'less' if linear else 'more'} than linear.",
    )


def _memory(tables: Sequence[Table]) -> Claim:
    numbers, found = PAPER["11"].numbers, against(tables)
    grows = [table.panel.title for table in tables if _grows(table)]
    none = [entry.reduction for _, entry in found if entry.point == "0"]
    sizes = bool(none) and all(near(numbers["none_least"], value) for value in none)
    return _claim(
        "11",
        outcome((entry for _, entry in found), len(grows) == len(tables), sizes) if grows else "does not hold",
        f"Here the mean reduction by PAT in Gbps is: {'; '.join(map(_means, tables))}.",
        f"It grows from the most memory to none on: {', '.join(grows) or 'no panel'}.",
        standings(found),
        *([BLIND] if _behind(found) else []),
    )


def _grows(table: Table) -> bool:
    """Say whether the advantage is clearly larger at the last point than at the first."""
    return table.mean_reduction(table.points[-1]) > table.mean_reduction(table.points[0]) + CLEAR


def _oversubscription(tables: Sequence[Table]) -> Claim:
    numbers, found = PAPER["12"].numbers, against(tables)
    grows = [table.panel.title for table in tables if _grows(table)]
    sizes = [
        near(numbers[key], table.mean_reduction(table.points[at]))
        for table in tables
        for key, at in (("first", 0), ("last", -1))
    ]
    trend = outcome((entry for _, entry in found), *sizes)
    return _claim(
        "12",
        trend if grows else "does not hold",
        f"Here the mean reduction is: {'; '.join(map(_means, tables))}.",
        f"It grows from the first ratio to the last on: {', '.join(grows) or 'none'}.",
        standings(found),
    )


def _comb(tables: Sequence[Table]) -> Claim:
    found = against(tables, (COMB,))
    most = max(found, key=lambda place: place[1].reduction)
    return _claim(
        "13",
        outcome((entry for _, entry in found), near(PAPER["13"].numbers["most"], most[1].reduction)),
        f"Here NetPack's JCT is lower by: {'; '.join(_each_point(table, (COMB,)) for table in tables)}.",
        standings(found),
    )


def _watched(watched: Sequence[Watched]) -> Claim:
    same = max(abs(each.estimate_gbps / each.steady_gbps - 1.0) for each in watched)
    low, high = _ends(each.phases_gbps / each.estimate_gbps for each in watched)
    fits = max(Ratio(each.estimate_gbps, each.phases_gbps).off for each in watched) <= NEAR
    turns = [
        _turn(one.estimate_gbps, other.estimate_gbps) == _turn(one.phases_gbps, other.phases_gbps)
        for one, other in pairwise(sorted(watched, key=lambda each: (each.job, each.from_s)))
        if one.job == other.job
    ]
    return _claim(
        "15",
        "holds" if fits else "holds in part",
        f"The network `steady` is the same water-filling as the estimate (they differ by {same:.0e}), so it does "
        f"not test it. The network `phases`, which plays iterations, gives jobs {low:.2f} to {high:.2f} times the "
        "average that follows from the estimate: there gradients go while the job still computes, and jobs take "
        f"turns. At {sum(turns)} of {len(turns)} events that a job sees, both rise, both fall or both stay. A "
        "comparison with real traffic needs an emulated network.",
    )


def _turn(before: float, after: float) -> int:
    """Say whether a rate rises (1), falls (-1) or stays."""
    return 0 if isclose(before, after) else 1 if after > before else -1


def _load(tables: Sequence[Table]) -> Claim:
    told = f"NetPack's mean reduction by load: {'; '.join(map(_means, tables))}."
    return Claim("How the advantage depends on load, which the paper does not state", "beyond the paper", told)


def _queue(tables: Sequence[Table]) -> Claim:
    told = []
    for table in tables:
        both = [percent(table.mean_reduction(order)) for order in table.points]
        alone = table.at("fifo")[IN_ORDER]
        told.append(
            f"{table.panel.title}: against baselines with NetPack's own queue (knapsack) {both[0]}, against "
            f"baselines that are served first come, first served {both[1]}; NetPack's placement with that order "
            f"has {times(alone.advantage.mean)} NetPack's JCT."
        )
    head = "The paper does not say in which order its baselines took jobs. NetPack's mean reduction"
    return Claim("How much of the gain may be the queue", "beyond the paper", f"{head}, {' '.join(told)}")


def _sign(tables: Sequence[Table]) -> Claim:
    (table,) = tables
    told = ", ".join(f"{point} {times(table.at(point)[PRINTED].advantage)}" for point in table.points)
    behind = any(table.at(point)[PRINTED].standing == "ahead" for point in table.points)
    head = (
        "Eq. 1 subtracts the share of the most crowded link, which draws jobs to crowded links; we add it."
        if behind
        else "Eq. 1 subtracts the share of the most crowded link; we add it. Here that makes no clear difference."
    )
    return Claim(
        "Eq. 1 with its sign as printed",
        "beyond the paper",
        f"{head} Mean JCT with the printed sign over ours: {told}.",
    )


def _ours(made: Sequence[Table]) -> list[Claim]:
    """Tell of the two policies that the paper does not have, over all experiments with JCT."""
    told = []
    tables = [table for table in made if table.experiment.measure == "jct"]
    for scheme, title in (
        ("netpack-lean", "NetPack that counts bandwidth once (ours) against NetPack"),
        ("best-fit", "True best fit against NetPack"),
    ):
        found = [place for place in against(tables, (scheme,)) if place[0].experiment.key not in ("13", "sign")]
        if not found:
            continue
        by = {
            standing: [place for place in found if place[1].standing == standing]
            for standing in ("ahead", "level", "behind")
        }
        best = min(found, key=lambda place: place[1].advantage.mean)
        worst = max(found, key=lambda place: place[1].advantage.mean)
        told.append(
            Claim(
                title,
                "beyond the paper",
                f"Of {len(found)} set-ups {scheme} has a lower mean JCT in {len(by['behind'])}, about the same in "
                f"{len(by['level'])} and a higher one in {len(by['ahead'])}. Its JCT is between "
                f"{times(best[1].advantage.mean)} ({_place(*best)}) and {times(worst[1].advantage.mean)} "
                f"({_place(*worst)}) that of {NETPACK}.",
            )
        )
    return told


def _place(table: Table, entry: Entry) -> str:
    return f"{table.panel.title}, {entry.point} {table.experiment.axis}"


def _untested() -> Claim:
    """Name what a simulation cannot show."""
    return Claim(
        "What is not tested",
        "not tested",
        "Fig. 6 (the simulator against the testbed) needs the testbed. Fig. 14 (aggregation by switch memory) "
        "is a known value, which the tests of the rates check. Where the paper measured on its testbed (Figs. "
        "7, 8, 11 and 13), five servers of two GPUs in our simulator stand for it.",
    )
