"""Services to test: on a clock that tests turn, and on this machine."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from tests.cli.conftest import run  # noqa: F401 - a fixture
from tests.reference.invariants import check
from tests.service.accounts import PLAIN
from tests.service.postgres import Postgres, postgres_binaries, running_postgres

from cranny.backends.attempt_files import read, remove
from cranny.backends.fake import FakeBackend, FakeProcesses, FakeRun
from cranny.backends.local import LocalBackend
from cranny.backends.process import Process
from cranny.backends.protocol import Launch
from cranny.model.cluster import Cluster
from cranny.service.api.app import build
from cranny.service.auth import Authenticator, create
from cranny.service.clock import Clock, wall_clock
from cranny.service.connection_limit import KEEP_ALIVE_S
from cranny.service.limits import Limits
from cranny.service.locations import Location
from cranny.service.oidc_login import OidcLogin
from cranny.service.service import Service
from cranny.service.store import EventStore
from cranny.service.user_rights import Rights

CLUSTER = Cluster.fat_tree(racks=2, machines_per_rack=2, gpus_per_machine=4)
COMPILE_S = 600.0  # a policy may have to be compiled first, while other tests keep the machine busy


def until(holds: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until something holds; what takes long is asked about less often."""
    end, pause_s = time.monotonic() + seconds, 0.01
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(pause_s)
        pause_s = min(1.1 * pause_s, 0.1)


@dataclass
class Running:
    """A service, and what runs its jobs."""

    service: Service
    processes: FakeProcesses = field(default_factory=FakeProcesses)

    def submit(self, user: str = "ann", key: str | None = None, **spec: Any) -> str:
        value = {"command": ["true"], "gpus": 1, **spec}
        return str(self.service.submit(user, value, key).result(60)[0].id)  # a busy disk may take its time

    def status(self, job_id: str) -> str:
        with self.service.lock:
            return self.service.scheduler.find(job_id).status

    def until(self, job_id: str, *statuses: str) -> None:
        until(lambda: self.status(job_id) in statuses)


Start = Callable[..., Running]


@pytest.fixture
def turned_clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a time that stands still until the test changes it; services started with it know no other."""
    now = [0.0]
    monkeypatch.setattr("cranny.service.service.Clock", lambda wall: Clock(wall, steady=lambda: 0.0))
    monkeypatch.setattr("cranny.service.clock.JUMP_S", math.inf)
    return now


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a service; `course` says how long jobs of a fake backend run."""
    started: list[Service] = []

    def make(
        cluster: Cluster = CLUSTER,
        *,
        course: Callable[[Launch], FakeRun] = lambda _: FakeRun(run_s=1e9),
        processes: FakeProcesses | None = None,
        real: bool = False,
        recommend: bool = False,
        database: str | None = None,
        policy: dict[str, Any] | None = None,
        limits: Limits | None = None,
        rights: Rights | None = None,
        clock: Callable[[], float] = wall_clock,
        ready: bool = True,
        location: Location | None = None,
    ) -> Running:
        known = processes or FakeProcesses()
        backend = LocalBackend(cluster, ()) if real else FakeBackend(cluster, time.monotonic, course, known)
        with contextlib.ExitStack() as opened:
            store = EventStore(database or str(tmp_path / "log.db"))
            opened.callback(store.close)  # if the service refuses to start; otherwise it closes its store
            service = Service(
                store,
                None if recommend else backend,
                tmp_path if location is None else Path(location.folder),
                cluster=cluster,
                policy=policy,
                limits=limits,
                rights=rights,
                clock=clock,
                location=location,
            )
            service.start()
            opened.pop_all()
        started.append(service)
        if ready:
            until(lambda: service.ready, COMPILE_S)
        return Running(service, known)

    yield make
    for service in started:
        if service._alive:
            service.close()
        check(service.scheduler.engine.state)
    end_jobs(tmp_path)


def end_jobs(folder: Path) -> None:
    """End real jobs that a closed service has left running, and withdraw those that have not started yet."""
    for file in folder.rglob("attempt-*.launch"):
        remove(file)
    found = [known for file in folder.rglob("attempt-*.pid") if (known := read(file)) is not None]
    supervisors = [Process(known["pid"], known["started"]) for known in found]
    for process in supervisors:
        process.send(signal.SIGTERM)
    until(lambda: not any(process.alive() for process in supervisors))


@dataclass
class Site:
    """A server, and clients of all kinds."""

    running: Running
    authenticator: Authenticator
    url: str
    tokens: dict[str, str]

    def client(self, who: str | None = "root") -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who is not None else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60.0, verify=PLAIN)


Serve = Callable[..., Site]


@pytest.fixture
def serve(start: Start) -> Iterator[Serve]:
    """Return what serves a service over HTTP; root is admin, ann and bob are users, eve only looks."""
    servers: list[tuple[uvicorn.Server, threading.Thread, Any]] = []

    def make(
        cluster: Cluster = CLUSTER,
        *,
        oidc: Callable[[str, Authenticator], OidcLogin] | None = None,
        **settings: Any,
    ) -> Site:
        running = start(cluster, **settings)
        store = running.service.store
        roles = {"root": "admin", "ann": "user", "bob": "user", "eve": "viewer"}
        tokens = {name: create(store, name, role, 0.0)[1] for name, role in roles.items()}
        authenticator = Authenticator(store, loopback=True)
        app = build(running.service, authenticator)
        config = uvicorn.Config(
            app, port=0, log_level="error", timeout_graceful_shutdown=1, timeout_keep_alive=KEEP_ALIVE_S
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        until(lambda: server.started)
        servers.append((server, thread, app))
        url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        app.state.oidc = None if oidc is None else oidc(url, authenticator)
        return Site(running, authenticator, url, tokens)

    yield make
    for server, thread, app in servers:
        app.state.notifier.close()
        server.should_exit = True
        thread.join(60)


@pytest.fixture
def postgres(postgres_process: Postgres) -> str:
    """Return the address of an empty PostgreSQL database."""
    return postgres_process.create_database()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database, of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "deep" / "log.db")
    address: str = request.getfixturevalue("postgres")
    return address


@pytest.fixture(scope="session")
def postgres_server(postgres_process: Postgres) -> str:
    """Return the address of a PostgreSQL server of our own, or skip where there is none."""
    return postgres_process.url


@pytest.fixture(scope="session")
def postgres_process() -> Iterator[Postgres]:
    """Return a PostgreSQL server of our own; a test that stops it starts it again."""
    if postgres_binaries() is None:
        pytest.skip("PostgreSQL is not installed")
    with running_postgres() as server:
        yield server
