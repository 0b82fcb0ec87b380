"""What would happen: an engine that stands as the real one does, on which anything may be tried."""

from collections import ChainMap
from copy import copy
from typing import Any, NamedTuple

from cranny.core.engine import Engine
from cranny.core.protocol import Policy
from cranny.core.snapshot import Waiting
from cranny.core.state import ClusterState
from cranny.service.job_records import Ledger, Record
from cranny.service.policy_setting import choose


class Stand(NamedTuple):
    """How things stand: cheap to take, and nobody changes it afterwards."""

    state: ClusterState
    policy: dict[str, Any]  # by name: one of our own is asked, since a question may change what a policy remembers
    queue: list[Waiting]
    ledger: Ledger

    @classmethod
    def of(cls, engine: Engine, ledger: Ledger) -> "Stand":
        """Take down how things stand now."""
        return cls(engine.state.copy(), ledger.policy, list(engine.queue), ledger)

    def asked(self, extra: Record | None = None) -> Policy:
        """Return a policy to ask; `extra` is a job that nobody else knows."""
        ledger = self.ledger
        if extra is not None:
            ledger = copy(ledger)
            ledger.jobs = ChainMap({extra.id: extra}, self.ledger.jobs)  # type: ignore[assignment]
        return choose(self.policy, ledger)

    def engine(self, extra: Record | None = None) -> Engine:
        """Return an engine to try things on."""
        tried = Engine(self.state.copy(), self.asked(extra))
        tried.queue.fill(self.queue)
        return tried
