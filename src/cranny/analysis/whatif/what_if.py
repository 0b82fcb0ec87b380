"""Replay a log under several policies and put what an operator asks beside what the log says."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import polars as pl

from cranny.analysis.whatif.answer import CaseKind, CollectiveCase, WhatIfAnswer, WhatIfCase
from cranny.analysis.whatif.as_it_was import AsItWas, as_it_was
from cranny.analysis.whatif.assumptions import assumptions, beside_the_jobs, delayed_work, warnings
from cranny.analysis.whatif.baseline import AS_IT_WAS, LoggedJobs, logged_jobs
from cranny.analysis.whatif.calibration import REPLAYED, Calibration, ChosenModel, SchedulerModel, choose_model
from cranny.analysis.whatif.details import details
from cranny.analysis.whatif.headroom import Headroom, headroom, idle_stretches, switched_off
from cranny.analysis.whatif.job_spread import job_spread
from cranny.analysis.whatif.large_jobs import (
    LargestPool,
    held_by_log,
    held_by_result,
    large_job_waits,
    sizes_to_ask,
)
from cranny.analysis.whatif.logged_result import LoggedRun, logged_result
from cranny.analysis.whatif.measured_time import held_at_begin, measured_time, went_on
from cranny.analysis.whatif.prices import Prices
from cranny.analysis.whatif.queue_limits import chained_attempts
from cranny.analysis.whatif.replays import replay_once
from cranny.analysis.whatif.searches import ProgressBar, changed_types, searched
from cranny.analysis.whatif.skipped_presence import Presence
from cranny.analysis.whatif.tables import answer_tables
from cranny.analysis.whatif.type_changes import TypeChange, wanted_changes
from cranny.analysis.whatif.waits import counted_jobs, done_jobs, waits
from cranny.cluster_import.from_log import with_guessed_cluster
from cranny.core.protocol import FirstChoices
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.job import RESTART_S
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import counted, whole
from cranny.policies import WHAT_IF, policy
from cranny.report.sampling import numbers
from cranny.run import LONG, run_many, takes_long
from cranny.scenario import Scenario, ScenarioSettings
from cranny.sim.admission import Admission
from cranny.sim.result import Result
from cranny.traces.inspect import Window
from cranny.traces.read import AUTO, read_trace
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs
from cranny.traces.window import Edge
from cranny.traces.window import window as cut_window

CALIBRATED_FROM = 100  # jobs; fewer tell nothing of how a scheduler works
ADD_SHARE = 0.05  # of the machines, if the caller does not say how many more
SEARCHED_WITH_ALL = 20_000  # jobs; more are searched with policies whose replays are compiled, if one is asked for
REPLAYED_WITH_ALL = 100_000  # jobs; of the usual policies, more are replayed with the compiled ones alone
ONE_PRICE = ("price_per_gpu_hour", "cost_per_gpu_hour", "mean_profit_rate", "profit_rate")  # of results
NO_MODEL = "no model of a scheduler runs enough of the log's jobs"


def what_if(
    log: str | Path | Trace,
    cluster: Cluster | None = None,
    policies: Sequence[str] | None = None,
    *,
    window: tuple[Edge, Edge] = (None, None),
    warm_up: str | float = 0.0,
    zone: str | None = None,
    format: str = AUTO,  # noqa: A002  # as `read_trace` calls it
    strict: bool | None = None,
    count_parts: bool = False,
    network: str = "instant",
    seed: int = 0,
    search: bool = True,
    search_policy: str | None = None,
    add: int | None = None,
    restart_s: float = RESTART_S,
    processes: int | None = None,
    collectives: Sequence[str] = (),
    large_jobs: Sequence[int] = (),
    resize: Sequence[tuple[int, str | None]] = (),
    prices: Prices | None = None,
    **settings: Unpack[ScenarioSettings],
) -> WhatIfAnswer:
    """Replay a job log under each policy and measure what an operator asks; `settings` are those of `Scenario`.

    A log is read as `read_trace` does, with `format`, `strict`, `zone` and `count_parts`, and a row for each
    attempt of a job. The `window` is from when to when to look at it, such as ("2024-03-01", "2024-04-01"), of
    which a `warm_up` such as "6h" is not measured; times are those of `cranny.traces.window.window`. Without a
    cluster, one is guessed from where the log says that jobs ran; without policies it is replayed under the
    usual ones, of which only those with compiled replays if there are many jobs. With `search` it is also
    searched how many machines could be removed and what `add` more would change, for the policy with the
    shortest mean wait and for `search_policy`, the first one if not given; both of those with compiled replays
    if there are many jobs. A job that is stopped loses `restart_s` if it does not say. With `collectives` it is
    replayed for each of them too, for jobs without one. `large_jobs` are GPUs of jobs of which it is said how
    long they would wait (by default larger ones than the log has). `resize` are numbers of machines more, or
    fewer if negative, each with a type of GPU, such as `[(4, "h100"), (-2, "a100")]`: each is replayed (by
    default a few of each type, if there are several). `prices`, read by `read_prices`, stand for
    `price_per_gpu_hour` where money is added up.
    """
    if not isinstance(log, Trace):
        asked: Any = {"strict": strict, "zone": zone, "count_parts": count_parts, "attempts": True}
        log = read_trace(log, format, profiles=settings.get("profiles"), **asked)
    elif format != AUTO or strict is not None or count_parts:
        raise InputError("format, strict and count_parts are for a log that is read from a file, not for a trace")
    cut = partial(cut_window, start=window[0], end=window[1], zone=zone, warm_up=warm_up)
    cluster, trace = with_guessed_cluster(log, cut) if cluster is None else (cluster, cut(log))
    scenario = Scenario(cluster, trace, (policies or WHAT_IF)[0], network, seed, **settings)
    found: dict[str, Any] = {"search": search, "search_policy": search_policy, "add": add, "processes": processes}
    found |= {
        "restart_s": restart_s,
        "collectives": collectives,
        "large_jobs": large_jobs,
        "resize": resize,
        "prices": prices,
    }
    return answer(scenario, policies, **found)


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
    large_jobs: Sequence[int] = (),
    resize: Sequence[tuple[int, str | None]] = (),
    prices: Prices | None = None,
    bar: ProgressBar = lambda _what, _total: nullcontext(lambda _done: None),
) -> WhatIfAnswer:
    """Replay the trace of a scenario under each policy and measure what an operator asks; see `what_if`."""
    cluster, trace = scenario.cluster, scenario.whole_trace.with_restarts(restart_s)
    chosen = usual_policies(len(trace)) if policies is None else policies
    quick, named = _to_search_with(chosen, search_policy, len(trace))
    more = max(1, round(ADD_SHARE * len(cluster.machines))) if add is None else add
    whole(more, "machines to add", most=MAX_MACHINES - len(cluster.machines))
    paid = _paid(prices, scenario)
    changes = wanted_changes(cluster, [TypeChange(*each) for each in resize]) if search or resize else []
    pool = LargestPool.of(cluster)
    sizes = sizes_to_ask(trace, pool, large_jobs)
    logged, was = logged_jobs(trace), as_it_was(trace, cluster)
    held = {**scenario.held_before, **held_at_begin(trace, was, cluster)}
    scenarios = _as_on_logs(replace(scenario, trace=trace, held_before=held).with_policies(chosen))
    model, why_not = _model(scenarios[0], logged, processes, bar)
    scenarios = _with_limits(scenarios, model)
    results, calibration = _replayed(scenarios, model, processes, bar)
    why_not = why_not or ("" if calibration is not None else NO_MODEL)
    presence, window = Presence.of(trace, cluster, was), measured_time(trace, results)
    kept = presence.kept(cluster, window)
    shown = [*results, *(() if calibration is None else [calibration.result])]
    compared = _compared(shown, logged, trace)
    begun = went_on(cluster, held, scenarios[0].jobs())
    shown += _logged(scenarios[0], trace, logged, was, results[0])
    shown = [_without_rates(result, priced=prices is not None) for result in shown]
    idle = _idle(shown, window, presence)
    cases = _cases(shown, compared, logged, was, window, idle)
    cases = _with_large_jobs(cases, shown, logged, window, pool, sizes)
    assumed = [
        *_left_to_others(len(trace), policies),
        *assumptions(trace, results, logged, was, next(iter(compared.values())).height, paid, begun),
        *beside_the_jobs(presence, cluster, window),
        *(() if calibration is None else calibration.sentences()),
    ]
    found = WhatIfAnswer(
        cluster=cluster,
        window=window,
        price_per_gpu_hour=scenario.price_per_gpu_hour,
        cases=cases,
        searches=searched(scenarios, results, quick, named, more, kept, processes, bar) if search else (),
        warnings=warnings(cluster, trace, results, logged, was, window),
        assumptions=assumed,
        results=[_with_headroom(result, _named(cases, result).headroom) for result in shown],
        details=details(shown, trace, AS_IT_WAS, window, paid, scenario.seed, idle, REPLAYED, why_not),
        collectives=_with_collectives(scenarios, collectives, processes, bar),
        as_it_was=was,
        calibration=calibration,
        why_not_calibrated=why_not,
        removed_last=kept.last,
        type_changes=changed_types(scenarios, results, search_policy, quick, changes, kept, processes, bar),
        edges=trace.window,
    )
    found = replace(found, warnings=[*found.warnings, *delayed_work(found)])
    return replace(found, tables=answer_tables(found))


def _to_search_with(chosen: Sequence[str], asked: str | None, jobs: int) -> tuple[Sequence[str], str]:
    """Return the policies that are quick enough to be searched with, and the one to search with in any case."""
    if not chosen:
        raise InputError("no policy was given")
    quick = chosen if jobs <= SEARCHED_WITH_ALL else _compiled(chosen) or chosen
    named = asked if asked is not None else quick[0]
    if named not in chosen:
        raise unknown("policy to search with", named, chosen)
    return quick, named


def _as_on_logs(scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    """Return scenarios as logs are replayed, with attempts after each other unless there are very many jobs."""
    trace = scenarios[0].whole_trace
    if len(trace) >= LONG:  # in compiled code, which lets no job wait for another outside the queue
        return [each.as_on_logs() for each in scenarios]
    after = Admission(after=chained_attempts(trace))
    return [replace(each.as_on_logs(), admission=after) for each in scenarios]


def _with_limits(scenarios: Sequence[Scenario], model: ChosenModel | None) -> Sequence[Scenario]:
    """Let the limits that the log shows hold for policies too."""
    if model is None or model.model.groups is None:
        return scenarios
    return [replace(each, admission=model.model.admission(each)) for each in scenarios]


def _replayed(
    scenarios: Sequence[Scenario], model: ChosenModel | None, processes: int | None, bar: ProgressBar
) -> tuple[list[Result], Calibration | None]:
    """Replay the log under each policy, and its own scheduler beside them if there is a model of it."""
    own = () if model is None else (model.scenario,)
    with bar("replaying", len(scenarios) + len(own)) as tick:
        ran = replay_once([*scenarios, *own], processes, tick)
    return [*ran[: len(scenarios)]], None if model is None else model.judged(ran[-1])


def _paid(prices: Prices | None, scenario: Scenario) -> Prices:
    """Return the prices given, or the one price of the scenario; refuse what does not suit the machines."""
    paid = prices if prices is not None else Prices.simple(scenario.price_per_gpu_hour)
    paid.check(scenario.cluster.machines)
    return paid


def _model(
    scenario: Scenario, logged: LoggedJobs | None, processes: int | None, bar: ProgressBar
) -> tuple[ChosenModel | None, str]:
    """Choose a model of the log's own scheduler, or say why not: waits are unknown, jobs too few or too many."""
    jobs = len(scenario.whole_trace)
    if logged is None:
        return None, "when jobs started is not in the log"
    if jobs < CALIBRATED_FROM:
        return None, f"{counted(jobs, 'job')} are too few to find out how a scheduler works ({CALIBRATED_FROM})"
    if takes_long(SchedulerModel("backfill", priorities=True, limits=True).scenario(scenario)):
        return None, f"the log has {LONG:,} jobs or more, and such replays are not compiled"
    with bar("your scheduler", 1) as tick:
        found = choose_model(scenario, logged, processes)
        tick(1)
    return found, "" if found is not None else NO_MODEL


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


