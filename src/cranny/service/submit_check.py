"""Checks of jobs that are submitted: those that could never start on this cluster are refused."""

from collections.abc import Mapping
from typing import Any

from cranny.core.constrained_placer import ConstrainedPlacer
from cranny.core.constraints import Constraints
from cranny.core.feasibility import Feasibility, kind_of, never_fits
from cranny.core.state import ClusterState
from cranny.model.errors import CrannyError, InputError, unknown
from cranny.model.job import Job
from cranny.service.engines import QueuedByPriority, build_policy
from cranny.service.job_records import JobRecords
from cranny.service.job_spec import JobSpec


class SubmitCheck:
    """Tries jobs on the empty cluster, with a policy of its own: a query may change the memory of one."""

    def __init__(self, setting: Mapping[str, Any], records: JobRecords) -> None:
        self._records = records
        self._policy = build_policy(setting, records)
        self._feasibility = Feasibility(records.cluster)
        self._empty = ClusterState(records.cluster).snapshot()
        self._why_not: dict[object, str | None] = {}  # of jobs with constraints, by what a placer sees of them

    def check(self, spec: JobSpec, job_id: str, user: str, now_s: float, *, external: bool = False) -> None:
        """Refuse a job that could never start on this cluster, or may not use the reservation that it names.

        What a job that came from the manager may use, the manager has checked.
        """
        if not external and spec.constraints.reservation is not None:
            self._check_reservation(spec.constraints.reservation, user)
        spec.check_torchrun()
        spec.check_constraints(self._records.cluster)
        job, constraints = spec.job(job_id, user, now_s), spec.constraints_on(self._records.cluster)
        too_large = self._feasibility.why_too_large(job)
        if too_large is not None:
            raise InputError(f"gpus: {too_large}")
        name = self._records.policy.get("name")
        if constraints is not None and self._policy.constrained is None:
            bound = spec.model_copy(update={"resources": {}}).constrained
            given = " and ".join([*["constraints"] * bound, *["resources"] * bool(spec.resources)])
            raise InputError(f"{given}: not supported by policy {name!r}, which plans for all jobs jointly")
        try:
            reason = self._reason(job, constraints)
        except CrannyError as error:  # for example a collective that the policy does not support
            raise InputError(f"policy {name!r} cannot place this job: {error}") from None
        if reason is not None:
            raise InputError(reason)

    def _check_reservation(self, name: str, user: str) -> None:
        """Refuse a reservation that is not there, or not for this user; accounts are known to the manager only."""
        known = {each.name: each for each in self._records.managed.reservations}
        if name not in known:
            raise InputError(f"constraints.reservation: {unknown('reservation', name, known)}")
        if user not in known[name].users:
            raise InputError(f"constraints.reservation: {name!r} is not for user {user}")

    def _reason(self, job: Job, constraints: Constraints | None) -> str | None:
        """Say why a job would not start on the empty cluster; None if it would."""
        policy = self._policy
        if constraints is None:
            return self._feasibility.why_not(job, policy.placer) if isinstance(policy, QueuedByPriority) else None
        if policy.constrained is None:
            return None
        resources = None if job.resources is None else frozenset(job.resources.items())
        kind = kind_of(job), constraints, resources
        if kind not in self._why_not:
            alone = ConstrainedPlacer(policy.constrained.placer, lambda _: constraints)
            fits = alone.place(job, self._empty) is not None
            self._why_not[kind] = None if fits else f"constraints: {never_fits(alone.why_wait(job, self._empty))}"
        return self._why_not[kind]
