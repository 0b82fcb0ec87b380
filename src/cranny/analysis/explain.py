"""Why a job of a trace waited, and why it was placed where it was."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from cranny.core.protocol import Placer, PlacerPolicy, Policy, Timed
from cranny.core.snapshot import Snapshot
from cranny.model.errors import InputError
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan, Start
from cranny.scenario import Scenario


@dataclass(slots=True)
class JobStory:
    """Why a job waited and why it was placed where it was."""

    job_id: str
    policy: str
    submit_s: float = 0.0
    waits: list[tuple[float, str]] = field(default_factory=list)  # each new reason, and since when
    start_s: float | None = None
    placement: Placement | None = None
    skipped: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the story as plain values."""
        return {
            "job": self.job_id,
            "policy": self.policy,
            "submit_s": self.submit_s,
            "start_s": self.start_s,
            "waits": [{"since_s": since_s, "reason": reason} for since_s, reason in self.waits],
            "skipped": self.skipped,
            "placement": self.placement.facts if self.placement else None,
        }

    def text(self) -> str:
        """Return the story as a person would tell it."""
        lines = [f"{self.policy}: job {self.job_id} was submitted at {self.submit_s:,.0f} s"]
        lines += [f"from {since_s:,.0f} s it waited: {reason}" for since_s, reason in self.waits]
        if self.placement is not None and self.start_s is not None:
            lines += [f"it started at {self.start_s:,.0f} s", self.placement.explain()]
        else:
            lines.append(f"it was skipped: {self.skipped}" if self.skipped else "it never started")
        return "\n".join(lines)


class _Observer:
    """A policy that also notes what becomes of one job."""

    placer: Placer  # of a policy that has one: only then is this a `PlacerPolicy` too
    next_s: Callable[[Snapshot], float]  # likewise, of a `Timed` policy

    def __init__(self, policy: Policy, story: JobStory) -> None:
        self._policy = policy
        self._story = story
        self.key = policy.key
        if isinstance(policy, PlacerPolicy):
            self.placer = policy.placer
        if isinstance(policy, Timed):
            self.next_s = policy.next_s
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
                    # Asked of a copy, because asking may draw from a policy's generator.
                    reason = deepcopy(self._policy).why_wait(waiting.job, view)
                    if not story.waits or story.waits[-1][1] != reason:
                        story.waits.append((view.now_s, reason))
        return plan


def explain(scenario: Scenario, job_id: str, progress: Callable[[int], None] | None = None) -> JobStory:
    """Replay a scenario until one job starts; report why it waited and why it was placed where it was."""
    name, policy, _ = scenario.resolve_policy()
    story = JobStory(job_id, name)
    replay = scenario.replay(_Observer(policy, story))

    def until_placed() -> Iterator[Job]:
        found = False
        for job in scenario.jobs():
            if story.placement is not None:
                return
            if job.id == job_id:
                found, story.submit_s = True, job.submit_s
            yield job
        if not found:
            raise InputError(f"there is no job {job_id!r} in {scenario.trace_name}")

    replay.run(until_placed(), progress)
    story.skipped = next((reason for job, reason in replay.log.skipped if job.id == job_id), "")
    return story
