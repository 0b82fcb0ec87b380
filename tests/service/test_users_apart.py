"""Jobs of one user reach neither the service nor jobs of another: with real accounts of this system."""

import json
import os
import pwd
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.accounts import (
    Accounts,
    Shared,
    accounts,
    command_in_jobs,
    readable_command,
    shared_folder,
    shared_service,
)

from cranny.backends.launcher import enforceable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make accounts")
PATIENCE_S = 120.0
PROCESSES = 40  # that a job may have for each of its GPUs


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with shared_folder() as made:
        yield made


@pytest.fixture(scope="module")
def users() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture(scope="module")
def gpu_files(folder: Path) -> list[Path]:
    """Devices that any account may read, in place of GPUs: those of /dev/full, /dev/zero and two without any."""
    files = [folder / f"gpu{minor}" for minor in (7, 5, 200, 201)]
    for path in files:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, int(path.name[3:])))
        path.chmod(0o666)
    return files


@pytest.fixture(scope="module")
def shared(folder: Path, users: Accounts, gpu_files: list[Path]) -> Iterator[Shared]:
    can = enforceable()
    options = ["--limit", f"processes={PROCESSES}"] if "pids" in can else []
    options += [word for path in gpu_files for word in ("--gpu-device", str(path))] if "devices" in can else []
    options += ["--ulimit", "nofile=777"]
    with shared_service(folder, users, *options) as made:
        yield made


@pytest.fixture(scope="module")
def admin(shared: Shared) -> str:
    return str(json.loads((shared.folder / "server.json").read_text())["token"])


@pytest.fixture(scope="module")
def tokens(shared: Shared, admin: str, users: Accounts) -> dict[str, str]:
    return {
        name: shared.call(admin, "POST", "tokens", {"user": name, "role": "user"})["token"]
        for name in (users.alice, users.bob, "root", "stranger")
    }


def ended(shared: Shared, token: str, job: str) -> dict[str, Any]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found: dict[str, Any] = shared.call(token, "GET", f"jobs/{job}")
        if found["status"] in ("done", "failed", "cancelled"):
            return found
        time.sleep(0.1)
    pytest.fail(f"{job} does not end")


def run(shared: Shared, token: str, script: str, **fields: Any) -> tuple[dict[str, Any], str]:
    """Run a script as a job; return how it ended, and what it wrote."""
    asked = {"command": ["sh", "-c", script], "gpus": 1, **fields}
    job = shared.call(token, "POST", "jobs", asked)["id"]
    found = ended(shared, token, job)
    return found, shared.call(token, "GET", f"jobs/{job}/logs")["text"] if found["attempts"] else ""


