"""The front door: what `import cranny` offers, put together from the layers below."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from inspect import signature
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from cranny.core.protocol import Placer, Policy
from cranny.core.queue import Queued
from cranny.core.snapshot import Snapshot
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import Event
from cranny.model.job import Job, whole
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
from cranny.model.profile import ModelProfile
from cranny.policies import TABLE
from cranny.policies import policy as make_policy
from cranny.report.page import write_report
from cranny.sim import result as sim_result
from cranny.sim.network import network as network_model
from cranny.sim.replay import Replay, no_collector
from cranny.version import VERSION
from cranny.workload.trace import Trace

MAX_SEED = 2**63 - 1


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
    machine_events: Iterable[tuple[float, Event]] = (),
    price_per_gpu_hour: float = 1.0,
    progress: Callable[[int], None] | None = None,
    command: str = "",
) -> Result:
    """Replay a trace on a cluster under a policy.

    `order` is the queue order (the one that the policy's paper uses, if not given); `collective` is for jobs of a
    trace that name none; `options` go to the policy; `profiles` are the models that the trace may name.
    `machine_events` are (seconds, event) pairs of failures, drains and repairs; a job that a failure stops goes on
    from its last checkpoint, one every `checkpoint_s`.
    """
    if isinstance(trace, Trace):
        jobs: Iterable[Job] = trace.jobs(seed, collective, profiles=profiles)
        trace_name, notes = trace.name, list(trace.notes)
    else:
        jobs, trace_name, notes = trace, "jobs given in Python", []
    if not 0 <= price_per_gpu_hour < float("inf"):
        raise InputError(f"price_per_gpu_hour must be zero or more, not {price_per_gpu_hour!r}")
    name = policy if isinstance(policy, str) else type(policy).__name__
    chosen = with_seed(policy, seed, options) if isinstance(policy, str) else policy
    order = order or (TABLE[name].order if name in TABLE else "fifo")
    settings = {
        "policy": name,
        "order": order,
        "network": network,
        "collective": collective or "as the jobs say, else halving-doubling",
        "seed": seed,
        "options": dict(options or {}),
        "price_per_gpu_hour": price_per_gpu_hour,
        "trace": trace_name,
        "trace_notes": notes,
        "cluster": cluster.describe(),
        "command": command
        or f"cranny.simulate(cluster, trace, policy={name!r}, network={network!r}, seed={seed})",
        "version": VERSION,
    }
    with no_collector():  # until the replay, which only the call below holds, is gone again
        return _replayed(
            Replay(
                cluster,
                in_order(chosen, order),
                network=network_model(network),
                machine_events=machine_events,
                checkpoint_s=checkpoint_s,
            ),
            jobs,
            settings,
            progress,
        )


def _replayed(
    replay: Replay, jobs: Iterable[Job], settings: Mapping[str, Any], progress: Callable[[int], None] | None
) -> Result:
    """Run a replay and collect what it found."""
    replay.run(jobs, progress)
    if not replay.log.done and not replay.log.unfinished:
        reasons = [reason for _, reason in replay.log.left_out]
        name = settings["trace"]
        raise InputError(f"no job of {name} can run: {reasons[0]}" if reasons else f"{name}: no jobs")
    return Result.of(replay, settings, settings["price_per_gpu_hour"])


def with_seed(name: str, seed: int, options: Mapping[str, Any] | None = None) -> Placer | Policy:
    """Make a policy by name; one that draws gets a generator of the run's seed."""
    policy = make_policy(name, **(options or {}))
    if "rng" in signature(type(policy)).parameters:
        return make_policy(
            name, **{**(options or {}), "rng": np.random.default_rng(whole(seed, "seed", least=0, most=MAX_SEED))}
        )
    return policy


def in_order(chosen: Placer | Policy, order: str) -> Policy:
    """Turn a placer and a queue order into a policy; leave a policy as it is."""
    return Queued(chosen, order) if isinstance(chosen, Placer) else chosen


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
    workers = min(len(names), processes or os.cpu_count() or 1)
    if workers <= 1:
        results = []
        for done, name in enumerate(names, 1):
            results.append(simulate(cluster, trace, name, **settings))
            if progress is not None:
                progress(done)
        return results
    # Spawned, not forked: polars runs threads, which do not survive a fork.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(simulate, cluster, trace, name, **settings) for name in names]
        try:
            for done, _ in enumerate(as_completed(futures), 1):
                if progress is not None:
                    progress(done)
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


@dataclass(slots=True)
class Story:
    """Why a job waited and why it was placed where it was."""

    job_id: str
    policy: str
    submit_s: float = 0.0
    waits: list[tuple[float, str]] = field(default_factory=list)  # each new reason, and since when
    start_s: float | None = None
    placement: Placement | None = None
    left_out: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the story as plain values."""
        return {
            "job": self.job_id,
            "policy": self.policy,
            "submit_s": self.submit_s,
            "start_s": self.start_s,
            "waits": [{"since_s": since_s, "reason": reason} for since_s, reason in self.waits],
            "left_out": self.left_out,
            "placement": self.placement.facts if self.placement else None,
        }

    def text(self) -> str:
        """Return the story as a person would tell it."""
        lines = [f"{self.policy}: job {self.job_id} was submitted at {self.submit_s:,.0f} s"]
        lines += [f"from {since_s:,.0f} s it waited: {reason}" for since_s, reason in self.waits]
        if self.placement is not None and self.start_s is not None:
            lines += [f"it started at {self.start_s:,.0f} s", self.placement.explain()]
        else:
            lines.append(f"it was left out: {self.left_out}" if self.left_out else "it never started")
        return "\n".join(lines)


class _Watch:
    """A policy that also notes what becomes of one job."""

    def __init__(self, policy: Policy, story: Story) -> None:
        self._policy = policy
        self._story = story
        self.key = policy.key
        self.placer = getattr(policy, "placer", None)
        self.why_wait = policy.why_wait

    def plan(self, view: Snapshot) -> Plan:
        plan = self._policy.plan(view)
        story = self._story
        if story.placement is None:
            for action in plan.actions:
                if isinstance(action, Start) and action.job.id == story.job_id:
                    story.start_s, story.placement = view.now_s, action.placement
                    return plan
            for waiting in view.waiting:
                if waiting.job.id == story.job_id and not plan.actions:
                    reason = self.why_wait(waiting.job, view)
                    if not story.waits or story.waits[-1][1] != reason:
                        story.waits.append((view.now_s, reason))
        return plan


def explain(
    cluster: Cluster,
    trace: Trace,
    job_id: str,
    policy: str = "titan",
    network: str = "isolated",
    seed: int = 0,
    *,
    order: str | None = None,
    collective: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Story:
    """Replay a trace until one job starts, and tell why it waited and why it was placed where it was."""
    story = Story(job_id, policy)
    queued = in_order(with_seed(policy, seed), order or TABLE[policy].order)
    replay = Replay(cluster, _Watch(queued, story), network=network_model(network))

    def until_placed() -> Iterator[Job]:
        found = False
        for job in trace.jobs(seed, collective):
            if story.placement is not None:
                return
            if job.id == job_id:
                found, story.submit_s = True, job.submit_s
            yield job
        if not found:
            raise InputError(f"there is no job {job_id!r} in {trace.name}")

    replay.run(until_placed(), progress)
    story.left_out = next((reason for job, reason in replay.log.left_out if job.id == job_id), "")
    return story
