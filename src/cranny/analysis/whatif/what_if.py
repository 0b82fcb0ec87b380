"""Replay a log under several policies and put what an operator asks beside what the log says."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from cranny.analysis.whatif.answer import CaseKind, CollectiveCase, WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.as_it_was import AsItWas, as_it_was
from cranny.analysis.whatif.assumptions import assumptions, delayed_work, warnings
from cranny.analysis.whatif.baseline import AS_IT_WAS, LoggedJobs, logged_jobs
from cranny.analysis.whatif.calibration import REPLAYED, Calibration, calibrated
from cranny.analysis.whatif.details import details
from cranny.analysis.whatif.headroom import Headroom, headroom, idle_stretches, switched_off
from cranny.analysis.whatif.job_spread import job_spread
from cranny.analysis.whatif.logged_result import LoggedRun, logged_result
from cranny.analysis.whatif.machine_search import MachineSearch, ResizedReplay, WaitOutcome, most_replays, resized
from cranny.analysis.whatif.machine_search import search as search_machines
from cranny.analysis.whatif.prices import Prices
from cranny.analysis.whatif.tables import answer_tables
from cranny.analysis.whatif.waits import counted_jobs, done_jobs, waits
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
from cranny.run import COMPILE_FROM, run_many
from cranny.scenario import Scenario, ScenarioSettings
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.read import read_trace
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs

CALIBRATED_FROM = 100  # jobs; fewer tell nothing of how a scheduler works
ADD_SHARE = 0.05  # of the machines, if the caller does not say how many more
SEARCHED_WITH_ALL = 20_000  # jobs; more are searched with policies whose replays are compiled, if one is asked for
REPLAYED_WITH_ALL = 100_000  # jobs; of the usual policies, more are replayed with the compiled ones alone
DECIMALS = 6  # of seconds and hours: what is smaller is rounding
# Shows the progress of some work: given its name and number of parts, it yields what to call after each.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def what_if(
    log: str | Path | Trace,
    cluster: Cluster | None = None,
    policies: Sequence[str] | None = None,
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

    A log is read as `read_trace` does. Without a cluster, one is guessed from where the log says that jobs
    ran; without policies it is replayed under the usual ones, of which only those with compiled replays if
    there are many jobs. With `search` it is also searched how many machines could be removed and what `add`
    more would change, for the policy with the shortest mean wait and for `search_policy`, the first one if
    not given; both of those with compiled replays if there are many jobs. A job that is stopped loses
    `restart_s` if it does not say. With `collectives` it is replayed for each of them too, for jobs without
    one. `prices`, read by `read_prices`, stand for `price_per_gpu_hour` where money is added up.
    """
    trace = log if isinstance(log, Trace) else read_trace(log, profiles=settings.get("profiles"))
    if cluster is None:
        cluster, trace = with_guessed_cluster(trace)
    scenario = Scenario(cluster, trace, (policies or WHAT_IF)[0], network, seed, **settings)
    found: dict[str, Any] = {"search": search, "search_policy": search_policy, "add": add, "processes": processes}
    return answer(scenario, policies, **found, restart_s=restart_s, collectives=collectives, prices=prices)


