"""A fork of the scheduler's state: a copy on which decisions can be tried without affecting the real one."""

from collections import ChainMap
from copy import copy
from typing import Any, NamedTuple

from cranny.core.engine import Engine
from cranny.core.protocol import Policy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.service.job_records import JobRecord, JobRecords
from cranny.service.policy_setting import build_policy


class Fork(NamedTuple):
    """A copy of cluster state, queue and policy setting; cheap to make, never changed afterwards."""

    state: ClusterState
    setting: dict[str, Any]  # the policy is built anew from it, since a query may change the memory of a policy
    queue: list[Waiting]
    records: JobRecords

    @classmethod
    def of(cls, engine: Engine, records: JobRecords) -> "Fork":
        """Copy the current state."""
        return cls(engine.state.copy(), records.policy, list(engine.queue), records)

    def policy(self, extra: JobRecord | None = None) -> Policy:
        """Return a new policy as configured; `extra` is a hypothetical job that is not in the records."""
        records = self.records
        if extra is not None:
            records = copy(records)
            records.jobs = ChainMap({extra.id: extra}, self.records.jobs)  # type: ignore[assignment]
        return build_policy(self.setting, records)

    def engine(self, extra: JobRecord | None = None) -> Engine:
        """Return an engine that starts from this state."""
        engine = Engine(self.state.copy(), self.policy(extra))
        engine.queue.fill(self.queue)
        return engine
