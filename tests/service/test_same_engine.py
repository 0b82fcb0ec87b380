"""The service decides as the simulator does: the same stream of events gives the same placements."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.service.conftest import Running, Start, until

from cranny.backends.fake import FakeRun
from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Cancelled, Event, Finished, MachineDrained, MachineRepaired, Submitted
from cranny.model.job import Job
from cranny.model.plan import Action, Stop
from cranny.model.plan import Start as Started
from cranny.network.networks import network
from cranny.policy_choice import resolve_policy
from cranny.run import simulate
from cranny.service.event_chain import EventRow
from cranny.service.job_records import JobRecords
from cranny.sim.result import Result

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=4, gpus_per_machine=4)


@pytest.fixture(autouse=True)
def backend_is_asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cranny.service.executor.POLL_S", 0.002)


def heard(row: EventRow, records: JobRecords) -> Event | None:
    """Return the event of the engine that a row of the log stands for, if it is one from outside."""
    if row.kind in {"submitted", "retried"}:
        return Submitted(records.jobs[str(row.job)].job)
    if row.kind == "ended":
        return Finished(str(row.job))
    if row.kind == "cancelled":
        return Cancelled(str(row.job))
    if row.kind == "drained":
        return MachineDrained(row.body["machine"])
    return MachineRepaired(row.body["machine"]) if row.kind == "resumed" else None


def told(action: Action) -> Any:
    if isinstance(action, Started):
        return ("placed", action.job.id, action.placement.machines)
    assert isinstance(action, Stop)
    return ("stopped", action.job_id)


def replayed(rows: list[EventRow], name: str, order: str | None, cluster: Cluster = CLUSTER) -> list[Any]:
    """Drive an engine of the simulator's with what came in from outside."""
    _, policy, _ = resolve_policy(name, order, None, 0, network("isolated").alone)
    engine = Engine(ClusterState(cluster), policy)
    records = JobRecords(cluster)
    decided: list[Any] = []
    for row in rows:
        records.apply(row)
        event = heard(row, records)
        if event is not None:
            decided += map(told, engine.handle(event, row.at_s))
    return decided


@pytest.mark.parametrize(("name", "order"), [("titan", "fifo"), ("best-fit", "backfill"), ("tiresias", "las")])
def test_a_recorded_log_gives_the_same_placements_in_the_simulators_engine(
    start: Start, name: str, order: str
) -> None:
    running = start(
        CLUSTER,
        course=lambda what: FakeRun(run_s=0.02 * (1 + int(what.job_id.removeprefix("job-")) % 7)),
        policy={"name": name, "order": order},
    )
    service = running.service
    for number in range(60):
        running.submit(gpus=1 + number * 5 % 11, duration_s=1 + number % 7, model="vgg16")
        if number % 9 == 4:
            machine = number % 8
            change = (
                service.scheduler.resume
                if machine in service.scheduler.records.drained
                else service.scheduler.drain
            )
            service.call(partial(change, machine, "root")).result(60)
    for machine in range(8):
        service.call(partial(service.scheduler.resume, machine, "root")).result(60)
    until(lambda: all(record.over for record in service.scheduler.records.jobs.values()))
    rows = list(service.store.read())
    assert len(logged(rows)) >= 60
    assert replayed(rows, name, order) == logged(rows)


def logged(rows: list[EventRow]) -> list[Any]:
    """Return what the service decided."""
    return [
        ("placed", row.job, tuple(row.body["placement"]["machines"]))
        if row.kind == "placed"
        else ("stopped", row.job)
        for row in rows
        if row.kind in {"placed", "stopped"}
    ]


DRAINS: list[tuple[float, Event]] = [(151.5, MachineDrained(2)), (402.5, MachineRepaired(2))]
RESIZED = {"least_gpus": 1, "most_gpus": 12}
ASKED: dict[str, Any] = {"order": None, "period_s": 0.0, "options": {}}


def stream(**more: Any) -> list[Job]:
    """Return jobs as the service would make them, of which no two come or end at the same time.

    The first comes when the service begins, which asks its policy then; some policies count time from there.
    """
    return [
        Job(
            id=f"job-{number}",
            gpus=1 + number * 5 % 11,
            model="vgg16",
            submit_s=9.25 * (number - 1),
            duration_s=40.0 + 31.0 * (number % 7) + 0.013 * number,
            tenant="ann",
            **more,
        )
        for number in range(1, 31)
    ]


# These decide at every event, every 30 s, and in rounds; they place jobs, stop, move, resize and shift them.
@pytest.mark.parametrize(
    ("policy", "more", "does"),
    [
        # These jobs may not be stopped; a simulation is told that links are shared in phases, as a service knows.
        ({"name": "cranny", "options": {"preempt": False, "phases": True}}, {}, "shifted"),
        ({"name": "cranny", "options": {"preempt": False, "shift": False}}, {}, "placed"),
        ({"name": "titan"}, {}, "placed"),
        ({"name": "titan", "period_s": 30}, {}, "placed"),
        ({"name": "best-fit", "order": "backfill"}, {}, "placed"),
        ({"name": "tiresias"}, {}, "stopped"),
        ({"name": "gavel", "period_s": 120}, {}, "stopped"),
        ({"name": "pollux"}, RESIZED, "moved"),
        ({"name": "themis+cassini"}, {}, "shifted"),
    ],
    ids=lambda given: "-".join(map(str, given.values())) if isinstance(given, dict) else given,
)
def test_the_same_jobs_get_the_same_gpus_at_the_same_times_in_a_simulation(
    start: Start, turned_clock: list[float], policy: dict[str, Any], more: dict[str, Any], does: str
) -> None:
    compare(start, turned_clock, policy, stream(**more), does)


