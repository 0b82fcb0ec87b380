"""The searches of a what-if: machines that could be removed, more of them, and more or fewer of one type."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import polars as pl

from cranny.analysis.whatif.machine_search import MachineSearch, ResizedReplay, WaitOutcome, most_replays
from cranny.analysis.whatif.machine_search import search as search_machines
from cranny.analysis.whatif.resized_cluster import resized
from cranny.analysis.whatif.skipped_presence import KeptMachines
from cranny.analysis.whatif.type_changes import NO_WAITS, TypeChange, TypeOutcome, kept_waits, type_outcomes
from cranny.analysis.whatif.waits import uncounted_ids
from cranny.model.cluster import Cluster
from cranny.process_pool import WorkerPool
from cranny.run import run_many
from cranny.scenario import Scenario
from cranny.sim.result import Result

DECIMALS = 6  # of seconds and hours: what is smaller is rounding
# Shows the progress of some work: given its name and number of parts, it yields what to call after each.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def searched(
    scenarios: Sequence[Scenario],
    results: Sequence[Result],
    quick: Sequence[str],
    named: str,
    more: int,
    kept: KeptMachines,
    processes: int | None,
    bar: ProgressBar,
) -> Sequence[MachineSearch]:
    """Search with the best of the quick policies and the named one."""
    by_name = {str(each.settings["policy"]): each for each in results}
    scenario_of = {str(each.policy): each for each in scenarios}
    outcome = partial(WaitOutcome.of, uncounted=uncounted_ids(scenarios[0].whole_trace))
    base = {
        name: outcome(by_name[name]) for name in dict.fromkeys([first_choice(scenarios, results, quick), named])
    }
    cluster = results[0].cluster
    machines = len(cluster.machines)
    # The processes stay until the search is over: it replays a few times at once, again and again.
    with WorkerPool(processes) as pool, bar("searching", most_replays(machines, len(base))) as tick:

        def run(replays: Sequence[ResizedReplay]) -> Sequence[WaitOutcome]:
            tried = [
                scenario_of[policy].on_cluster(resized(cluster, change, last=kept.last))
                for policy, change in replays
            ]
            return run_many(tried, keep=outcome, impossible=WaitOutcome(), pool=pool)

        return search_machines(run, machines, more, base, tick, kept.least)


def first_choice(scenarios: Sequence[Scenario], results: Sequence[Result], quick: Sequence[str]) -> str:
    """Return the best of the quick policies."""
    by_name = {str(each.settings["policy"]): each for each in results}
    uncounted = uncounted_ids(scenarios[0].whole_trace)
    waits_s = {name: WaitOutcome.of(by_name[name], uncounted).mean_wait_s for name in quick}
    return best({name: {**by_name[name].summary, "mean_wait_s": waits_s[name]} for name in quick})


def changed_types(
    scenarios: Sequence[Scenario],
    results: Sequence[Result],
    search_policy: str | None,
    quick: Sequence[str],
    changes: Sequence[TypeChange],
    kept: KeptMachines,
    processes: int | None,
    bar: ProgressBar,
) -> Sequence[TypeOutcome]:
    """Replay with machines of a type more or fewer, under the best of the quick policies if none is named."""
    if not changes:
        return ()
    named = search_policy or first_choice(scenarios, results, quick)
    scenario = next(each for each in scenarios if each.policy == named)
    base = next(each for each in results if each.settings["policy"] == named)
    with bar("more and fewer of a type", len(changes)) as tick:

        def run(clusters: Sequence[Cluster]) -> Sequence[pl.DataFrame]:
            tried = [scenario.on_cluster(each) for each in clusters]
            return run_many(tried, keep=kept_waits, impossible=NO_WAITS, processes=processes, progress=tick)

        return type_outcomes(run, base, changes, kept.last, uncounted_ids(scenario.whole_trace))


def best(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the policy that skips the fewest jobs; of equals the shortest mean wait, then the fewest hours."""

    def rank(name: str) -> list[float]:
        keys = ("jobs_skipped", "mean_wait_s", "machine_hours")
        return [round(summaries[name][key], DECIMALS) for key in keys]

    return min(summaries, key=rank)
