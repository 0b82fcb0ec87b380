"""What jobs allow, under a policy that plans for all of them jointly.

Constraints hold whatever happens, and only jobs that allow it are stopped for others.
"""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.service.scheduler_driver import SchedulerDriver

from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError, InputError

CLUSTER = Cluster.fat_tree(3, 2, 4, oversubscription=4)
NAMES = [machine.name for machine in CLUSTER.machines]
DAY_S = 86_400.0

racks: list[dict[str, Any]] = [
    {},
    {"same_rack": "required"},
    {"same_rack": "preferred"},
    {"spread": 2},
    {"spread": 3},
]
constraints = st.builds(
    lambda excluded, in_racks: {"exclude": excluded, **in_racks},
    st.lists(st.sampled_from(NAMES), max_size=4, unique=True),
    st.sampled_from(racks),
)
specs = st.fixed_dictionaries(
    {"gpus": st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12])},
    optional={
        "constraints": constraints,
        "duration_s": st.sampled_from([30, 600, 7_200, 40_000]),
        "movable": st.booleans(),
        "model": st.sampled_from(["resnet50", "vgg16", "gpt2"]),
        "collective": st.sampled_from(["ring", "ina"]),
        "priority": st.integers(-1, 1),
    },
)
elastic = specs.map(lambda spec: {**spec, "least_gpus": 1, "most_gpus": 14})
happenings = st.one_of(
    st.tuples(st.just("submit"), specs),
    st.tuples(st.just("submit"), specs),
    st.tuples(st.just("submit"), specs),
    st.tuples(st.just("pass"), st.sampled_from([0, 20, 700, 9_000])),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("drain"), st.integers(0, len(NAMES) - 1)),
    st.tuples(st.just("resume"), st.integers(0, len(NAMES) - 1)),
)
policies = st.fixed_dictionaries(
    {"name": st.just("cranny")}, optional={"options": st.just({"move_every_s": 900.0})}
)


def happen(driver: SchedulerDriver, what: str, value: Any) -> None:
    if what == "submit":
        try:
            driver.submit(**value)
        except InputError as error:
            assert re.match("constraints: does not fit the empty cluster|constraints.spread: ", str(error))  # noqa: PT017
    elif what == "pass":
        driver.run_until(driver.now_s + value)
    elif what == "drain":
        driver.drain(value)
    elif what == "resume":
        driver.resume(value)
    elif driver.started_s:
        job_id = list(driver.started_s)[value % len(driver.started_s)]
        if what == "end":
            driver.end(job_id)
        elif driver.record(job_id).wanted:
            driver.cancel(job_id)


def see_all_end(driver: SchedulerDriver) -> None:
    """Let all machines take jobs and see that no job waits for ever."""
    for machine in range(len(NAMES)):
        driver.resume(machine)
    for _ in range(40):
        driver.run_until(driver.now_s + DAY_S)
        if all(record.over for record in driver.scheduler.records.jobs.values()):
            return
    raise AssertionError(driver.scheduler.engine.queue)


@settings(max_examples=examples(60))
@given(st.lists(happenings, max_size=25), policies)
def test_constraints_hold_only_jobs_that_allow_it_are_stopped_and_all_end(
    course: list[tuple[str, Any]], policy: dict[str, Any]
) -> None:
    driver = SchedulerDriver(CLUSTER, policy)
    for what, value in course:
        happen(driver, what, value)
    see_all_end(driver)


@settings(max_examples=examples(25))
@given(st.lists(st.one_of(happenings, st.tuples(st.just("submit"), elastic)), max_size=20))
def test_so_they_do_beside_jobs_that_can_be_resized(course: list[tuple[str, Any]]) -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    for what, value in course:
        happen(driver, what, value)
    see_all_end(driver)


def only_on(*machines: int) -> dict[str, Any]:
    return {"exclude": [name for number, name in enumerate(NAMES) if number not in machines]}


def test_a_job_for_one_machine_is_not_passed_by_later_ones_that_could_take_it() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    for _ in range(30):
        driver.submit(4, duration_s=100)
    picky = driver.submit(4, duration_s=100, constraints=only_on(2))
    for _ in range(60):
        driver.submit(4, duration_s=100)
    driver.run_until(600.0)
    assert driver.first_start_s[picky] == 500.0


def test_machines_are_promised_to_a_job_that_waits_for_them() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    long = [driver.submit(4, duration_s=500) for _ in NAMES]
    there = next(iter(driver.machines(long[0])))
    picky = driver.submit(4, duration_s=100, constraints=only_on(NAMES.index(there)))
    assert driver.why(picky).endswith("is promised a start at 500 s at the latest")
    late = driver.submit(4, duration_s=100)
    driver.end(long[0])
    assert picky in driver.started_s
    assert late not in driver.started_s


