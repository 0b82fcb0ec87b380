"""Running scenarios: one, several at once, or one trace under several policies."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cranny.call_threads import CallThreads
from cranny.core.protocol import Placer, Policy
from cranny.core.queue import QueuePolicy
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.network.networks import NetworkModel
from cranny.policies import DEFAULT_POLICY
from cranny.policy_choice import decision_period_s
from cranny.process_pool import Pool, WorkerPool, run_calls
from cranny.report.notebook import results_html, results_text
from cranny.report.page import write_report
from cranny.scenario import Scenario, ScenarioSettings
from cranny.sim import result as sim_result
from cranny.sim.record import refuse_if_all_skipped
from cranny.sim.replay import no_garbage_collection
from cranny.traces.named_trace import as_trace
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs

if TYPE_CHECKING:
    from cranny.sim.fast.fast_replay import CompiledReplay

# Jobs from which a compiled replay pays, with what it takes to load it.
COMPILE_FROM = 10_000
LONG = 50_000  # jobs of which a replay in Python takes minutes to hours
Progress = Callable[[int], None]  # called with how much is done


class Result(sim_result.Result):
    """A finished simulation, which can also write a page about itself."""

    __slots__ = ()

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page about this run."""
        return write_report([self], path)

    def __repr__(self) -> str:
        return results_text([self])

    def _repr_html_(self) -> str:
        return results_html([self])


class Comparison(list[Result]):
    """Results of several policies on the same trace, in their order; a notebook shows them as a table."""

    def report(self, path: str | Path) -> Path:
        """Write a self-contained HTML page about these runs."""
        return write_report(self, path)

    def __repr__(self) -> str:
        return results_text(self)

    def _repr_html_(self) -> str:
        return results_html(self)


def simulate(
    cluster: Cluster,
    trace: Trace | Iterable[Job] | str | Path,
    policy: str | Placer | Policy = DEFAULT_POLICY,
    network: str | NetworkModel = "isolated",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    **settings: Unpack[ScenarioSettings],
) -> Result:
    """Replay a trace on a cluster under a policy; the arguments and further `settings` are those of `Scenario`.

    The trace may be a file, or the name of a preset, from which 5,000 jobs are generated that ask for 80 % of the
    cluster's GPUs. `progress` is called with the number of jobs that have been submitted.
    """
    jobs = _named(cluster, trace, seed, settings)
    return run(Scenario(cluster, jobs, policy, network, seed, **settings), progress)


