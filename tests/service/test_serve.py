"""`cranny serve` itself: a process that is started, used and ended as people do it."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

CRANNY = [sys.executable, "-c", "from cranny.cli import main; main()"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRANNY_")}
    return {**kept, "XDG_STATE_HOME": str(tmp_path / "state"), "CRANNY_JOBS_AS_ROOT": "1"}


Begin = Callable[..., tuple["subprocess.Popen[str]", dict[str, str]]]


@pytest.fixture
def begin(env: dict[str, str]) -> Iterator[Begin]:
    """Return what starts a server and reads where it is."""
    started: list[subprocess.Popen[str]] = []

    def make(*options: str) -> tuple["subprocess.Popen[str]", dict[str, str]]:
        argv = [*CRANNY, "serve", "--port", "0", "--json", *options]
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        text = ""
        for line in process.stdout:
            text += line
            if line == "}\n":
                return process, json.loads(text)
        pytest.fail("it did not start")

    yield make
    for process in started:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def cranny(env: dict[str, str], *argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*CRANNY, *argv], env=env, capture_output=True, text=True, timeout=900, check=False)


def test_it_serves_its_owner_and_ends_in_good_order(begin: Begin, env: dict[str, str], tmp_path: Path) -> None:
    process, told = begin("--cluster", "1x2x4")
    written = tmp_path / "state" / "cranny" / "server.json"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    job = tmp_path / "job.yaml"
    job.write_text("command: [sh, -c, 'echo $RANK']\ngpus: 6\n")
    ran = cranny(env, "submit", str(job), "--wait")
    assert (ran.returncode, ran.stdout) == (0, "job-1 done\n")
    code = {"code": told["link"].partition("/#/login?code=")[2]}
    entered = httpx.post(f"{told['url']}/api/v1/session", json=code)
    assert httpx.post(f"{told['url']}/api/v1/session", json=code).status_code == 401
    with httpx.stream("GET", f"{told['url']}/api/v1/events", headers=_token(written)) as answer:
        assert answer.is_success  # a stream is still open
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not written.exists()
    begin("--cluster", "1x2x4", "--port", str(httpx.URL(told["url"]).port))
    own = {"Authorization": f"Bearer {entered.json()['session']}"}
    jobs = httpx.get(f"{told['url']}/api/v1/jobs", headers=own).json()["jobs"]
    assert [(job["id"], job["status"]) for job in jobs] == [("job-1", "done")]  # the session goes on


def _token(written: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {json.loads(written.read_text())['token']}"}


def test_off_loopback_it_wants_tokens_first(env: dict[str, str], tmp_path: Path) -> None:
    ran = cranny(env, "serve", "--host", "0.0.0.0", "--folder", str(tmp_path / "kept"))  # noqa: S104
    assert ran.returncode == 2
    assert "off loopback every request needs one" in ran.stderr
    ran = cranny(env, "serve", "--order", "sjf")
    assert (ran.returncode, ran.stderr) == (2, "cranny: --order, --period and --set need --policy\n")


TRAIN = """
import os
import sys
import torch
import torch.distributed as dist

torch.manual_seed(0)
dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
generator = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    inputs = torch.randn(16, 8, generator=generator)
    loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    model.zero_grad()
    loss.backward()
    # By hand: DistributedDataParallel and optimisers load PyTorch's compiler first, which takes longest of all.
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.data -= 0.05 / dist.get_world_size() * parameter.grad
total = sum(parameter.sum() for parameter in model.parameters()).item()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} on machine {os.environ['CRANNY_MACHINE']}: {total:.6f}")
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # its threads may still let go of things, which aborts an interpreter that ends (pytorch issue 190489)
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_real_training_of_four_ranks_on_two_machines(begin: Begin, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = tmp_path / "job.yaml"
    job.write_text(
        textwrap.dedent(f"""
        command: [{sys.executable}, train.py]
        cwd: {tmp_path}
        gpus: 4
        model: resnet50
        env: {{OMP_NUM_THREADS: "1"}}
        """)
    )
    _, told = begin("--cluster", "1x2x2", "--policy", "titan")
    ran = cranny(env, "submit", str(job), "--wait", "--json")
    written = (tmp_path / "state").rglob("attempt-1/*")
    assert ran.returncode == 0, (ran, [path.read_text() for path in written if path.is_file()])
    assert json.loads(ran.stdout)["machines"] == ["rack0-machine0", "rack0-machine1"]
    url, token = f"{told['url']}/api/v1/jobs/job-1/logs", _token(tmp_path / "state" / "cranny" / "server.json")
    logs = [httpx.get(url, params={"rank": rank}, headers=token).json()["text"] for rank in range(4)]
    assert [log.partition(" on ")[0] for log in logs] == [f"rank {rank} of 4" for rank in range(4)]
    assert len({log.rpartition(": ")[2] for log in logs}) == 1  # all hold the same model
    assert {log.partition("machine ")[2][0] for log in logs} == {"0", "1"}
