"""Results on traces: tables, verdicts and rows of files for Figs. 11 to 14 and 16 and for questions of ours."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.cassini import cassini_plots as draw
from cranny.repro.cassini.link_results import MS, gained
from cranny.repro.cassini.paper import (
    ALIKE,
    BEYOND,
    OPEN,
    SCHEMES,
    TEXT,
    VARIANTS,
    CassiniTrace,
    PaperGain,
    PaperMarks,
)
from cranny.repro.cassini.replays import ALIKE_S, PAIRS, CassiniReplays
from cranny.repro.claim import NEAR, Claim, Holds, OpenChoice, Reading, all_or_some
from cranny.repro.experiment import scaled
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Plot, Record, Section

LEAST_GBIT = 1e-3  # in an iteration: less is nothing
MEAN, TAIL = "mean", "99th percentile"


class HostGain(NamedTuple):
    """By what factor CASSINI makes the iterations of a host's jobs faster on a trace, and the paper's values."""

    trace: CassiniTrace
    host: str
    paper: PaperGain | None
    mean: Estimate
    p99: Estimate
    jct: Estimate  # the same of job completion times
    p99_jct: Estimate
    before: float  # iteration times over those alone, with the host
    after: float  # and with CASSINI
    contended: bool  # whether the host's jobs share links that are too small for them

    @property
    def costs(self) -> str:
        """Write what sharing costs with the host, and with CASSINI."""
        return f"from {cost(self.before)} to {cost(self.after)}"

    @property
    def values(self) -> dict[str, Estimate]:
        """Return the gains by what they are of."""
        return {MEAN: self.mean, TAIL: self.p99}


def host_gains(replays: CassiniReplays) -> list[HostGain]:
    """Return the gains on every trace over every host."""
    stated = {(gain.trace, gain.host): gain for gain in TEXT.gains}
    return [
        HostGain(
            trace,
            host,
            stated.get((trace.key, host)),
            replays.ratio(trace, host, after, "mean_s"),
            replays.ratio(trace, host, after, "p99_s"),
            replays.ratio(trace, host, after, "mean_jct_s"),
            replays.ratio(trace, host, after, "p99_jct_s"),
            replays.value(trace, host, "over_alone").mean,
            replays.value(trace, after, "over_alone").mean,
            replays.marks(trace, host)[""] > LEAST_GBIT,
        )
        for trace in replays.setups
        for host, after in PAIRS.items()
        if host in trace.schemes
    ]


class MarkReduction(NamedTuple):
    """How many times less is requested above capacity with CASSINI, for what the paper states of a model."""

    trace: CassiniTrace
    stated: PaperMarks
    model: str
    before: float
    after: float

    @property
    def factor(self) -> float | None:
        """Return the factor; None if there was nothing to reduce."""
        return self.before / max(self.after, LEAST_GBIT) if self.before > LEAST_GBIT else None

    @property
    def near(self) -> bool:
        """Say whether the factor is as large as the paper's, or nearly; not where there was nothing to reduce."""
        return self.factor is not None and self.factor >= self.stated.fewer * (1 - NEAR)


def mark_reductions(replays: CassiniReplays) -> list[MarkReduction]:
    """Compare with what the paper states of ECN marks."""
    made = []
    for stated in TEXT.marks:
        for trace in replays.setups:
            if trace.key == stated.trace:
                before, after = (replays.marks(trace, each) for each in (stated.host, PAIRS[stated.host]))
                model = stated.model or max((name for name in before if name), key=lambda name: before[name])
                made.append(MarkReduction(trace, stated, model, before.get(model, 0.0), after.get(model, 0.0)))
    return made


def cost(over_alone: float) -> str:
    """Write what sharing costs."""
    return f"{100 * max(over_alone - 1.0, 0.0):.1f} %"


def heading(trace: CassiniTrace, *, short: bool = False) -> str:
    """Return the title of a trace, with the paper's figure if it has one.

    If short, only the figure, and which reading of the topology it is; steps of ours have a title always.
    """
    figure = f"Fig. {trace.figure}" if trace.figure.isdigit() else trace.figure
    if trace.figure == OPEN:
        return f"{trace.question}: {trace.title}"
    if short:
        return f"{figure}, fours" if trace.fours else figure
    return f"{figure}: {trace.title}"


def trace_sections(replays: CassiniReplays) -> Iterator[Section]:
    """Show and judge all traces together, and show each."""
    gains, marks = host_gains(replays), mark_reductions(replays)
    yield Section(
        "Iteration times with CASSINI and without",
        [gain_sheet(gains), *([mark_sheet(marks)] if marks else [])],
        rows={"traces": trace_rows(replays)},
        claims=[*jct_claim(gains), *gain_claims(gains), *mark_claims(marks)],
    )
    for trace in replays.setups:
        plots: dict[str, Plot] = {}
        if trace.figure != OPEN:  # of which the numbers say all
            stem = f"{'fig' if trace.figure.isdigit() else ''}{trace.figure}{'-fours' if trace.fours else ''}"
            if trace.key.startswith("poisson"):
                plots[f"{stem}-courses"] = partial(draw.draw_iterations, replays, trace)
            plots[f"{stem}-cdf"] = partial(draw.draw_cdfs, replays, trace)
            if any(replays.marks(trace, scheme)[""] > 0 for scheme in draw.MARKED):
                plots[f"{stem}-marks"] = partial(draw.draw_marks, replays, trace)
        yield Section(heading(trace), [trace_sheet(replays, trace)], plots)


