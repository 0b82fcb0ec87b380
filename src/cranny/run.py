"""The front door: what `import cranny` offers, put together from the layers below."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cranny.core.protocol import (
    Placer,
    Policy,
    Reorderable,
    Slowdown,
    default_order,
    default_period_s,
    least_period_s,
)
from cranny.core.queue import QueuePolicy
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Event
from cranny.model.job import Job, whole
from cranny.model.profile import ModelProfile, library
from cranny.model.validate import not_negative
from cranny.network.networks import Model
from cranny.network.networks import network as network_model
from cranny.policies import TABLE, options_of, policy_class
from cranny.policies import policy as make_policy
from cranny.process_pool import run_each
from cranny.report.page import write_report
from cranny.sim import result as sim_result
from cranny.sim.record import ReplayRecord, refuse_if_all_skipped
from cranny.sim.replay import Replay, no_garbage_collection
from cranny.traces.trace import Trace
from cranny.traces.trace_jobs import Jobs
from cranny.version import VERSION

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
        trace_name, notes, skipped = trace.name, list(trace.notes), dict(trace.skipped)
    else:
        jobs, trace_name, notes, skipped = _distinct(trace), "jobs given in Python", [], {}
    not_negative(price_per_gpu_hour, "price_per_gpu_hour")
    not_negative(checkpoint_s, "checkpoint_s")
    model = network_model(network)
    name, chosen, order = choose(policy, order, options, seed, model.alone)
    period_s = period_of(policy, period_s)
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
        "trace_skipped": skipped,
        "checkpoint_s": checkpoint_s,
        "period_s": period_s,
        "own_profiles": sorted(set(profiles) - set(library())) if profiles is not None else [],
        "machine_events": [[at_s, str(event)] for at_s, event in events],
        "cluster": cluster.describe(),
        "links": cluster.describe_links(),
        "version": VERSION,
    }
    settings["command"] = command or _call(settings)
    with no_garbage_collection():
        record = _replay(cluster, chosen, jobs, model, events, checkpoint_s, period_s, progress)
        refuse_if_all_skipped(record, trace_name)
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
) -> ReplayRecord:
    """Replay jobs, compiled if that is possible and pays."""
    simple = not events and not period_s and model.shared is None
    if isinstance(jobs, Jobs) and len(jobs) >= COMPILE_FROM and simple:
        from cranny.sim.fast.fast_replay import (
            compiled_replay,  # importing the compiler takes longer than a small replay
        )

        compiled = compiled_replay(cluster, policy, model.alone, jobs)
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
    policy = _unused(policy)
    if not isinstance(policy, QueuePolicy):
        order = order or default_order(policy)
        return type(policy).__name__, _in_order(policy, order, slowdown), order
    if order not in (None, policy.order):
        raise InputError(f"the policy has its own order, {policy.order!r}; order={order!r} cannot be kept")
    return type(policy.placer).__name__, policy, policy.order


def _unused(policy: Placer | Policy) -> Placer | Policy:
    """Return a copy of a policy of ours, so that one object serves several runs alike; others see to that."""
    core = policy.placer if isinstance(policy, QueuePolicy) else policy
    return deepcopy(policy) if type(core).__module__.startswith("cranny.policies.") else policy


def period_of(policy: str | Placer | Policy, asked_s: float = 0.0) -> float:
    """Return how often a policy decides: as asked for, or as in its paper; 0 for at every event."""
    not_negative(asked_s, "period_s")
    name, kind = (policy, policy_class(policy)) if isinstance(policy, str) else (type(policy).__name__, policy)
    if 0 < asked_s < least_period_s(kind):
        raise InputError(f"{name}: period_s must be at least {least_period_s(kind):g}, not {asked_s!r}")
    return asked_s or default_period_s(kind)


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
    if "rng" in options_of(name):
        given["rng"] = np.random.default_rng(seed)
    return make_policy(name, **given)


def _in_order(chosen: Placer | Policy, order: str, slowdown: Slowdown) -> Policy:
    """Turn a placer and a queue order into a policy; leave a policy as it is, unless it can have another order."""
    if isinstance(chosen, Reorderable):  # it works on top of another, whose queue it is
        return chosen.in_order(order, slowdown)
    if isinstance(chosen, Policy) and (not isinstance(chosen, Placer) or order == default_order(chosen)):
        return chosen
    return QueuePolicy(chosen, order, slowdown)


def compare(
    cluster: Cluster,
    trace: Trace,
    names: Sequence[str],
    *,
    processes: int | None = None,
    progress: Callable[[int], None] | None = None,
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> list[Result]:
    """Simulate several policies on the same trace, each in a process of its own; results in the given order.

    Each of the `options` goes to the policies that know it; one that none of them knows is an error.
    """
    calls = [
        (cluster, trace, name, own) for name, own in zip(names, _shared_out(options or {}, names), strict=True)
    ]
    return run_each(partial(_simulate, settings), calls, processes or os.cpu_count() or 1, progress)


def _simulate(
    settings: Mapping[str, Any], cluster: Cluster, trace: Trace, name: str, options: Mapping[str, Any]
) -> Result:
    """Simulate one of several policies; `run_each` hands arguments over by position."""
    return simulate(cluster, trace, name, options=options, **settings)


def _shared_out(options: Mapping[str, Any], names: Sequence[str]) -> list[dict[str, Any]]:
    """Hand each policy the options that it knows; refuse what none knows, and wrong values, at once."""
    if not options:
        return [{} for _ in names]
    known = [options_of(name) - {"rng"} for name in names]
    every = set().union(*known)
    for option in options:
        if option not in every:
            there = f"known: {', '.join(sorted(every))}" if every else "they have none"
            raise InputError(f"none of the policies has an option {option!r}; {there}")
    shares = [{option: value for option, value in options.items() if option in own} for own in known]
    for name, own in zip(names, shares, strict=True):
        with_seed(name, 0, own)
    return shares
