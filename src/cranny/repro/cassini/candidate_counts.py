"""How many candidates hosts give CASSINI; the paper takes up to ten."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cranny.core.protocol import Placer
from cranny.core.snapshot import Snapshot
from cranny.model.plan import Move, Plan, Start
from cranny.policies.cassini import Cassini, InterleavingRationale
from cranny.policy_choice import seeded_policy
from cranny.report.confidence import estimate
from cranny.repro.cassini.paper import OPEN, TEXT, TRACES, CassiniTrace
from cranny.repro.cassini.replays import scenario
from cranny.repro.cassini.trace_results import heading
from cranny.repro.claim import Claim, Reading
from cranny.repro.experiment import Cell, run_cells
from cranny.run import run

SEEDS, HOSTS = 3, ("themis", "pollux")
Counts = Mapping[Cell[CassiniTrace], Sequence[int]]


class CountedCassini(Cassini):
    """CASSINI that records how many candidates it had wherever jobs that it placed could share links."""

    def __init__(self, host: Placer) -> None:
        super().__init__(host)
        self.counts: list[int] = []

    def plan(self, view: Snapshot) -> Plan:
        """Record how many candidates there were, unless the host's own plan shares no link: then that is all."""
        plan = super().plan(view)
        whys = [each.placement.rationale for each in plan.actions if isinstance(each, Start | Move)]
        found = [why for why in whys if isinstance(why, InterleavingRationale)]
        shares = any(why.job_id in link.circles for why in found for link in why.chosen.graph.links)
        if shares or any(why.candidates > 1 for why in found):
            self.counts.append(found[0].candidates)
        return plan


def count_candidates(keys: Sequence[str], seeds: int, processes: int, *, quick: bool = False) -> Counts:
    """Replay some traces, and return how many candidates there were at each decision."""
    cells = [
        Cell(trace, host, seed)
        for trace in TRACES
        if trace.figure in keys and (trace.key in ("poisson", "dynamic") or trace.epochs)
        for host in HOSTS
        if host.startswith(trace.host)
        for seed in range(min(seeds, SEEDS))
    ]
    return run_cells(partial(_counts, quick=quick), cells, processes)


def _counts(cell: Cell[CassiniTrace], *, quick: bool) -> list[int]:
    """Replay a trace with CASSINI on a host."""
    made = scenario(cell, quick=quick)
    policy = CountedCassini(seeded_policy(cell.scheme, cell.seed, made.options))
    run(replace(made, policy=policy, options={}))
    return policy.counts


def candidate_claim(counts: Counts) -> Claim:
    """Show how many candidates there were on average, trace by trace."""
    readings = []
    for trace in dict.fromkeys(cell.setup for cell in counts):
        values = {}
        for host in HOSTS:
            means = [np.mean(each) for cell, each in counts.items() if cell[:2] == (trace, host) and each]
            if means:
                values[host] = estimate([float(mean) for mean in means])
        name = trace.title if trace.figure == OPEN else heading(trace, short=True)
        readings.append(Reading(name, values))
    every = [count for each in counts.values() for count in each]
    only = sum(count == 1 for count in every) / max(len(every), 1)
    return TEXT.claim("candidates", readings, decisions=len(every), only=100 * only)
