"""The service beside a real Slurm with accounting, under accounts without any rights of the system."""

import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.accounts import Accounts, accounts, readable_command, shared_folder
from tests.slurm.accounted_slurm import AccountedSlurm, accounting_installed
from tests.slurm.driver import SOURCE
from tests.slurm.real_slurm import installed, until
from tests.slurm.stream import Served

UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "cranny-slurm.service"
DOWN_S = float(os.environ.get("SLURM_DOWN_S", "6"))  # how long the controller is away
HELD = ("--hold", "--comment=cranny", "--output=/dev/null")


@pytest.fixture(scope="module")
def users() -> Iterator[Accounts]:
    with accounts() as made:
        yield made


@pytest.fixture(scope="module")
def slurm(users: Accounts) -> Iterator[AccountedSlurm]:
    if not (installed() and accounting_installed()) and "CI" not in os.environ:
        pytest.skip("needs root, and the packages slurmctld, slurmd, slurmdbd and mariadb-server")
    with AccountedSlurm(message_timeout_s=3) as made:
        operator = ("user", users.service, "account=root", "adminlevel=operator")
        made.call("sacctmgr", "-i", "add", *operator)  # as docs/use/slurm.md has it
        yield made


def with_launcher(folder: Path) -> Path:
    """Return a folder with a cranny-launch that every account can start."""
    made = folder / "bin" / "cranny-launch"
    made.parent.mkdir()
    python = shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") or sys.executable
    text = f"sys.path.insert(0, '{SOURCE}'); from cranny.agent.slurm_launch import main; main()"
    made.write_text(
        f'#!/bin/sh\nunset LD_LIBRARY_PATH PYTHONPATH\nexec {python} -S -c "import sys; {text}" "$@"\n'
    )
    made.chmod(0o755)
    return made.parent


@contextmanager
def serving(slurm: AccountedSlurm, user: str, *options: str) -> Iterator[Served]:
    """Serve as a user, who may write nowhere else than in a folder; it may not answer yet."""
    with shared_folder() as folder:
        own = folder / "cranny"
        own.mkdir(mode=0o700)
        shutil.chown(own, user, user)
        command = readable_command(folder, user=user)
        options = ("--policy", "best-fit", *options)  # which need not be compiled
        served = Served(slurm, folder, first=with_launcher(folder), command=command, options=options)
        served.start()
        try:
            yield served
        finally:
            served.kill()


def unit_options() -> list[str]:
    """Return what the shipped unit adds to `cranny serve --backend slurm`; its folder is another one here."""
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    words = shlex.split(line)
    assert words[1:4] == ["serve", "--backend", "slurm"]
    at = words.index("--folder")
    return words[4:at] + words[at + 2 :]


def state_of(served: Served, job: str) -> str:
    found = served.get(f"jobs/{job}")
    return found["status"] if found else ""


def test_services_without_rights_of_the_system(slurm: AccountedSlurm, users: Accounts) -> None:
    """The shipped unit's command as an operator, and beside it a service that may only read."""
    operator = serving(slurm, users.service, *unit_options())
    with operator as served, serving(slurm, users.bob, "--recommend-only") as shadow, shared_folder() as folder:
        for each in (served, shadow):
            until(lambda each=each: each.get("cluster") is not None or not each.running(), "cranny")  # type: ignore[misc]
            assert each.running(), each.log()
        a_job_file_is_submitted_by_its_user(slurm, users.alice, served, folder)
        a_shadow_sees_what_slurm_does(slurm, users.alice, shadow)
        jobs_go_on_while_slurm_is_down(slurm, users, served)
        assert "Traceback" not in served.log() + shadow.log()