def _logged(
    scenario: Scenario, trace: Trace, logged: LoggedJobs | None, was: AsItWas | None, like: Result
) -> list[Result]:
    """Return the log itself as a result, if its waits are known."""
    jobs = scenario.jobs()
    if logged is None or not isinstance(jobs, Jobs):
        return []
    log = LoggedRun(trace, jobs, logged, was)
    return [logged_result(log, scenario.cluster, like, scenario.price_per_gpu_hour)]


def _cases(
    results: Sequence[Result],
    compared: Mapping[str, pl.DataFrame],
    logged: LoggedJobs | None,
    was: AsItWas | None,
    window: Window,
    idle: Mapping[str, pl.DataFrame],
) -> list[WhatIfCase]:
    """Measure the log itself and each replay; all cases are made here."""
    by_name = {str(result.settings["policy"]): result for result in results}
    kinds = {REPLAYED: CaseKind.SCHEDULER} | {
        name: CaseKind.POLICY for name in by_name if name not in (REPLAYED, AS_IT_WAS)
    }
    cases = [
        _case(by_name[name], kind, compared, was, window, idle[name])
        for name, kind in kinds.items()
        if name in by_name
    ]
    if logged is None:
        return [WhatIfCase(AS_IT_WAS, CaseKind.LOG, None, None), *cases]
    if was is None or not was.is_known:
        left = logged.headroom(results[0].cluster.gpus, window)
        return [WhatIfCase(AS_IT_WAS, CaseKind.LOG, waits(compared[AS_IT_WAS]), left), *cases]
    return [_case(by_name[AS_IT_WAS], CaseKind.LOG, compared, was, window, idle[AS_IT_WAS]), *cases]


