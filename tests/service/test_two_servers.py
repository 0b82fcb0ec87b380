"""Several servers on one machine: none takes the address of another away, and none is told of before it serves.

On one log there is only one at a time, whatever happens to the database.
"""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest
from tests.service.conftest import Serve, Start, until
from tests.service.postgres import Postgres
from tests.service.test_serve import Begin, begin, cranny, env  # noqa: F401 - fixtures

from cranny.backends.fake import FakeProcesses
from cranny.cli.serve import check_pair
from cranny.model.errors import InputError
from cranny.service import server_file, service
from cranny.service.server_file import ServerAddress, published
from cranny.service.store import EventStore
from cranny.service.writer_lock import OtherWriterError, StoreError

JOB = {"command": ["true"], "gpus": 1}


def test_the_first_server_is_known_again_when_the_second_has_ended(
    begin: Begin,  # noqa: F811
    env: dict[str, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    file = tmp_path / "state" / "cranny" / "server.json"
    _, first = begin("--cluster", "1x1x1")
    known = file.read_text()
    other = ("--cluster", "1x1x2", "--folder", str(tmp_path / "other"))
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing")
    ran = cranny(env, "serve", *other, "--tls-certificate", str(wrong), "--tls-key", str(wrong))
    told = f"cranny: --tls-certificate: {wrong}: contains no certificate in PEM format\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", told)
    assert file.read_text() == known

    process, second = begin(*other)
    assert json.loads(file.read_text())["url"] == second["url"]
    assert (tmp_path / "other" / "server.json").read_text() == file.read_text()
    until(lambda: server_file._listens(ServerAddress(second["url"], None)))
    process.terminate()
    assert process.wait(60) == 0
    assert file.read_text() == known
    assert not (tmp_path / "other" / "server.json").exists()
    ran = cranny(env, "nodes", "--json")
    assert (ran.returncode, len(json.loads(ran.stdout))) == (0, 1)
    assert first["url"] in known


def test_a_server_that_ends_leaves_the_file_of_a_later_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, first, second = (ServerAddress(f"http://127.0.0.1:{port}", f"token-{port}") for port in (1, 2, 3))
    up = {first}
    monkeypatch.setattr(server_file, "_listens", lambda known: known in up)
    file = tmp_path / "server.json"
    with published(tmp_path, old):
        pass
    assert not file.exists()
    file.write_text(json.dumps(old._asdict()))  # it was killed
    one = published(tmp_path, first)
    two = published(tmp_path, second)
    one.__enter__()
    two.__enter__()
    one.__exit__(None, None, None)
    assert json.loads(file.read_text()) == second._asdict()
    up.clear()
    two.__exit__(None, None, None)
    assert not file.exists()  # neither serves any more
    file.write_text("spoilt")
    with published(tmp_path, first):
        assert json.loads(file.read_text()) == first._asdict()
    assert not file.exists()


def test_no_server_is_reported_where_none_listens() -> None:
    assert not any(
        server_file._listens(ServerAddress(url, None)) for url in ("http://127.0.0.1:1", "http://[", "nothing")
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True, cwd=tmp_path, timeout=60)

    openssl("req -x509 -newkey ed25519 -nodes -keyout key -out cert -subj /CN=localhost -days 2")
    openssl("genpkey -algorithm ed25519 -out other")
    openssl("pkey -in key -aes256 -passout pass:x -out locked")
    for name in ("cert", "key"):
        (tmp_path / f"cut-{name}").write_text((tmp_path / name).read_text()[:80])
    check_pair(tmp_path / "cert", tmp_path / "key")
    for certificate, key, problem in (
        ("cert", "other", f"--tls-key: {tmp_path}/other: does not match {tmp_path}/cert"),
        ("cert", "locked", f"--tls-key: {tmp_path}/locked: is encrypted with a password; give an unencrypted key"),
        ("cut-cert", "key", f"--tls-certificate: {tmp_path}/cut-cert: is damaged"),
        ("cert", "cut-key", f"--tls-key: {tmp_path}/cut-key: is damaged"),
        ("cert", "cert", f"--tls-key: {tmp_path}/cert: contains no private key in PEM format"),
        ("none", "key", f"--tls-certificate: {tmp_path}/none: No such file or directory"),
    ):
        with pytest.raises(InputError) as refused:
            check_pair(tmp_path / certificate, tmp_path / key)
        assert str(refused.value) == problem


def test_a_service_whose_postgresql_was_restarted_goes_on_as_the_only_one(
    start: Start, postgres: str, postgres_process: Postgres
) -> None:
    first = start(database=postgres)
    job_id = first.submit()
    first.until(job_id, "running")
    postgres_process.stop()
    try:
        with pytest.raises(StoreError, match="the event log cannot be written") as refused:
            first.submit()
        assert not isinstance(refused.value, OtherWriterError)
        assert "the event log cannot be written" in first.service.why_not_ready
    finally:
        postgres_process.start()
    until(lambda: first.service.ready)  # though there are no requests
    with pytest.raises(OtherWriterError, match="another cranny serve is using it"):
        start(database=postgres)
    assert first.submit() == "job-2"
    assert Counter(found.kind for found in first.service.store.read())["submitted"] == 2


@pytest.mark.parametrize("round_", ["reads", "writes"])
def test_a_service_that_lost_its_log_to_another_ends_without_writing_or_ordering_anything(
    round_: str,
    start: Start,
    postgres: str,
    postgres_process: Postgres,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "CHECK_S", 1e6)  # it is noticed at the first try to write
    processes = FakeProcesses()
    first = start(database=postgres, processes=processes)
    told = threading.Event()
    first.service.on_ended.append(told.set)
    first.until(first.submit(), "running")
    go_on = threading.Event()

    def slow(now_s: float) -> None:
        go_on.wait(120)
        if round_ == "writes":
            first.service.scheduler.submit("ann", JOB, None, now_s)

    asked = [first.service.call(slow)]  # it is in the midst of a round all the time
    until(asked[0].running)
    asked += [first.service.submit("ann", JOB) for _ in range(3)]
    postgres_process.stop()
    postgres_process.start()
    second = start(database=postgres, processes=processes)
    go_on.set()
    assert told.wait(60)
    for answer in asked if round_ == "writes" else asked[1:]:
        with pytest.raises(StoreError):
            answer.result(60)
    assert "another cranny serve is using it" in first.service.why_not_ready
    assert not any(record.exc_info for record in caplog.records)
    first.service.close()
    assert second.submit() == "job-2"
    second.until("job-2", "running")
    kinds = Counter(found.kind for found in second.service.store.read())
    assert (kinds["submitted"], kinds["opened"], kinds["launched"]) == (2, 2, 2)


def test_a_service_that_meets_events_of_another_ends_instead_of_taking_them_over(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start()
    told = threading.Event()
    first.service.on_ended.append(told.set)
    other = EventStore(str(tmp_path / "log.db"))  # without the lock
    rows = list(other.read())
    other.append([rows[-1]._replace(seq=rows[-1].seq + 1)])
    other.close()
    monkeypatch.setattr(
        "cranny.service.scheduler.Scheduler.restore", lambda *_: pytest.fail("went on from what another wrote")
    )
    with pytest.raises(OtherWriterError, match="another cranny serve writes it too"):
        first.service.submit("ann", JOB).result(60)
    assert told.wait(60)
    assert "another cranny serve writes it too" in first.service.failure
    first.service.close()


def test_cranny_serve_ends_in_one_line_when_another_has_its_log(
    begin: Begin,  # noqa: F811
    tmp_path: Path,
    postgres: str,
    postgres_process: Postgres,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = ("--cluster", "1x1x1", "--database", postgres, "--folder")
    process, _ = begin(*options, str(tmp_path / "one"))
    os.kill(process.pid, signal.SIGSTOP)  # it comes too late
    postgres_process.stop()
    postgres_process.start()
    _, second = begin(*options, str(tmp_path / "two"))
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(600) == 1
    said = capfd.readouterr().err
    assert "another cranny serve is using it" in said
    assert "Traceback" not in said
    until(lambda: httpx.get(f"{second['url']}/readyz").is_success, 900.0)


@pytest.mark.parametrize("way", ["deleted", "moved", "replaced"])
def test_without_the_file_of_its_log_a_service_accepts_nothing_and_says_why(
    way: str, serve: Serve, tmp_path: Path
) -> None:
    site = serve()
    first = site.running.submit()
    site.running.until(first, "running")
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in list(tmp_path.glob("log.db*")):
        path.unlink() if way == "deleted" else path.rename(kept / path.name)
    if way == "replaced":
        EventStore(str(tmp_path / "log.db")).close()
    told = f"{tmp_path}/log.db was deleted or replaced while in use"
    until(lambda: told in site.running.service.why_not_ready)  # before anybody asks for anything
    with site.client("ann") as ann:
        assert ann.get("/readyz").status_code == 503
        assert told in ann.get("/readyz").json()["detail"]
        answer = ann.post("/api/v1/jobs", json=JOB)
        assert answer.status_code == 503
        assert told in answer.json()["detail"]
    assert list(site.running.service.scheduler.records.jobs) == [first]
    assert len(site.running.processes.by_attempt) == 1
    if way == "moved":
        for path in kept.iterdir():
            path.rename(tmp_path / path.name)
        until(lambda: site.running.service.ready)
        assert site.running.submit() == "job-2"
        return
    site.running.service.close()
