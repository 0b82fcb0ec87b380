"""Results on traces: tables, verdicts and rows of files for Figs. 11 to 14 and 16 and for questions of ours."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from cranny.report.confidence import Estimate
from cranny.report.table import MISSING
from cranny.report.text_table import TextTable
from cranny.repro.cassini import cassini_plots as draw
from cranny.repro.cassini.link_results import MS, beyond_doubt, judged
from cranny.repro.cassini.paper import ALIKE, BEYOND, GAP, SCHEMES, TEXT, VARIANTS, CassiniTrace, PaperGain
from cranny.repro.cassini.replays import ALIKE_S, PAIRS, CassiniReplays
from cranny.repro.claim import NEAR, Claim, graded
from cranny.repro.experiment import scaled
from cranny.repro.number_format import plain, spread, times
from cranny.repro.page import Plot, Record, Section

NOTHING = 1e-6  # Gbit in an iteration: what rounding leaves


class HostGain(NamedTuple):
    """By what factor CASSINI makes the iterations of a host's jobs faster on a trace, and the paper's values."""

    trace: CassiniTrace
    host: str
    paper: PaperGain | None
    mean: Estimate
    p99: Estimate
    before: float  # iteration times over those alone, with the host
    after: float  # and with CASSINI
    relief: Estimate  # the first over the second, seed by seed
    contended: bool  # whether the host's jobs share links that are too small for them

    @property
    def costs(self) -> str:
        """Write what sharing costs with the host, and with CASSINI."""
        return f"from {cost(self.before)} to {cost(self.after)}"


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
            replays.value(trace, host, "over_alone").mean,
            replays.value(trace, after, "over_alone").mean,
            replays.ratio(trace, host, after, "over_alone"),
            replays.marks(trace, host)[""] > 0,
        )
        for trace in replays.setups
        for host, after in PAIRS.items()
        if host in trace.schemes
    ]


class MarkReduction(NamedTuple):
    """How many times less is requested above capacity with CASSINI, for what the paper states of a model."""

    trace: CassiniTrace
    host: str
    model: str
    paper: float
    before: float
    after: float

    @property
    def gone(self) -> bool:
        """Say whether there was something, and nothing remains."""
        return self.after <= NOTHING < self.before

    @property
    def factor(self) -> float | None:
        """Return the factor; None if nothing remains, or nothing was there."""
        return self.before / self.after if min(self.after, self.before) > NOTHING else None


def mark_reductions(replays: CassiniReplays) -> list[MarkReduction]:
    """Compare with what the paper states of ECN marks."""
    made = []
    for stated in TEXT.marks:
        for trace in replays.setups:
            if trace.key == stated.trace:
                before, after = (replays.marks(trace, each) for each in (stated.host, PAIRS[stated.host]))
                model = stated.model or max((name for name in before if name), key=lambda name: before[name])
                found = before.get(model, 0.0), after.get(model, 0.0)
                made.append(MarkReduction(trace, stated.host, model, stated.fewer, *found))
    return made


def cost(over_alone: float) -> str:
    """Write what sharing costs."""
    return f"{100 * max(over_alone - 1.0, 0.0):.1f} %"


def heading(trace: CassiniTrace, *, short: bool = False) -> str:
    """Return the title of a trace, with the paper's figure if it has one.

    If short, only the figure, and which reading of the topology it is; steps of ours have a title always.
    """
    figure = f"Fig. {trace.figure}" if trace.figure.isdigit() else trace.figure
    if short and trace.figure != GAP:
        return f"{figure}, fours" if trace.fours else figure
    return f"{figure}: {trace.title}"


def trace_sections(replays: CassiniReplays) -> Iterator[Section]:
    """Show and judge all traces together, and show each."""
    gains, marks = host_gains(replays), mark_reductions(replays)
    yield Section(
        "Iteration times with CASSINI and without",
        [gain_sheet(gains), *([mark_sheet(marks)] if marks else [])],
        rows={"traces": trace_rows(replays)},
        claims=[*gain_claims(gains), *mark_claims(marks)],
    )
    for trace in replays.setups:
        plots: dict[str, Plot] = {}
        if trace.figure != GAP:  # of which the numbers say all
            stem = f"{'fig' if trace.figure.isdigit() else ''}{trace.figure}{'-fours' if trace.fours else ''}"
            if trace.key.startswith("poisson"):
                plots[f"{stem}-courses"] = partial(draw.draw_iterations, replays, trace)
            plots[f"{stem}-cdf"] = partial(draw.draw_cdfs, replays, trace)
            if any(replays.marks(trace, scheme)[""] > 0 for scheme in draw.MARKED):
                plots[f"{stem}-marks"] = partial(draw.draw_marks, replays, trace)
        yield Section(heading(trace), [trace_sheet(replays, trace)], plots)


def gain_sheet(gains: Sequence[HostGain]) -> TextTable:
    """Show by what factor iterations are faster with CASSINI, on all traces."""
    rows = [
        [
            f"{heading(each.trace, short=True)}: {each.host}",
            f"{times(each.paper.mean)}, {times(each.paper.p99)}" if each.paper and each.paper.mean else MISSING,
            times(each.mean),
            times(each.p99),
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
            f"{heading(each.trace, short=True)}, {each.host}: {each.model}",
            times(each.paper),
            "nothing left" if each.gone else times(each.factor),
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
                    "above_gbit_per_iteration": replays.marks(trace, scheme)[""],
                    "mean_jct_s": jct.mean,
                    "jct_half_width_95": jct.half,
                    "in_paper": scheme in SCHEMES,
                }
            )
    return rows


def gain_claims(gains: Sequence[HostGain]) -> Iterator[Claim]:
    """Judge the iteration times on the traces, a claim for each figure and host that the paper has numbers for.

    What is judged is the first reading of the topology in which the host's jobs share links at all.
    """
    by_claim: dict[tuple[str, str], list[HostGain]] = {}
    for each in gains:
        by_claim.setdefault((each.trace.key, each.host), []).append(each)
    part = TEXT.claims["gain"].part
    for group in by_claim.values():
        main = next((each for each in group if each.contended), group[0])
        paper = main.paper
        if paper is None or paper.mean is None or paper.p99 is None:
            continue
        both = {judged(main.mean, paper.mean), judged(main.p99, paper.p99)}
        holds = both.pop() if len(both) == 1 else "holds in part"
        halved = beyond_doubt(main.relief) and main.after - 1.0 <= (main.before - 1.0) / 2
        if holds == "does not hold" and halved:
            holds = "holds in part"
        found = []
        for each in group:
            where = "On switches of four" if each.trace.fours else "Here"
            values = {"before": cost(each.before), "after": cost(each.after), "host": each.host}
            name = "gain" if each.contended else "nothing"
            found.append(part(name, where=where, mean=each.mean, p99=each.p99, **values))
        stated = paper.model_dump(include={"figure", "title", "host", "place", "mean", "p99"})
        yield TEXT.claim("gain", holds, found=" ".join(found), **stated)


def mark_claims(reductions: Sequence[MarkReduction]) -> Iterator[Claim]:
    """Judge what is requested above capacity."""
    text = []
    for each in reductions:
        here = "nothing is left" if each.gone else times(each.factor) if each.factor else "none in either"
        values = {**each._asdict(), "trace": heading(each.trace)}
        text.append(TEXT.claims["marks"].part("model", here=here, **values))
    some = [each for each in reductions if each.gone or each.factor]
    right = [each.gone or (each.factor or 0.0) >= each.paper * (1 - NEAR) for each in some]
    lower = bool(some) and all(each.before > each.after for each in some)
    if text:
        yield TEXT.claim("marks", graded(lower, *right), found="; ".join(text))


def own_claims(replays: CassiniReplays, gains: Sequence[HostGain]) -> Iterator[Claim]:
    """Answer the questions of ours: the gap to the paper, iterations alike, other hosts, and parts of CASSINI."""
    steps = [
        TEXT.claims["gap"].part(
            "step",
            trace=each.trace.title,
            host=each.host,
            gain=_gain_and_cost(each),
            ideal=replays.ratio(each.trace, "random", "ideal", "mean_s").mean,
        )
        for each in gains
        if each.trace.figure == GAP
    ]
    if steps:
        yield TEXT.claim("gap", steps="; ".join(steps))
    alike = [f"{each.host}: {_gain_and_cost(each)}" for each in gains if each.trace.key == ALIKE]
    if alike:
        yield TEXT.claim("alike", ms=1e3 * ALIKE_S, hosts="; ".join(alike))
    hosts = [
        f"{each.trace.title}, {each.host}: {times(each.mean)}, {each.costs}"
        for each in gains
        if each.host in BEYOND and each.contended
    ]
    if hosts:
        yield TEXT.claim("hosts", hosts="; ".join(hosts))
    forms = (PAIRS["themis"], *VARIANTS)
    parts = [
        f"{trace.title}: {', '.join(cost(replays.value(trace, form, 'over_alone').mean) for form in forms)}"
        for trace in replays.setups
        if trace.figure != GAP and replays.marks(trace, "themis")[""]
    ]
    if parts:
        yield TEXT.claim("forms", traces="; ".join(parts))


def _gain_and_cost(each: HostGain) -> str:
    return f"mean {times(each.mean)}, 99th percentile {times(each.p99)}, what sharing costs {each.costs}"