def run(scenario: Scenario, progress: Progress | None = None) -> Result:
    """Simulate a scenario."""
    return _Prepared.of(scenario, scenario.jobs()).run(progress)


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A scenario that is ready to run."""

    scenario: Scenario
    name: str
    policy: Policy
    order: str
    jobs: Iterable[Job]
    compiled: "CompiledReplay | None"  # if that is possible and pays

    @classmethod
    def of(cls, scenario: Scenario, jobs: Iterable[Job]) -> "_Prepared":
        """Make the policy of a scenario, whose jobs these are."""
        name, policy, order = scenario.resolve_policy()
        return cls(scenario, name, policy, order, jobs, _compiled(scenario, policy, jobs))

    def run(self, progress: Progress | None = None) -> Result:
        """Replay the jobs, compiled if that is possible and pays."""
        scenario = self.scenario
        with no_garbage_collection():
            if self.compiled is not None and isinstance(self.jobs, Jobs):
                record = self.compiled.run(self.jobs, progress)
            else:
                record = scenario.replay(self.policy).run(self.jobs, progress)
            refuse_if_all_skipped(record, scenario.trace_name)
            settings = scenario.settings(self.name, self.order)
            return Result.of(scenario.cluster, record, settings, scenario.price_per_gpu_hour)


def run_many(
    scenarios: Sequence[Scenario | Callable[..., Any]],
    *,
    keep: Callable[[Result], Any] | None = None,
    impossible: Any = None,
    failed: Callable[[Exception], Any] | None = None,
    processes: int | None = None,
    shared: Sequence[Any] = (),
    pool: Pool | None = None,
    progress: Progress | None = None,
    ended: Callable[[int, Any], None] | None = None,
) -> list[Any]:
    """Simulate scenarios in processes at the same time; return results, or what `keep` makes of them, in order.

    If all are compiled, they run in threads of this process instead.

    A scenario may also be a call that makes it where it runs, from what is `shared`, which is sent there once; or
    that returns what it found without a simulation, which is the result as it is. `keep` is called there too, so
    that only what is needed is sent back. `impossible` stands for the result of a scenario that cannot run, and
    `failed` makes a result of any error, also of a process that died; without them an error is raised at once. The
    `pool` is one of the caller's that stays for further scenarios and has been given what is `shared`, or else a
    new one of so many `processes`, as many as there are cores if not given. `progress` is called with the number
    of scenarios that are done, and `ended` with the number of one that is done and its result.
    """
    if pool is None and not shared and (prepared := _all_compiled(scenarios)):
        with CallThreads(processes) as threads:
            runs = [partial(_kept, each, keep, threads.proceed) for each in prepared]
            calls: list[Any] = [(each, None, impossible, failed) for each in runs]
            return run_calls(threads, run_scenario, calls, progress, lost=failed, ended=ended)
    calls = [(scenario, keep, impossible, failed) for scenario in scenarios]
    with nullcontext(pool) if pool is not None else WorkerPool(processes, shared=shared) as ready:
        return run_calls(ready, run_scenario, calls, progress, lost=failed, ended=ended)


def compare(
    cluster: Cluster,
    trace: Trace | str | Path,
    names: Sequence[str],
    network: str | NetworkModel = "isolated",
    seed: int = 0,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[ScenarioSettings],
) -> Comparison:
    """Simulate several policies on the same trace; results in the given order. `settings` are those of `Scenario`.

    The trace may be a file or a preset, as for `simulate`.
    Each of the `options` goes to the policies that have it; one that none of them has is an error.
    """
    if not names:
        return Comparison()
    jobs = _named(cluster, trace, seed, settings)
    scenarios = Scenario(cluster, jobs, names[0], network, seed, **settings).with_policies(names)
    return Comparison(run_many(scenarios, processes=processes, progress=progress))


def _named(cluster: Cluster, trace: object, seed: int, settings: ScenarioSettings) -> Any:
    """Read what text names as a trace, and refuse what is none."""
    if not isinstance(cluster, Cluster):
        raise InputError(f"cluster: must be a Cluster, such as of Cluster.fat_tree, not {type(cluster).__name__}")
    return as_trace(trace, cluster.gpus, seed=seed, profiles=settings.get("profiles"))


def _all_compiled(scenarios: Sequence[Scenario | Callable[..., Any]]) -> "list[_Prepared]":
    """Return several scenarios ready to run if all are compiled; nothing if one is not."""
    prepared: list[_Prepared] = []
    for scenario in scenarios:
        if not isinstance(scenario, Scenario) or not isinstance(scenario.trace, Trace):
            return []
        if len(scenario.trace) < COMPILE_FROM:
            return []
        try:
            ready = _Prepared.of(scenario, _jobs_beside(scenario, prepared))
        except InputError:  # reported when it runs
            return []
        if ready.compiled is None:
            return []
        prepared.append(ready)
    return prepared


def _jobs_beside(scenario: Scenario, prepared: "Sequence[_Prepared]") -> Iterable[Job]:
    """Return the jobs of a scenario; their columns are shared with others that have the same."""
    for other in prepared:
        if isinstance(other.jobs, Jobs) and scenario.has_jobs_of(other.scenario):
            return other.jobs.shared()
    return scenario.jobs()


def _kept(prepared: "_Prepared", keep: Callable[[Result], Any] | None, progress: Progress) -> Any:
    """Run a scenario, and keep of its result what is needed."""
    result = prepared.run(progress)
    return result if keep is None else keep(result)


def takes_long(scenario: Scenario) -> bool:
    """Say whether a scenario has many jobs, and its replay is not compiled: then it takes minutes to hours."""
    jobs = scenario.jobs()
    many = isinstance(jobs, Jobs) and len(jobs) >= LONG
    return many and _compiled(scenario, scenario.resolve_policy()[1], jobs) is None


def _compiled(scenario: Scenario, policy: Policy, jobs: Iterable[Job]) -> "CompiledReplay | None":
    """Return a compiled replay if that is possible and pays."""
    in_rounds = decision_period_s(scenario.policy, scenario.period_s) > 0
    simple = not (scenario.machine_events or scenario.admission or in_rounds) and scenario.model.shared is None
    if not isinstance(jobs, Jobs) or len(jobs) < COMPILE_FROM or not simple or not isinstance(policy, QueuePolicy):
        return None
    # Imported here because importing the compiler takes longer than a small replay.
    from cranny.sim.fast.fast_replay import compiled_replay

    return compiled_replay(scenario.cluster, policy, scenario.model.alone, jobs, scenario.held_before)


def run_scenario(
    given: Scenario | Callable[..., Any],
    keep: Callable[[Result], Any] | None,
    impossible: Any,
    failed: Callable[[Exception], Any] | None,
    *shared: Any,
) -> Any:
    """Simulate one of the scenarios of `run_many`, in the process or on the machine where it runs."""
    try:
        scenario = given if isinstance(given, Scenario) else given(*shared)
        if not isinstance(scenario, Scenario):
            return scenario
        result = run(scenario)
        return result if keep is None else keep(result)
    except Exception as error:
        if impossible is not None and isinstance(error, InputError):
            return impossible
        if failed is None:
            raise
        return failed(error)