def gain_sheet(gains: Sequence[HostGain]) -> TextTable:
    """Show by what factor iterations and jobs are faster with CASSINI, on all traces."""
    rows = [
        [
            f"{heading(each.trace, short=True)}: {each.host}",
            f"{times(each.paper.mean)}, {times(each.paper.p99)}" if each.paper and each.paper.mean else MISSING,
            *map(times, (each.mean, each.p99, each.jct, each.p99_jct)),
            cost(each.before),
            cost(each.after),
        ]
        for each in gains
    ]
    return TEXT.table("gains", rows)


def mark_sheet(reductions: Sequence[MarkReduction]) -> TextTable:
    """Show the proxy for ECN marks."""
    rows = [
        [
            f"{heading(each.trace, short=True)}, {each.stated.host}: {each.model}",
            times(each.stated.fewer),
            times(each.factor),
            plain(each.before),
            plain(each.after),
        ]
        for each in reductions
    ]
    return TEXT.table("marks", rows)


def trace_sheet(replays: CassiniReplays, trace: CassiniTrace) -> TextTable:
    """Show the values of every scheme on a trace."""
    rows = []
    for scheme in trace.schemes:
        mean, p99, over, p99_over, jct = (
            replays.value(trace, scheme, name)
            for name in ("mean_s", "p99_s", "over_alone", "p99_over_alone", "mean_jct_s")
        )
        row = [spread(scaled(mean, MS)), spread(scaled(p99, MS)), cost(over.mean), cost(p99_over.mean)]
        rows.append([scheme, *row, plain(replays.marks(trace, scheme)[""]), plain(jct.mean)])
    return TEXT.table("trace", rows, title=heading(trace))


def trace_rows(replays: CassiniReplays) -> list[Record]:
    """Return a row for each trace and scheme, for files."""
    rows: list[Record] = []
    for trace in replays.setups:
        for scheme in trace.schemes:
            mean, p99, jct = (replays.value(trace, scheme, name) for name in ("mean_s", "p99_s", "mean_jct_s"))
            rows.append(
                {
                    "figure": trace.figure,
                    "trace": trace.key,
                    "title": trace.title,
                    "switches_of_four": trace.fours,
                    "policy": scheme,
                    "name_in_paper": TEXT.names.get(scheme),
                    "mean_iteration_s": mean.mean,
                    "mean_half_width_95": mean.half,
                    "p99_iteration_s": p99.mean,
                    "p99_half_width_95": p99.half,
                    "mean_over_alone": replays.value(trace, scheme, "over_alone").mean,
                    "p99_over_alone": replays.value(trace, scheme, "p99_over_alone").mean,
                    "p99_jct_s": replays.value(trace, scheme, "p99_jct_s").mean,
                    "above_gbit_per_iteration": replays.marks(trace, scheme)[""],
                    "mean_jct_s": jct.mean,
                    "jct_half_width_95": jct.half,
                    "in_paper": scheme in SCHEMES,
                }
            )
    return rows


def topology(trace: CassiniTrace) -> str:
    """Name the reading of the testbed's topology."""
    return "uplink for 4 servers" if trace.fours else "uplink for 2 servers"


def gain_claims(gains: Sequence[HostGain]) -> Iterator[Claim]:
    """Judge the iteration times on the traces, a claim for each figure and host that the paper has numbers for."""
    by_claim: dict[tuple[str, str], list[HostGain]] = {}
    for each in gains:
        by_claim.setdefault((each.trace.key, each.host), []).append(each)
    for group in by_claim.values():
        paper = group[0].paper
        if paper is None or paper.mean is None or paper.p99 is None:
            continue
        stated = {MEAN: paper.mean, TAIL: paper.p99}
        readings = [Reading(topology(each.trace), each.values, *gained(each.values, stated)) for each in group]
        costs = ", ".join(f"{each.costs} ({topology(each.trace)})" for each in group)
        known = paper.model_dump(include={"figure", "title", "place", "mean", "p99"})
        yield TEXT.claim("gain", readings, stated, costs=costs, host=TEXT.names[paper.host], **known)


