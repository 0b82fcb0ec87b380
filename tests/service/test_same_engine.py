"""The service decides as the simulator does: the same stream of events gives the same placements."""

from functools import partial
from typing import Any

import pytest
from tests.service.conftest import Start, until

from cranny.api import choose
from cranny.backends.fake import Course
from cranny.core.engine import Engine
from cranny.core.state import ClusterState
from cranny.model.cluster import Cluster
from cranny.model.event import Cancelled, Event, Finished, MachineDrained, MachineRepaired, Submitted
from cranny.model.plan import Action, Stop
from cranny.model.plan import Start as Started
from cranny.service.ledger import Ledger
from cranny.service.store import Row
from cranny.sim.models import network

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=4, gpus_per_machine=4)


def heard(row: Row, ledger: Ledger) -> Event | None:
    """Return the event of the engine that a row of the log stands for, if it is one from outside."""
    if row.kind in {"submitted", "retried"}:
        return Submitted(ledger.jobs[str(row.job)].job)
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


def replayed(rows: list[Row], name: str, order: str) -> list[Any]:
    """Drive an engine of the simulator's with what came in from outside."""
    _, policy, _ = choose(name, order, None, 0, network("isolated").alone)
    engine = Engine(ClusterState(CLUSTER), policy)
    ledger = Ledger(CLUSTER)
    decided: list[Any] = []
    for row in rows:
        ledger.apply(row)
        event = heard(row, ledger)
        if event is not None:
            decided += map(told, engine.handle(event, row.at_s))
    return decided


@pytest.mark.parametrize(("name", "order"), [("titan", "fifo"), ("best-fit", "backfill"), ("tiresias", "las")])
def test_a_recorded_log_gives_the_same_placements_in_the_simulators_engine(
    start: Start, name: str, order: str
) -> None:
    running = start(
        CLUSTER,
        course=lambda what: Course(run_s=0.02 * (1 + int(what.job_id.removeprefix("job-")) % 7)),
        policy={"name": name, "order": order},
    )
    service = running.service
    for number in range(60):
        running.submit(gpus=1 + number * 5 % 11, duration_s=1 + number % 7, model="vgg16")
        if number % 9 == 4:
            machine = number % 8
            change = service.desk.resume if machine in service.desk.ledger.drained else service.desk.drain
            service.ask(partial(change, machine, "root")).result(10)
    for machine in range(8):
        service.ask(partial(service.desk.resume, machine, "root")).result(10)
    until(lambda: all(record.over for record in service.desk.ledger.jobs.values()))
    rows = list(service.store.read())
    assert len(logged(rows)) >= 60
    assert replayed(rows, name, order) == logged(rows)


def logged(rows: list[Row]) -> list[Any]:
    """Return what the service decided."""
    return [
        ("placed", row.job, tuple(row.body["placement"]["machines"]))
        if row.kind == "placed"
        else ("stopped", row.job)
        for row in rows
        if row.kind in {"placed", "stopped"}
    ]