timed = specs.map(lambda spec: {"duration_s": 600, **spec, "movable": False})


@settings(max_examples=examples(40))
@given(st.lists(st.tuples(timed, st.sampled_from([0, 0, 30, 500])), max_size=20))
def test_a_job_with_constraints_starts_when_it_was_promised_at_the_latest(
    course: list[tuple[dict[str, Any], int]],
) -> None:
    """Where it does not choose to wait for something better; jobs end no later than expected here."""
    driver = SchedulerDriver(CLUSTER, {"name": "cranny", "options": {"wait": False}})
    promised_s: dict[str, float] = {}
    for spec, later_s in course:
        happen(driver, "submit", spec)
        driver.run_until(driver.now_s + later_s)
        for waiting in driver.scheduler.engine.queue:
            told = driver.why(waiting.job.id)
            promise = re.search(r"is promised a start at ([\d,]+) s at the latest", told)
            if promise and "behind" not in told:  # of another
                promised_s.setdefault(waiting.job.id, float(promise[1].replace(",", "")) + 1.0)  # it is rounded
    see_all_end(driver)
    for job_id, at_s in promised_s.items():
        assert driver.first_start_s[job_id] <= at_s


def test_a_short_job_may_use_promised_machines_before_and_a_long_one_may_not() -> None:
    driver = SchedulerDriver(Cluster.fat_tree(1, 2, 4), {"name": "cranny", "options": {"preempt": False}})
    names = [machine.name for machine in driver.scheduler.cluster.machines]
    driver.submit(3, duration_s=1_000, constraints={"exclude": names[1:]})
    driver.submit(3, duration_s=1_000, constraints={"exclude": names[:1]})
    picky = driver.submit(4, duration_s=100, constraints={"exclude": names[1:]})
    short = driver.submit(1, duration_s=50, constraints={"exclude": names[1:]})
    long = driver.submit(1, duration_s=5_000)
    assert driver.machines(short) == {names[0]}
    assert driver.machines(long) == {names[1]}
    driver.run_until(1_001.0)
    assert driver.first_start_s[picky] == 1_000.0


@pytest.mark.parametrize("count", [1, 150])
def test_jobs_whose_machines_are_drained_keep_no_other_waiting(count: int) -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    driver.drain(0)
    stuck = [driver.submit(2, duration_s=10, constraints=only_on(0)) for _ in range(count)]
    assert "promised" not in driver.why(stuck[0])
    assert driver.why(stuck[0]) == "needs 2 GPUs, 0 free on the machines that it does not exclude"
    others = [driver.submit(4, duration_s=100) for _ in range(10)]
    driver.run_until(250.0)
    assert all(driver.record(job_id).over for job_id in others)
    driver.resume(0)
    driver.run_until(250.0 + 10.0 * count)
    assert all(driver.record(job_id).over for job_id in stuck)


def test_a_promise_is_withdrawn_when_its_machine_is_drained() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    for _ in NAMES:
        driver.submit(4, duration_s=500)
    picky = driver.submit(4, duration_s=100, constraints=only_on(3))
    assert "promised a start" in driver.why(picky)
    driver.drain(3)
    assert "promised" not in driver.why(picky)
    driver.run_until(600.0)
    assert picky not in driver.first_start_s
    driver.resume(3)
    assert driver.machines(picky) == {NAMES[3]}


def test_a_job_that_allows_it_is_stopped_when_that_pays_and_others_never_are() -> None:
    for movable in (False, True):
        driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
        long = [driver.submit(4, duration_s=50_000, movable=movable) for _ in NAMES]
        driver.run_until(1_000.0)
        short = driver.submit(4, duration_s=60)
        assert (short in driver.started_s) is movable
        assert len(driver.stops) == movable
        driver.run_until(200_000.0)
        assert all(driver.record(job_id).status == "done" for job_id in [*long, short])


def test_only_those_of_the_running_jobs_are_stopped_that_allow_it() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    long = [driver.submit(4, duration_s=50_000, movable=number == 4) for number in range(len(NAMES))]
    driver.run_until(1_000.0)
    driver.submit(4, duration_s=60)
    driver.submit(4, duration_s=60)
    assert driver.stops == [long[4]]


def test_jobs_are_stopped_only_where_the_constraints_of_the_other_allow_it() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    for _ in NAMES:
        driver.submit(4, duration_s=50_000, movable=True)
    driver.run_until(1_000.0)
    short = driver.submit(4, duration_s=60, constraints=only_on(5))
    assert driver.machines(short) == {NAMES[5]}
    two = driver.submit(8, duration_s=60, constraints={**only_on(0, 2, 3), "same_rack": "required"})
    assert driver.machines(two) == {NAMES[2], NAMES[3]}
    driver.run_until(2_000.0)
    assert driver.record(two).status == "done"


