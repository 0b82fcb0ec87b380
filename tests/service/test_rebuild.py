"""The log alone gives back everything: whatever happened, the state that is read again is the state that was."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.reference.invariants import check
from tests.service.standing import standing

from cranny.backends.protocol import Ended
from cranny.model.cluster import Cluster
from cranny.model.errors import CrannyError
from cranny.service.executor import AttemptLaunched
from cranny.service.job_record import JobRecord
from cranny.service.job_spec import parse
from cranny.service.limits import Limits
from cranny.service.scheduler import Mode, Scheduler
from cranny.service.store import EventStore

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
MACHINES = [machine.name for machine in CLUSTER.machines]

specs = st.fixed_dictionaries(
    {
        "command": st.just(["true"]),
        "gpus": st.sampled_from([1, 2, 4, 6, 9, 16]),
        "priority": st.integers(-1, 1),
        "max_retries": st.integers(0, 2),
    },
    optional={
        "duration_s": st.integers(1, 50_000),
        "movable": st.booleans(),
        "constraints": st.builds(
            lambda excluded, racks: {"exclude": excluded, **racks},
            st.lists(st.sampled_from(MACHINES), max_size=2, unique=True),
            st.sampled_from([{}, {"same_rack": "required"}, {"same_rack": "preferred"}, {"spread": 2}]),
        ),
    },
)
policies = st.fixed_dictionaries(
    {"name": st.sampled_from(["titan", "best-fit", "tiresias", "elasticflow", "cranny"])},
    optional={"order": st.sampled_from(["fifo", "sjf", "las", "backfill"]), "period_s": st.sampled_from([0, 60])},
)
happenings = st.one_of(
    st.tuples(st.just("submit"), specs),
    st.tuples(st.just("submit"), specs),
    st.tuples(st.just("again"), st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(1, 12)),
    st.tuples(st.just("drain"), st.integers(0, 3)),
    st.tuples(st.just("resume"), st.integers(0, 3)),
    st.tuples(st.just("policy"), policies),
    st.tuples(st.just("launched"), st.integers(1, 12)),
    st.tuples(st.just("gone"), st.tuples(st.integers(1, 12), st.sampled_from(["finished", "failed", "lost"]))),
    st.tuples(st.just("gone"), st.tuples(st.integers(1, 12), st.just("failed"))),
    st.tuples(st.just("tick"), st.none()),
)


def happen(scheduler: Scheduler, what: str, value: Any, now_s: float) -> None:
    """Let something happen that may be refused."""
    if what == "submit":
        scheduler.submit("ann", value, None, now_s)
    elif what == "again":
        scheduler.submit("bob", {"command": ["true"], "gpus": 1 + value}, f"key-{value}", now_s)
    elif what == "cancel":
        scheduler.cancel(one_of(scheduler, value).id if value % 2 else f"job-{value}", "ann", now_s)
    elif what == "drain":
        scheduler.drain(value, "root", now_s)
    elif what == "resume":
        scheduler.resume(value, "root", now_s)
    elif what == "policy":
        scheduler.set_policy(value, "root", now_s)
    elif what == "launched":
        record = one_of(scheduler, value)
        scheduler.attempt_launched(AttemptLaunched(record.id, len(record.attempts)), now_s)
    elif what == "gone":
        record = one_of(scheduler, value[0])
        number = record.leaving[0].number if record.leaving else len(record.attempts)
        scheduler.attempt_ended(Ended(record.id, number, 1, value[1]), now_s)
    else:
        scheduler.tick(now_s)


def one_of(scheduler: Scheduler, number: int) -> JobRecord:
    """Return one of the jobs that have processes, if any, and any other otherwise."""
    records = list(scheduler.records.jobs.values())
    live = [record for record in records if record.leaving or record.status in {"starting", "running", "stopping"}]
    if not records:
        raise CrannyError("there are no jobs yet")
    return (live or records)[number % len(live or records)]


@settings(max_examples=examples(60))
@given(
    st.lists(happenings, max_size=40), st.sampled_from(["run", "recommend"]), st.sampled_from(["titan", "cranny"])
)
def test_the_log_gives_back_what_was(course: list[tuple[str, Any]], mode: Mode, first: str) -> None:
    with TemporaryDirectory() as folder:
        store = EventStore(str(Path(folder) / "log.db"))
        live = Scheduler(CLUSTER, mode, Limits())
        live.open(0.0)
        live.set_policy({"name": first}, "root", 0.0)
        for number, (what, value) in enumerate(course):
            try:
                happen(live, what, value, 1_000.0 * number)
            except CrannyError as error:
                assert "policy" not in str(error)  # noqa: PT017 - it is refused for its own sake
        store.append(live.rows)
        check(live.engine.state)
        again = Scheduler(CLUSTER, mode, Limits())
        again.restore(store)
        check(again.engine.state)
        assert standing(again) == standing(live)
        store.close()


def test_what_a_stopped_job_had_is_remembered(tmp_path: Path) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(CLUSTER, "run", Limits())
    live.open(0.0)
    live.set_policy({"name": "best-fit", "order": "las"}, "root", 0.0)
    live.submit("ann", {"command": ["true"], "gpus": 16}, None, 0.0)
    live.submit("ann", {"command": ["true"], "gpus": 1}, None, 5_000.0)
    assert [(each.job.id, each.attained_gpu_s) for each in live.engine.queue] == [("job-1", 80_000.0)]
    store.append(live.rows)
    again = Scheduler(CLUSTER, "run", Limits())
    again.restore(store)
    assert standing(again) == standing(live)
    assert again.find("job-1").leaving
    store.close()


@pytest.mark.parametrize("named_again", [False, True], ids=["as-before", "policy-named-again"])
def test_a_start_that_was_promised_is_promised_after_a_restart(tmp_path: Path, *, named_again: bool) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(CLUSTER, "run", Limits())
    live.open(0.0)
    live.set_policy({"name": "cranny"}, "root", 0.0)
    for gpus, duration_s, at_s in ((14, 1_000, 0.0), (16, 5_000, 10.0), (4, 50, 20.0)):
        live.submit("ann", {"command": ["true"], "gpus": gpus, "duration_s": duration_s}, None, at_s)
    assert [each.job.id for each in live.engine.queue] == ["job-3", "job-2"]  # a short one that came later
    store.append(live.rows)
    again = Scheduler(CLUSTER, "run", Limits())
    again.restore(store)
    assert standing(again) == standing(live)
    if named_again:
        again.switch({"name": "cranny"}, "root", 30.0)
    again.tick(30.0)
    for each in (live, again):
        assert "behind" not in each.engine.why_wait("job-2", 30.0)
        assert "is promised a start" in each.engine.why_wait("job-2", 30.0)
        assert (
            each.engine.why_wait("job-3", 30.0).split("; ")[1].startswith("behind job 'job-2', which is promised")
        )
    assert again.records.promised == live.records.promised
    assert again.records.promised["job-2"]["start_s"] == pytest.approx(1_000.0, rel=0.5)
    store.close()


def test_the_log_tells_which_switches_aggregate_for_a_job_that_runs(tmp_path: Path) -> None:
    cluster = Cluster.fat_tree(1, 8, 1, pat_gbps=10.0)  # memory for one of two jobs
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(cluster, "run", Limits())
    live.open(0.0)
    live.set_policy({"name": "netpack"}, "root", 0.0)
    spec = {"command": ["true"], "collective": "ina", "model": "vgg16"}
    small, _ = live.submit("ann", {**spec, "gpus": 2}, None, 1.0)
    assert small.attempts[0].placement.aggregate is True
    large, _ = live.submit("ann", {**spec, "gpus": 5}, None, 2.0)  # merges more flows
    assert (small.attempts[0].placement.aggregate, large.attempts[0].placement.aggregate) == (False, True)
    assert "aggregation is off: the switch of rack0 has no memory left for it" in small.attempts[0].why
    assert live.engine.state.find(small.id).placement.aggregate is False
    live.attempt_launched(AttemptLaunched(large.id, 1), 3.0)
    live.attempt_ended(Ended(large.id, 1, 0, "finished"), 4.0)
    assert live.engine.state.find(small.id).placement.aggregate is True
    assert [row.job for row in live.rows if row.kind == "aggregated"] == [small.id] * 2
    store.append(live.rows)
    again = Scheduler(cluster, "run", Limits())
    again.restore(store)
    assert standing(again) == standing(live)
    assert again.engine.state.find(small.id).placement.aggregate is True
    store.close()


def test_every_attempt_that_may_still_have_processes_is_remembered() -> None:
    scheduler = Scheduler(CLUSTER, "run", Limits())
    scheduler.open(0.0)
    scheduler.set_policy({"name": "titan"}, "root", 0.0)
    job, _ = scheduler.submit("ann", {"command": ["true"], "gpus": 1}, None, 0.0)
    scheduler.attempt_launched(AttemptLaunched(job.id, 1), 0.0)
    placed = next(row for row in scheduler.rows if row.kind == "placed").body
    for number in (2, 3):  # moved again before the processes of the first attempt have ended
        scheduler.log("moved", job.id, {**placed, "attempt": number}, 1.0)
    assert [attempt.number for attempt in job.leaving] == [1, 2]
    scheduler.attempt_ended(Ended(job.id, 2, None, "cancelled"), 2.0)  # it was called off
    assert [attempt.number for attempt in job.leaving] == [1]
    scheduler.attempt_ended(Ended(job.id, 1, -15, "cancelled"), 3.0)
    assert not job.leaving
    assert [attempt.exit_code for attempt in job.attempts] == [-15, None, None]


@pytest.mark.parametrize("name", ["random", "titan", "netpack"])
def test_a_question_changes_nothing_about_what_is_decided(name: str) -> None:
    def placements(*, ask: bool) -> list[Any]:
        scheduler = Scheduler(CLUSTER, "run", Limits())
        scheduler.open(0.0)
        scheduler.set_policy({"name": name}, "root", 0.0)
        found = []
        for number in range(6):
            for gpus in range(1, 6) if ask else ():
                scheduler.check(parse({"command": ["true"], "gpus": gpus}), "what-if", "eve", float(number))
            record, _ = scheduler.submit("ann", {"command": ["true"], "gpus": 2}, None, float(number))
            found.append([attempt.placement.machines for attempt in record.attempts])
        return found

    assert placements(ask=True) == placements(ask=False)


@pytest.mark.parametrize("period_s", [0.0, 60.0])
@pytest.mark.parametrize("mode", ["run", "recommend"])
def test_how_long_jobs_run_is_learned_again_from_the_log(tmp_path: Path, mode: Mode, period_s: float) -> None:
    store = EventStore(str(tmp_path / "log.db"))
    live = Scheduler(CLUSTER, mode, Limits())
    live.open(0.0)
    live.set_policy({"name": "cranny", "period_s": period_s}, "root", 0.0)
    now_s = 0.0
    for user, ran_s in [("ann", 20.0), ("bob", 40_000.0)] * 5:  # they do not say it
        record, _ = live.submit(user, {"command": ["true"], "gpus": 1}, None, now_s)
        live.tick(now_s)
        if mode == "run":
            live.attempt_launched(AttemptLaunched(record.id, 1), now_s)
            live.attempt_ended(Ended(record.id, 1, 0, "finished"), now_s + ran_s)
        else:
            live.observe(record.id, {"machines": [0]}, now_s)
            live.observe(record.id, {"ended": True}, now_s + ran_s)
        now_s += ran_s
    live.submit("eve", {"command": ["true"], "gpus": 16, "duration_s": 100}, None, now_s)
    live.tick(now_s)
    ids = [live.submit(user, {"command": ["true"], "gpus": 16}, None, now_s)[0].id for user in ("bob", "ann")]
    assert [each.job.id for each in live.engine.queue if each.job.id in ids] == [ids[1], ids[0]]
    store.append(live.rows)
    again = Scheduler(CLUSTER, mode, Limits())
    again.restore(store)
    assert standing(again) == standing(live)
    again.submit("ann", {"command": ["true"], "gpus": 16}, None, now_s + 1)
    live.submit("ann", {"command": ["true"], "gpus": 16}, None, now_s + 1)
    assert standing(again) == standing(live)
    store.close()
