"""The commands that ask a server, as they are typed."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.service.conftest import Serve, Site

from cranny.cli.console import out
from cranny.service.api.sse import EventNotifier
from cranny.service.learned_profile import LearnedProfile


@pytest.fixture
def site(serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    site = serve()
    monkeypatch.setenv("CRANNY_SERVER", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return site


@pytest.fixture
def real_site(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a site that runs real processes, with ann as the user of the commands."""
    site = serve(real=True)
    monkeypatch.setenv("CRANNY_SERVER", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["ann"])
    return site


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text("name: first\ncommand: [sleep, '1']\ngpus: 12\nduration_s: 600\n")
    return str(path)


def test_a_job_is_submitted_listed_explained_and_cancelled(site: Site, run: Run, job_file: str) -> None:
    assert re.match("job-1 (starting|running) on rack0-machine0", run("submit", job_file).out)
    site.running.until("job-1", "running")
    told = run("submit", job_file, "--key", "k", "--json").json
    assert (told["id"], told["reason"]) == ("job-2", "needs 12 GPUs, 4 free")
    assert run("submit", job_file, "--key", "k", "--json").json["id"] == "job-2"
    listed = run("jobs").out
    assert "job-1" in listed
    assert "needs 12 GPUs, 4 free" in listed
    assert [job["id"] for job in run("jobs", "--status", "waiting", "--json").json["jobs"]] == ["job-2"]
    why = run("explain", "job-2").out
    assert re.search(r"\nneeds 12 GPUs, 4 free; is promised a start in \d+ min at the latest\n", why)
    assert "\n  job-1 ends in about" in why
    assert re.search(r"\npredicted start: in ~\d+m, at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\n", why)
    assert "what would help: request 4 GPUs or fewer" in why
    assert run("explain", "job-1", "--json").json["kind"] == "placed"
    assert "it would wait" in run("plan", "-f", job_file).out
    assert run("plan", "-f", job_file, "--json").json["starts"] is False
    ran = run("cancel", "job-2", "job-9")
    assert ran.code == 2
    assert ran.out == "job-2 cancelled by root\n"
    assert "no job 'job-9'" in ran.err
    assert run("cancel", "job-2").code == run("cancel", "job-2", "job-1").code
    assert [run(command, "job-9").code for command in ("cancel", "explain", "logs", "watch")] == [2] * 4
    assert run("jobs", "--user", "nobody", "--json").json["total"] == 0


def test_what_jobs_have_shown_is_listed(site: Site, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("profiles", "--json").json == []
    service = site.running.service
    shown = LearnedProfile({"T4": 110.0, "V100": 220.0}, batch=32.0, gradient_bytes=4e6, restart_s=9.4)
    for user, known in (("ann", shown), ("bob", LearnedProfile({"": 5.0}))):
        job = site.running.submit(user, name="net")
        service.call(partial(service.scheduler.profiled, job, known)).result(60)
    first, second = run("profiles", "--json").json
    assert first == {"user": "ann", "name": "net", **shown.values()}
    lines = run("profiles").out.splitlines()
    assert [word.strip() for word in re.split(r"\s{2,}", lines[-2].strip())] == [
        "ann", "net", "T4 110/s, V100 220/s", "32", "4.0 MB", "9 s",
    ]  # fmt: skip
    assert lines[-1].split() == ["bob", "net", "GPU", "5/s"]
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["bob"])
    assert run("profiles", "--json").json == [second]  # users see their own


def test_a_placement_is_explained_as_it_was_and_as_it_is(site: Site, run: Run, job_file: str) -> None:
    run("submit", job_file)
    site.running.until("job-1", "running")
    lines = run("explain", "job-1").out.splitlines()
    now, then = lines.index("  now shares no link with another job"), lines.index("  when it was placed:")
    assert now < then < next(at for at, line in enumerate(lines) if line.startswith("    idle machines opened: "))
    assert not any("when it was placed" in line for line in lines[then + 1 :])


