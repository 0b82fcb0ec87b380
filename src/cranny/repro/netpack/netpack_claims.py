"""What became of NetPack's claims: each with the baselines in both readings, and what else the paper leaves open.

A claim has parts: NetPack is ahead in each comparison, and each number is near the paper's. It holds if all do; in
part, if NetPack is ahead more often than behind. A claim that something grows does not hold without that.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isclose

from cranny.report.confidence import Estimate, estimate
from cranny.repro.claim import NEAR, Claim, Holds, OpenChoice, Ratio, Reading, near
from cranny.repro.experiment import scaled
from cranny.repro.netpack.paper import IN_ORDER, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.results import PanelTable, PolicyPoint
from cranny.repro.number_format import times

CLEAR = 0.01  # by which reductions must differ to count
PERCENT = 100.0
Tables = Sequence[PanelTable]
Values = dict[str, Estimate]


def claims(made: Tables, seconds: Mapping[int, float], rates: Sequence[JobRates]) -> list[Claim]:
    """Return what became of every claim."""
    by = {key: list(group) for key, group in groupby(made, lambda table: table.experiment.key)}
    rules: dict[str, Callable[[Tables], Claim]] = {
        "7": lambda tables: _overall("7", tables, lambda entry: scaled(entry.reduction, PERCENT)),
        "8": lambda tables: _overall("8", tables, lambda entry: entry.advantage),
        "9": _scale,
        "11": lambda tables: _growing("11", tables),
        "12": lambda tables: _growing("12", tables),
        "13": _comb,
        "load": _load,
    }
    judged = {key: rule(by[key]) for key, rule in rules.items() if key in by}
    if seconds:
        judged["10"] = _speed(seconds)
    if rates:
        judged["15"] = _rates(rates)
    return [*(judged[key] for key in TEXT.claims if key in judged), *_ours(made), TEXT.not_tested]


def _ahead(tables: Tables, reading: str, *sizes: bool) -> tuple[Holds, list[bool]]:
    """Judge one reading: NetPack is ahead everywhere with the paper's sizes, more often than behind, or not."""
    found = _rivals(tables, reading)
    parts = [*(entry.standing == "ahead" for entry in found), *sizes]
    count = Counter(entry.standing for entry in found)
    if all(parts):
        return "holds", parts
    return "holds in part" if count["ahead"] > count["behind"] else "does not hold", parts


def _near(key: str, label: str, ours: Estimate) -> bool:
    """Say whether a value is near one that the paper states, or within a range of it."""
    stated = TEXT.claims[key].bars[label]
    if isinstance(stated, tuple):
        return stated[0] <= ours.mean <= stated[1] or any(near(each, ours.mean) for each in stated)
    return near(stated, ours.mean)


def _rivals(tables: Tables, reading: str) -> list[PolicyPoint]:
    """Return the comparisons of NetPack with the baselines in one reading."""
    return [entry for table in tables for entry in table.rivals(reading)]


def _standings(tables: Tables) -> str:
    """Say how often NetPack is ahead, level and behind, with the baselines in each reading."""
    counts = {
        reading: Counter(entry.standing for entry in _rivals(tables, reading)) for reading in _readings(tables)
    }
    text = [
        f"ahead in {count['ahead']} of {count.total()} comparisons"
        + (f" {reading}" if len(counts) > 1 else "")
        + (f" and behind in {count['behind']}" if count["behind"] else "")
        for reading, count in counts.items()
    ]
    return f"NetPack is {', '.join(text)}, and level in the others."


def _readings(tables: Tables) -> list[str]:
    return tables[0].experiment.readings


def _named(reading: str) -> str:
    return f"baselines {reading}"


def _lower(tables: Tables, reading: str) -> Values:
    """Return by how many percent NetPack's JCT is lower, mean of the baselines, at each point of every panel."""
    return {
        f"{table.panel}, {point}" if len(tables) > 1 else point: scaled(table.lower[reading, point], PERCENT)
        for table in tables
        for point in table.points
    }


def _overall(key: str, tables: Tables, value: Callable[[PolicyPoint], Estimate]) -> Claim:
    """Judge Figs. 7 and 8: the most in the simulator, and the testbed's range with the real trace."""
    stated = TEXT.claims[key].bars
    readings, where = [], []
    for reading in _readings(tables):
        found = sorted(_rivals(tables, reading), key=lambda entry: value(entry).mean)
        testbed = [each for each in found if (each.panel, each.point) == ("testbed", "real trace")]
        most = [each for each in found if each.panel == "simulator"][-1]
        chosen = dict(zip(stated, (testbed[0], testbed[-1], most), strict=True))
        ours = {label: value(entry) for label, entry in chosen.items()}
        sizes = [_near(key, label, ours[label]) for label in stated]
        readings.append(Reading(_named(reading), ours, *_ahead(tables, reading, *sizes)))
        where.append(f"{most.where} ({reading})")
    return TEXT.claim(key, readings, standings=_standings(tables), where=" and ".join(where))


def _scale(tables: Tables) -> Claim:
    (table,) = tables
    readings = []
    for reading in _readings(tables):
        ours = _lower(tables, reading)
        mean = estimate([each.mean for each in ours.values()]).mean
        shown = {**ours, "on average": Estimate(mean, None)}
        holds, parts = _ahead(tables, reading, _near("9", "on average", shown["on average"]))
        readings.append(Reading(_named(reading), shown, holds if mean > 0 else "does not hold", parts))
    return TEXT.claim("9", readings, standings=_standings(tables), last=table.points[-1])


