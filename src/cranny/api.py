"""The front door: what `import cranny` offers, put together from the layers below."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np

from cranny.core.protocol import Placer, Policy
from cranny.core.queue import Queued, Slowdown
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError, unknown
from cranny.model.event import Event
from cranny.model.job import Job, whole
from cranny.model.number import not_negative
from cranny.model.profile import ModelProfile, library
from cranny.policies import TABLE, policy_class
from cranny.policies import policy as make_policy
from cranny.processes import run_each
from cranny.report.page import write_report
from cranny.sim import result as sim_result
from cranny.sim.models import Model
from cranny.sim.models import network as network_model
from cranny.sim.record import LEFT_OUT, Record
from cranny.sim.replay import Replay, no_collector
from cranny.version import VERSION
from cranny.workload.jobs import Jobs
from cranny.workload.trace import Trace

MAX_SEED = 2**63 - 1
# Jobs from which a compiled replay pays, with what it takes to load it.
COMPILE_FROM = 50_000


class Result(sim_result.Result):
    """A finished simulation, which can also show itself."""

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
    progress: Callable[[int], None] | None = None,
    command: str = "",
) -> Result:
    """Replay a trace on a cluster under a policy.

    `order` is the queue order (the one that the policy's paper uses, if not given); `collective` is for jobs of a
    trace that name none; `options` go to the policy; `profiles` are the models that the trace may name.
    `machine_events` are (seconds, event) pairs of failures, drains and repairs; a job that a failure stops goes on
    from its last checkpoint, one every `checkpoint_s`. With a `period_s` the policy decides only so often, about
    all jobs that came since, and not at every event; a policy of rounds has one of its own.
    """
    if isinstance(trace, Trace):
        trace = with_types_of(cluster, trace)
        jobs: Iterable[Job] = trace.jobs(seed, collective, profiles=profiles)
        trace_name, notes, left_out = trace.name, list(trace.notes), dict(trace.left_out)
    else:
        jobs, trace_name, notes, left_out = _distinct(trace), "jobs given in Python", [], {}
    not_negative(price_per_gpu_hour, "price_per_gpu_hour")
    not_negative(checkpoint_s, "checkpoint_s")
    not_negative(period_s, "period_s")
    model = network_model(network)
    name, chosen, order = choose(policy, order, options, seed, model.alone)
    period_s = period_s or period_of(policy)
    events = list(machine_events)
    settings: dict[str, Any] = {
        "policy": name,
        "order": order,
        "network": network,
        "collective": collective or "as the jobs say, else halving-doubling",
        "seed": seed,
        "options": dict(options or {}),
        "price_per_gpu_hour": price_per_gpu_hour,
        "trace": trace_name,
        "trace_notes": notes,
        "trace_left_out": left_out,
        "checkpoint_s": checkpoint_s,
        "period_s": period_s,
        "own_profiles": sorted(set(profiles) - set(library())) if profiles is not None else [],
        "machine_events": [[at_s, str(event)] for at_s, event in events],
        "cluster": cluster.describe(),
        "version": VERSION,
    }
    settings["command"] = command or _call(settings)
    with no_collector():
        record = _replay(cluster, chosen, jobs, model, events, checkpoint_s, period_s, progress)
        if (record.jobs["status"] == LEFT_OUT).all():
            reasons = record.jobs["reason"].drop_nulls()
            why = f"no job of {trace_name} can run: {reasons[0]}" if len(reasons) else f"{trace_name}: no jobs"
            raise InputError(why)
        return Result.of(cluster, record, settings, price_per_gpu_hour)


def with_types_of(cluster: Cluster, trace: Trace) -> Trace:
    """Forget which types of GPU jobs ask for if the cluster does not say which it has."""
    columns = [name for name in ("gpu_type", "speeds") if name in trace.frame.columns]
    asked = any(trace.frame[name].count() > 0 for name in columns)
    if not asked or any(cluster.machines_with):  # a machine's type may be empty
        return trace
    note = "the cluster names no types of GPU: those that jobs ask for are left aside"
    return replace(trace, frame=trace.frame.drop(columns), notes=(*trace.notes, note))


def _replay(
    cluster: Cluster,
    policy: Policy,
    jobs: Iterable[Job],
    model: Model,
    events: Sequence[tuple[float, Event]],
    checkpoint_s: float,
    period_s: float,
    progress: Callable[[int], None] | None,
) -> Record:
    """Replay jobs, compiled if that is possible and pays."""
    simple = not events and not period_s and model.shared is None
    if isinstance(jobs, Jobs) and len(jobs) >= COMPILE_FROM and simple:
        from cranny.sim.compiled import compiled_for  # importing the compiler takes longer than a small replay

        compiled = compiled_for(cluster, policy, model.alone, jobs)
        if compiled is not None:
            return compiled.run(jobs, progress)
    replay = Replay(
        cluster,
        policy,
        network=model.on(cluster),
        machine_events=events,
        checkpoint_s=checkpoint_s,
        period_s=period_s,
    )
    return replay.run(jobs, progress)


def choose(
    policy: str | Placer | Policy,
    order: str | None,
    options: Mapping[str, Any] | None,
    seed: int,
    slowdown: Slowdown,
) -> tuple[str, Policy, str]:
    """Return the name of a policy, the policy itself, and the order of its queue."""
    if isinstance(policy, str):
        placer = with_seed(policy, seed, options)
        order = order or TABLE[policy].order
        return policy, _in_order(placer, order, slowdown), order
    if options:
        raise InputError("options are for a policy that is given by name; this one is made already")
    if not isinstance(policy, Queued):
        return type(policy).__name__, _in_order(policy, order or "fifo", slowdown), order or "fifo"
    if order not in (None, policy.order):
        raise InputError(f"the policy has its own order, {policy.order!r}; order={order!r} cannot be kept")
    return type(policy.placer).__name__, policy, policy.order


def period_of(policy: str | Placer | Policy) -> float:
    """Return how often a policy decides if nobody says so; 0 for at every event."""
    return TABLE[policy].period_s if isinstance(policy, str) else 0.0


def _call(settings: Mapping[str, Any]) -> str:
    """Return the call that repeats a run, as far as its settings are plain values."""
    plain = ("policy", "network", "seed", "order", "options", "price_per_gpu_hour", "checkpoint_s", "period_s")
    return f"cranny.simulate(cluster, trace, {', '.join(f'{name}={settings[name]!r}' for name in plain)})"


def _distinct(jobs: Iterable[Job]) -> Iterator[Job]:
    """Pass jobs on; refuse an id that comes twice."""
    seen = set()
    for job in jobs:
        if job.id in seen:
            raise InputError(f"job id {job.id!r} occurs twice")
        seen.add(job.id)
        yield job


def with_seed(name: str, seed: int, options: Mapping[str, Any] | None = None) -> Placer:
    """Make a policy by name; one that draws gets a generator of the run's seed."""
    whole(seed, "seed", least=0, most=MAX_SEED)
    given = dict(options or {})
    if "rng" in given:
        raise InputError(f"policy {name!r}: rng is set by the run's seed")
    known = _options_of(name)
    for option in given:
        if option not in known:
            what = unknown("option", option, known - {"rng"}) if known - {"rng"} else "it has no options"
            raise InputError(f"policy {name!r}: {what}")
    if "rng" in signature(policy_class(name)).parameters:
        given["rng"] = np.random.default_rng(seed)
    return make_policy(name, **given)


def _options_of(name: str) -> set[str]:
    """Return the options that a policy can be given, with those of its host and of what it builds upon."""
    chosen = [policy_class(name)]
    if host := TABLE[name].host:
        chosen.append(policy_class(host))
    found: set[str] = set()
    for each_class in chosen:
        for kind in each_class.__mro__:
            parameters = signature(kind).parameters.values()
            found.update(each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD)
            if all(each.kind is not Parameter.VAR_KEYWORD for each in parameters):
                break
    return found - {"host"}


def _in_order(chosen: Placer | Policy, order: str, slowdown: Slowdown) -> Policy:
    """Turn a placer and a queue order into a policy; leave a policy as it is, unless it can have another order."""
    in_order: Callable[[str, Slowdown], Policy] | None = getattr(chosen, "in_order", None)
    if in_order is not None:  # it works on top of another, whose queue it is
        return in_order(order, slowdown)
    if isinstance(chosen, Policy) and (not isinstance(chosen, Placer) or order == getattr(chosen, "order", None)):
        return chosen
    return Queued(chosen, order, slowdown)


def compare(
    cluster: Cluster,
    trace: Trace,
    names: Sequence[str],
    *,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
    **settings: Any,
) -> list[Result]:
    """Simulate several policies on the same trace, each in a process of its own; results in the given order."""
    calls = [(cluster, trace, name) for name in names]
    return run_each(partial(simulate, **settings), calls, processes or os.cpu_count() or 1, progress)
