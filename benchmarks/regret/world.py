"""A world: one row of the regret table, which every policy is replayed in with the same jobs."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from cranny.policies import TABLE
from cranny.run import Result
from cranny.scenario import Scenario

RESTART_S = 60.0  # that a job loses when it is stopped or moved, unless it says otherwise
JUDGED = ("machine_hours", "mean_jct_s", "p99_jct_s", "mean_slowdown")  # where placement can change them
AT_ARRIVALS = ("mean_used_machines", "mean_fragmentation", "mean_cross_traffic_gb", "mean_profit_rate")
ITERATIONS = ("mean_iteration_s", "p99_iteration_s")
# Policies by what they are for; one that is left out of a world has its reason there.
SHARING = ("has", "jps", "has-exact", "has-resets", "optimus-shares", "optimus-lb", "las", "gavel")
LEASING = ("themis", "themis+cassini", "pollux", "pollux+cassini")
SHIFTING = ("titan+cassini", "netpack+cassini", "ideal")
EXACT = {"exact": "proves each placement with CP-SAT: small clusters only"}
# What each paper claims of its system, by the beginning of the names of its worlds.
HEADLINES = {
    "titan": ("titan", "machine_hours"),
    "netpack": ("netpack", "mean_jct_s"),
    "cassini": ("themis+cassini", "mean_iteration_s"),
    "has": ("has", "mean_jct_s"),
}


def reasons(names: tuple[str, ...], reason: str) -> dict[str, str]:
    """Return one reason for several policies."""
    return dict.fromkeys(names, reason)


PHASES_ONLY = "shifts matter only where jobs communicate in phases"
RIGID_LEFT_OUT = {  # where jobs keep their size, and do not communicate in phases
    **reasons(SHARING, "shares mixed GPUs among jobs that can be resized; here are none"),
    **reasons(LEASING[:2], "an auction whenever a lease ends: 12 s a replay of ITP's jobs, others take 0.5"),
    **reasons(LEASING[2:], "a genetic search every minute: minutes a replay"),
    **reasons(SHIFTING, PHASES_ONLY),
}


class Contender(NamedTuple):
    """A policy with its own queue order or another, and with options; `name@order` in words."""

    policy: str
    order: str | None = None
    options: tuple[tuple[str, bool | float], ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `name` or `name@order`."""
        name, _, order = text.partition("@")
        return cls(name, order or None)

    @property
    def label(self) -> str:
        """Return it in words."""
        switched = "".join(f" {option}={value}" for option, value in self.options)
        return self.policy + (f"@{self.order}" if self.order else "") + switched


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Cluster, jobs and network; a seed draws the jobs, or takes another part of a log.

    What is printed of it (`repr`) is what decides the results.
    """

    key: str
    about: str = field(repr=False)
    jobs: int  # at most
    held_out: bool = field(default=False, repr=False)  # whether its jobs are of a mix that nothing may be tuned on
    restart_s: float = RESTART_S
    judged: tuple[str, ...] = field(default=JUDGED, repr=False)  # of `JUDGED`
    extra: tuple[str, ...] = field(default=(), repr=False)  # what is judged here besides
    left_out: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)  # policies, with the reason

    @abstractmethod
    def scenario(self, contender: Contender, seed: int, traces: Path | None) -> Scenario:
        """Return the scenario of a policy; `traces` is the folder of real logs, if there is one."""

    def fairness(self, result: Result, seed: int) -> float | None:  # noqa: ARG002 - only some worlds have one
        """Return how evenly jobs were served, from 0 to 1; None where that is not judged."""
        return None

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return what is judged here."""
        return (*self.judged, *self.extra)

    def contenders(self) -> list[Contender]:
        """Return all policies of the table that make sense here."""
        return [each for each in map(Contender, TABLE) if self.takes(each)]

    def takes(self, contender: Contender) -> bool:
        """Say whether a policy makes sense here."""
        return contender.policy not in self.left_out and contender.policy not in EXACT


def headline(world: World) -> tuple[str, str]:
    """Return the system of a world's paper and the metric that the paper claims most of; empty if it has none."""
    return HEADLINES.get(world.key.partition("-")[0], ("", ""))
