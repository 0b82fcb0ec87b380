"""CASSINI's evaluation put together: what is run, and facts, claims, tables and plots of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from cranny.model.validate import counted
from cranny.repro.cassini import link_results
from cranny.repro.cassini.candidate_counts import Counts, candidate_claim, count_candidates
from cranny.repro.cassini.link_shapes import WORKERS as ON_LINK
from cranny.repro.cassini.links import run_adjustments, run_fig5, run_pairs, run_table2
from cranny.repro.cassini.paper import TEXT, TRACES
from cranny.repro.cassini.precision import run_precision
from cranny.repro.cassini.replays import LEASE_S, POISSON_JOBS, QUICK_JOBS, CassiniReplays, plan, run_replays
from cranny.repro.cassini.setups import ITERATIONS, JITTER, LANGUAGE, LINK_GBPS, LOADS, WORKERS, testbed
from cranny.repro.cassini.trace_results import host_gains, left_open, own_claims, trace_sections
from cranny.repro.claim import OpenChoice
from cranny.repro.page import Reproduction, Section
from cranny.run import Progress

BEFORE, AFTER = ("2", "5"), ("table2", "17", "18")  # experiments on single links, before and after those on traces
KEYS = (*BEFORE, *dict.fromkeys(trace.figure for trace in TRACES), *AFTER)
FULL, QUICK = (30, 900.0, 60), (3, 120.0, 10)  # of jobs on one link: seeds, seconds; and links of Fig. 18


def run(
    keys: Sequence[str], seeds: int, processes: int, progress: Progress | None = None, *, quick: bool = False
) -> Reproduction:
    """Run the experiments of some keys."""
    links = run_links(keys, quick=quick)
    if not plan(keys, seeds):
        return reproduction(links, None, quick=quick)
    replays = run_replays(keys, seeds, processes, progress, quick=quick)
    return reproduction(links, replays, count_candidates(keys, seeds, processes, quick=quick), quick=quick)


def run_links(keys: Sequence[str], *, quick: bool) -> dict[str, Section]:
    """Run those of the experiments that are on single links."""
    seeds, seconds, links = QUICK if quick else FULL
    every: dict[str, Callable[[], Section]] = {
        "2": lambda: link_results.fig2(run_pairs(seeds, seconds)),
        "5": lambda: link_results.fig5(run_fig5()),
        "table2": lambda: link_results.table2(run_table2(seeds, seconds)),
        "17": lambda: link_results.fig17(run_adjustments(seeds, seconds)),
        "18": lambda: link_results.fig18(run_precision(links)),
    }
    return {key: work() for key, work in every.items() if key in keys}


def reproduction(
    links: Mapping[str, Section], replays: CassiniReplays | None, counts: Counts | None = None, *, quick: bool
) -> Reproduction:
    """Put figure after figure, and then the questions of ours."""
    traces = list(trace_sections(replays)) if replays is not None else []
    before, after = ([links[key] for key in keys if key in links] for keys in (BEFORE, AFTER))
    sections = [*before, *traces, *after]
    claims = [claim for section in sections for claim in section.claims]
    choices: list[OpenChoice] = []
    if replays is not None:
        gains = host_gains(replays)
        claims += own_claims(gains)
        claims += [candidate_claim(counts)] if counts else []
        choices = left_open(replays, gains)
    rows = {stem: rows for section in sections for stem, rows in section.rows.items()}
    values = {name: rows.get(name, []) for name in ("traces", "table2")}
    tables = [asdict(sheet) for section in sections for sheet in section.tables]
    facts = TEXT.say("profiles", "models", "marked", gbps=LINK_GBPS, language=LANGUAGE)
    if links.keys() & {"2", "table2", "17"}:
        seeds, _, _ = QUICK if quick else FULL
        facts += TEXT.say("link", jitter=100 * JITTER, workers=ON_LINK, seeds=seeds)
    if replays is not None:
        workers, iterations = (f"{least} to {most}" for least, most in (WORKERS, ITERATIONS))
        facts += TEXT.say("cluster", cluster=testbed().describe(), gbps=LINK_GBPS, jitter=100 * JITTER)
        drawn = {"jobs": POISSON_JOBS, "workers": workers, "iterations": iterations, "seeds": replays.seeds}
        drawn |= {"least": 100 * LOADS[0], "most": 100 * LOADS[1], "lease_s": LEASE_S}
        facts += TEXT.say("traces", **drawn)
    few = ""
    if quick:
        few = f"{QUICK_JOBS} jobs of a Poisson trace, {counted(replays.seeds if replays else QUICK[0], 'seed')}"
    every, values = [*claims, TEXT.not_tested], {**values, "tables": tables}
    return Reproduction(TEXT, facts, every, sections, values, left_open=choices, quick=few)
