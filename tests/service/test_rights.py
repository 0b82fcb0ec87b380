"""Rights: priorities, queues and quotas of users; the audit log; what else users must not be able to do."""

import json
import logging
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.conftest import Run
from tests.examples import examples
from tests.service.conftest import Serve, Site, Start, until
from tests.service.test_rest import problem

from cranny.cli.console import PrintableFormatter, printable
from cranny.model.errors import InputError
from cranny.service.audit import BY_FILE, KINDS, AuditLog
from cranny.service.auth import create
from cranny.service.clock import BELIEVED_S, Clock
from cranny.service.job_spec import JobSpec
from cranny.service.open_jobs import OpenJobs
from cranny.service.store import EventStore
from cranny.service.user_rights import Rights, read_rights

JOBS = "/api/v1/jobs"
JOB: dict[str, Any] = {"command": ["true"], "gpus": 1}
YEAR_S = 365 * 86_400.0
FILE = """
default: {max_priority: 0, jobs: 3}
users:
  ann: {max_priority: 10, queues: [prod], gpus: 6, jobs: 100}
queues:
  prod: {users: [ann, bob], max_priority: 100, gpus: 8}
  night: {jobs: 1, max_priority: -5}
"""


@pytest.fixture
def rights(tmp_path: Path) -> Rights:
    file = tmp_path / "rights.yaml"
    file.write_text(FILE)
    return read_rights(file)


def submitted(client: httpx.Client, **fields: Any) -> tuple[int, str]:
    answer = client.post(JOBS, json={**JOB, **fields})
    return answer.status_code, answer.json().get("detail", "")


def test_a_user_cannot_go_before_all_others_unless_an_admin_allows_it(serve: Serve) -> None:
    site = serve()
    with site.client("ann") as ann, site.client("root") as root:
        assert submitted(ann, priority=1000) == (403, "priority: ann may set at most 0, not 1000")
        problem(ann.post("/api/v1/plan", json={**JOB, "priority": 1}), 403)
        assert submitted(ann, priority=-3)[0] == submitted(ann)[0] == 201
        assert submitted(root, priority=1000)[0] == 201
        assert submitted(ann, queue="any")[0] == 201


def test_priorities_queues_and_quotas_are_as_the_file_says(serve: Serve, rights: Rights) -> None:
    site = serve(rights=rights)
    with site.client("ann") as ann, site.client("bob") as bob, site.client("root") as root:
        assert submitted(ann, priority=11) == (403, "priority: ann may set at most 10, not 11")
        assert submitted(ann, priority=101, queue="prod") == (403, "priority: ann may set at most 100, not 101")
        assert submitted(ann, queue="night") == (403, "queue: ann may not use 'night'")
        assert submitted(bob, queue="ann")[0] == 403  # no such queue: a queue is not another user's share
        assert submitted(bob, priority=0, queue="night")[0] == 403
        assert submitted(ann, priority=100, queue="prod", gpus=5)[0] == 201
        exceeded = "unfinished jobs of ann have 5 GPUs; with 2 more they would exceed the limit of 6"
        assert submitted(ann, gpus=2) == (429, exceeded)
        exceeded = "unfinished jobs of queue 'prod' have 5 GPUs; with 4 more they would exceed the limit of 8"
        assert submitted(bob, queue="prod", gpus=4) == (429, exceeded)
        assert [submitted(bob, queue="night", priority=-5)[0] for _ in range(2)] == [201, 429]
        assert [submitted(bob)[0] for _ in range(3)] == [201, 201, 429]
        assert submitted(root, queue="other", priority=1000)[0] == 201
        problem(bob.post("/api/v1/plan", json=JOB), 429)
        assert bob.post(f"{JOBS}/job-2/cancel").is_success
        until(lambda: submitted(bob)[0] == 201)  # what is over does not count


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", None]), st.integers(1, 9), st.booleans()),
        max_size=12,
    )
)
def test_counts_of_unfinished_jobs_are_those_of_looking_at_all(
    jobs: list[tuple[str, str | None, int, bool]],
) -> None:
    counts, left = OpenJobs(), []
    for user, queue, gpus, ends in jobs:
        spec = JobSpec(command=["true"], gpus=gpus, queue=queue, most_gpus=9 if gpus == 1 else None)
        counts.add(user, spec)
        if ends:
            counts.remove(user, spec)
        else:
            left.append((user, spec))
    for user in "ab":
        own = [spec.gpus for each, spec in left if each == user]
        assert counts.of_user(user) == (len(own), sum(own))
    for queue in "xy":
        within = [spec.gpus for _, spec in left if spec.queue == queue]
        assert counts.in_queue(queue) == (len(within), sum(within))
    assert counts.total == len(left)
    assert counts.resizable == sum(spec.gpus == 1 for _, spec in left)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("users: {ann: {priority: 3}}", "unknown field 'priority'"),
        ("default: {max_priority: 2000}", "default.max_priority: must be a whole number from -1000 to 1000"),
        ("queues: {prod: {jobs: -1}}", "queues.prod.jobs: must be a whole number from 0 up, not -1"),
        ("- ann", "must be a mapping of fields"),
    ],
)
def test_a_wrong_file_of_rights_gets_one_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "rights.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"rights\.yaml") as refused:
        read_rights(file)
    assert says in str(refused.value)


