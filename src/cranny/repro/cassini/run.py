"""Run what is asked for: figures, Table 2, and our own question `alike`."""

from collections.abc import Callable, Sequence

from cranny.repro.cassini.links import run_adjusting, run_fig5, run_pairs, run_table2
from cranny.repro.cassini.precision import run_precision
from cranny.repro.cassini.study import WORKLOADS, chosen, plan, run_study
from cranny.repro.cassini.write import Findings

TABLE2 = "table2"
KEYS = ("2", "5", *dict.fromkeys(work.figure for work in WORKLOADS), TABLE2, "17", "18")
LINK_SEEDS, LINK_S, LINKS = 30, 900.0, 60  # of jobs on one link: seeds, seconds; and links of Fig. 18
QUICK_SEEDS, QUICK_S, QUICK_LINKS = 3, 120.0, 10


def replays(keys: Sequence[str], seeds: int, *, quick: bool) -> int:
    """Return how many traces are replayed."""
    return len(plan(chosen(keys), seeds, quick=quick))


def run(
    keys: Sequence[str],
    seeds: int,
    processes: int,
    progress: Callable[[int], None] | None = None,
    *,
    quick: bool = False,
) -> Findings:
    """Run the experiments of some keys."""
    link_seeds, link_s = (QUICK_SEEDS, QUICK_S) if quick else (LINK_SEEDS, LINK_S)
    workloads = chosen(keys)
    return Findings(
        seeds=link_seeds,
        pairs=run_pairs(link_seeds, link_s) if "2" in keys else (),
        fig5=run_fig5() if "5" in keys else None,
        table2=run_table2(link_seeds, link_s) if TABLE2 in keys else {},
        adjusting=run_adjusting(link_seeds, link_s) if "17" in keys else (),
        precision=run_precision(QUICK_LINKS if quick else LINKS) if "18" in keys else (),
        study=run_study(workloads, seeds, processes, progress, quick=quick) if workloads else None,
    )
