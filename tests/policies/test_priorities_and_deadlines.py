"""Priority and deadline of jobs in the sharing problem: what has-exact and has-resets make of both."""

import numpy as np
import pytest
from tests.policies.test_sharing import elastic, mixed

import cranny
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError
from cranny.model.event import MachineDrained, MachineRepaired
from cranny.model.job import Job
from cranny.policies._shared.heterogeneous.estimates import JobEstimates
from cranny.policies._shared.heterogeneous.fewer_moves import MoveCosts
from cranny.policies._shared.heterogeneous.instance import Instance
from cranny.policies.has import HasExact

TWELVE = mixed(("", 12))  # GPUs


def first_gpus(cluster: Cluster, jobs: list[Job], policy: str = "has-exact", **more: object) -> dict[str, int]:
    """Return the GPUs that each job starts with in a simulation."""
    found: dict[str, int] = {}
    runs = cranny.simulate(cluster, jobs, policy, network="instant", **more).runs.sort("start_s")  # type: ignore[arg-type]
    for job_id, start_s, gpus in runs.select("job_id", "start_s", "gpus").rows():
        if start_s == runs.filter(job_id=job_id)["start_s"][0]:
            found[job_id] = found.get(job_id, 0) + gpus.bit_count()
    return found


def test_two_steps_of_priority_double_a_share() -> None:
    assert first_gpus(TWELVE, [elastic("a"), elastic("b")]) == {"a": 6, "b": 6}
    assert first_gpus(TWELVE, [elastic("a", priority=2.0), elastic("b")]) == {"a": 8, "b": 4}
    # Only differences count.
    assert first_gpus(TWELVE, [elastic("a", priority=-5.0), elastic("b", priority=-7.0)]) == {"a": 8, "b": 4}


def test_no_priority_starves_a_job() -> None:
    cluster = mixed(("", 64))
    far, at_most = (first_gpus(cluster, [elastic("a", priority=by), elastic("b")]) for by in (2.0**53, 10.0))
    # Shares are as the roots of weights, 32 to 1.
    assert far == at_most == {"a": 62, "b": 2}


def test_a_deadline_is_kept_if_it_can_be() -> None:
    jobs = [elastic("a"), elastic("b", deadline_s=10.0)]  # 100 s on one GPU
    assert first_gpus(TWELVE, jobs) == {"a": 2, "b": 10}
    late = cranny.simulate(TWELVE, jobs, "las", network="instant").jobs.filter(job_id="b")["finish_s"][0]
    assert late > 10.0


def test_a_deadline_counts_from_now() -> None:
    jobs = [elastic("a", submit_s=1_000.0), elastic("b", submit_s=1_000.0, deadline_s=1_010.0)]
    assert first_gpus(TWELVE, jobs) == {"a": 2, "b": 10}


@pytest.mark.parametrize(
    "deadline_s", [5.0, 30.0]
)  # it passes while the job waits, or cannot be kept from then on
def test_a_deadline_that_cannot_be_kept_changes_nothing(deadline_s: float) -> None:
    jobs = [elastic("a"), elastic("b", deadline_s=deadline_s)]
    drains = [(0.0, MachineDrained(0)), (25.0, MachineRepaired(0))]
    assert first_gpus(TWELVE, jobs, machine_events=drains) == {"a": 6, "b": 6}


def test_has_resets_counts_priorities_within_its_limit() -> None:
    jobs = [elastic("a"), elastic("b")]
    assert first_gpus(TWELVE, jobs, "has-resets") == {"a": 6, "b": 6}
    raised = [elastic("a", priority=2.0), elastic("b")]
    assert first_gpus(TWELVE, raised, "has-resets") == {"a": 8, "b": 4}
    highest = [elastic("a", priority=10.0), elastic("b")]
    assert first_gpus(TWELVE, highest, "has-resets") == {"a": 9, "b": 3}  # half of what LAS gives


def test_methods_of_the_paper_know_no_priority() -> None:
    for policy in ("has", "jps", "las"):
        plain, raised = (
            first_gpus(TWELVE, [elastic("a", priority=by), elastic("b", deadline_s=10.0)], policy)
            for by in (0.0, 9.0)
        )
        assert plain == raised
        assert plain["b"] < 10  # which its deadline would need


def move_costs(jobs: list[Job], has: list[int], restart_s: float) -> MoveCosts:
    """Return what solutions on one machine cost, for jobs that all run."""
    instance, restarts_s = Instance.of(jobs, TWELVE, JobEstimates(), None, 0.0), np.full(len(jobs), restart_s)
    divisible, chosen = np.array([12]), range(len(jobs))
    terms = HasExact().terms(instance, chosen, divisible, restarts_s)
    return MoveCosts(instance, chosen, np.array(has)[:, None], restarts_s, np.zeros(len(jobs)), divisible, terms)


def test_a_move_that_saves_a_deadline_pays_whatever_it_costs_others() -> None:
    stay, move = np.array([[6], [6]]), np.array([[2], [10]])
    free = move_costs([elastic("a"), elastic("b")], [6, 6], restart_s=1.0)
    assert free.cost_s(stay) < free.cost_s(move)
    due = move_costs([elastic("a"), elastic("b", deadline_s=11.0)], [6, 6], restart_s=1.0)
    assert due.cost_s(move) < due.cost_s(stay)
    # With its restart it would be late all the same.
    slow = move_costs([elastic("a"), elastic("b", deadline_s=10.5)], [6, 6], restart_s=1.0)
    assert slow.cost_s(stay) < slow.cost_s(move)


def test_a_restart_costs_as_much_as_the_job_counts() -> None:
    by = move_costs([elastic("a", priority=1.0), elastic("b")], [6, 6], restart_s=8.0)
    stay, a_moves, b_moves = (by.cost_s(np.array([[a], [b]])) for a, b in ((6, 6), (5, 6), (6, 5)))
    slower_s = 100 / 5 - 100 / 6
    assert a_moves - stay == pytest.approx(slower_s + 8.0)
    assert b_moves - stay == pytest.approx((slower_s + 8.0) / 2)


def test_deadlines_are_checked() -> None:
    with pytest.raises(InputError, match="deadline_s"):
        elastic("a", deadline_s=-1.0)