def a_job_file_is_submitted_by_its_user(slurm: AccountedSlurm, user: str, served: Served, folder: Path) -> None:
    folder.chmod(0o777)
    file = folder / "job.yaml"
    says = 'echo "$RANK/$WORLD_SIZE $USER $GREETING" > "$0-$RANK"'
    job = {
        "command": ["/bin/sh", "-c", says, str(folder / "out")],
        "gpus": 4,
        "name": "mine",
        "model": "vgg16",
        "time_limit_s": 90,
        "env": {"GREETING": "hello"},
        "cwd": str(folder),
        "constraints": {"per_machine": 2, "gpu_type": "h100"},
    }
    file.write_text(json.dumps(job))
    command = readable_command(folder, "submit", str(file), "--backend", "slurm", "--json", user=user)
    path = f"{with_launcher(folder)}:{os.environ['PATH']}"
    external = json.loads(slurm.call(*command, PATH=path, USER=user))["external"]
    slurm.comes_to(external, "COMPLETED")
    assert {(folder / f"out-{rank}").read_text() for rank in range(4)} == {
        f"{rank}/4 {user} hello\n" for rank in range(4)
    }
    described = slurm.call("scontrol", "show", "job", external)
    for word in ("JobName=mine", f"UserId={user}", "model=vgg16", "*2,", "TimeLimit=00:02:00"):
        assert word in described
    assert "Comment=cranny" in described  # an operator may not write the AdminComment
    assert "AdminComment" not in described
    until(lambda: state_of(served, external) == "done", "the end of the job")
    assert served.get(f"jobs/{external}")["user"] == user


def a_shadow_sees_what_slurm_does(slurm: AccountedSlurm, user: str, shadow: Served) -> None:
    first = slurm.sbatch("-N2", "--gpus-per-node=6", user=user)
    slurm.comes_to(first, "RUNNING")
    waits = slurm.sbatch("-N1", "--gpus-per-node=4", user=user)
    until(lambda: state_of(shadow, waits) == "waiting", "the job that waits")
    slurm.call("scancel", first)
    until(lambda: state_of(shadow, waits) == "running", "the job that Slurm has started")
    slurm.call("scancel", waits)
    until(lambda: state_of(shadow, waits) == "done", "its end")
    assert "Comment" not in slurm.call("scontrol", "show", "job", waits)
    assert not shadow.get("cluster")["source"]["problem"]
    assert shadow.get("recommendations") is not None


def jobs_go_on_while_slurm_is_down(slurm: AccountedSlurm, users: Accounts, served: Served) -> None:
    script = f"#!/bin/sh\nexec sleep {DOWN_S / 2}\n"
    job = slurm.sbatch(*HELD, "-N2", "--gpus-per-node=4", user=users.alice, script=script)
    slurm.comes_to(job, "RUNNING")
    until(lambda: bool((served.get(f"jobs/{job}").get("placement") or {}).get("gpus")), "the GPUs that Slurm gave")
    assert served.get(f"jobs/{job}")["placement"]["gpus"] == [*range(4), *range(4)]
    explained = served.get(f"jobs/{job}/explain")
    assert "0, 1, 2, 3 of node1; 0, 1, 2, 3 of node2" in explained["evidence"][-1]
    slurm.stop_controller()
    begun = time.monotonic()
    own = served.submit(users.service, {"command": ["/bin/true"], "gpus": 3})
    until(lambda: served.get("cluster")["source"]["problem"] != "", "a problem")
    problem = served.get("cluster")["source"]["problem"]
    assert problem.startswith("the cluster cannot be read: squeue: Slurm does not answer"), problem
    assert (state_of(served, job), state_of(served, own)) == ("running", "starting")  # as far as is known
    time.sleep(max(0.0, begun + DOWN_S - time.monotonic()))
    slurm.start_controller()
    until(lambda: {state_of(served, each) for each in (job, own)} <= {"done", "failed"}, "both ends")
    until(lambda: served.get("cluster")["source"]["problem"] == "", "the end of the problem")
    assert {(each["status"], each["reason"]) for each in served.get("jobs")["jobs"]} == {("done", "")}
    for said in ("the cluster cannot be read", "the cluster can be read again", "watched and stopped again"):
        assert served.log().count(said) == 1, served.log()
    assert [node["free"] for node in served.get("nodes")["nodes"]] == [8, 8]
