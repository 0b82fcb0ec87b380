"""Replay a log under several policies and put what an operator asks beside what the log says."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from cranny.analysis.whatif.answer import CollectiveCase, WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.assumptions import assumptions, warnings
from cranny.analysis.whatif.baseline import AS_LOGGED, LoggedJobs, baseline_result, logged_jobs
from cranny.analysis.whatif.details import details
from cranny.analysis.whatif.headroom import Headroom, headroom, idle_stretches, switched_off
from cranny.analysis.whatif.machine_search import MachineSearch, ResizedReplay, WaitOutcome, most_replays, resized
from cranny.analysis.whatif.machine_search import search as search_machines
from cranny.analysis.whatif.prices import Prices
from cranny.analysis.whatif.waits import done_jobs, waits
from cranny.cluster_import.from_log import with_guessed_cluster
from cranny.core.protocol import FirstChoices
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import whole
from cranny.policies import WHAT_IF, policy
from cranny.process_pool import WorkerPool
from cranny.report.occupancy import map_span_s
from cranny.report.sampling import numbers
from cranny.run import run_many
from cranny.scenario import Scenario, ScenarioSettings
from cranny.sim.result import Result
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace

ADD_SHARE = 0.05  # of the machines, if the caller does not say how many more
SEARCHED_WITH_ALL = 20_000  # jobs; more are searched with policies whose replays are compiled, if one is asked for
DECIMALS = 6  # of seconds and hours: what is smaller is rounding
# Shows the progress of some work: given its name and number of parts, it yields what to call after each.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def what_if(
    log: str | Path | Trace,
    cluster: Cluster | None = None,
    policies: Sequence[str] = WHAT_IF,
    *,
    network: str = "instant",
    seed: int = 0,
    search: bool = True,
    search_policy: str | None = None,
    add: int | None = None,
    restart_s: float = RESTART_S,
    processes: int | None = None,
    collectives: Sequence[str] = (),
    prices: Prices | None = None,
    **settings: Unpack[ScenarioSettings],
) -> WhatIfAnswer:
    """Replay a job log under each policy and measure what an operator asks; `settings` are those of `Scenario`.

    A log is read as `read_trace` does. Without a cluster, one is guessed from where the log says that jobs ran.
    With `search` it is also searched how many machines could be removed and what `add` more would change, for the
    policy with the shortest mean wait and for `search_policy`, the first one if not given; both of those with
    compiled replays if there are many jobs. A job that is stopped loses `restart_s` if it does not say. With
    `collectives` it is replayed for each of them too, for jobs without one.
    `prices`, read by `read_prices`, stand for `price_per_gpu_hour` where money is added up.
    """
    if not policies:
        raise InputError("no policy was given")
    trace = log if isinstance(log, Trace) else read_trace(log, profiles=settings.get("profiles"))
    if cluster is None:
        cluster, trace = with_guessed_cluster(trace)
    scenario = Scenario(cluster, trace, policies[0], network, seed, **settings)
    found: dict[str, Any] = {"search": search, "search_policy": search_policy, "add": add, "processes": processes}
    return answer(scenario, policies, **found, restart_s=restart_s, collectives=collectives, prices=prices)


def answer(
    scenario: Scenario,
    policies: Sequence[str],
    *,
    search: bool = True,
    search_policy: str | None = None,
    add: int | None = None,
    restart_s: float = RESTART_S,
    processes: int | None = None,
    collectives: Sequence[str] = (),
    prices: Prices | None = None,
    bar: ProgressBar = lambda _what, _total: nullcontext(lambda _done: None),
) -> WhatIfAnswer:
    """Replay the trace of a scenario under each policy and measure what an operator asks; see `what_if`."""
    cluster, trace = scenario.cluster, scenario.whole_trace.with_restarts(restart_s)
    quick = policies if len(trace) <= SEARCHED_WITH_ALL else _compiled(policies) or policies
    named = search_policy if search_policy is not None else quick[0]
    if named not in policies:
        raise unknown("policy to search with", named, policies)
    more = max(1, round(ADD_SHARE * len(cluster.machines))) if add is None else add
    whole(more, "machines to add", most=MAX_MACHINES - len(cluster.machines))
    scenarios = replace(scenario, trace=trace).with_policies(policies)
    with bar("replaying", len(policies)) as tick:
        results: list[Result] = run_many(scenarios, processes=processes, progress=tick)
    logged = logged_jobs(trace)
    window = map_span_s(results)
    jobs = _compared(results, logged)
    cases = []
    for result in results:
        name = str(result.settings["policy"])
        idle = idle_stretches(result.runs, len(cluster.machines), window)
        left = headroom(result.runs, idle, cluster.machines, window)
        off = switched_off(idle, cluster.machines, window)
        cases.append(WhatIfCase(name, waits(jobs[name]), left, off, result.summary["mean_fragmentation"]))
    was = WhatIfCase(AS_LOGGED, None, None)
    shown = [_with_headroom(result, case.headroom) for result, case in zip(results, cases, strict=True)]
    if logged is not None:
        was = WhatIfCase(AS_LOGGED, waits(jobs[AS_LOGGED]), logged.headroom(cluster.gpus, window))
        as_logged = baseline_result(logged, cluster, results[0], trace.frame["submit_s"])
        shown.append(_with_headroom(as_logged, was.headroom))
    paid = prices if prices is not None else Prices.simple(scenario.price_per_gpu_hour)
    return WhatIfAnswer(
        cluster=cluster,
        window=window,
        price_per_gpu_hour=scenario.price_per_gpu_hour,
        cases=(was, *cases),
        searches=_searched(scenarios, results, quick, named, more, processes, bar) if search else (),
        warnings=warnings(cluster, trace, results, logged, window),
        assumptions=assumptions(trace, results, logged, jobs[cases[0].name].height),
        results=shown,
        collectives=_with_collectives(scenarios, collectives, processes, bar),
        details=details(shown, trace, AS_LOGGED, window, paid, scenario.seed),
    )


def _with_collectives(
    scenarios: Sequence[Scenario], collectives: Sequence[str], processes: int | None, bar: ProgressBar
) -> list[CollectiveCase]:
    """Replay with each of some collectives; which ranks share a machine matters to each in its own way."""
    asked = [replace(scenario, collective=collective) for collective in collectives for scenario in scenarios]
    with bar("collectives", len(asked)) as tick:
        return run_many(asked, keep=CollectiveCase.of, processes=processes, progress=tick)


def _compared(results: Sequence[Result], logged: LoggedJobs | None) -> dict[str, pl.DataFrame]:
    """Return for each case the jobs that ran in all of them: means over other jobs could not be compared."""
    jobs = {str(each.settings["policy"]): done_jobs(each) for each in results}
    if logged is not None:
        jobs[AS_LOGGED] = logged.jobs
    common = next(iter(jobs.values())).select("job_id")
    for each in jobs.values():
        common = common.join(each.select("job_id"), on="job_id", how="semi")
    if common.is_empty():
        everywhere = "in the log and under every policy" if logged is not None else "under every policy"
        raise InputError(
            f"{results[0].settings['trace']}: no job ran {everywhere}, so there is nothing to compare"
        )
    return {name: each.join(common, on="job_id", how="semi") for name, each in jobs.items()}


def _searched(
    scenarios: Sequence[Scenario],
    results: Sequence[Result],
    quick: Sequence[str],
    named: str,
    more: int,
    processes: int | None,
    bar: ProgressBar,
) -> Sequence[MachineSearch]:
    """Search with the best of the quick policies and the named one."""
    by_name = {str(each.settings["policy"]): each for each in results}
    scenario_of = {str(each.policy): each for each in scenarios}
    outcomes = {name: WaitOutcome.of(each) for name, each in by_name.items()}
    first = best({n: {**by_name[n].summary, "mean_wait_s": outcomes[n].mean_wait_s} for n in quick})
    base = {name: outcomes[name] for name in dict.fromkeys([first, named])}
    cluster = results[0].cluster
    machines = len(cluster.machines)
    # The processes stay until the search is over: it replays a few times at once, again and again.
    with WorkerPool(processes) as pool, bar("searching", most_replays(machines, len(base))) as tick:

        def run(replays: Sequence[ResizedReplay]) -> Sequence[WaitOutcome]:
            tried = [scenario_of[policy].on_cluster(resized(cluster, change)) for policy, change in replays]
            return run_many(tried, keep=WaitOutcome.of, impossible=WaitOutcome(), pool=pool)

        return search_machines(run, machines, more, base, tick)


def _compiled(policies: Sequence[str]) -> list[str]:
    """Return the policies whose replays are compiled."""
    return [name for name in policies if isinstance(policy(name), FirstChoices)]


def best(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the policy that skips the fewest jobs; of equals the shortest mean wait, then the fewest hours."""

    def rank(name: str) -> list[float]:
        keys = ("jobs_skipped", "mean_wait_s", "machine_hours")
        return [round(summaries[name][key], DECIMALS) for key in keys]

    return min(summaries, key=rank)


def _with_headroom(result: Result, left: Headroom | None) -> Result:
    """Add to the timeline how large a job could have started, for the report's charts."""
    if left is None:
        return result
    at_s = numbers(result.timeline, "time_s")
    columns = [pl.Series("free_gpus", left.free_gpus.at(at_s))]
    if left.idle_gpus is not None:
        columns.append(pl.Series("idle_gpus", left.idle_gpus.at(at_s)))
    return replace(result, timeline=result.timeline.with_columns(columns))