def test_a_job_that_was_stopped_goes_on_within_its_constraints() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    bound = {"same_rack": "required", "exclude": NAMES[:2]}
    long = [driver.submit(8, duration_s=50_000, movable=True, constraints=bound) for _ in range(2)]
    driver.submit(8, duration_s=50_000, movable=False)
    driver.run_until(1_000.0)
    short = driver.submit(8, duration_s=60)
    assert short in driver.started_s
    assert len(driver.stops) == 1
    driver.run_until(2_000.0)
    assert set(driver.started_s) >= set(long)


def test_a_cancelled_job_is_not_stopped_for_another() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    long = [driver.submit(4, duration_s=50_000, movable=True) for _ in NAMES]
    driver.run_until(1_000.0)
    for job_id in long:
        driver.cancel(job_id)
    driver.submit(4, duration_s=60)
    assert not driver.stops


@pytest.mark.parametrize("policy", ["themis", "pollux", "has", "titan+cassini"])
def test_other_policies_that_plan_jointly_refuse_constraints(policy: str) -> None:
    driver = SchedulerDriver(CLUSTER, {"name": policy})
    with pytest.raises(CrannyError, match=f"constraints: not supported by policy '{policy}'".replace("+", r"\+")):
        driver.submit(2, constraints={"same_rack": "required"})


def test_what_never_fits_is_refused_at_once() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    with pytest.raises(InputError, match="constraints: does not fit the empty cluster: must have all its 9 GPUs"):
        driver.submit(9, constraints={"same_rack": "required"})
    with pytest.raises(InputError, match="constraints: does not fit the empty cluster: needs 5 GPUs, 4 free on"):
        driver.submit(5, constraints=only_on(1))


def test_a_job_that_is_spread_waits_for_racks_and_is_promised_them() -> None:
    driver = SchedulerDriver(CLUSTER, {"name": "cranny"})
    first = driver.submit(6, duration_s=500, constraints={"spread": 3})
    assert [len(driver.machines(first) & set(NAMES[at : at + 2])) for at in (0, 2, 4)] == [1, 1, 1]
    for number in (0, 2):
        driver.submit(6, duration_s=800, constraints=only_on(number, number + 1))
    waits = driver.submit(4, duration_s=100, constraints={"spread": 2})
    told = "must be spread over 2 racks with up to 2 GPUs in each; free GPUs are in 1 rack"
    assert driver.why(waits).startswith(f"{told}; is promised a start at ")
    driver.run_until(500.0)
    assert driver.first_start_s[waits] == 500.0
    assert len({name.split("-")[0] for name in driver.machines(waits)}) == 2


@pytest.mark.parametrize("policy", ["has", "has-resets", "cranny"])
def test_a_job_starts_when_a_cancelled_one_has_given_its_gpus_back(policy: str) -> None:
    driver = SchedulerDriver(CLUSTER, {"name": policy})
    first = driver.submit(24)
    driver.cancel(first)
    elastic_one = driver.submit(4, least_gpus=2)
    assert elastic_one not in driver.started_s
    driver.end(first)
    assert elastic_one in driver.started_s


STOPPING = [
    {"name": "has-exact"},
    {"name": "has"},
    {"name": "tiresias"},
    {"name": "themis"},
    {"name": "themis+cassini"},
    {"name": "pollux"},
    {"name": "gavel"},
    {"name": "best-fit", "order": "las"},
    {"name": "best-fit", "order": "srtf"},
    {"name": "cranny"},
]


@pytest.mark.parametrize("policy", STOPPING, ids=lambda policy: "-".join(policy.values()))
def test_no_policy_stops_moves_or_resizes_a_job_without_checkpoints(policy: dict[str, Any]) -> None:
    driver = SchedulerDriver(Cluster.fat_tree(1, 2, 4), policy)  # which checks every stop
    resizes = {"least_gpus": 1, "most_gpus": 8}
    fixed = driver.submit(2, duration_s=50_000, checkpoint="none", least_gpus=1)
    driver.run_until(1_000.0)  # some decide in rounds
    before = driver.scheduler.engine.state.find(fixed).placement
    for number in range(6):
        driver.run_until(driver.now_s + 4_000.0)
        driver.submit(2 + 2 * (number % 2), duration_s=600, checkpoint={}, **resizes)
    assert len(driver.record(fixed).attempts) == 1
    assert driver.scheduler.engine.state.find(fixed).placement == before
    assert len(driver.first_start_s) > 1