def test_jobs_are_listed_with_their_times_in_100_columns(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a job with a rather long name, as people give them"
    for _ in range(2):
        site.running.submit(gpus=16, duration_s=7200, name=name, user="somebody-with-a-long-name")
    site.running.submit(gpus=16)
    site.running.until("job-1", "running")
    service = site.running.service
    service.call(lambda now_s: service.scheduler.cancel("job-3", "ann", now_s)).result(60)
    monkeypatch.setattr(out, "width", 100)
    lines = run("jobs").out.splitlines()
    assert max(map(len, lines)) <= 100
    assert re.match(r"job +name +user +GPUs +status +submitted +start +where or why", lines[0])
    rows = {line.split()[0]: line for line in lines if line.startswith("job-")}
    assert re.search(r"cancelled +\d+s ago +by ann", rows["job-3"])
    assert re.search(r"waiting +\d+s ago +in ~3h +needs 16 GPUs", rows["job-2"])  # job-1 communicates, too
    assert re.search(r"running +\d+s ago +\d+s ago +rack0-machine0", rows["job-1"])


def test_neither_machines_nor_long_names_are_broken_in_80_columns(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a-job-with-a-rather-long-name-and-no-space-anywhere-as-scripts-give-them"
    site.running.submit(gpus=12, name=name, user="somebody-with-a-long-name")
    site.running.submit(gpus=2, name="short", user="ann")
    site.running.submit(gpus=16)
    for job in ("job-1", "job-2"):
        site.running.until(job, "running")
    monkeypatch.setattr(out, "width", 80)
    lines = run("jobs").out.splitlines()
    assert max(map(len, lines)) <= 80
    rows = {line.split()[0]: line for line in lines if line.startswith("job-")}
    first = " ".join(line.strip() for line in lines[lines.index(rows["job-1"]) :])
    assert re.search(r"rack\d-machine\d and 2 more", first)
    assert re.search(r" a-job-\S*… +12 +running", rows["job-1"])
    assert re.search(r" short +2 +running .* rack\d-machine\d *$", rows["job-2"])
    assert "dropped for lack of space: user" in " ".join(lines)


def test_machines_are_listed_drained_and_resumed(site: Site, run: Run, job_file: str) -> None:
    run("submit", job_file)
    assert "job-1" in run("nodes").out
    assert run("drain", "rack1-machine1").out == "rack1-machine1 drained, 0 of 4 GPUs free\n"
    assert run("nodes", "--json").json[3]["state"] == "drained"
    assert run("resume", "3").out == "rack1-machine1 up, 4 of 4 GPUs free\n"
    ran = run("drain", "rack1-machine7")
    assert (ran.code, ran.err) == (2, "cranny: unknown machine 'rack1-machine7'; did you mean 'rack1-machine1'?\n")
    ran = run("drain", "nomachine")
    wanted = "known: rack0-machine0, rack0-machine1, rack1-machine0, rack1-machine1"
    assert (ran.code, ran.err) == (2, f"cranny: unknown machine 'nomachine'; {wanted}\n")
    assert site.running.service.scheduler.records.drained == set()


def test_the_policy_is_shown_and_set(site: Site, run: Run) -> None:
    assert run("policy", "show").out == "cranny, queue order backfill, decides at every event\n"
    told = run("policy", "set", "best-fit", "--order", "backfill", "--period", "5").out
    assert told == "best-fit, queue order backfill, decides every 5 s\n"
    assert run("policy", "set", "nothing").code == 2
    ran = run("policy", "set", "titan", "--set", "foo=1")
    known = "unknown option 'foo'; known: phase_budget_s, search_nodes"
    assert (ran.code, ran.err) == (2, f"cranny: policy 'titan': {known}\n")
    ran = run("policy", "set", "best-fit", "--set", "foo=1")
    assert (ran.code, ran.err) == (2, "cranny: policy 'best-fit': it has no options\n")
    ran = run("policy", "set", "titan", "--set", "search_nodes=[1]")
    assert ran.err == "cranny: options.search_nodes: must be true or false, a number, or text, not a list\n"
    ran = run("policy", "set", "titan", "--period", "-1")
    assert (ran.code, ran.err) == (2, "cranny: --period: must be a number, zero or more, not -1.0\n")
    assert site.running.service.scheduler.records.policy["name"] == "best-fit"


def test_tokens_are_made_listed_and_revoked(
    site: Site, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = run("token", "create", "cid", "--json").json
    ran = run("token", "create", "dan", "--role", "viewer")
    assert ran.out.startswith("cranny_")
    assert "cid" in run("token", "list").out
    file = tmp_path / "token"
    file.write_text(made["token"] + "\n")
    monkeypatch.delenv("CRANNY_TOKEN")
    assert run("jobs", "--token-file", str(file)).code == 0
    ran = run("drain", "0", "--token-file", str(file))
    assert (ran.code, ran.err) == (1, "cranny: role admin required; this caller has user\n")
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
    assert run("token", "revoke", made["id"]).out == f"token {made['id']} revoked\n"
    assert run("jobs", "--token-file", str(file)).code == 1
    database = str(tmp_path / "other.db")
    first = run("token", "create", "root", "--role", "admin", "--database", database, "--json").json
    assert run("token", "revoke", first["id"], "--database", database).code == 0
    assert run("token", "revoke", first["id"], "--database", database).code == 2
    ran = run("token", "create", "root", "--role", "king", "--database", database)
    assert (ran.code, ran.err) == (2, "cranny: --role: must be viewer, user or admin, not 'king'\n")


def test_that_there_are_no_tokens_is_said(serve: Serve, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    site = serve()
    monkeypatch.setenv("CRANNY_SERVER", site.url)
    monkeypatch.setenv("CRANNY_TOKEN", site.tokens["root"])
    monkeypatch.setattr("cranny.cli.client.ServiceClient.get", lambda *_, **__: {"tokens": []})
    ran = run("token", "list")
    assert (ran.code, ran.out) == (0, "no tokens; create one with `cranny token create USER`\n")
    assert run("token", "list", "--json").json == {"tokens": []}


def test_logs_are_printed_and_changes_watched(real_site: Site, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"command": "echo one; sleep 0.4; echo two", "shell": True, "gpus": 2}))
    run("submit", str(path))
    real_site.running.until("job-1", "running")
    assert run("logs", "job-1", "-f", "--rank", "1").out == "one\ntwo\n"
    real_site.running.until("job-1", "done")
    assert run("logs", "job-1", "--json").json["text"] == "one\ntwo\n"
    when = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"{when}  over +job-1 +status=done exit_code=0\n", run("watch", "job-1").out)
    assert run("watch", "job-1", "--json").json["status"] == "done"
    path.write_text(json.dumps({"command": ["false"], "gpus": 1}))
    ran = run("submit", str(path), "--wait")
    assert (ran.code, ran.out) == (1, "job-2 failed with exit code 1\n")


@pytest.mark.usefixtures("real_site")
def test_the_end_of_a_job_is_watched(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    watched, subscribe = tmp_path / "watched", EventNotifier.subscribe

    @contextmanager
    def subscribed(notifier: EventNotifier, user: str) -> Iterator[asyncio.Event]:
        with subscribe(notifier, user) as event:
            watched.touch()
            yield event

    monkeypatch.setattr(EventNotifier, "subscribe", subscribed)
    path = tmp_path / "job.json"
    command = f"while [ ! -e {watched} ]; do sleep 0.05; done"
    path.write_text(json.dumps({"command": command, "shell": True, "gpus": 2}))
    run("submit", str(path))
    seen = [json.loads(line) for line in run("watch", "job-1", "--json").out.splitlines()]
    assert seen[-1]["status"] == "done"
    watched.unlink()
    run("submit", str(path))
    when = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.search(rf"{when}  ended +job-2 .* status=done\n", run("watch", "job-2").out)


def test_all_of_a_long_log_is_printed_also_as_json(real_site: Site, run: Run, tmp_path: Path) -> None:
    whole = "".join(f"{number:06}\n" for number in range(20_000))
    file = tmp_path / "long"
    file.write_text(whole)
    real_site.running.submit(command=["cat", str(file)])
    real_site.running.until("job-1", "done")
    assert run("logs", "job-1").out == whole
    told = run("logs", "job-1", "--json").json
    assert told.pop("text") == whole
    assert told == {"rank": 0, "attempt": 1, "offset": 0, "next_offset": len(whole), "ended": True}
    parts = [json.loads(line) for line in run("logs", "job-1", "--json", "-f").out.splitlines()]
    assert "".join(part["text"] for part in parts) == whole


def test_what_is_wrong_is_said_in_one_line(
    site: Site, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("command: [a]\ngpus: 2\nmodel: nothing-like-it\n")
    assert run("submit", str(path)).err.startswith(f"cranny: {path}: model: unknown model 'nothing-like-it'")
    ran = run("plan", "-f", str(path))
    assert ran.code == 2
    assert ran.err.startswith(f"cranny: {path}: ")
    assert "unknown model 'nothing-like-it'" in ran.err
    path.write_text("command: [a]\ngpus: 400\n")
    assert re.match(rf"cranny: {re.escape(str(path))}: gpus: .*400", run("plan", "-f", str(path)).err)
    assert run("plan", "-f", str(path), "--server", "ftp://x").err.startswith("cranny: --server: ")
    assert run("plan", "-f", str(path), "--server", "http://[::1").err.startswith("cranny: --server: ")
    path.write_text("command: [a]\n")
    assert run("submit", str(path)).err == f"cranny: {path}:1: gpus: is missing\n"
    assert run("explain", "job-7").err == "cranny: no job 'job-7'\n"
    path.write_text("command: [true]\ngpus: 2\n")
    wrong = "command[0]: must be text, not true: put it in quotes"
    assert run("submit", str(path)).err == f"cranny: {path}:1: {wrong}\n"
    statuses = "waiting, starting, running, stopping, done, failed or cancelled"
    ran = run("jobs", "--status", "wating")
    assert (ran.code, ran.err) == (2, f"cranny: --status: must be {statuses}, not 'wating'\n")
    ran = run("token", "create", "ann", "--role", "boss")
    assert (ran.code, ran.err) == (2, "cranny: --role: must be viewer, user or admin, not 'boss'\n")
    with site.client() as client:
        told = client.get("/api/v1/jobs", params={"limit": 0}).json()["detail"]
        assert told == "limit: must be 1 or more, not '0'"
    path.write_text("command: [a]\ngpus: 2\n")
    for key in ("", "ü", "a\nb", "x" * 201):
        assert run("submit", str(path), "--key", key).err.startswith("cranny: --key: must be 1 to 200 printable")
    assert run("jobs", "--server", "http://[::1").err.startswith("cranny: --server: http://[::1: ")
    assert run("jobs", "--server", "ftp://x").code == 2
    assert "is `cranny serve` running?" in run("jobs", "--server", "http://127.0.0.1:9").err
    monkeypatch.setenv("CRANNY_TOKEN", "cranny_wrong")
    assert run("jobs").err == "cranny: unknown or revoked token\n"
    monkeypatch.delenv("CRANNY_SERVER")
    ran = run("jobs")
    assert (ran.code, "start one with `cranny serve`" in ran.err) == (2, True)
    assert site.running.service.ready


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("ge\N{LATIN SMALL LETTER U WITH DIAERESIS}heim", "not a token"),
        ("ge\nheim", "not a token"),
        ("\n", "is empty"),
    ],
    ids=["not ASCII", "two lines", "nothing"],
)
@pytest.mark.usefixtures("site")
def test_what_cannot_be_a_token_is_refused_and_never_shown(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wrong: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text, encoding="utf-8")
    ran = run("jobs", "--token-file", str(file))
    assert ran.code == 2
    assert ran.err.startswith(f"cranny: --token-file: {file}: {wrong}")
    assert "heim" not in ran.err
    assert ran.err.count("\n") == 1
    if wrong != "is empty":
        monkeypatch.setenv("CRANNY_TOKEN", text)
        ran = run("jobs")
        assert ran.code == 2
        assert ran.err.startswith("cranny: CRANNY_TOKEN: not a token")
        assert "heim" not in ran.err
