"""Results of NetPack's experiments: every policy beside NetPack in tables, and what that means for its claims."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isclose
from statistics import fmean
from typing import Any, Literal, NamedTuple

from cranny.model.validate import percent
from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.claim import NEAR, Claim, Holds, Ratio, near
from cranny.repro.netpack.paper import IN_ORDER, NETPACK, PRINTED, RIVALS, TEXT
from cranny.repro.netpack.rates import JobRates
from cranny.repro.netpack.replays import NetpackResults
from cranny.repro.netpack.setups import NetpackExperiment
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Record

CLEAR = 0.01  # by which reductions must differ to count
NAMED = 4  # comparisons that NetPack loses and that are named one by one
Found = tuple[Holds, Mapping[str, Any]]  # a verdict, and values for the sentences
Standing = Literal["ahead", "level", "behind"]
MARKS: Mapping[Standing, str] = {"ahead": "", "level": " =", "behind": " <"}  # of factors
LOWER = "lower by"


class PolicyPoint(NamedTuple):
    """One policy at one point of a panel."""

    panel: str
    point: str
    scheme: str
    value: Estimate  # JCT in hours, or DE
    advantage: Estimate  # by what factor NetPack is better
    reduction: float  # by what share NetPack's JCT is lower
    machines: float  # of a job that is on several

    @property
    def standing(self) -> Standing:
        """Say where NetPack stands; it is level if the confidence interval of the factor contains 1."""
        low, high = (self.advantage.mean + sign * (self.advantage.half or 0.0) for sign in (-1, 1))
        return "ahead" if low > 1.0 else "behind" if high < 1.0 else "level"

    @property
    def where(self) -> str:
        """Name the comparison."""
        return f"{TEXT.names.get(self.scheme, self.scheme)}, {self.panel}, {self.point}"


class PanelTable(NamedTuple):
    """One panel of an experiment."""

    experiment: NetpackExperiment
    panel: str
    points: tuple[str, ...]
    entries: tuple[PolicyPoint, ...]

    def at(self, point: str) -> dict[str, PolicyPoint]:
        """Return the policies at a point."""
        return {entry.scheme: entry for entry in self.entries if entry.point == point}

    @property
    def rivals(self) -> list[PolicyPoint]:
        """Return the comparisons with the baselines of the paper."""
        return [entry for entry in self.entries if entry.scheme in self.experiment.rivals]

    def mean_reduction(self, point: str) -> float:
        """Return by how much NetPack's JCT is lower than that of the baselines, on average."""
        return fmean(entry.reduction for entry in self.rivals if entry.point == point)

    def records(self) -> list[Record]:
        """Return a row for each point and policy, for files."""
        return [
            {
                "figure": self.experiment.key,
                "measure": "mean_jct_h" if self.experiment.measure == "jct" else "distribution_efficiency",
                "panel": self.panel,
                "axis": self.experiment.axis,
                "point": entry.point,
                "policy": entry.scheme,
                "name_in_paper": TEXT.names.get(entry.scheme),
                "value": entry.value.mean,
                "value_half_width_95": entry.value.half,
                "netpack_better_by": entry.advantage.mean,
                "better_half_width_95": entry.advantage.half,
                "netpack_jct_lower_by": entry.reduction,
                "machines_of_a_job_on_several": entry.machines,
                "netpack_is": None if entry.scheme == NETPACK else entry.standing,
            }
            for entry in self.entries
        ]


Tables = Sequence[PanelTable]


def panel_tables(experiments: Iterable[NetpackExperiment], replays: NetpackResults) -> list[PanelTable]:
    """Return a table for each panel of each experiment."""
    made = []
    for experiment in experiments:
        for title, panel in experiment.panels.items():
            entries = tuple(
                PolicyPoint(
                    title,
                    label,
                    scheme,
                    replays.value(setup, scheme, experiment.measure),
                    replays.advantage(setup, scheme, experiment.measure),
                    replays.reduction(setup, scheme),
                    fmean(replays.values(setup, scheme, "machines")),
                )
                for label, setup in panel.items()
                for scheme in experiment.schemes
            )
            made.append(PanelTable(experiment, title, tuple(panel), entries))
    return made


def panel_sheet(table: PanelTable) -> TextTable:
    """Show a panel: NetPack's own values, and by what factor it is better than each of the others."""
    jct = table.experiment.measure == "jct"
    found = [table.at(point) for point in table.points]
    others = [scheme for scheme in table.experiment.schemes if scheme != NETPACK]
    rows = [[f"netpack, {'hours' if jct else 'DE'}", *(spread(each[NETPACK].value) for each in found)]]
    rows += [
        [TEXT.label(scheme), *(times(each[scheme].advantage) + MARKS[each[scheme].standing] for each in found)]
        for scheme in others
    ]
    what = "A policy's mean JCT over NetPack's" if jct else "NetPack's DE over that of a policy"
    note = f"{what}, seed by seed; = level with NetPack, < NetPack is behind."
    if jct and table.rivals:
        rows.append([LOWER, *(percent(table.mean_reduction(point)) for point in table.points)])
        names = ", ".join(TEXT.names[scheme] for scheme in table.experiment.rivals)
        note += f" {LOWER}: by how much NetPack's JCT is lower, mean of {names}."
    title = f"{table.experiment.heading}: {table.panel}"
    return TextTable(title, note, (table.experiment.axis, *table.points), rows)