def compare(start: Start, now: list[float], policy: dict[str, Any], jobs: list[Job], does: str) -> Result:
    """Run jobs in a simulation and through a service, and check that they get the same GPUs at the same times."""
    asked = {name: policy.get(name, default) for name, default in ASKED.items()}
    result = simulate(CLUSTER, jobs, policy["name"], machine_events=DRAINS, **asked)
    assert set(result.jobs["status"]) == {"done"}
    running = start(CLUSTER, policy=policy, clock=lambda: now[0])
    live_through(running, now, jobs, result)
    rows = list(running.service.store.read())
    assert does in {row.kind for row in rows}
    assert [record.job for record in running.service.scheduler.records.jobs.values()] == jobs
    assert stretches(rows) == simulated(result)
    return result


def test_priorities_and_deadlines_share_gpus_as_in_a_simulation(start: Start, turned_clock: list[float]) -> None:
    plain = stream(**RESIZED)
    jobs = [
        replace(job, priority=float(number % 3), deadline_s=job.submit_s + 64.0 if number % 4 else None)
        for number, job in enumerate(plain)
    ]
    shared = compare(start, turned_clock, {"name": "has-exact"}, jobs, "moved")
    without = simulate(CLUSTER, plain, "has-exact", machine_events=DRAINS)
    assert simulated(shared) != simulated(without)


def test_priorities_and_deadlines_count_after_a_restart_too(start: Start) -> None:
    one = Cluster.fat_tree(racks=1, machines_per_rack=1, gpus_per_machine=12)
    running = start(one, policy={"name": "has-exact"})
    running.service.call(partial(running.service.scheduler.drain, 0, "root")).result(60)
    sizes: dict[str, Any] = {"least_gpus": 1, "most_gpus": 12, "duration_s": 10_000.0}
    running.submit(**sizes)
    running.submit(**sizes, priority=2)
    running.submit(**sizes, deadline_s=3_000.0)
    running.service.close()
    again = start(one).service
    again.call(partial(again.scheduler.resume, 0, "root")).result(60)
    rows = list(again.store.read())
    shares = {row.job: len(row.body["placement"]["machines"]) for row in rows if row.kind == "placed"}
    # The last needs 4 GPUs to be in time; the others share 8, the second with twice as many as the first.
    assert shares == {"job-1": 3, "job-2": 5, "job-3": 4}
    assert sorted(replayed(rows, "has-exact", None, one)) == sorted(logged(rows))


def live_through(running: Running, now: list[float], jobs: list[Job], result: Result) -> None:
    """Let everything happen to a service that happened in a simulation, at the same times, but for decisions."""
    service, by_attempt = running.service, running.processes.by_attempt

    def submit(job: Job) -> None:
        more: dict[str, Any] = {} if job.least_gpus is None else dict(RESIZED)
        more["priority"] = int(job.priority)
        if job.deadline_s is not None:
            more["deadline_s"] = job.deadline_s - job.submit_s
        assert running.submit(gpus=job.gpus, model=job.model, duration_s=job.duration_s, **more) == job.id

    def end(job_id: str) -> None:
        key = (job_id, len(service.scheduler.find(job_id).attempts))
        until(lambda: key in by_attempt)
        by_attempt[key].ends_at = 0.0
        running.until(job_id, "done")

    def change(event: Event) -> None:
        assert isinstance(event, MachineDrained | MachineRepaired)
        do = service.scheduler.drain if isinstance(event, MachineDrained) else service.scheduler.resume
        service.call(partial(do, event.machine, "root")).result(60)

    def look() -> None:
        service.call(lambda _: None).result(60)  # the loop finds that it is time to ask the policy

    ends = result.jobs.select("finish_s", "job_id").rows()
    happens: list[tuple[float, Callable[[], None]]] = [(job.submit_s, partial(submit, job)) for job in jobs]
    happens += [(at_s, partial(end, job_id)) for at_s, job_id in ends]
    happens += [(at_s, partial(change, event)) for at_s, event in DRAINS]
    assert len({at_s for at_s, _ in happens}) == len(happens)
    for at_s, do in sorted(happens, key=lambda each: each[0]):
        while service._tick_s < at_s:  # the policy has a period, or named a time
            now[0] = service._tick_s
            look()
        now[0] = at_s
        do()
        look()  # until this has been handled


Stretch = tuple[float, float, str, list[tuple[int, int]]]


def simulated(result: Result) -> list[Stretch]:
    """Return when each job held which GPUs of which machines, as bits, in a simulation."""
    held: dict[tuple[float, float, str], list[tuple[int, int]]] = {}
    for job_id, start_s, end_s, machine, gpus in result.runs.rows():
        held.setdefault((start_s, end_s, job_id), []).append((machine, gpus))
    return sorted((*key, gpus) for key, gpus in held.items() if key[0] < key[1])


def stretches(rows: list[EventRow]) -> list[Stretch]:
    """Return the same of the log of a service."""
    found: list[Stretch] = []
    holds: dict[str, tuple[float, list[tuple[int, int]]]] = {}
    for row in rows:
        job_id = str(row.job)
        if row.kind in {"ended", "stopped", "moved"}:
            start_s, held = holds.pop(job_id)
            if start_s < row.at_s:
                found.append((start_s, row.at_s, job_id, held))
        if row.kind in {"placed", "moved"}:
            where, bits = row.body["placement"], dict[int, int]()
            if where["gpus"] is not None:  # it is not taken back at once
                for machine, gpu in zip(where["machines"] + where["spare"], where["gpus"], strict=True):
                    bits[machine] = bits.get(machine, 0) | 1 << gpu
            holds[job_id] = (row.at_s, list(bits.items()))
    assert not holds
    return sorted(found)