def _idle(results: Sequence[Result], window: Window, presence: Presence) -> dict[str, pl.DataFrame]:
    """Return by case the stretches in which machines were idle: neither jobs nor skipped ones were there."""
    found: dict[tuple[int, bool], pl.DataFrame] = {}  # two cases may share a replay
    keys = {
        str(each.settings["policy"]): (id(each.runs), each.settings["policy"] == AS_IT_WAS) for each in results
    }
    for result, key in zip(results, keys.values(), strict=True):
        if key not in found:
            beside = presence.beside(log=key[1])
            found[key] = idle_stretches(result.runs, len(result.cluster.machines), window, beside)
    return {name: found[key] for name, key in keys.items()}


def _case(
    result: Result,
    kind: CaseKind,
    compared: Mapping[str, pl.DataFrame],
    was: AsItWas | None,
    window: Window,
    idle: pl.DataFrame,
) -> WhatIfCase:
    """Measure one run, of a replay or of the log itself."""
    name, machines = str(result.settings["policy"]), result.cluster.machines
    jobs = compared[name].select("job_id", "gpus")
    if was is not None and was.is_known and was.unplaced:  # as long as rows are over the same jobs
        jobs = jobs.join(was.runs.select("job_id").unique(), on="job_id", how="semi")
    return WhatIfCase(
        name,
        kind,
        waits(compared[name]),
        headroom(result.runs, idle, machines, window),
        switched_off(idle, machines, window),
        _at_arrivals(result, "fragmentation", window),
        job_spread(result.runs, jobs, result.cluster.rack_of),
        _at_arrivals(result, "cross_traffic_gb", window),
        int(result.summary["jobs_skipped"]),
    )


