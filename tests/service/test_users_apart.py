"""Jobs of one user reach neither the service nor jobs of another: with real accounts of this system."""

import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.accounts import Accounts, Shared, accounts, readable_command, shared_folder, shared_service

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make accounts")
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with shared_folder() as made:
        yield made


@pytest.fixture(scope="module")
def users() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture(scope="module")
def shared(folder: Path, users: Accounts) -> Iterator[Shared]:
    with shared_service(folder, users) as made:
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


def test_users_without_an_account_run_nothing(shared: Shared, tokens: dict[str, str]) -> None:
    for name, why in (("root", "account of the system"), ("stranger", "has no account")):
        found, _ = run(shared, tokens[name], "id")
        assert found["status"] == "failed"
        assert why in json.dumps(found)


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
