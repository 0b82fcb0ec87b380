"""The policy of a service, built from its setting, with the constraints and priorities of jobs around it."""

from collections.abc import Mapping
from typing import Any

from cranny.core.constraints import ConstrainedPlacer
from cranny.core.engine import period
from cranny.core.protocol import Policy
from cranny.core.queue import ORDERS, QueuePolicy
from cranny.core.snapshot import Snapshot, Waiting
from cranny.core.traffic import isolated
from cranny.model.errors import InputError, unknown
from cranny.model.job import Job
from cranny.model.placement import Placement
from cranny.model.plan import Plan
from cranny.policies import TABLE
from cranny.scenario import decision_period_s, resolve_policy, seeded_policy
from cranny.service.job_records import JobRecords

SEED = 0
MAX_PERIOD_S = 86_400.0


class QueuedByPriority(QueuePolicy):
    """Orders jobs by priority and then by the queue order, and satisfies their constraints."""

    def __init__(self, constrained: ConstrainedPlacer, order: str, records: JobRecords) -> None:
        super().__init__(constrained, order, isolated)
        self.constrained = constrained
        self._records = records

    def key(self, waiting: Waiting) -> Any:
        """Return the sort key of the queue."""
        return (-self._records.jobs[waiting.job.id].spec.priority, super().key(waiting))

    def plan(self, view: Snapshot) -> Plan:
        """Return the plan for now."""
        return super().plan(without_stopping(view, self._records))

    def place_first(self, job: Job, view: Snapshot) -> Placement | None:
        """Place the first job of the queue."""
        return super().place_first(job, without_stopping(view, self._records))


class JointByPriority:
    """A policy that plans for all jobs jointly, with priorities before its own sort key."""

    def __init__(self, policy: Policy, records: JobRecords) -> None:
        self._policy = policy
        self._records = records

    def key(self, waiting: Waiting) -> Any:
        """Return the sort key of the queue."""
        return (-self._records.jobs[waiting.job.id].spec.priority, self._policy.key(waiting))

    def plan(self, view: Snapshot) -> Plan:
        """Return the plan for now."""
        return self._policy.plan(without_stopping(view, self._records))

    def why_wait(self, job: Job, view: Snapshot) -> str:
        """Return why a job must wait."""
        return self._policy.why_wait(job, view)


def without_stopping(view: Snapshot, records: JobRecords) -> Snapshot:
    """Return a view that hides cancelled jobs, so that no policy stops, moves or reckons with them.

    Their GPUs stay held until their processes have exited.
    """
    going = [job_id for job_id in records.stopping if job_id in view.running] if records.stopping else []
    return view.hiding(going) if going else view


def complete_setting(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Check a policy setting and fill in its defaults."""
    name = setting["name"]
    options = dict(setting.get("options") or {})
    seeded_policy(name, SEED, options)  # refuses unknown names and options
    period_s = period(setting.get("period_s") or decision_period_s(name))
    if period_s > MAX_PERIOD_S:
        raise InputError(f"period_s must be at most {MAX_PERIOD_S:.0f}")
    order = setting.get("order") or TABLE[name].order
    if order not in ORDERS:
        raise unknown("queue order", order, ORDERS)
    return {"name": name, "order": order, "period_s": period_s, "options": options}


def build_policy(setting: Mapping[str, Any], records: JobRecords) -> Policy:
    """Return the policy that a setting describes."""
    _, policy, order = resolve_policy(setting["name"], setting["order"], setting["options"], SEED, isolated)
    if type(policy) is not QueuePolicy:
        return JointByPriority(policy, records)
    return QueuedByPriority(ConstrainedPlacer(policy.placer, records.constraints_of), order, records)