def _with_large_jobs(
    cases: Sequence[WhatIfCase],
    results: Sequence[Result],
    logged: LoggedJobs | None,
    window: Window,
    pool: LargestPool,
    sizes: Sequence[int],
) -> list[WhatIfCase]:
    """Say of each case how long large jobs would wait, as far as it is known when GPUs were held."""
    held = {str(each.settings["policy"]): held_by_result(each, pool) for each in results if each.runs.height}
    if logged is not None and AS_IT_WAS not in held and (known := held_by_log(logged, pool)) is not None:
        held[AS_IT_WAS] = known
    return [
        replace(
            case, large_jobs=large_job_waits(held[case.name], pool, sizes, window) if case.name in held else None
        )
        for case in cases
    ]


def _at_arrivals(result: Result, name: str, window: Window) -> float:
    """Return the mean of a measure over the arrivals in the window; over all if it has none."""
    inside = result.timeline.filter(pl.col("time_s").is_between(*window))
    values = numbers(inside if inside.height else result.timeline, name)
    return float(values.mean()) if values.size else 0.0


def _named(cases: Sequence[WhatIfCase], result: Result) -> WhatIfCase:
    """Return the case of a result."""
    return next(case for case in cases if case.name == result.settings["policy"])


def _without_rates(result: Result, *, priced: bool) -> Result:
    """Leave off the sum of the profit rates, which reads like money and is none.

    Where prices come from a file, also what is at the one price of a GPU-hour, which then nothing is paid at.
    """
    gone = {"total_profit", *(ONE_PRICE if priced else ())}
    return replace(
        result,
        summary={key: value for key, value in result.summary.items() if key not in gone},
        settings={key: value for key, value in result.settings.items() if key not in gone},
        timeline=result.timeline.drop(gone & set(result.timeline.columns)),
    )


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
        if trace.window is not None:
            everywhere += " that was submitted in the window and after its warm-up"
        raise InputError(
            f"{results[0].settings['trace']}: no job ran {everywhere}, so there is nothing to compare"
        )
    if common.height == len(trace):
        return jobs
    return {name: each.join(common, on="job_id", how="semi") for name, each in jobs.items()}


def _compiled(policies: Sequence[str]) -> list[str]:
    """Return the policies whose replays are compiled."""
    return [name for name in policies if isinstance(policy(name), FirstChoices)]


def _with_headroom(result: Result, left: Headroom | None) -> Result:
    """Add to the timeline how large a job could have started, for the report's charts."""
    if left is None:
        return result
    at_s = numbers(result.timeline, "time_s")
    columns = [pl.Series("free_gpus", left.free_gpus.at(at_s))]
    if left.idle_gpus is not None:
        columns.append(pl.Series("idle_gpus", left.idle_gpus.at(at_s)))
    return replace(result, timeline=result.timeline.with_columns(columns))
