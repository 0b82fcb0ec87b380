"""Replay a log under several policies and put what an operator asks beside what the log says."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import polars as pl

from cranny.analysis.whatif.answer import Answer, Case
from cranny.analysis.whatif.assumptions import assumptions, warnings
from cranny.analysis.whatif.baseline import AS_IT_WAS, Logged, as_it_was, as_result
from cranny.analysis.whatif.headroom import Room, idle_stretches, room, switched_off
from cranny.analysis.whatif.machine_search import Search, most_replays, search
from cranny.analysis.whatif.replays import Cells, Outcome
from cranny.analysis.whatif.waits import waits
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.topology_spec import MAX_MACHINES
from cranny.model.validate import not_negative, whole
from cranny.report.occupancy import map_span_s
from cranny.report.sampling import numbers
from cranny.run import compare
from cranny.sim.result import Result
from cranny.traces.trace import Trace

ADD_SHARE = 0.05  # of the machines, when nobody says how many more
DECIMALS = 6  # of seconds and hours: what is smaller is rounding
# Shows how far some work is: told what is done and in how many parts, it yields what to call after each.
Bar = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def what_if(
    cluster: Cluster,
    trace: Trace,
    policies: Sequence[str],
    *,
    price_per_gpu_hour: float = 1.0,
    look_further: bool = True,
    search_policy: str | None = None,
    add: int | None = None,
    processes: int | None = None,
    bar: Bar | None = None,
    **settings: Any,
) -> Answer:
    """Replay a log under each policy and measure what an operator asks; `settings` go to every replay.

    With `look_further` it is also searched how many machines could go and what `add` more would change, for the
    policy with the shortest mean wait and for `search_policy`, the first one if not given.
    """
    not_negative(price_per_gpu_hour, "price_per_gpu_hour")
    named = search_policy if search_policy is not None else policies[0]
    if named not in policies:
        raise unknown("policy to search with", named, policies)
    more = max(1, round(ADD_SHARE * len(cluster.machines))) if add is None else add
    whole(more, "machines to add", most=MAX_MACHINES - len(cluster.machines))
    bar = bar if bar is not None else _no_bar
    settings["price_per_gpu_hour"] = price_per_gpu_hour
    with bar("replaying", len(policies)) as tick:
        results = compare(cluster, trace, policies, processes=processes, progress=tick, **settings)
    logged = as_it_was(trace)
    window = map_span_s(results)
    jobs = _compared(results, logged)
    rooms: dict[str, Room | None] = {}
    cases = []
    for result in results:
        name = str(result.settings["policy"])
        idle = idle_stretches(result.runs, len(cluster.machines), window)
        rooms[name] = room(result.runs, idle, cluster.machines, window)
        off = switched_off(idle, cluster.machines, window)
        cases.append(Case(name, waits(jobs[name]), rooms[name], off, result.summary["mean_fragmentation"]))
    was = Case(AS_IT_WAS, None, None)
    views: list[Result] = list(results)
    if logged is not None:
        rooms[AS_IT_WAS] = logged.room(cluster.gpus, window)
        was = Case(AS_IT_WAS, waits(jobs[AS_IT_WAS]), rooms[AS_IT_WAS])
        views.append(as_result(logged, cluster, results[0], trace.frame["submit_s"]))
    return Answer(
        cluster=cluster,
        window=window,
        price_per_gpu_hour=price_per_gpu_hour,
        cases=(was, *cases),
        searches=_searched(Cells(cluster, trace, settings, processes), results, named, more, bar)
        if look_further
        else (),
        warnings=warnings(cluster, trace, results, logged, window),
        assumptions=assumptions(trace, results, logged, jobs[cases[0].name].height),
        results=[_with_room(view, rooms[str(view.settings["policy"])]) for view in views],
    )


def _compared(results: Sequence[Result], logged: Logged | None) -> dict[str, pl.DataFrame]:
    """Return for each case the jobs that ran in all of them: means over other jobs could not be compared."""
    jobs = {str(each.settings["policy"]): each.jobs.filter(pl.col("status") == "done") for each in results}
    if logged is not None:
        jobs[AS_IT_WAS] = logged.jobs
    common = next(iter(jobs.values())).select("job_id")
    for each in jobs.values():
        common = common.join(each.select("job_id"), on="job_id", how="semi")
    if common.is_empty():
        everywhere = "in the log and under every policy" if logged is not None else "under every policy"
        raise InputError(
            f"{results[0].settings['trace']}: no job ran {everywhere}, so there is nothing to compare"
        )
    return {name: each.join(common, on="job_id", how="semi") for name, each in jobs.items()}


def _searched(cells: Cells, results: Sequence[Result], named: str, more: int, bar: Bar) -> Sequence[Search]:
    """Search with the best policy and the named one."""
    by_name = {str(each.settings["policy"]): each for each in results}
    first = best({name: each.summary for name, each in by_name.items()})
    base = {name: Outcome.of(by_name[name]) for name in dict.fromkeys([first, named])}
    machines = len(results[0].cluster.machines)
    with cells, bar("searching", most_replays(machines, len(base))) as tick:
        return search(cells, machines, more, base, tick)


def best(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the policy with the shortest mean wait; of those with the same, the fewest machine-hours."""

    def rank(name: str) -> list[float]:
        return [round(summaries[name][key], DECIMALS) for key in ("mean_wait_s", "machine_hours")]

    return min(summaries, key=rank)


def _with_room(result: Result, room: Room | None) -> Result:
    """Add to the timeline how large a job could have started, for the report's charts."""
    if room is None:
        return result
    at_s = numbers(result.timeline, "time_s")
    columns = [pl.Series("free_gpus", room.free_gpus.at(at_s))]
    if room.idle_gpus is not None:
        columns.append(pl.Series("idle_gpus", room.idle_gpus.at(at_s)))
    return replace(result, timeline=result.timeline.with_columns(columns))


def _no_bar(what: str, total: int) -> AbstractContextManager[Callable[[int], None]]:  # noqa: ARG001
    return nullcontext(lambda done: None)  # noqa: ARG005
