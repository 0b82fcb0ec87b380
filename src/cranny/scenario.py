"""A scenario: the cluster, the jobs, the policy and the settings of one simulation, as one frozen value."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypedDict

from cranny.core.protocol import FIFO, Placer, Policy
from cranny.model.cluster import Cluster
from cranny.model.collective import DEFAULT_COLLECTIVE
from cranny.model.errors import InputError
from cranny.model.event import Event
from cranny.model.job import Job, whole
from cranny.model.profile import ModelProfile, library
from cranny.model.validate import not_negative
from cranny.network.networks import NetworkModel
from cranny.network.networks import network as network_model
from cranny.policies import DEFAULT_POLICY, TABLE, options_of
from cranny.policy_choice import MAX_SEED, decision_period_s, resolve_policy, seeded_policy
from cranny.sim.admission import Admission
from cranny.sim.held_before import HeldBefore
from cranny.sim.replay import Replay
from cranny.traces.trace import Trace
from cranny.traces.type_matching import with_types_of
from cranny.version import VERSION

# What a call of `cranny.simulate` that repeats a scenario names.
_PLAIN = ("policy", "network", "seed", "order", "options", "price_per_gpu_hour", "checkpoint_s", "period_s")

_PLAIN_VALUES = (str, int, float, dict, tuple)  # compared by value; others only by identity


class ScenarioSettings(TypedDict, total=False):
    """What `simulate`, `compare` and `what_if` take as further keywords."""

    order: str | None
    collective: str | None
    options: Mapping[str, Any]
    profiles: Mapping[str, ModelProfile] | None
    checkpoint_s: float
    period_s: float
    machine_events: Iterable[tuple[float, Event]]
    price_per_gpu_hour: float
    skip_unknown_types: bool
    limits: bool
    held_before: HeldBefore
    command: str
    admission: Admission


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """All that decides the result of a simulation.

    `trace` is a trace, or jobs in the order of their submission; an iterator serves one run. `policy` is a name,
    with `options` for its constructor, or an object; `network` is a name, or a model. `order` is the queue order
    (that of the policy's paper if None), and `collective` is for jobs that name none. `profiles` are the models
    that the trace may name. `machine_events` are (seconds, event) pairs of failures, drains and repairs, and of
    machines that join and leave: the cluster has all that are ever there, and one that joins before anything else
    happens to it is not there before. A job that a failure stops goes on from its last checkpoint, one every
    `checkpoint_s`. With a `period_s` the policy
    decides once in a period about all jobs that came since, and not at every event; a policy of rounds has its
    own period. Types of GPU that jobs of a trace ask for are matched without case and by alias; one that the
    cluster does not have is an error, or skips its jobs with `skip_unknown_types`. With `limits` policies know of
    a job only the limit that its user asked for, where the log has it, as real schedulers do, and not how long it
    will run. A job of a log counts from when it was eligible to start. `held_before` has, by id, those of the
    first jobs that run when the replay begins: the machines that each holds, by name, and how many GPUs there.
    `admission` holds jobs back that depend on others; a replay with it is not compiled.
    """

    cluster: Cluster
    trace: Trace | Iterable[Job]
    policy: str | Placer | Policy = DEFAULT_POLICY
    network: str | NetworkModel = "isolated"
    seed: int = 0
    order: str | None = None
    collective: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    profiles: Mapping[str, ModelProfile] | None = None
    checkpoint_s: float = 1800.0
    period_s: float = 0.0
    machine_events: Iterable[tuple[float, Event]] = ()
    price_per_gpu_hour: float = 1.0
    skip_unknown_types: bool = False
    limits: bool = False
    held_before: HeldBefore = field(default_factory=dict)
    command: str = ""  # that repeats it; a call of `simulate` if empty
    admission: Admission = field(default_factory=Admission)

    def __post_init__(self) -> None:
        """Check what can be checked without making the policy or reading jobs."""
        whole(self.seed, "seed", least=0, most=MAX_SEED)
        not_negative(self.price_per_gpu_hour, "price_per_gpu_hour")
        not_negative(self.checkpoint_s, "checkpoint_s")
        network_model(self.network)
        decision_period_s(self.policy, self.period_s)
        if isinstance(self.trace, Trace):
            known = self.cluster.machines_with
            matched = with_types_of(self.trace, known, skip_unknown=self.skip_unknown_types)
            object.__setattr__(self, "trace", matched.from_eligible())
        object.__setattr__(self, "options", dict(self.options or {}))
        object.__setattr__(self, "machine_events", tuple(self.machine_events))

    @property
    def whole_trace(self) -> Trace:
        """Return the trace, for what needs a whole one; jobs alone are refused."""
        if not isinstance(self.trace, Trace):
            raise InputError("a trace is needed here, not only jobs")
        return self.trace

    @property
    def trace_name(self) -> str:
        """Return how messages call the jobs."""
        return self.trace.name if isinstance(self.trace, Trace) else "jobs given in Python"

    @property
    def model(self) -> NetworkModel:
        """Return the network model."""
        return network_model(self.network)

    def jobs(self) -> Iterable[Job]:
        """Return the jobs, in the order of their submission."""
        if isinstance(self.trace, Trace):
            restricting = self.cluster.partitions
            return self.trace.jobs(
                self.seed, self.collective, None, self.profiles, restricting, limits=self.limits
            )
        return _distinct(self.trace)

    def has_jobs_of(self, other: "Scenario") -> bool:
        """Say whether `jobs` are those of another scenario of the same trace."""
        same = self.trace is other.trace and self.profiles is other.profiles and self.cluster is other.cluster
        drawn = (self.seed, self.collective, self.limits) == (other.seed, other.collective, other.limits)
        return same and drawn and isinstance(self.trace, Trace)

    def equals(self, other: "Scenario") -> bool:
        """Say whether another scenario has the same result, because all that decides it is the same."""
        values = ((getattr(self, each.name), getattr(other, each.name)) for each in fields(self))
        return all(
            mine is theirs or (isinstance(mine, _PLAIN_VALUES) and mine == theirs) for mine, theirs in values
        )

    def resolve_policy(self) -> tuple[str, Policy, str]:
        """Make the policy anew; return its name, the policy and its queue order."""
        return resolve_policy(self.policy, self.order, self.options, self.seed, self.model.alone)

    def replay(self, policy: Policy) -> Replay:
        """Return a replay that has not begun, under this scenario's policy or one that wraps it."""
        return Replay(
            self.cluster,
            policy,
            network=self.model.on(self.cluster),
            machine_events=self.machine_events,
            checkpoint_s=self.checkpoint_s,
            period_s=decision_period_s(self.policy, self.period_s),
            held_before=self.held_before,
            admission=self.admission,
        )

    def on_cluster(self, cluster: Cluster) -> Self:
        """Return the scenario on another cluster; a job whose type of GPU is not there can never run."""
        moved = copy(self)  # types are not matched again, so that all jobs stay
        object.__setattr__(moved, "cluster", cluster)
        return moved

    def with_policies(self, names: Sequence[str]) -> list[Self]:
        """Return the scenario under each policy of a list, with those of the options that the policy has.

        An option that none of them has is an error, as are wrong values.
        """
        known = [options_of(name) - {"rng"} for name in names]
        every = set().union(*known)
        for option in self.options:
            if option not in every:
                there = f"known: {', '.join(sorted(every))}" if every else "they have none"
                raise InputError(f"none of the policies has an option {option!r}; {there}")
        scenarios = []
        for name, own in zip(names, known, strict=True):
            options = {option: value for option, value in self.options.items() if option in own}
            if options:
                seeded_policy(name, self.seed, options)
            scenarios.append(replace(self, policy=name, options=options))
        return scenarios

    def as_on_logs(self) -> Self:
        """Return the scenario as logs are replayed: policies know limits, placers without an order backfill."""
        order = self.order
        if order is None and isinstance(self.policy, str) and TABLE[self.policy].order == FIFO:
            placer = seeded_policy(self.policy, self.seed, self.options)
            order = None if isinstance(placer, Policy) else "backfill"
        return replace(self, order=order, limits=True)

    def settings(self, name: str, order: str) -> dict[str, Any]:
        """Return what a result records of the scenario, as plain values; `name` and `order` are resolved."""
        trace = self.trace if isinstance(self.trace, Trace) else None
        made: dict[str, Any] = {
            "policy": name,
            "order": order,
            "network": self.network if isinstance(self.network, str) else "given in Python",
            "collective": self.collective or DEFAULT_COLLECTIVE,
            "seed": self.seed,
            "options": dict(self.options),
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "trace": self.trace_name,
            "trace_notes": list(trace.notes) if trace else [],
            "trace_skipped": dict(trace.skipped) if trace else {},
            "checkpoint_s": self.checkpoint_s,
            "period_s": decision_period_s(self.policy, self.period_s),
            "limits": self.limits,
            "own_profiles": sorted(set(self.profiles) - set(library())) if self.profiles is not None else [],
            "machine_events": [[at_s, str(event)] for at_s, event in self.machine_events],
            "cluster": self.cluster.describe(),
            "links": self.cluster.describe_links(),
            "zero_epoch_s": trace.zero_epoch_s if trace else None,
            "zone": trace.zone if trace else None,
            "version": VERSION,
        }
        plain = (*_PLAIN, "limits") if self.limits else _PLAIN
        call = f"cranny.simulate(cluster, trace, {', '.join(f'{name}={made[name]!r}' for name in plain)})"
        return {**made, "command": self.command or call}


def _distinct(jobs: Iterable[Job]) -> Iterator[Job]:
    """Yield jobs; refuse an id that occurs twice."""
    seen = set()
    for job in jobs:
        if job.id in seen:
            raise InputError(f"job id {job.id!r} occurs twice")
        seen.add(job.id)
        yield job
