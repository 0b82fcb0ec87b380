"""CASSINI's evaluation put together: what is run, and facts, claims, tables and plots of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial

from cranny.repro.cassini import cassini_plots as draw
from cranny.repro.cassini import link_results as link
from cranny.repro.cassini import trace_results as trace
from cranny.repro.cassini.link_shapes import WORKERS as ON_LINK
from cranny.repro.cassini.links import (
    JITTER,
    Adjustments,
    LinkOutcome,
    UnifiedPair,
    run_adjustments,
    run_fig5,
    run_pairs,
    run_table2,
)
from cranny.repro.cassini.paper import TEXT
from cranny.repro.cassini.precision import AnglePrecision, run_precision
from cranny.repro.cassini.replays import (
    GAP,
    POISSON_JOBS,
    TRACES,
    CassiniReplays,
    CassiniTrace,
    chosen,
    plan,
    run_replays,
)
from cranny.repro.cassini.setups import ITERATIONS, LANGUAGE, LINK_GBPS, WORKERS, testbed
from cranny.repro.claim import Claim
from cranny.repro.experiment import Progress
from cranny.repro.page import Plot, Reproduction, Section

TABLE2 = "table2"
KEYS = ("2", "5", *dict.fromkeys(each.figure for each in TRACES), TABLE2, "17", "18")
LINK_SEEDS, LINK_S, LINKS = 30, 900.0, 60  # of jobs on one link: seeds, seconds; and links of Fig. 18
QUICK_SEEDS, QUICK_S, QUICK_LINKS = 3, 120.0, 10


@dataclass(frozen=True, slots=True)
class CassiniResults:
    """All that was run; what was not asked for is empty."""

    seeds: int  # of jobs on one link
    pairs: Sequence[LinkOutcome] = ()
    fig5: UnifiedPair | None = None
    table2: Mapping[int, Sequence[LinkOutcome]] = field(default_factory=dict)
    adjustments: Sequence[Adjustments] = ()
    precision: Sequence[AnglePrecision] = ()
    replays: CassiniReplays | None = None


def replay_count(keys: Sequence[str], seeds: int, *, quick: bool) -> int:
    """Return how many traces are replayed."""
    return len(plan(chosen(keys), seeds, quick=quick))


def run(
    keys: Sequence[str],
    seeds: int,
    processes: int,
    progress: Progress | None = None,
    *,
    quick: bool = False,
) -> CassiniResults:
    """Run the experiments of some keys."""
    link_seeds, link_s = (QUICK_SEEDS, QUICK_S) if quick else (LINK_SEEDS, LINK_S)
    traces = chosen(keys)
    return CassiniResults(
        seeds=link_seeds,
        pairs=run_pairs(link_seeds, link_s) if "2" in keys else (),
        fig5=run_fig5() if "5" in keys else None,
        table2=run_table2(link_seeds, link_s) if TABLE2 in keys else {},
        adjustments=run_adjustments(link_seeds, link_s) if "17" in keys else (),
        precision=run_precision(QUICK_LINKS if quick else LINKS) if "18" in keys else (),
        replays=run_replays(traces, seeds, processes, progress, quick=quick) if traces else None,
    )


def reproduction(results: CassiniResults) -> Reproduction:
    """Make tables, claims and plots of the results."""
    claims, sections = _parts(results)
    sheets = [sheet for section in sections for sheet in section.tables]
    rows = trace.trace_rows(results.replays) if results.replays is not None else []
    table2 = link.table2_rows(results.table2)
    return Reproduction(
        TEXT.name,
        TEXT.paper,
        TEXT.title,
        _facts(results),
        [*claims, TEXT.not_tested],
        sections,
        {"traces": rows, TABLE2: table2, "tables": [asdict(sheet) for sheet in sheets]},
        {
            "traces": rows,
            TABLE2: [{**row, "shifts_ms": " ".join(map(str, row["shifts_ms"]))} for row in table2],
            "fig17": link.adjustment_rows(results.adjustments),
            "fig18": link.precision_rows(results.precision),
        },
        sheets,
    )


def _parts(results: CassiniResults) -> tuple[list[Claim], list[Section]]:
    """Return claims and sections, figure after figure, and then the questions of ours."""
    claims: list[Claim] = []
    sections: list[Section] = []
    ours: list[Claim] = []
    if results.pairs:
        claims.append(link.pair_claim(results.pairs))
        plots: dict[str, Plot] = {"fig2": partial(draw.draw_pair, results.pairs)}
        sections.append(Section("Fig. 2: two jobs on a link", [link.pair_sheet(results.pairs)], plots))
    if results.fig5 is not None:
        claims.append(link.unified_claim(results.fig5))
        sections.append(Section("Fig. 5: a unified circle", [link.unified_sheet(results.fig5)]))
    if results.replays is not None:
        gains, marks = trace.host_gains(results.replays), trace.mark_reductions(results.replays)
        claims += [*trace.gain_claims(gains), *trace.mark_claims(marks)]
        ours = list(trace.own_claims(results.replays, gains))
        sheets = [trace.gain_sheet(gains), *([trace.mark_sheet(marks)] if marks else [])]
        sections.append(Section("Iteration times with CASSINI and without", sheets))
        sections += [_trace_section(results.replays, each) for each in results.replays.traces]
    if results.table2:
        claims += link.table2_claims(results.table2)
        title = "Table 2 and Fig. 15: partly compatible jobs"
        sections.append(Section(title, link.table2_sheets(results.table2), {"fig15": draw.draw_uses}))
    if results.adjustments:
        claims.append(link.adjustment_claim(results.adjustments))
        plots = {"fig17": partial(draw.draw_adjustments, results.adjustments)}
        sections.append(Section("Fig. 17: adjustments", [link.adjustment_sheet(results.adjustments)], plots))
    if results.precision:
        claims.append(link.precision_claim(results.precision))
        plots = {"fig18": partial(draw.draw_precision, results.precision)}
        sections.append(Section("Fig. 18: precision", [link.precision_sheet(results.precision)], plots))
    return claims + ours, sections


def _trace_section(replays: CassiniReplays, of: CassiniTrace) -> Section:
    """Return the section of a trace."""
    plots: dict[str, Plot] = {}
    if of.figure != GAP:  # of which the numbers say all
        stem = f"{'fig' if of.figure.isdigit() else ''}{of.figure}{'-fours' if of.fours else ''}"
        if of.key.startswith("poisson"):
            plots[f"{stem}-courses"] = partial(draw.draw_iterations, replays, of)
        plots[f"{stem}-cdf"] = partial(draw.draw_cdfs, replays, of)
        if any(replays.marks(of, scheme)[""] > 0 for scheme in draw.MARKED):
            plots[f"{stem}-marks"] = partial(draw.draw_marks, replays, of)
    return Section(trace.heading(of), [trace.trace_sheet(replays, of)], plots)


def _facts(results: CassiniResults) -> list[str]:
    """Say what was run, and what was assumed."""
    facts = TEXT.say("profiles", "marked", gbps=LINK_GBPS, language=LANGUAGE)
    if results.pairs or results.table2 or results.adjustments:
        facts += TEXT.say("link", jitter=100 * JITTER, workers=ON_LINK, seeds=results.seeds)
    if results.replays is not None:
        workers, iterations = (f"{least} to {most}" for least, most in (WORKERS, ITERATIONS))
        facts += TEXT.say("cluster", cluster=testbed().describe(), gbps=LINK_GBPS)
        seeds = results.replays.seeds
        facts += TEXT.say("traces", jobs=POISSON_JOBS, workers=workers, iterations=iterations, seeds=seeds)
    return facts