def speed_sheet(seconds: Mapping[int, float]) -> TextTable:
    """Show how long NetPack takes to place a job."""
    rows = []
    for servers, ours in seconds.items():
        paper = TEXT.claims["10"].numbers.get(str(servers))
        stated, faster = (f"{paper:.3g}", f"{paper / ours:.3g}x") if paper else (MISSING, MISSING)
        rows.append([f"{servers:,}", stated, f"{ours:.3g}", faster])
    return TEXT.table("speed", rows)


def rate_sheet(rates: Iterable[JobRates]) -> TextTable:
    """Show rates as jobs come and go."""
    rows = [
        [
            f"{each.job}, {each.from_s:.0f} to {each.to_s:.0f} s",
            *map(plain, (each.rate_gbps, each.estimate_gbps, each.steady_gbps, each.phases_gbps)),
        ]
        for each in rates
    ]
    return TEXT.table("rates", rows)


def claims(made: Tables, seconds: Mapping[int, float], rates: Sequence[JobRates]) -> list[Claim]:
    """Return what became of every claim."""
    by = {key: list(group) for key, group in groupby(made, lambda table: table.experiment.key)}
    rules: dict[str, Callable[[Tables], Found]] = {
        "7": lambda tables: _overall("7", tables, lambda entry: entry.reduction),
        "8": lambda tables: _overall("8", tables, lambda entry: entry.advantage.mean),
        "9": _scale,
        "10": lambda _: _speed(seconds),
        "11": _memory,
        "12": _oversubscription,
        "13": _comb,
        "15": lambda _: _rates(rates),
        "load": lambda _: ("beyond the paper", {}),
        "queue": _queue,
        "sign": _sign,
    }
    run = {*by, *(["10"] if seconds else []), *(["15"] if rates else [])}
    judged = []
    for key in rules:
        if key in run:
            tables = by.get(key, [])
            holds, values = rules[key](tables)
            judged.append(TEXT.claim(key, holds, **{**_common(tables), **values}))
    return [*judged, *_ours(made), TEXT.not_tested]


def _common(tables: Tables) -> dict[str, str]:
    """Return what several claims say: reductions at each point of every panel, and how often NetPack leads."""
    found = _rivals(tables)
    if not found:
        return {}
    means, points = [], []
    for table in tables:
        each = [f"{percent(table.mean_reduction(point))} at {point}" for point in table.points]
        means.append(f"{table.panel} ({', '.join(each)})")
        spans = [
            f"{point}: {_span([entry.reduction for entry in table.rivals if entry.point == point])}"
            for point in table.points
        ]
        points.append(f"{table.panel} ({', '.join(spans)})")
    return {
        "means": "; ".join(means),
        "points": "; ".join(points),
        "grows": ", ".join(_grows(tables)),
        "standings": _standings(found),
    }


def _rivals(tables: Tables) -> list[PolicyPoint]:
    """Return the comparisons of NetPack with the baselines of the paper."""
    return [entry for table in tables for entry in table.rivals]


def _ahead(tables: Tables, *sizes: bool) -> Holds:
    """Return the verdict: NetPack is ahead everywhere, ahead more often than behind, or not even that."""
    count = Counter(entry.standing for entry in _rivals(tables))
    if count["ahead"] == count.total() and all(sizes):
        return "holds"
    return "holds in part" if count["ahead"] > count["behind"] else "does not hold"


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


def _overall(key: str, tables: Tables, value: Callable[[PolicyPoint], float]) -> Found:
    """Judge Figs. 7 and 8: the most in the simulator, and the testbed's range with the real trace."""
    found = _rivals(tables)
    most = max((each for each in found if each.panel == "simulator"), key=value)
    testbed = [value(each) for each in found if (each.panel, each.point) == ("testbed", "real trace")]
    ours = {"simulator_most": value(most), "testbed_least": min(testbed), "testbed_most": max(testbed)}
    sizes = [near(TEXT.claims[key].numbers[name], ours[name]) for name in ours]
    values = {"low": min(testbed), "high": max(testbed), "most": value(most), "where": most.where}
    return _ahead(tables, *sizes), values