def jct_claim(gains: Sequence[HostGain]) -> Iterator[Claim]:
    """Judge what the abstract says of completion times: by up to how much they are better in any figure."""
    stated = {name: TEXT.claims["jct"].bars[name] for name in (MEAN, TAIL)}
    figures = [each for each in gains if each.trace.figure.isdigit() and each.host not in BEYOND]
    readings, most = [], []
    for fours in (False, True):
        group = [each for each in figures if each.trace.fours == fours]
        if group:
            best = max(group, key=lambda each: each.jct.mean), max(group, key=lambda each: each.p99_jct.mean)
            values = {MEAN: best[0].jct, TAIL: best[1].p99_jct}
            readings.append(Reading(topology(group[0].trace), values, *gained(values, stated)))
            most.append(f"{heading(best[0].trace, short=True)}, with {TEXT.names[best[0].host]}")
    if readings:
        yield TEXT.claim("jct", readings, where=" and ".join(most))


def mark_claims(reductions: Sequence[MarkReduction]) -> Iterator[Claim]:
    """Judge what is requested above capacity; a case that starts with nothing shows nothing."""
    by_reading: dict[str, list[MarkReduction]] = {}
    for each in reductions:
        by_reading.setdefault(topology(each.trace), []).append(each)
    readings = []
    for name, group in by_reading.items():
        values = {_case(each.stated): Estimate(each.factor, None) for each in group if each.factor is not None}
        fewer = all(each.after < each.before for each in group if each.factor is not None)
        parts = [fewer and each.near for each in group]
        readings.append(Reading(name, values, all_or_some(parts), parts))
    if readings:
        stated = {_case(each): each.fewer for each in TEXT.marks}
        nothing = sum(each.factor is None for each in reductions)
        yield TEXT.claim("marks", readings, stated, nothing=nothing, all=len(reductions))


def _case(stated: PaperMarks) -> str:
    return f"Fig. {stated.figure}: {stated.model or 'the most'}, {stated.host}"


def own_claims(gains: Sequence[HostGain]) -> Iterator[Claim]:
    """Answer the questions of ours: iterations alike, and other hosts."""
    alike = {each.host: each for each in gains if each.trace.key == ALIKE}
    if alike:
        readings = [
            Reading(name, {host: each.values[name] for host, each in alike.items()}) for name in (MEAN, TAIL)
        ]
        costs = ", ".join(f"{host} {each.costs}" for host, each in alike.items())
        yield TEXT.claim("alike", readings, ms=1e3 * ALIKE_S, costs=costs)
    hosts = [each for each in gains if each.host in BEYOND]
    if hosts:
        readings = [
            Reading(heading(trace, short=True), {each.host: each.mean for each in hosts if each.trace == trace})
            for trace in dict.fromkeys(each.trace for each in hosts)
        ]
        yield TEXT.claim("hosts", readings)


def left_open(replays: CassiniReplays, gains: Sequence[HostGain]) -> list[OpenChoice]:
    """Show what depends on readings of what the paper leaves open, on the dynamic trace."""
    base = next((trace for trace in replays.setups if trace.key == "dynamic" and trace.fours), None)
    if base is None:
        return []
    found = []
    for trace in replays.setups:
        if trace.figure == OPEN:
            first = [each for each in gains if each.trace == base and each.host.startswith(trace.host)]
            other = [each for each in gains if each.trace == trace]
            readings = [_reading("as in the figures", first), _reading(trace.title, other)]
            found.append(OpenChoice(trace.question, readings))
    pairs = [each for each in gains if each.trace.key == "dynamic" and not each.trace.fours]
    if pairs:
        found.append(
            OpenChoice(
                "Topology",
                [
                    _reading(topology(base), [each for each in gains if each.trace == base]),
                    _reading(topology(pairs[0].trace), pairs),
                ],
            )
        )
    forms = {PAIRS["themis"]: "as in the figures", **{form: form.partition(", ")[2] for form in VARIANTS}}
    readings = []
    for form, name in forms.items():
        values = {
            f"themis: {measure}": replays.ratio(base, "themis", form, column)
            for measure, column in ((MEAN, "mean_s"), (TAIL, "p99_s"))
        }
        readings.append(Reading(name, values, *_against_figure(values, "themis")))
    return [*found, OpenChoice("How CASSINI chooses", readings)]


def _reading(name: str, gains: Sequence[HostGain]) -> Reading:
    """Return the gains over the paper's hosts on one trace, judged as Fig. 13 is."""
    values = {
        f"{each.host}: {measure}": value
        for each in gains
        if each.host not in BEYOND
        for measure, value in each.values.items()
    }
    return Reading(
        name, values, *_against_figure(values, *(each.host for each in gains if each.host not in BEYOND))
    )


def _against_figure(values: Mapping[str, Estimate], *hosts: str) -> tuple[Holds, list[bool]]:
    """Judge gains over some hosts by what the paper has in Fig. 13."""
    stated = {
        f"{gain.host}: {measure}": value
        for gain in TEXT.gains
        if gain.trace == "dynamic" and gain.host in hosts
        for measure, value in ((MEAN, gain.mean), (TAIL, gain.p99))
        if value is not None
    }
    return gained(values, stated)
