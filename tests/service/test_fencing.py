"""A log that is opened elsewhere: what runs on the host before is not started again beside it."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.service.conftest import Running, Serve, Start, until

from cranny.backends.fake import FakeProcesses
from cranny.service.fencing import fence, hosts
from cranny.service.limits import ConflictError, NotFoundError
from cranny.service.locations import Location


@pytest.fixture
def one(tmp_path: Path) -> Location:
    return Location("a" * 16, "one", str(tmp_path / "one"))


@pytest.fixture
def two(tmp_path: Path) -> Location:
    return Location("b" * 16, "two", str(tmp_path / "two"))


def events(running: Running, kind: str) -> int:
    return sum(row.kind == kind for row in running.service.store.read())


def fenced(running: Running, name: str) -> list[str]:
    service = running.service
    asked = service.call(lambda now_s: fence(service.scheduler, service.location, name, "root", now_s))
    jobs: list[str] = asked.result(60)
    return jobs


def test_jobs_of_another_host_are_held_until_it_serves_again(
    start: Start, one: Location, two: Location, caplog: pytest.LogCaptureFixture
) -> None:
    processes = FakeProcesses()
    first = start(processes=processes, location=one)
    job = first.submit(gpus=4)
    first.until(job, "running")
    first.service.close()

    second = start(location=two)  # another host, which has no processes of that job
    assert "cranny fence" in caplog.text
    other = second.submit(gpus=4)
    second.until(other, "running")
    assert second.status(job) == "running"
    assert events(second, "ended") == 0
    assert [key[0] for key in second.processes.by_attempt] == [other]  # the first was not launched again
    asked = second.service.call(lambda now_s: second.service.scheduler.cancel(job, "ann", now_s))
    asked.result(60)
    assert second.status(job) == "stopping"  # it may still run
    second.service.close()

    third = start(
        processes=processes, location=one
    )  # the first host is back: it stops the job, and holds the other
    third.until(job, "cancelled")
    assert third.status(other) == "running"
    assert [line["jobs"] for line in hosts(one, third.service.scheduler.records)] == [[], [other]]


def test_an_admin_may_say_that_a_host_is_dead(
    serve: Serve, start: Start, run: Run, one: Location, two: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = FakeProcesses()
    first = start(processes=processes, location=one)
    job = first.submit(gpus=16)  # all GPUs
    first.until(job, "running")
    first.service.close()

    site = serve(location=two)
    second = site.running
    with site.client("root") as root, site.client("ann") as ann:
        found = root.get("/api/v1/hosts").json()["hosts"]
        assert [(each["name"], each["state"], each["jobs"]) for each in found] == [
            ("two", "serving", []),
            ("one", "away", [job]),
        ]
        assert ann.post("/api/v1/hosts/one/fence").status_code == 403
        assert root.post("/api/v1/hosts/three/fence").status_code == 404
        assert root.post("/api/v1/hosts/two/fence").status_code == 409
        assert second.processes.by_attempt == {}
        monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
        assert f"one   away     {one.folder}" in run("hosts", "--server", site.url).out
        answer = run("fence", "one", "--server", site.url, "--json")
        assert (answer.code, answer.json) == (0, {"host": "one", "jobs": [job]})
        until(lambda: (job, 2) in second.processes.by_attempt)
        second.until(job, "running")
        assert root.post("/api/v1/hosts/one/fence").status_code == 404  # nothing is held for it any more
    second.service.close()

    # The host was not dead: what it still runs is stopped, and its job goes on where it is now.
    third = start(processes=processes, location=one)
    until(lambda: events(third, "vacated") == 1)
    assert processes.by_attempt[job, 1].reason == "cancelled"
    assert third.status(job) == "running"
    assert third.service.scheduler.records.fenced == {}
    assert (job, 2) not in processes.by_attempt
    third.service.close()
    fourth = start(processes=second.processes, location=two)
    assert fourth.status(job) == "running"
    assert events(fourth, "ended") == 1


def test_a_host_that_was_fenced_is_not_waited_for_after_a_crash(
    start: Start, one: Location, two: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(location=one)
    job = first.submit(gpus=16)
    first.until(job, "running")
    first.service.close()
    second = start(location=two)
    monkeypatch.setattr("cranny.service.executor.Executor.give_up", lambda *_: None)  # it ends before it does so
    assert fenced(second, one.id) == [job]
    second.service.close()
    monkeypatch.undo()
    third = start(processes=second.processes, location=two)
    until(lambda: (job, 2) in third.processes.by_attempt)


def test_the_same_host_with_another_folder_adopts_what_runs(start: Start, one: Location, tmp_path: Path) -> None:
    processes = FakeProcesses()
    first = start(processes=processes, location=one)
    job = first.submit()
    first.until(job, "running")
    (tmp_path / "one" / "jobs" / first.service.scheduler.records.log_id).mkdir(parents=True)
    folder = first.service.log_folder(job, 1)
    first.service.close()
    other = one._replace(folder=str(tmp_path / "other"))
    second = start(processes=processes, location=other)
    assert second.service.log_folder(job, 1) == folder
    assert second.status(job) == "running"
    assert len(hosts(other, second.service.scheduler.records)) == 1
    second.service.close()
    (tmp_path / "one").rename(tmp_path / "elsewhere")  # now neither is there
    third = start(location=other)
    assert third.status(job) == "running"
    assert [line["jobs"] for line in hosts(other, third.service.scheduler.records)] == [[], [job]]
    with pytest.raises(ConflictError, match="serves this log itself"):
        fenced(third, other.id)
    with pytest.raises(NotFoundError, match="cranny hosts"):
        fenced(third, "nothing")
    assert fenced(third, "one") == [job]  # by its name, which is that of this host as well
    until(lambda: (job, 2) in third.processes.by_attempt)


def test_the_host_is_known_by_more_than_its_name(tmp_path: Path) -> None:
    here = Location.here(tmp_path)
    assert here == Location.here(tmp_path)
    assert Location.here(tmp_path, "pod-1").host != here.host
    assert Location.here(tmp_path, "pod-1").host == Location.here(tmp_path / "x", "pod-1").host
