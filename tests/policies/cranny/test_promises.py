"""What the queue of the policy `cranny` promises: where durations are true, every promised start is kept."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.cranny.test_what_must_hold import CLUSTER, jobs

from cranny.core.snapshot import Snapshot, Waiting
from cranny.model.job import Job
from cranny.model.plan import Plan, Start
from cranny.policies.cranny import Cranny
from cranny.policies.cranny.promised_starts import PromisedStart, PromisedStarts
from cranny.sim.replay import Replay


class Recorded(Cranny):
    """The policy, with the first start that jobs were promised when they did not fit, and when they started."""

    def __init__(self, **options: bool) -> None:
        super().__init__(**options)
        self.promised_s: dict[str, float] = {}
        self.started_s: dict[str, float] = {}
        self._chose: set[str] = set()

    def plan(self, view: Snapshot) -> Plan:
        """Plan, and write down what was promised and what starts."""
        plan = super().plan(view)
        assert self._at is not None
        for promise in self._at.promises.in_order():
            if promise.chosen:  # it could have started, so what it was promised before was kept
                self._chose.add(promise.job_id)
                self.promised_s.pop(promise.job_id, None)
            elif promise.job_id not in self._chose:
                self.promised_s.setdefault(promise.job_id, promise.start_s)
        for action in plan.actions:
            if isinstance(action, Start):
                self.started_s.setdefault(action.job.id, view.now_s)
        return plan


@pytest.mark.parametrize("wait", [False, True])
@given(came=jobs())
def test_no_job_starts_later_than_it_was_promised_when_it_reached_the_head(came: list[Job], *, wait: bool) -> None:
    # Without stops, after which a job is promised another start.
    policy = Recorded(wait=wait, preempt=False)
    Replay(CLUSTER, policy).run(came)
    late = {
        job_id: (start_s, policy.started_s[job_id])
        for job_id, start_s in policy.promised_s.items()
        if policy.started_s[job_id] > start_s + 1e-6
    }
    assert not late


def test_a_job_that_chooses_to_wait_for_machines_does_not_delay_one_that_was_promised_a_start_before() -> None:
    small = [Job(f"small-{number}", 1, "resnet50", submit_s=5.0, duration_s=1.0) for number in range(6)]
    came = [
        *(Job(f"first-{number}", 5, "resnet50", submit_s=5.0 * number, duration_s=60.0) for number in range(2)),
        Job("large", 20, "resnet50", submit_s=5.0, duration_s=1.0),
        *small,
        Job("chooses", 8, "resnet50", submit_s=5.0, duration_s=1.0),
    ]
    policy = Recorded(preempt=False)
    Replay(CLUSTER, policy).run(came)
    assert policy.started_s["large"] == pytest.approx(policy.promised_s["large"])


@given(jobs(), st.integers(1, 24))
def test_no_job_is_passed_by_those_that_come_much_later(came: list[Job], gpus: int) -> None:
    policy = Cranny()
    keys = {job.id: policy.key(Waiting(job)) for job in came}
    first = came[0]
    bound_s = first.submit_s + policy.patience * (first.duration_s or 0.0) * math.sqrt(first.gpus)
    later = Job("later", gpus, submit_s=bound_s + 1.0, duration_s=0.5)
    assert policy.key(Waiting(later)) > keys[first.id]


@given(st.lists(st.tuples(st.integers(1, 4), st.floats(0, 100)), max_size=4), st.integers(1, 12))
def test_a_start_is_promised_when_enough_gpus_are_free_beside_other_promises(
    before: list[tuple[int, float]], gpus: int
) -> None:
    release_s = np.arange(16.0).reshape(4, 4) * 5
    promises = PromisedStarts(lambda: release_s)
    for number, (count, start_s) in enumerate(before):
        promises.make(PromisedStart(f"job-{number}", count, start_s))
    start_s = promises.earliest_s("new", gpus, 0.0, release_s)
    if start_s < math.inf:
        assert np.count_nonzero(release_s <= start_s) >= gpus + sum(count for count, _ in before)


def test_gpus_on_machines_that_a_constrained_job_waits_for_are_not_counted_before_it_starts() -> None:
    release_s = np.array([[-math.inf, -math.inf, 100.0], [-math.inf, -math.inf, 20.0], [5.0, 60.0, 80.0]])
    promises = PromisedStarts(lambda: release_s)
    promises.make(PromisedStart("bound", 3, 100.0, (0,), constrained=True))
    assert promises.earliest_s("new", 3, 0.0, release_s) == 80.0  # beside the three of the other
    promises.make(PromisedStart("new", 3, 20.0))
    # Of the four that are free at 20 s and not on the machine of the first:
    assert promises.allow("other", 1, 0.0, 500.0)
    assert not promises.allow("other", 2, 0.0, 500.0)


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 7), st.booleans()), max_size=8),
    st.lists(st.integers(0, 5), min_size=12, max_size=12),
)
def test_what_is_left_at_a_promise_is_what_is_free_without_what_comes_before(
    made: list[tuple[int, int, int, bool]], release_s: list[int]
) -> None:
    free_s = np.array(release_s, float).reshape(3, 4)
    promises = PromisedStarts(lambda: free_s)
    for number, (gpus, start_s, eligible, several) in enumerate(made):
        wanted = eligible if several and number % 2 else 0b111
        promises.make(PromisedStart(f"job-{number}", gpus, float(start_s), eligible=wanted))
    for promise in promises.in_order():
        machines = [machine for machine in range(3) if promise.eligible >> machine & 1]
        free = sum(int((free_s[machine] <= promise.start_s).sum()) for machine in machines)
        before = [each for each in promises.in_order() if each.start_s <= promise.start_s]
        kept = sum(each.gpus for each in before if each.eligible & promise.eligible)
        assert promises._left_at(promise) == free - kept
    promises.withdraw("job-0")
    assert promises._kept == {}
