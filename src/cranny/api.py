"""The front door: what `import cranny` offers, put together from the layers below."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from cranny.core.protocol import Placer, Policy
from cranny.core.queue import Queued
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Event
from cranny.model.job import Job
from cranny.policies import TABLE
from cranny.policies import policy as make_policy
from cranny.report.page import write_report
from cranny.sim import result as sim_result
from cranny.sim.network import network as network_model
from cranny.sim.replay import Replay
from cranny.version import VERSION
from cranny.workload.trace import Trace


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
    options: Mapping[str, Any] | None = None,
    machine_events: Iterable[tuple[float, Event]] = (),
    price_per_gpu_hour: float = 1.0,
    progress: Callable[[int], None] | None = None,
    command: str = "",
) -> Result:
    """Replay a trace on a cluster under a policy.

    `order` is the queue order (the one that the policy's paper uses, if not given); `options` go to the policy;
    `machine_events` are (seconds, event) pairs of failures, drains and repairs.
    """
    if isinstance(trace, Trace):
        jobs: Iterable[Job] = trace.jobs(seed)
        trace_name, notes = trace.name, list(trace.notes)
    else:
        jobs, trace_name, notes = trace, "jobs given in Python", []
    if not 0 <= price_per_gpu_hour < float("inf"):
        raise InputError(f"price_per_gpu_hour must be zero or more, not {price_per_gpu_hour!r}")
    name = policy if isinstance(policy, str) else type(policy).__name__
    chosen = with_seed(policy, seed, options) if isinstance(policy, str) else policy
    order = order or (TABLE[name].order if name in TABLE else "fifo")
    replay = Replay(
        cluster,
        in_order(chosen, order),
        network=network_model(network),
        machine_events=machine_events,
        price_per_gpu_hour=price_per_gpu_hour,
    )
    replay.run(jobs, progress)
    if not replay.log.done and not replay.log.unfinished:
        reasons = [reason for _, reason in replay.log.left_out]
        raise InputError(f"no job of {trace_name} can run: {reasons[0]}" if reasons else f"{trace_name}: no jobs")
    settings = {
        "policy": name,
        "order": order,
        "network": network,
        "seed": seed,
        "options": dict(options or {}),
        "price_per_gpu_hour": price_per_gpu_hour,
        "trace": trace_name,
        "trace_notes": notes,
        "cluster": cluster.describe(),
        "command": command or f"cranny.simulate(cluster, trace, policy={name!r}, network={network!r}, seed={seed})",
        "version": VERSION,
    }
    return Result.of(replay, settings, price_per_gpu_hour)


def with_seed(name: str, seed: int, options: Mapping[str, Any] | None = None) -> Placer | Policy:
    """Make a policy by name; one that draws gets a generator of the run's seed."""
    policy = make_policy(name, **(options or {}))
    if "rng" in signature(type(policy)).parameters:
        return make_policy(name, **{**(options or {}), "rng": np.random.default_rng(seed)})
    return policy


def in_order(chosen: Placer | Policy, order: str) -> Policy:
    """Turn a placer and a queue order into a policy; leave a policy as it is."""
    return Queued(chosen, order) if hasattr(chosen, "place") else chosen


def policies() -> dict[str, str]:
    """Return the policies by name, each with a line about it and the paper it comes from."""
    return {name: f"{entry.about} ({entry.paper})" for name, entry in TABLE.items()}


def compare(
    cluster: Cluster, trace: Trace, names: Sequence[str], **settings: Any
) -> list[Result]:
    """Simulate several policies on the same trace, one after the other."""
    return [simulate(cluster, trace, policy=name, **settings) for name in names]