def _growing(key: str, tables: Tables) -> Claim:
    """Judge Figs. 11 and 12: the advantage grows from the first point to the last."""
    readings = []
    for reading in _readings(tables):
        grows = [_grows(table, reading) for table in tables]
        ours = _lower(tables, reading)
        sizes = [_near(key, label, ours[label]) for label in TEXT.claims[key].bars if label in ours]
        holds, parts = _ahead(tables, reading, *grows, *sizes)
        readings.append(Reading(_named(reading), ours, holds if any(grows) else "does not hold", parts))
    return TEXT.claim(key, readings, standings=_standings(tables))


def _grows(table: PanelTable, reading: str) -> bool:
    """Say whether the advantage is clearly larger at the last point than at the first."""
    first, last = (table.lower[reading, table.points[at]].mean for at in (0, -1))
    return last > first + CLEAR


def _comb(tables: Tables) -> Claim:
    (reading,) = _readings(tables)
    ours = _lower(tables, reading)
    most = max(ours.values(), key=lambda each: each.mean)
    holds, parts = _ahead(tables, reading, _near("13", "most", most))
    return TEXT.claim("13", [Reading("ours", {**ours, "most": most}, holds, parts)], standings=_standings(tables))


def _load(tables: Tables) -> Claim:
    readings = [Reading(_named(reading), _lower(tables, reading)) for reading in _readings(tables)]
    return TEXT.claim("load", readings)


def _speed(seconds: Mapping[int, float]) -> Claim:
    paper = TEXT.claims["10"].numbers
    small, large = min(seconds), max(seconds)
    growth = seconds[large] / seconds[small]
    linear = growth <= large / small
    parts = [linear, *(ours <= paper[str(servers)] for servers, ours in seconds.items() if str(servers) in paper)]
    ours = {f"{servers:,}": Estimate(1e3 * each, None) for servers, each in seconds.items()}
    reading = Reading("ours", ours, "holds" if all(parts) else "holds in part", parts)
    compared = "less" if linear else "more"
    return TEXT.claim("10", [reading], small=small, large=large, growth=growth, compared=compared)


def _rates(rates: Sequence[JobRates]) -> Claim:
    phases = [each.phases_gbps / each.estimate_gbps for each in rates]
    near_it = [Ratio(each.estimate_gbps, each.phases_gbps).off <= NEAR for each in rates]
    both = [
        _change(one.estimate_gbps, other.estimate_gbps) == _change(one.phases_gbps, other.phases_gbps)
        for one, other in pairwise(sorted(rates, key=lambda each: (each.job, each.from_s)))
        if one.job == other.job
    ]
    ours = {"least": Estimate(min(phases), None), "most": Estimate(max(phases), None)}
    reading = Reading("network phases", ours, "holds" if all(near_it) else "holds in part", near_it)
    return TEXT.claim("15", [reading], both=sum(both), events=len(both))


def _change(before: float, after: float) -> int:
    """Say whether a rate rises (1), falls (-1) or stays."""
    return 0 if isclose(before, after) else 1 if after > before else -1


def left_open(made: Tables) -> list[OpenChoice]:
    """Return what the paper leaves open, and what comes out under each reading, for what was run."""
    by = {key: list(group) for key, group in groupby(made, lambda table: table.experiment.key)}
    found = []
    for key, text in TEXT.left_open.items():
        if key == "baselines":
            readings = _baselines(by)
        elif key == "queue":
            readings = _queue(by.get(key, []))
        else:
            readings = [
                Reading(name, _over_ours(by[key], form)) for form, name in text.readings.items() if key in by
            ]
        if readings:
            found.append(OpenChoice(text.question, readings))
    return found


def _over_ours(tables: Tables, form: str) -> Values:
    """Return the mean JCT of a form of NetPack over NetPack's."""
    axis = tables[0].experiment.axis
    named = "" if axis == "set-up" else f" {axis}"
    return {
        f"JCT over ours, {table.panel}, {point}{named}": table.at(point)[form].advantage
        for table in tables
        for point in table.points
    }


def _baselines(by: Mapping[str, Tables]) -> list[Reading]:
    """Return by how much NetPack's JCT is lower in Figs. 7, 11 and 12, for each reading of the baselines."""
    found = []
    for reading in TEXT.baselines:
        values: Values = {}
        for key in ("7", "12", "11"):
            for label, value in _lower(by.get(key, []), reading).items() if key in by else ():
                values[f"Fig. {key}: lower by, {label}, %"] = value
        if values:
            found.append(Reading(reading, values))
    return found


def _queue(tables: Tables) -> list[Reading]:
    """Return the same by the queue of the baselines, and what NetPack's placement is with that queue."""
    found = []
    for order, name in TEXT.left_open["queue"].readings.items() if tables else ():
        values: Values = {}
        for table in tables:
            for reading in table.experiment.readings:
                lower = scaled(table.lower[reading, order], PERCENT)
                values[f"lower by, {table.panel}, baselines {reading}, %"] = lower
            values[f"NetPack's JCT with it over ours, {table.panel}"] = table.at(order)[IN_ORDER].advantage
        found.append(Reading(name, values))
    return found


def _ours(made: Tables) -> Iterator[Claim]:
    """Compare two policies that the paper does not have, over all experiments with JCT and all policies."""
    tables = [each for each in made if each.experiment.measure == "jct" and "best-fit" in each.experiment.schemes]
    for scheme in ("netpack-lean", "best-fit"):
        found = [(entry, table) for table in tables for entry in table.entries if entry.scheme == scheme]
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