def answer(
    scenario: Scenario,
    policies: Sequence[str] | None = None,
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
    chosen = usual_policies(len(trace)) if policies is None else policies
    if not chosen:
        raise InputError("no policy was given")
    quick = chosen if len(trace) <= SEARCHED_WITH_ALL else _compiled(chosen) or chosen
    named = search_policy if search_policy is not None else quick[0]
    if named not in chosen:
        raise unknown("policy to search with", named, chosen)
    more = max(1, round(ADD_SHARE * len(cluster.machines))) if add is None else add
    whole(more, "machines to add", most=MAX_MACHINES - len(cluster.machines))
    scenarios = replace(scenario, trace=trace).with_policies(chosen)
    if len(trace) < COMPILE_FROM:  # longer logs are replayed in compiled code, which knows fifo only
        scenarios = [each.as_on_logs() for each in scenarios]
    with bar("replaying", len(chosen)) as tick:
        results: list[Result] = run_many(scenarios, processes=processes, progress=tick)
    logged, was = logged_jobs(trace), as_it_was(trace, cluster)
    window = map_span_s(results)
    calibration = _calibration(scenarios[0], logged, processes, bar)
    replayed = results if calibration is None else [*results, calibration.result]
    compared = _compared(replayed, logged, trace)
    shown = [_without_rates(result) for result in replayed]
    if logged is not None and isinstance(jobs := scenarios[0].jobs(), Jobs):
        log = LoggedRun(trace, jobs, logged, was)
        shown.append(logged_result(log, cluster, results[0], scenario.price_per_gpu_hour))
    cases = _cases(shown, compared, logged, was, window)
    paid = prices if prices is not None else Prices.simple(scenario.price_per_gpu_hour)
    found = WhatIfAnswer(
        cluster=cluster,
        window=window,
        price_per_gpu_hour=scenario.price_per_gpu_hour,
        cases=cases,
        searches=_searched(scenarios, results, quick, named, more, processes, bar) if search else (),
        warnings=warnings(cluster, trace, results, logged, was, window),
        assumptions=[
            *_left_to_others(len(trace), policies),
            *assumptions(trace, results, logged, was, next(iter(compared.values())).height),
            *(() if calibration is None else calibration.sentences()),
        ],
        results=[_with_headroom(result, _named(cases, result).headroom) for result in shown],
        collectives=_with_collectives(scenarios, collectives, processes, bar),
        as_it_was=was,
        details=details(shown, trace, AS_IT_WAS, window, paid, scenario.seed, REPLAYED),
    )
    found = replace(found, warnings=[*found.warnings, *delayed_work(found)])
    return replace(found, tables=answer_tables(found))


def _calibration(
    scenario: Scenario, logged: LoggedJobs | None, processes: int | None, bar: ProgressBar
) -> Calibration | None:
    """Replay the log's own scheduler, if its waits are known and the jobs are neither too few nor too many."""
    if logged is None or not CALIBRATED_FROM <= len(scenario.whole_trace) < COMPILE_FROM:
        return None
    with bar("your scheduler", 1) as tick:
        found = calibrated(scenario, logged, processes)
        tick(1)
    return found


def usual_policies(jobs: int) -> Sequence[str]:
    """Return the policies to replay a log of so many jobs under if none are asked for."""
    return WHAT_IF if jobs <= REPLAYED_WITH_ALL else _compiled(WHAT_IF)


def _left_to_others(jobs: int, asked: Sequence[str] | None) -> list[str]:
    """Name the usual policies that a large log is not replayed under."""
    missing = ", ".join(name for name in WHAT_IF if name not in usual_policies(jobs)) if asked is None else ""
    why = (
        f"Not replayed because the log has more than {REPLAYED_WITH_ALL:,} jobs: {missing}, whose "
        "replays are not compiled and take minutes to hours; --policies names them."
    )
    return [why] if missing else []


def _cases(
    results: Sequence[Result],
    compared: Mapping[str, pl.DataFrame],
    logged: LoggedJobs | None,
    was: AsItWas | None,
    window: Window,
) -> list[WhatIfCase]:
    """Measure the log itself and each replay; all cases are made here."""
    by_name = {str(result.settings["policy"]): result for result in results}
    kinds = {REPLAYED: CaseKind.SCHEDULER} | {
        name: CaseKind.POLICY for name in by_name if name not in (REPLAYED, AS_IT_WAS)
    }
    cases = [_case(by_name[name], kind, compared, was, window) for name, kind in kinds.items() if name in by_name]
    if logged is None:
        return [WhatIfCase(AS_IT_WAS, CaseKind.LOG, None, None), *cases]
    if was is None or not was.is_known:
        left = logged.headroom(results[0].cluster.gpus, window)
        return [WhatIfCase(AS_IT_WAS, CaseKind.LOG, waits(compared[AS_IT_WAS]), left), *cases]
    return [_case(by_name[AS_IT_WAS], CaseKind.LOG, compared, was, window), *cases]


def _case(
    result: Result, kind: CaseKind, compared: Mapping[str, pl.DataFrame], was: AsItWas | None, window: Window
) -> WhatIfCase:
    """Measure one run, of a replay or of the log itself."""
    name, machines = str(result.settings["policy"]), result.cluster.machines
    idle = idle_stretches(result.runs, len(machines), window)
    jobs = compared[name].select("job_id", "gpus")
    if was is not None and was.is_known and was.unplaced:  # as long as rows are over the same jobs
        jobs = jobs.join(was.runs.select("job_id").unique(), on="job_id", how="semi")
    return WhatIfCase(
        name,
        kind,
        waits(compared[name]),
        headroom(result.runs, idle, machines, window),
        switched_off(idle, machines, window),
        result.summary["mean_fragmentation"],
        job_spread(result.runs, jobs, result.cluster.rack_of),
        result.summary["mean_cross_traffic_gb"],
        int(result.summary["jobs_skipped"]),
    )


def _named(cases: Sequence[WhatIfCase], result: Result) -> WhatIfCase:
    """Return the case of a result."""
    return next(case for case in cases if case.name == result.settings["policy"])


def _without_rates(result: Result) -> Result:
    """Leave off the sum of the profit rates, which reads like money and is none."""
    return replace(result, summary={key: value for key, value in result.summary.items() if key != "total_profit"})


def _with_collectives(
    scenarios: Sequence[Scenario], collectives: Sequence[str], processes: int | None, bar: ProgressBar
) -> list[CollectiveCase]:
    """Replay with each of some collectives; which ranks share a machine matters to each in its own way."""
    asked = [replace(scenario, collective=collective) for collective in collectives for scenario in scenarios]
    with bar("collectives", len(asked)) as tick:
        return run_many(asked, keep=CollectiveCase.of, processes=processes, progress=tick)


def _compared(results: Sequence[Result], logged: LoggedJobs | None, trace: Trace) -> dict[str, pl.DataFrame]:
    """Return for each case the jobs that count and ran in all of them: means over others could not be compared."""
    jobs = {str(each.settings["policy"]): done_jobs(each) for each in results}
    if logged is not None:
        jobs[AS_IT_WAS] = logged.jobs
    common = counted_jobs(trace).select("job_id")
    for each in jobs.values():
        if each.height < len(trace):  # else it has all of them
            common = common.join(each.select("job_id"), on="job_id", how="semi")
    if common.is_empty():
        everywhere = "in the log and under every policy" if logged is not None else "under every policy"
        raise InputError(
            f"{results[0].settings['trace']}: no job ran {everywhere}, so there is nothing to compare"
        )
    if common.height == len(trace):
        return jobs
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