def audited(site: Site, count: int) -> list[tuple[str, str]]:
    """Return actions and by whom, the latest first, when there are so many."""
    with site.client() as root:

        def found() -> list[tuple[str, str]]:
            events = root.get("/api/v1/audit").json()["events"]
            return [(each["action"], each["by"]) for each in events if each["by"] != "cranny serve"]

        until(lambda: len(found()) >= count)
        return found()


def test_logins_tokens_and_actions_of_admins_are_events(
    serve: Serve, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve()
    with site.client() as root, site.client("ann") as ann:
        made = root.post("/api/v1/tokens", json={"user": "cid", "valid_days": 1}).json()
        session = root.post("/api/v1/session", json={"token": made["token"]}).json()["session"]
        httpx.delete(f"{site.url}/api/v1/session", headers={"Authorization": f"Bearer {session}"})
        for _ in range(50):  # strangers cannot fill the log
            problem(root.post("/api/v1/session", json={"token": "wrong"}), 401)
        root.delete(f"/api/v1/tokens/{made['id']}")
        ann.post(JOBS, json={**JOB, "gpus": 16})
        root.post(f"{JOBS}/job-1/cancel")
        root.post("/api/v1/nodes/0/drain")
        problem(ann.get("/api/v1/audit"), 403)
        create(site.running.service.store, "dan", "admin", 0.0)  # beside the service, with the database
        site.authenticator.invalidate()
        root.get("/api/v1/me")
        by_root = [("drained", "root"), ("stopping", "root"), ("token-revoked", "root")]
        sessions = [("login-refused", "unknown"), ("logged-out", "cid"), ("logged-in", "cid")]
        found = [each for each in audited(site, 9) if each[0] not in {"opened", "policy"}]
        assert found == [("token-created", BY_FILE), *by_root, *sessions, ("token-created", "root")]
        page = root.get("/api/v1/audit", params={"limit": 2}).json()
        older = root.get("/api/v1/audit", params={"limit": 2, "before": page["next"]}).json()["events"]
        assert older[0]["seq"] < page["events"][-1]["seq"]
        everything = json.dumps(root.get("/api/v1/audit").json())
        assert made["token"] not in everything
        assert session not in everything
        stream = ann.get("/api/v1/events", params={"follow": False, "after": 0}).text
        assert "login-refused" not in stream  # users see that there is an event, not what it says
        assert "event: audit" in stream
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
    printed = run("audit", "--server", site.url).out
    assert "drained        root" in printed
    assert "address=127.0.0.1 method=token" in printed


def test_a_token_made_before_or_between_services_is_recorded(start: Start, tmp_path: Path, run: Run) -> None:
    database = str(tmp_path / "log.db")
    run("token", "create", "ann", "--database", database)
    running = start()
    AuditLog(running.service).tokens_of_new_log()
    store = running.service.store
    until(lambda: len(store.latest({"audit"}, None, 9)) == 1)
    # In a process of its own, since locks of files are those of a process.
    argv = (sys.executable, "-m", "cranny.cli", "token", "create", "bob", "--database", database, "--json")
    created = json.loads(subprocess.run(argv, capture_output=True, check=True, timeout=120).stdout)
    running.service.close()  # while it ran, it was its business to notice that
    run("token", "revoke", created["id"], "--database", database)
    with_lock = EventStore(database)
    rows = with_lock.latest(KINDS, None, 9)
    assert [(row.body["action"], row.body["by"]) for row in rows if row.kind == "audit"] == [
        ("token-revoked", BY_FILE),
        ("token-created", BY_FILE),
    ]
    with_lock.close()
    start().service.close()  # the log can still be read


def test_a_password_on_the_command_line_is_refused(run: Run) -> None:
    for url in ("postgresql://cranny:hunter2@db/x", "postgresql://cranny@db/x?password=hunter2"):
        for command in (("serve",), ("token", "create", "ann"), ("log", "verify"), ("log", "restore", "backup")):
            ran = run(*command, "--database", url)
            assert (ran.code, "PGPASSWORD" in ran.err, "hunter2" in ran.err) == (2, True, False)


def test_text_of_jobs_cannot_command_a_terminal() -> None:
    title, clipboard = "\x1b]0;owned\x07", "\x1b]52;c;cm0gLXJmIC8=\x07"
    shown = printable(f"a\t\x1b[31mred\x1b[0m{title}{clipboard}\x1b[2J\x9b2J\x08\u202etxt\r\n100%")
    assert shown == ("a\tred\\x1b]0;owned\\x07\\x1b]52;c;cm0gLXJmIC8=\\x07\\x1b[2J\\x9b2J\\x08\\u202etxt\r\n100%")
    record = logging.LogRecord("cranny", logging.ERROR, "", 0, "GET /%s", ("\x1b[2J",), None)
    assert PrintableFormatter("cranny: %(message)s").format(record) == "cranny: GET /\\x1b[2J"


def test_logs_are_printed_without_commands_for_the_terminal(
    serve: Serve, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = serve()
    job_id = site.running.submit()
    site.running.until(job_id, "running")
    folder = site.running.service.log_folder(job_id, 1)
    folder.mkdir(parents=True)
    (folder / "rank-0.log").write_text("loss \x1b[1m0.5\x1b[0m\x1b]0;owned\x07\n")
    given = ("logs", job_id, "--server", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["ann"])
    assert run(*given).out == "loss 0.5\\x1b]0;owned\\x07\n"
    assert "\x1b]0;owned\x07" in run(*given, "--raw").out


@pytest.mark.parametrize("ahead_s", [YEAR_S, 3 * 3_600.0, 120.0])
def test_a_clock_that_jumped_ahead_and_back_leaves_time_where_it_was(ahead_s: float) -> None:
    wall, steady = 1_000.0, 0.0
    clock = Clock(lambda: wall, lambda: steady)
    for step in range(1, 10):
        wall, steady = 1_000.0 + ahead_s + step, float(step)
        assert clock.now_s() == 1_000.0 + step
    wall, steady = 1_010.0, 10.0
    assert clock.now_s() == 1_010.0
    wall, steady = 1_011.0 + ahead_s, 11.0
    clock.now_s()
    steady += BELIEVED_S
    wall += BELIEVED_S
    assert clock.now_s() == wall  # it is meant


def test_a_log_of_a_clock_that_was_ahead_goes_on_now_once_its_jobs_are_over(start: Start) -> None:
    ahead = start(clock=lambda: 1_000.0 + YEAR_S)
    ahead.until(ahead.submit(), "running")
    ahead.service.close()
    busy = start(clock=lambda: 1_000.0, processes=ahead.processes)
    assert busy.service.now_s() >= 1_000.0 + YEAR_S  # its job began then
    busy.service.call(lambda now_s: busy.service.scheduler.cancel("job-1", "root", now_s)).result(60)
    busy.until("job-1", "cancelled")
    busy.service.close()
    for _ in range(2):  # also when that is read from the log
        idle = start(clock=lambda: 2_000.0)
        assert 2_000.0 <= idle.service.now_s() < 2_000.0 + YEAR_S / 2
        idle_job = idle.submit()
        idle.until(idle_job, "running")
        idle.service.call(partial(idle.service.scheduler.cancel, idle_job, "root")).result(60)
        idle.until(idle_job, "cancelled")
        idle.service.close()
