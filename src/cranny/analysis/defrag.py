"""Moves of running jobs on a log: those that pay at one moment, and what they save if made every so often."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from cranny.core.change_log import ChangePoint
from cranny.core.protocol import Placer, PlacerPolicy, Policy, Timed
from cranny.core.snapshot import Snapshot
from cranny.model.job import RESTART_S, Job
from cranny.model.plan import Plan
from cranny.model.validate import positive
from cranny.policies import options_of
from cranny.policies.cranny.durations import DurationEstimates
from cranny.policies.cranny.move_search import proposed_moves
from cranny.policies.cranny.moves import (
    MARGIN,
    SECONDS_PER_HOUR,
    MoveGroup,
    MoveRules,
    actions,
    facts,
)
from cranny.policies.cranny.periodic_moves import PeriodicMoves
from cranny.policy_choice import decision_period_s
from cranny.run import Progress, Result
from cranny.run import run as simulate
from cranny.scenario import Scenario
from cranny.sim.replay import view_at

Movable = Literal["stated", "all", "none"]


def log_rules(movable: Movable, margin: float = MARGIN, learned: DurationEstimates | None = None) -> MoveRules:
    """Return the rules for a log, in which jobs that state a restart may move, or all or none.

    Jobs run for as long as the log says, or else as long as is expected from what was learned of jobs before.
    """
    stated = DurationEstimates()
    allowed: dict[Movable, Callable[[Job], bool]] = {
        "stated": lambda job: job.restart_s > 0,
        "all": lambda _: True,
        "none": lambda _: False,
    }

    def left_s(job: Job, ran_s: float) -> float:
        if learned is None:
            return stated.remaining(job, ran_s).median_s
        return learned.remaining(replace(job, duration_s=None), ran_s).median_s

    return MoveRules(allowed[movable], left_s, margin=margin)


@dataclass(frozen=True, slots=True)
class MovesAt:
    """The moves that would pay at one moment of a log."""

    view: Snapshot
    movable: int  # running jobs that may move
    groups: Sequence[MoveGroup]

    def facts(self, price_per_gpu_hour: float) -> dict[str, Any]:
        """Return everything as plain values."""
        view = self.view
        used = sum(not view.is_idle(machine) for machine in range(len(view.cluster.machines)))
        state = {"at_s": view.now_s, "running": len(view.running), "movable": self.movable}
        counts = {"waiting": len(view.waiting), "used_machines": used}
        return {**state, **counts, **facts(self.groups, view.cluster, price_per_gpu_hour)}


class PolicyWithMoves:
    """A policy, and every so often the moves that pay; it learns how long jobs run, if that is wanted."""

    placer: Placer  # of a policy that has one: only then is this a `PlacerPolicy` too

    def __init__(
        self,
        policy: Policy,
        rules: MoveRules,
        every_s: float | None = None,
        learned: DurationEstimates | None = None,
    ) -> None:
        self._policy = policy
        self._rules = rules
        self._moves = PeriodicMoves(math.inf if every_s is None else positive(every_s, "every_s"))
        self._learned = learned
        self._point: ChangePoint | None = None
        self.groups: list[MoveGroup] = []
        self.key = policy.key
        self.why_wait = policy.why_wait
        if isinstance(policy, PlacerPolicy):
            self.placer = policy.placer

    def plan(self, view: Snapshot) -> Plan:
        """Do what the policy does; where it does nothing more, move jobs if that is due."""
        if self._learned is not None:
            waiting = {each.job.id for each in view.waiting}
            self._learned.learn_ended(view.changes_since(self._point) or (), view.now_s, waiting)
            self._point = view.point
        plan = self._policy.plan(view)
        if plan.actions:
            return plan
        found = self._moves.at(view, lambda: self._rules)
        self.groups += found
        return Plan(view.version, actions(found))

    def next_s(self, view: Snapshot) -> float:
        """Return when moves are due, or when the policy wants to be asked."""
        due_s = self._moves.next_s(view.now_s)
        return min(due_s, self._policy.next_s(view)) if isinstance(self._policy, Timed) else due_s


def _without_own_moves(scenario: Scenario) -> Scenario:
    """Return a scenario whose policy makes no moves itself, unless its options say so."""
    if not isinstance(scenario.policy, str) or "move_every_s" not in options_of(scenario.policy):
        return scenario
    return replace(scenario, options={"move_every_s": 0.0, **scenario.options})


def moves_at(
    scenario: Scenario,
    at_s: float | None,
    rules: MoveRules,
    learned: DurationEstimates | None = None,
    progress: Progress | None = None,
) -> MovesAt:
    """Replay a scenario up to a time, when most crosses machines if none is given, and find the moves that pay.

    Until then its policy makes no moves itself.
    """
    scenario = _without_own_moves(scenario)
    view = view_at(
        scenario.cluster,
        lambda: PolicyWithMoves(scenario.resolve_policy()[1], rules, learned=learned),
        cast("Sequence[Job]", scenario.jobs()),
        scenario.model,
        at_s,
        period_s=decision_period_s(scenario.policy, scenario.period_s),
        name=scenario.trace_name,
        progress=progress,
    ).view
    movable = sum(rules.movable(running.submitted) for running in view.running.values())
    return MovesAt(view, movable, proposed_moves(view, rules))


@dataclass(frozen=True, slots=True)
class RepeatedMoves:
    """A log without moves, and with those that pay every so often."""

    without: Result
    moved: Result
    groups: Sequence[MoveGroup]

    @property
    def saved_machine_hours(self) -> float:
        """Machine-hours that moves save."""
        return float(self.without.summary["machine_hours"] - self.moved.summary["machine_hours"])

    def facts(self) -> dict[str, Any]:
        """Return what changes, as plain values."""
        names = ("machine_hours", "mean_jct_s", "p99_jct_s", "mean_wait_s", "mean_used_machines", "moves")
        purposes = [group.purpose for group in self.groups]
        runs = {"without": self.without, "with": self.moved}
        return {
            **{which: {name: run.summary[name] for name in names} for which, run in runs.items()},
            "machine_hours_until_last_arrival": {
                which: float(run.timeline["machine_hours"][-1]) for which, run in runs.items()
            },
            "saved_machine_hours": self.saved_machine_hours,
            "restart_gpu_hours": sum(group.cost_gpu_s for group in self.groups) / SECONDS_PER_HOUR,
            "groups": {purpose: purposes.count(purpose) for purpose in sorted(set(purposes))},
        }


def repeated_moves(
    scenario: Scenario,
    every_s: float,
    rules: MoveRules,
    learned: DurationEstimates | None = None,
    progress: Progress | None = None,
) -> RepeatedMoves:
    """Simulate a scenario twice, without and with the moves that pay every so often.

    Each move costs the restart of its job, as does what the policy itself stops, in both.
    """
    scenario = _without_own_moves(scenario)
    jobs = [job if job.restart_s else replace(job, restart_s=RESTART_S) for job in scenario.jobs()]
    _, policy, _ = scenario.resolve_policy()
    alike = replace(scenario, trace=jobs)
    moving = PolicyWithMoves(policy, rules, every_s, learned)
    without = simulate(alike, progress)
    period_s = without.settings["period_s"]
    moved = simulate(replace(alike, policy=moving, options={}, order=None, period_s=period_s), progress)
    return RepeatedMoves(without, moved, moving.groups)