def _scale(tables: Tables) -> Found:
    (table,) = tables
    text, last = TEXT.claims["9"], table.points[-1]
    mean = sum(table.mean_reduction(point) for point in table.points) / len(table.points)
    standings = _standings(table.rivals)
    if table.mean_reduction(last) < 0:
        ours, theirs = (table.at(last)[scheme].machines for scheme in (NETPACK, RIVALS[0]))
        standings += " " + text.part("behind", last=last, ours=ours, rival=TEXT.names[RIVALS[0]], theirs=theirs)
    holds = _ahead(tables, near(text.numbers["mean"], mean)) if mean > 0 else "does not hold"
    return holds, {"found": mean, "standings": standings}


def _speed(seconds: Mapping[int, float]) -> Found:
    text = TEXT.claims["10"]
    paper = {int(servers): value for servers, value in text.numbers.items() if int(servers) in seconds}
    small, large = min(seconds), max(seconds)
    growth = seconds[large] / seconds[small]
    linear = growth <= large / small
    fast = all(seconds[servers] <= value for servers, value in paper.items())
    return "holds" if linear and fast else "holds in part", {
        "listed": ", ".join(
            text.part("servers", seconds=ours, servers=servers) for servers, ours in seconds.items()
        ),
        "faster": " and ".join(
            f"{paper[servers] / ours:.0f}" for servers, ours in seconds.items() if servers in paper
        ),
        "small": small,
        "large": large,
        "growth": growth,
        "compared": "less" if linear else "more",
    }


def _grows(tables: Tables) -> list[str]:
    """Return the panels in which the advantage is clearly larger at the last point than at the first."""
    return [
        table.panel
        for table in tables
        if table.mean_reduction(table.points[-1]) > table.mean_reduction(table.points[0]) + CLEAR
    ]


def _memory(tables: Tables) -> Found:
    found, grows, stated = _rivals(tables), _grows(tables), TEXT.claims["11"]
    none = [entry.reduction for entry in found if entry.point == "0"]
    sizes = bool(none) and all(near(stated.numbers["none_least"], value) for value in none)
    holds = _ahead(tables, len(grows) == len(tables), sizes) if grows else "does not hold"
    standings = _standings(found)
    if any(entry.standing == "behind" for entry in found):
        standings += " " + stated.part("behind")
    return holds, {"grows": ", ".join(grows) or "no panel", "standings": standings}


def _oversubscription(tables: Tables) -> Found:
    numbers, grows = TEXT.claims["12"].numbers, _grows(tables)
    sizes = [
        near(numbers[key], table.mean_reduction(table.points[at]))
        for table in tables
        for key, at in (("first", 0), ("last", -1))
    ]
    return _ahead(tables, *sizes) if grows else "does not hold", {"grows": ", ".join(grows) or "none"}


def _comb(tables: Tables) -> Found:
    most = max(entry.reduction for entry in _rivals(tables))
    return _ahead(tables, near(TEXT.claims["13"].numbers["most"], most)), {}


def _rates(rates: Sequence[JobRates]) -> Found:
    phases = [each.phases_gbps / each.estimate_gbps for each in rates]
    fits = max(Ratio(each.estimate_gbps, each.phases_gbps).off for each in rates) <= NEAR
    both = [
        _change(one.estimate_gbps, other.estimate_gbps) == _change(one.phases_gbps, other.phases_gbps)
        for one, other in pairwise(sorted(rates, key=lambda each: (each.job, each.from_s)))
        if one.job == other.job
    ]
    return "holds" if fits else "holds in part", {
        "same": max(abs(each.estimate_gbps / each.steady_gbps - 1.0) for each in rates),
        "least": min(phases),
        "most": max(phases),
        "both": sum(both),
        "events": len(both),
    }


def _change(before: float, after: float) -> int:
    """Say whether a rate rises (1), falls (-1) or stays."""
    return 0 if isclose(before, after) else 1 if after > before else -1


def _queue(tables: Tables) -> Found:
    text = []
    for table in tables:
        own, fifo = (table.mean_reduction(order) for order in table.points)
        ratio = table.at("fifo")[IN_ORDER].advantage.mean
        text.append(TEXT.claims["queue"].part("panel", panel=table.panel, own=own, fifo=fifo, ratio=ratio))
    return "beyond the paper", {"panels": " ".join(text)}


def _sign(tables: Tables) -> Found:
    (printed,) = ([table.at(point)[PRINTED] for point in table.points] for table in tables)
    worse = any(each.standing == "ahead" for each in printed)
    head = TEXT.claims["sign"].part("worse" if worse else "level")
    listed = ", ".join(f"{each.point} {times(each.advantage)}" for each in printed)
    return "beyond the paper", {"head": head, "listed": listed}


def _ours(made: Tables) -> Iterator[Claim]:
    """Compare two policies that the paper does not have, over all experiments with JCT."""
    tables = [
        each for each in made if each.experiment.measure == "jct" and each.experiment.key not in ("13", "sign")
    ]
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
