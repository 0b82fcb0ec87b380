"""Running scenarios: one, several at once, or one trace under several policies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from cranny.core.protocol import Placer, Policy
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Event
from cranny.model.job import Job
from cranny.model.profile import ModelProfile
from cranny.process_pool import WorkerPool
from cranny.report.page import write_report
from cranny.scenario import Scenario, decision_period_s
from cranny.sim import result as sim_result
from cranny.sim.record import ReplayRecord, refuse_if_all_skipped
from cranny.sim.replay import no_garbage_collection
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs

# Jobs from which a compiled replay pays, with what it takes to load it.
COMPILE_FROM = 50_000
Progress = Callable[[int], None]  # called with how much is done


class Result(sim_result.Result):
    """A finished simulation, which can also write a page about itself."""

    __slots__ = ()

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page about this run."""
        return write_report([self], path)


def simulate(
    cluster: Cluster,
    trace: Trace | Iterable[Job],
    policy: str | Placer | Policy = "titan",
    network: str = "isolated",
    seed: int = 0,
    *,
    order: str | None = None,
    collective: str | None = None,
    options: Mapping[str, Any] | None = None,
    profiles: Mapping[str, ModelProfile] | None = None,
    checkpoint_s: float = 1800.0,
    period_s: float = 0.0,
    machine_events: Iterable[tuple[float, Event]] = (),
    price_per_gpu_hour: float = 1.0,
    progress: Progress | None = None,
    command: str = "",
) -> Result:
    """Replay a trace on a cluster under a policy; the arguments are those of `Scenario`.

    `progress` is called with the number of jobs that have been submitted.
    """
    scenario = Scenario(
        cluster,
        trace,
        policy,
        network,
        seed,
        order=order,
        collective=collective,
        options=options or {},
        profiles=profiles,
        checkpoint_s=checkpoint_s,
        period_s=period_s,
        machine_events=machine_events,
        price_per_gpu_hour=price_per_gpu_hour,
        command=command,
    )
    return run(scenario, progress)


def run(scenario: Scenario, progress: Progress | None = None) -> Result:
    """Simulate a scenario."""
    name, policy, order = scenario.resolve_policy()
    with no_garbage_collection():
        record = _record(scenario, policy, progress)
        refuse_if_all_skipped(record, scenario.trace_name)
        return Result.of(scenario.cluster, record, scenario.settings(name, order), scenario.price_per_gpu_hour)


def run_many(
    scenarios: Sequence[Scenario],
    *,
    keep: Callable[[Result], Any] | None = None,
    impossible: Any = None,
    processes: int | None = None,
    pool: WorkerPool | None = None,
    progress: Progress | None = None,
) -> list[Any]:
    """Simulate scenarios in processes at the same time; return results, or what `keep` makes of them, in order.

    `keep` is called where a scenario runs, so that only what is needed is sent back; `impossible` stands for the
    result of a scenario that cannot run, which is an error if it is not given. The `pool` is one of the
    caller's that stays for further scenarios, or else a new one of so many `processes`, as many as there are cores
    if not given. `progress` is called with the number of scenarios that are done.
    """
    calls = [(scenario, keep, impossible) for scenario in scenarios]
    with nullcontext(pool) if pool is not None else WorkerPool(processes) as ready:
        return ready.run(_run_and_keep, calls, progress)


def compare(
    cluster: Cluster,
    trace: Trace,
    names: Sequence[str],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Result]:
    """Simulate several policies on the same trace; results in the given order. `settings` are those of `Scenario`.

    Each of the `options` goes to the policies that have it; one that none of them has is an error.
    """
    scenarios = Scenario(cluster, trace, names[0], **settings).with_policies(names) if names else []
    return run_many(scenarios, processes=processes, progress=progress)


def _record(scenario: Scenario, policy: Policy, progress: Progress | None) -> ReplayRecord:
    """Replay the jobs, compiled if that is possible and pays."""
    jobs = scenario.jobs()
    in_rounds = decision_period_s(scenario.policy, scenario.period_s) > 0
    simple = not scenario.machine_events and not in_rounds and scenario.model.shared is None
    if isinstance(jobs, Jobs) and len(jobs) >= COMPILE_FROM and simple:
        # Imported here because importing the compiler takes longer than a small replay.
        from cranny.sim.fast.fast_replay import compiled_replay

        compiled = compiled_replay(scenario.cluster, policy, scenario.model.alone, jobs)
        if compiled is not None:
            return compiled.run(jobs, progress)
    return scenario.replay(policy).run(jobs, progress)


def _run_and_keep(scenario: Scenario, keep: Callable[[Result], Any] | None, impossible: Any) -> Any:
    try:
        result = run(scenario)
    except InputError:
        if impossible is None:
            raise
        return impossible
    return result if keep is None else keep(result)
