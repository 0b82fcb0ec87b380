"""No policy can bring the scheduler down, whatever users and processes do and in whichever order."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.reference.invariants import check
from tests.service.conftest import CLUSTER
from tests.service.standing import standing

from cranny.backends.protocol import Ended, Reason
from cranny.policies import TABLE
from cranny.service.executor import AttemptLaunched
from cranny.service.job_record import JobRecord
from cranny.service.limits import Limits
from cranny.service.scheduler import Scheduler
from cranny.service.store import EventStore

CANCELLED: tuple[Reason, int | None] = ("cancelled", -15)
OUTCOMES: list[tuple[Reason, int | None]] = [("finished", 0), ("finished", 0), ("failed", 1), ("lost", None)]


class Day:
    """Things that happen to a scheduler, one after the other."""

    def __init__(self, policy: str, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - no secret
        self.now_s = 0.0
        self.scheduler = Scheduler(CLUSTER, "run", Limits())
        self.scheduler.open(0.0)
        self.scheduler.set_policy({"name": policy}, "root", 0.0)

    def jobs(self, *statuses: str) -> list[JobRecord]:
        return [each for each in self.scheduler.records.jobs.values() if each.status in statuses]

    def submit(self) -> None:
        gpus = self.random.choice([1, 1, 2, 3, 4, 5, 8])
        value: dict[str, Any] = {"command": ["true"], "gpus": gpus, "max_retries": self.random.randrange(2)}
        if self.random.random() < 0.6:
            value |= {"least_gpus": 1, "most_gpus": 8}
        if self.random.random() < 0.7:
            value["duration_s"] = self.random.choice([5, 600, 6000])
        self.scheduler.submit("ann", value, None, self.now_s)

    def cancel(self) -> None:
        for record in self.some(self.jobs("waiting", "starting", "running", "stopping")):
            self.scheduler.cancel(record.id, "ann", self.now_s)

    def launch(self) -> None:
        for record in self.jobs("starting", "stopping"):
            self.scheduler.attempt_launched(AttemptLaunched(record.id, len(record.attempts)), self.now_s)

    def end(self) -> None:
        for record in self.some(self.jobs("running", "stopping")):
            reason, code = CANCELLED if record.status == "stopping" else self.random.choice(OUTCOMES)
            self.scheduler.attempt_ended(Ended(record.id, len(record.attempts), code, reason), self.now_s)

    def drain(self) -> None:
        machine = self.random.randrange(len(CLUSTER.machines))
        drained = machine in self.scheduler.records.drained
        (self.scheduler.resume if drained else self.scheduler.drain)(machine, "root", self.now_s)

    def tick(self) -> None:
        self.now_s += 400.0
        self.scheduler.tick(self.now_s)

    def some(self, records: list[JobRecord]) -> list[JobRecord]:
        return [self.random.choice(records)] if records else []

    def pass_by(self, turns: int) -> None:
        what: list[Callable[[], None]] = [self.submit, self.cancel, self.launch, self.end, self.tick, self.drain]
        for _ in range(turns):
            self.now_s += self.random.choice([0.0, 0.01, 30.0])
            before = {record.id: len(record.attempts) for record in self.jobs("stopping")}
            self.random.choices(what, [6, 3, 3, 3, 2, 1])[0]()
            for job_id, attempts in before.items():
                record = self.scheduler.find(job_id)
                assert len(record.attempts) == attempts, "a job that was cancelled is never started again"
                assert record.status in {"stopping", "cancelled"}
            check(self.scheduler.engine.state)


# Policies that order the queue by what they learned of jobs, which begins afresh when the service does.
LEARNING = {"cranny"}


@pytest.mark.parametrize("policy", TABLE)
def test_no_policy_brings_the_service_down(policy: str, tmp_path: Path) -> None:
    for seed in range(3):
        day = Day(policy, seed)
        day.pass_by(50)
        assert {each.id for each in day.jobs("starting", "running", "stopping")} == set(
            day.scheduler.engine.state.running
        )
        again = Scheduler(CLUSTER, "run", Limits())
        with closing(EventStore(str(tmp_path / f"{seed}.db"))) as store:
            store.acquire()
            store.append(day.scheduler.rows)
            again.restore(store)
        before, after = standing(day.scheduler), standing(again)
        if policy in LEARNING:
            before["queue"], after["queue"] = sorted(before["queue"]), sorted(after["queue"])
        assert after == before
