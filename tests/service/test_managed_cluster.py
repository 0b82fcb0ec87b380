"""A service on a cluster that changes, below a manager that has jobs of its own."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.service.managed_driver import ManagedDriver
from tests.service.standing import standing

from cranny.backends.cluster_reading import ClusterReading, Reservation
from cranny.backends.protocol import NOT_STARTED, Ended
from cranny.model.cluster import Machine
from cranny.model.errors import InputError
from cranny.service.limits import ConflictError, Limits
from cranny.service.machine_lookup import find_machine
from cranny.service.reconcile import Reconciler
from cranny.service.scheduler import Scheduler


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[ManagedDriver]:
    made = ManagedDriver(tmp_path, {"a1": 4, "a2": 4, "b1": 4})
    yield made
    made.check()
    made.store.close()


def where(driver: ManagedDriver, job_id: str) -> set[str]:
    """Return the machines of a running job, as the state has them."""
    state = driver.scheduler.engine.state
    return {state.cluster.machines[machine].name for machine in state.find(job_id).held}


def test_a_job_of_the_manager_is_placed_and_found_by_either_id(driver: ManagedDriver) -> None:
    external = driver.manager.submit("bob", 4, 50.0)
    driver.read()
    record = driver.scheduler.find(external)
    assert (record.id, record.user, record.status) == ("job-1", "bob", "running")
    assert driver.scheduler.find("job-1") is record
    assert set(driver.manager.jobs[external].where) == where(driver, "job-1")
    driver.read()
    assert len(driver.scheduler.records.jobs) == 1
    driver.pass_time(60.0)
    assert record.status == "done"


def test_a_job_that_waits_in_the_manager_is_cancelled_there(driver: ManagedDriver) -> None:
    """Here alone it would only be submitted again."""
    driver.manager.submit("bob", 12, 50.0)
    external = driver.manager.submit("bob", 12, 50.0)
    driver.read()
    assert driver.scheduler.find(external).status == "waiting"
    with pytest.raises(ConflictError, match="job-2 is run by another scheduler: cancel it there"):
        driver.scheduler.cancel(external, "bob", 1.0)


def test_a_job_that_the_manager_does_not_start_comes_back_with_a_reading(driver: ManagedDriver) -> None:
    """Placed again at once, it would only be given back again and again."""
    external = driver.manager.submit("bob", 4, 50.0)
    driver.read()
    given_back = driver.manager.jobs[external]
    given_back.state, given_back.attempt = "over", None  # so that no reading has it
    driver.now_s += 5.0
    report = Ended("job-1", 1, None, NOT_STARTED, "Slurm does not start it: ReqNodeNotAvail")
    driver.scheduler.attempt_ended(report, driver.now_s)
    driver.act()
    first = driver.scheduler.find("job-1")
    assert (first.status, len(first.attempts)) == ("cancelled", 1)
    assert "ReqNodeNotAvail" in first.reason
    driver.now_s += 5.0
    driver.read()
    assert driver.scheduler.find(external) is first  # it rests
    given_back.state = "held"
    driver.now_s += 5.0
    driver.read()
    again = driver.scheduler.find(external)
    assert (again.id, again.status) == ("job-2", "running")


def test_machines_join_leave_and_return_while_jobs_run(driver: ManagedDriver) -> None:
    ours = [driver.submit(4, 1e6) for _ in range(2)]
    assert [where(driver, job_id) for job_id in ours] == [{"a1"}, {"a2"}]
    driver.manager.join(Machine("a0", 8), "rack-a")  # the others get other numbers
    driver.read()
    assert [machine.name for machine in driver.scheduler.cluster.machines] == ["a1", "a2", "a0", "b1"]
    assert [where(driver, job_id) for job_id in ours] == [{"a1"}, {"a2"}]
    third = driver.submit(8, 1e6)
    assert where(driver, third) == {"a0"}
    driver.manager.leave("a1")
    driver.read()  # the manager knows before the backend has said that the job is lost
    assert where(driver, ours[0]) == {"a1"}
    assert not driver.scheduler.engine.state.is_up(find_machine(driver.scheduler.cluster, "a1"))
    driver.pass_time(1.0)
    assert where(driver, ours[0]) == {"b1"}  # started again elsewhere
    driver.read()
    assert [machine.name for machine in driver.scheduler.cluster.machines] == ["a2", "a0", "b1"]
    driver.manager.join(Machine("a1", 2), "rack-a")
    driver.read()
    small = driver.submit(2, 1e6)
    assert where(driver, small) == {"a1"}
    names = driver.scheduler.find(ours[0]).attempts[0].cluster
    assert names is not None
    assert names.machines[driver.scheduler.find(ours[0]).attempts[0].placement.machines[0]].name == "a1"


def test_another_cluster_between_two_starts_is_logged_and_not_refused(driver: ManagedDriver) -> None:
    job_id = driver.submit(4, 1e6)
    driver.manager.leave("a2")
    driver.manager.join(Machine("c1", 16), "rack-c")
    driver.restart()
    assert [machine.name for machine in driver.scheduler.cluster.machines] == ["a1", "b1", "c1"]
    assert where(driver, job_id) == {"a1"}
    rows = [row for row in driver.store.read(0, 1000) if row.kind in ("opened", "cluster")]
    assert sum("layout" in row.body for row in rows) == 2


def test_others_hold_gpus_that_no_job_gets(driver: ManagedDriver) -> None:
    other = driver.manager.start_other("eve", {"a1": 3, "a2": 4, "b1": 4}, 1e6)
    assert other is not None
    driver.read()
    assert driver.scheduler.engine.state.free.tolist() == [1, 0, 0]
    seq = driver.scheduler.records.seq
    driver.manager.jobs[other].run_s += 5.0  # as the manager estimates it now
    driver.read()
    assert driver.scheduler.records.seq == seq
    waits = driver.submit(2, 10.0)
    assert driver.scheduler.find(waits).status == "waiting"
    driver.manager.cancel(other)
    driver.read()
    assert driver.scheduler.find(waits).status == "running"


def test_a_machine_on_which_others_hold_more_than_is_free_counts_as_full(driver: ManagedDriver) -> None:
    job_id = driver.submit(4, 1e6)
    driver.manager.cancel(driver.scheduler.find(job_id).external)  # and nothing has told us yet
    other = driver.manager.start_other("eve", {"a1": 4}, 1e6)
    found = driver.reconciler.take(driver.manager.read(), driver.now_s, driver.now_s)
    assert found.overfull == ["a1"]
    driver.check()
    driver.pass_time(1.0)
    driver.read()
    state = driver.scheduler.engine.state
    assert state.free_slots(find_machine(driver.scheduler.cluster, "a1")) == 0
    assert driver.scheduler.find(job_id).status == "failed" or where(driver, job_id) != {"a1"}
    assert other is not None


def test_a_reading_that_comes_late_undoes_nothing(driver: ManagedDriver) -> None:
    external = driver.manager.submit("bob", 4, 10.0)
    old, asked_s = driver.manager.read(), driver.now_s
    driver.pass_time(1.0)
    driver.read()
    record = driver.scheduler.find(external)
    driver.pass_time(20.0)
    assert record.status == "done"
    driver.read(old, asked_s)  # in which it waits
    driver.read(old, record.submitted_s - 0.5)
    assert [each.status for each in driver.scheduler.records.jobs.values()] == ["done"]
    seq = driver.scheduler.records.seq
    driver.read()
    driver.read()
    assert driver.scheduler.records.seq == seq  # the same answer twice changes nothing


def test_jobs_that_the_manager_no_longer_wants_placed_are_withdrawn(driver: ManagedDriver) -> None:
    driver.manager.start_other("eve", {"a1": 4, "a2": 4, "b1": 4}, 1e6)
    external = driver.manager.submit("bob", 4, 10.0)
    driver.pass_time(1.0)
    driver.read()
    driver.pass_time(1.0)
    driver.manager.cancel(external)
    driver.read()
    record = driver.scheduler.find(external)
    assert (record.status, record.reason) == ("cancelled", "cancelled by the cluster's manager")


def test_a_job_that_could_never_start_is_refused_until_the_cluster_has_room(driver: ManagedDriver) -> None:
    external = driver.manager.submit("bob", 20, 10.0)
    found = driver.reconciler.take(driver.manager.read(), driver.now_s, driver.now_s)
    assert found.refused == {external: "gpus: needs 20 GPUs, the cluster has 12"}
    driver.manager.join(Machine("c1", 8), "rack-c")
    driver.read()
    assert driver.scheduler.find(external).status == "running"


def test_the_queue_is_in_the_order_of_the_manager(driver: ManagedDriver) -> None:
    blocker = driver.manager.start_other("eve", {"a1": 4, "a2": 4, "b1": 4}, 1e6)
    low, high = driver.manager.submit("bob", 12, 10.0, 5.0), driver.manager.submit("bob", 12, 10.0, 7.0)
    driver.read()
    queue = [driver.scheduler.records.jobs[each.job.id].external for each in driver.scheduler.engine.queue]
    assert queue == [high, low]
    driver.manager.jobs[low].priority = 9.0
    driver.pass_time(100.0)
    driver.read()
    queue = [driver.scheduler.records.jobs[each.job.id].external for each in driver.scheduler.engine.queue]
    assert queue == [low, high]
    driver.restart(snapshot=True)
    driver.manager.cancel(str(blocker))
    driver.read()
    assert driver.scheduler.find(low).status == "running"


def test_a_drained_machine_stays_drained_when_it_returns(driver: ManagedDriver) -> None:
    driver.scheduler.drain(find_machine(driver.scheduler.cluster, "b1"), "root", driver.now_s)
    driver.manager.leave("b1")
    driver.read()
    driver.manager.join(Machine("b1", 4), "rack-a")
    driver.read()
    state = driver.scheduler.engine.state
    assert not state.is_up(find_machine(driver.scheduler.cluster, "b1"))
    driver.manager.drain("b1")
    driver.read()
    driver.scheduler.resume(find_machine(driver.scheduler.cluster, "b1"), "root", driver.now_s)
    assert not driver.scheduler.engine.state.is_up(
        find_machine(driver.scheduler.cluster, "b1")
    )  # the manager says no
    driver.manager.resume("b1")
    driver.read()
    assert driver.scheduler.engine.state.is_up(find_machine(driver.scheduler.cluster, "b1"))


def test_reserved_machines_are_for_jobs_that_name_the_reservation(driver: ManagedDriver) -> None:
    own = Reservation(
        "course", frozenset({"a1", "a2"}), driver.now_s + 100, driver.now_s + 200, frozenset({"bob"})
    )
    driver.manager.reservations.append(own)
    short = driver.manager.submit("ann", 4, 10.0, time_limit_s=50.0)
    long = driver.manager.submit("ann", 4, 150.0)
    named = driver.manager.submit("ann", 4, 150.0, constraints={"reservation": "course"})
    driver.read()
    assert where(driver, driver.scheduler.find(short).id) == {"a1"}  # it is over before
    assert where(driver, driver.scheduler.find(long).id) == {"b1"}
    assert driver.scheduler.find(named).status == "waiting"
    driver.pass_time(120.0)
    driver.manager.reservations[0] = own._replace(end_s=own.end_s + 1)  # any change asks the policy again
    driver.read()
    assert where(driver, driver.scheduler.find(named).id) <= {"a1", "a2"}
    for user, reservation, why in (
        ("ann", "course", "'course' is not for user ann"),
        ("bob", "cours", "did you mean"),
    ):
        spec = {"command": ["run"], "gpus": 1, "constraints": {"reservation": reservation}}
        with pytest.raises(InputError, match=f"constraints.reservation: .*{why}"):
            driver.scheduler.submit(user, spec, None, driver.now_s)


STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 8), st.integers(1, 40)),
    st.tuples(st.just("external"), st.integers(1, 8), st.integers(1, 40)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("scancel"), st.integers(0, 20)),
    st.tuples(st.just("other"), st.integers(0, 5), st.integers(1, 4)),
    st.tuples(st.just("join"), st.integers(0, 5), st.integers(1, 5)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("fail"), st.integers(0, 5)),
    st.tuples(st.just("drain"), st.integers(0, 5)),
    st.tuples(st.just("resume"), st.integers(0, 5)),
    st.tuples(st.just("operator"), st.integers(0, 5)),
    st.tuples(st.just("time"), st.integers(1, 30)),
    st.tuples(st.just("read")),
    st.tuples(st.just("late")),
    st.tuples(st.just("restart"), st.booleans()),
)
NAMES = ("a1", "a2", "b1", "b2", "c1", "c2")


def _cpus(driver: ManagedDriver) -> bool:
    """Say whether a machine has resources beside GPUs."""
    return any(machine.resources for machine in driver.manager.machines.values())


def play(driver: ManagedDriver, step: tuple[object, ...], readings: list[tuple[ClusterReading, float]]) -> None:  # noqa: C901
    """Let something happen."""
    manager, (what, *numbers) = driver.manager, step
    first, second = [*(int(str(int(number))) for number in numbers), 0, 0][:2]  # type: ignore[call-overload]
    name = NAMES[first % len(NAMES)]
    there = sorted(manager.machines)
    if what == "submit" and sum(machine.gpus for machine in driver.scheduler.cluster.machines) >= first:
        driver.submit(first, float(second))
    elif what == "external":
        needs = {"resources": {"cpus": 2}} if second % 2 and _cpus(driver) else {}
        manager.submit("bob", first, float(second), float(second % 3), **needs)
    elif what == "cancel" and driver.scheduler.records.jobs:
        driver.cancel(list(driver.scheduler.records.jobs)[first % len(driver.scheduler.records.jobs)])
    elif what == "scancel" and manager.jobs:
        manager.cancel(list(manager.jobs)[first % len(manager.jobs)])
    elif what == "other" and name in there:
        manager.start_other("eve", {name: second}, 25.0)
    elif what == "join":
        manager.join(Machine(name, second, "", {"cpus": 2 * second}), f"rack-{name[0]}")
    elif what == "leave" and len(there) > 1:
        manager.leave(name)
    elif what == "fail" and name in there:
        manager.fail(name)
    elif what == "drain" and name in there:
        manager.drain(name)
    elif what == "resume":
        manager.resume(name)
    elif what == "operator":
        machine = first % len(driver.scheduler.cluster.machines)
        drained = machine in driver.scheduler.records.drained
        (driver.scheduler.resume if drained else driver.scheduler.drain)(machine, "root", driver.now_s)
        driver.act()
    elif what == "time":
        driver.pass_time(float(first))
    elif what == "read":
        readings.append((manager.read(), driver.now_s))
        driver.read()
    elif what == "late" and readings:
        reading, asked_s = readings[0]
        driver.read(reading, asked_s)
    elif what == "restart":
        driver.restart(snapshot=bool(first))
    driver.check()


@given(steps=st.lists(STEPS, max_size=25), policy=st.sampled_from(["titan", "cranny"]))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_is_lost_whatever_happens(steps: list[tuple[object, ...]], policy: str) -> None:
    """No GPU is given twice, no job is lost or run twice, the log gives the state back, and all ends."""
    with TemporaryDirectory() as folder:
        driver = ManagedDriver(Path(folder), {"a1": 4, "a2": 4, "b1": 4}, {"name": policy})
        readings: list[tuple[ClusterReading, float]] = []
        for step in steps:
            play(driver, step, readings)
        for name in list(driver.manager.failed) + list(driver.manager.drained):
            driver.manager.resume(name)
        for machine in list(driver.scheduler.records.drained):
            driver.scheduler.resume(machine, "root", driver.now_s)
        driver.act()
        driver.manager.join(Machine("z1", 8, "", {"cpus": 16}), "rack-z")
        for _ in range(30):
            driver.pass_time(50.0)
            driver.read()
            driver.check()
        assert not driver.scheduler.engine.state.running
        left = [record for record in driver.scheduler.records.jobs.values() if not record.over]
        assert not left, [(record.id, record.status, record.reason) for record in left]
        assert all(job.state == "over" for job in driver.manager.jobs.values())
        again = Scheduler(driver.scheduler.cluster, "run", Limits())
        again.restore(driver.store)
        assert standing(again) == standing(driver.scheduler)
        driver.store.close()


def test_a_service_that_only_recommends_sees_what_the_manager_does(tmp_path: Path) -> None:
    driver = ManagedDriver(tmp_path, {"a1": 4, "a2": 4})
    manager, scheduler = driver.manager, Scheduler(driver.manager.read().cluster, "recommend", Limits())
    scheduler.open(0.0)
    scheduler.switch({"name": "titan"}, "root", 0.0)
    reconciler = Reconciler(scheduler)
    external = manager.submit("bob", 4, 50.0)

    def read() -> None:
        driver.now_s += 1.0
        reconciler.take(manager.read(), driver.now_s, driver.now_s)

    read()
    record = scheduler.find(external)
    assert (record.status, record.id in scheduler.records.recommended) == ("waiting", True)
    job = manager.jobs[external]
    job.where.update({"a1": 2, "a2": 2})
    manager._start(job)  # as the manager itself thinks best
    read()
    assert record.status == "running"
    saved = scheduler.records.saved
    assert (saved["jobs"], saved["machines"], saved["idle_machines"], saved["wait_s"]) == (1, 1, 1, 1.0)
    assert scheduler.records.saved["cross_bytes"] > 0
    assert scheduler.engine.state.held_gpus == 4  # once, and not also as a job of others
    driver.now_s += 60.0
    read()
    assert scheduler.find(external).status == "done"
    driver.store.close()


def test_a_job_that_fits_the_cluster_no_more_is_set_aside_and_blocks_no_queue(tmp_path: Path) -> None:
    driver = ManagedDriver(tmp_path, {"a1": 4, "a2": 4, "b1": 4}, {"name": "titan", "order": "fifo"})
    first, large, small = (driver.manager.submit("bob", gpus, 50.0) for gpus in (12, 12, 4))
    driver.read()
    assert [driver.scheduler.find(each).status for each in (first, large, small)] == [
        "running",
        "waiting",
        "waiting",
    ]
    driver.manager.leave("b1")
    driver.read()
    driver.pass_time(60.0)
    driver.read()
    driver.read()  # the machine is no longer kept for the job that has ended
    assert driver.scheduler.find(small).status == "running"
    found = driver.reconciler.take(driver.manager.read(), driver.now_s, driver.now_s)
    assert found.refused == {large: "gpus: needs 12 GPUs, the cluster has 8"}
    driver.manager.join(Machine("b1", 4), "rack-b")
    for _ in range(2):  # the first one was lost with the machine, and goes before
        driver.read()
        driver.pass_time(60.0)
    driver.read()
    assert driver.scheduler.find(large).status == "running"
    driver.check()
    driver.store.close()


def test_a_partition_that_vanishes_still_restricts_its_jobs(driver: ManagedDriver) -> None:
    """They are set aside with the reason, not placed anywhere."""
    with_night = replace(driver.manager.read().cluster, partitions={"night": (2,)})
    external = driver.manager.submit("bob", 4, 50.0, constraints={"partition": "night"})
    driver.manager.start_other("eve", {"b1": 4}, 50.0)
    waiting = driver.manager.read()
    driver.read(replace(waiting, cluster=with_night))
    assert driver.scheduler.find(external).status == "waiting"
    found = driver.reconciler.take(waiting, driver.now_s, driver.now_s)
    assert "unknown partition 'night'" in found.refused[external]
    assert driver.scheduler.find(external).status == "cancelled"


def test_a_job_of_our_own_that_fits_no_more_blocks_no_queue(tmp_path: Path) -> None:
    driver = ManagedDriver(tmp_path, {"a1": 4, "a2": 4, "b1": 4}, {"name": "titan", "order": "fifo"})
    driver.manager.start_other("eve", {"a1": 4}, 500.0)
    driver.read()
    large, small = driver.submit(12, 50.0), driver.submit(4, 50.0)
    assert driver.scheduler.find(small).status == "waiting"  # behind the large one
    driver.manager.leave("b1")
    driver.read()
    assert driver.scheduler.find(small).status == "running"
    assert driver.scheduler.find(large).status == "waiting"
    driver.restart()
    driver.manager.join(Machine("b1", 4), "rack-b")
    driver.pass_time(600.0)
    driver.read()
    assert driver.scheduler.find(large).status in ("running", "done")
    driver.check()
    driver.store.close()