def test_a_job_runs_under_the_account_of_its_user(shared: Shared, tokens: dict[str, str], users: Accounts) -> None:
    script = "id -un; id -gn; pwd; echo $HOME $USER; grep -E 'CapPrm|NoNewPrivs' /proc/self/status; ulimit -c"
    found, said = run(shared, tokens[users.alice], script)
    assert found["status"] == "done", said
    home = pwd.getpwnam(users.alice).pw_dir
    rights = ["CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "0"]  # the last: no core dumps
    assert said.splitlines() == [users.alice, users.alice, home, f"{home} {users.alice}", *rights]


def test_the_service_itself_has_no_rights(shared: Shared, users: Accounts) -> None:
    own = pwd.getpwnam(users.service).pw_uid
    status = Path(f"/proc/{shared.process.pid}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["Uid"].split() == [str(own)] * 4
    assert int(fields["CapPrm"], 16) == 0
    assert int(fields["NoNewPrivs"]) == 1


@pytest.mark.parametrize(
    "attack",
    [
        "cat {service}/server.json",
        "cat {service}/log.db",
        "ls {service}",
        "ls {service}/jobs",
        "head -c 1 /proc/{pid}/environ",
        "head -c 1 /proc/{pid}/mem",
        "kill -9 {pid}",
        "kill -9 $PPID",
        "kill -STOP $PPID",
        "cat $(dirname $CRANNY_CHANNEL)/attempt-1.pid",
        "ls $(dirname $CRANNY_CHANNEL)",
        "cat $(dirname $CRANNY_CHANNEL)/rank-0.log",
        'echo \'{{"exit_code": 0, "reason": "finished"}}\' > $(dirname $CRANNY_CHANNEL)/attempt-1.result',
        "mv $CRANNY_CHANNEL $CRANNY_CHANNEL.old",
    ],
)
def test_a_job_reaches_nothing_of_the_service(
    attack: str, shared: Shared, tokens: dict[str, str], users: Accounts
) -> None:
    script = attack.format(service=shared.folder, pid=shared.process.pid)
    found, said = run(shared, tokens[users.alice], f"({script}) && echo reached; exit 0")
    assert found["status"] == "done", said
    assert "reached" not in said
    assert "ermitted" in said or "denied" in said


def test_a_job_cannot_create_a_token(
    shared: Shared, tokens: dict[str, str], users: Accounts, admin: str, folder: Path
) -> None:
    """Neither in the database, nor by a request with what it finds, nor in a database of its own."""
    create = f"{command_in_jobs(folder)} token create mallory --role admin"
    ways = [f"--database {shared.folder}/log.db", f"--server {shared.url}", "--server $CRANNY_CHANNEL"]
    _, said = run(shared, tokens[users.alice], "; ".join(f"{create} {way}; echo ended $?" for way in ways))
    lines = said.splitlines()
    assert [line for line in lines if line.startswith("ended")] == ["ended 1", "ended 1", "ended 2"], said
    assert len(lines) == 2 * len(ways), said  # one line each
    assert all(line.startswith("cranny: ") for line in lines[::2])
    assert "log.db" in lines[0]
    assert "permission" in lines[0].lower()
    assert "token" in lines[2]
    found = shared.call(admin, "GET", "tokens")["tokens"]
    assert "mallory" not in {row["user"] for row in found}


def test_a_job_reaches_nothing_of_another_user(shared: Shared, tokens: dict[str, str], users: Accounts) -> None:
    job = shared.call(
        tokens[users.bob],
        "POST",
        "jobs",
        {"command": ["sh", "-c", "echo $$; exec sleep 600"], "gpus": 1, "secrets": {"MINE": "hunter2hunter2"}},
    )["id"]
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if shared.call(tokens[users.bob], "GET", f"jobs/{job}")["status"] == "running":
            pid = shared.call(tokens[users.bob], "GET", f"jobs/{job}/logs")["text"].strip()
            if pid:
                break
        time.sleep(0.1)
    log = next(shared.folder.glob(f"jobs/*/{job}/attempt-1"))
    attacks = [
        f"head -c 1 /proc/{pid}/environ",
        f"kill {pid}",
        f"cat {log}/rank-0.log",
        f"ls {log}/channel",
        f"echo x > {log}/channel/control.json",
    ]
    script = "; ".join(f"({attack}) && echo reached" for attack in attacks)
    _, said = run(shared, tokens[users.alice], script + "; exit 0")
    assert "reached" not in said
    assert len(said.splitlines()) >= len(attacks), said
    assert shared.call(tokens[users.bob], "GET", f"jobs/{job}")["status"] == "running"
    shared.call(tokens[users.bob], "POST", f"jobs/{job}/cancel")
    assert ended(shared, tokens[users.bob], job)["status"] == "cancelled"
    assert not Path(f"/proc/{pid}").exists()


def test_users_without_an_account_are_refused(shared: Shared, tokens: dict[str, str]) -> None:
    """At submission, and with the reason: not only when the job would start."""
    for name, why in (("root", "account of the system"), ("stranger", "has no account")):
        asked = {"command": ["id"], "gpus": 1}
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        answer = httpx.post(f"{shared.url}/api/v1/jobs", json=asked, headers=headers, timeout=60.0)
        assert answer.status_code == 403
        assert why in answer.text


def test_a_job_cannot_start_more_processes_than_the_service_allows(
    shared: Shared, tokens: dict[str, str], users: Accounts
) -> None:
    """Whatever it asks for."""
    if "pids" not in enforceable():
        pytest.skip("no control group of this machine limits processes")
    bomb = f"for i in $(seq {2 * PROCESSES}); do sleep 60 & done; echo started all"
    found, said = run(shared, tokens[users.alice], bomb, processes=100_000)
    assert found["status"] == "failed", said
    assert "fork" in said
    assert "started all" not in said


def test_processes_of_a_job_have_the_limits_that_the_service_was_given(
    shared: Shared, tokens: dict[str, str], users: Accounts
) -> None:
    """They cannot raise them, and leave no core dumps, which would hold secrets."""
    _, said = run(shared, tokens[users.alice], "ulimit -n; ulimit -Hn; ulimit -Hc; ulimit -n 778; true")
    assert said.splitlines()[:3] == ["777", "777", "0"]
    assert "not permitted" in said


def test_a_job_cannot_open_a_gpu_that_it_was_not_given(
    shared: Shared, tokens: dict[str, str], users: Accounts, gpu_files: list[Path]
) -> None:
    if "devices" not in enforceable():
        pytest.skip("no control group of this machine filters devices")
    names = " ".join(map(str, gpu_files[:2]))
    script = f"export CUDA_VISIBLE_DEVICES=0,1; echo $CRANNY_GPU; for g in {names}; do head -c 1 $g | wc -c; done"
    _, said = run(shared, tokens[users.alice], script)
    given, *read = [line for line in said.splitlines() if line.isdecimal()]
    assert given == "0"
    assert read == ["1", "0"]
    assert said.count("Operation not permitted") == 1


def test_supervisors_cannot_filter_devices(shared: Shared, tokens: dict[str, str], users: Accounts) -> None:
    """What the launcher needs for that it does not hand on."""
    _, said = run(shared, tokens[users.alice], "grep -E 'Cap(Prm|I..|Amb)' /proc/$PPID/status")
    sets = {line.split()[1] for line in said.splitlines()}
    assert sets == {f"{0b11100001:016x}"}


def test_a_job_and_the_service_write_to_each_other(
    shared: Shared, tokens: dict[str, str], users: Accounts
) -> None:
    script = "umask 077; echo {} > $CRANNY_CHANNEL/mine; ls -ld $CRANNY_CHANNEL; stat -c %G $CRANNY_CHANNEL/mine"
    _, said = run(shared, tokens[users.alice], script)
    assert said.startswith("drwxrws---"), said
    assert said.split()[-1] == users.service


def test_root_alone_is_refused(folder: Path) -> None:
    argv = readable_command(folder, "serve", "--port", "0", "--folder", str(folder / "other"))
    ran = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "jobs would run as root" in ran.stderr
    assert "--accounts" in ran.stderr
