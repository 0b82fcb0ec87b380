"""`cranny profile`: scripts that report, that do not, and that do not end."""

import os
import re
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from cranny.cli import profile
from cranny.model.profile import ModelProfile, library
from cranny.service.job_spec import parse, read

ITERATE = """
import sys, time
from cranny.agent.job import JobAgent
job = JobAgent(batch=32, gradient_bytes=float(sys.argv[2]))
for _ in range(int(sys.argv[1])):
    job.step()
    began_s = time.time()
    time.sleep(0.02)
    job.communicated(began_s + 0.01, began_s + 0.02)
job.close()
"""


def script(folder: Path, text: str = ITERATE) -> Path:
    file = folder / "tiny-net.py"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_script_is_measured_and_stopped_and_its_profile_can_be_used(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "new" / "mine.json"
    words = ["--seconds", 2, "--out", file, "--", sys.executable, script(tmp_path), 10**9, 4e6]
    shown = run("profile", *words)
    assert shown.code == 0, shown.err
    found = library().with_file(file)["tiny-net"]
    assert found.grad_bytes == 4e6
    assert found.batch == 32
    assert 9.9 < found.iteration_ms < 40.0  # half of 20 ms, and what a busy machine adds
    ((starts_ms, size),) = found.gradient_buckets
    assert (starts_ms, size) == pytest.approx((10.0, 4e6), abs=0.1)
    assert re.search(r"^it communicates from 10\S* to 20\S* ms of an iteration$", shown.out, re.MULTILINE)
    assert in_job_file(shown.out, tmp_path) == found


def in_job_file(printed: str, folder: Path) -> ModelProfile:
    """Return the profile of a job whose file has the line that was printed."""
    file = folder / "job.yaml"
    file.write_text(f"command: ['true']\ngpus: 2\n{printed.splitlines()[-1]}\n", encoding="utf-8")
    return parse(read(file)).job("a", "me", 0.0).profile


TRAIN = """
import torch, torch.distributed as dist
import cranny.agent.torch
from torch.nn.parallel import DistributedDataParallel

def main():
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.Linear(512, 1)))
    job = cranny.agent.torch.connect(model, batch=16)
    while True:
        job.step()
        model.zero_grad()
        job.scale(model(torch.randn(8, 64)).square().mean()).backward()

dist.init_process_group("gloo")
main()
"""


def test_a_training_of_two_ranks_is_measured(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    file, torchrun = tmp_path / "mine.json", [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    words = [*torchrun, "--nproc-per-node", 2, script(tmp_path, TRAIN)]
    shown = run("profile", "--seconds", 1, "--name", "ddp", "--out", file, "--", *words)
    assert shown.code == 0, shown.err
    found = library().with_file(file)["ddp"]
    gradients = 4 * (64 * 512 + 512 + 512 + 1)  # bytes
    assert (found.batch, found.grad_bytes) == (8, gradients)  # of each rank
    ((starts_ms, size),) = found.gradient_buckets
    assert size == gradients
    assert 0.0 < starts_ms <= found.iteration_ms
    assert in_job_file(shown.out, tmp_path) == found


def test_a_script_that_ends_early_is_measured_and_its_failure_is_said(run: Run, tmp_path: Path) -> None:
    file = script(tmp_path, ITERATE + "sys.exit(3)\n")
    shown = run("profile", "--name", "net", "--out", tmp_path / "p.json", sys.executable, file, "9", "8")
    assert shown.code == 0
    assert "has ended with code 3; the profile is of what it did before" in shown.err
    assert library().with_file(tmp_path / "p.json")["net"].grad_bytes == 8.0


def test_a_script_that_does_not_report_is_named(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.json"
    shown = run("profile", "--out", out, sys.executable, script(tmp_path, "pass"))
    assert shown.code != 0
    assert (
        "has ended with code 0 and reported nothing: a script must call `cranny.agent.torch.connect`" in shown.err
    )
    sleeps = script(tmp_path, "import time; time.sleep(600)")
    shown = run("profile", "--out", out, "--start-within", "0.5", sys.executable, sleeps)
    assert "was stopped after 0.5 s and reported nothing" in shown.err
    shown = run("profile", "--out", out, sys.executable, script(tmp_path), "9", "0")
    assert "give `gradient_bytes` to its agent" in shown.err
    assert not out.exists()


def test_a_script_that_does_not_end_is_killed_with_all_its_processes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile, "STOP_S", 0.5)
    text = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child:
    pathlib.Path(sys.argv[1]).write_text(str(child))
time.sleep(600)
"""
    pid = tmp_path / "pid"
    run(
        "profile", "--out", tmp_path / "p.json", "--start-within", "3", sys.executable, script(tmp_path, text), pid
    )
    child = int(pid.read_text(encoding="ascii"))
    for _ in range(100):  # until it is gone, or waits for a parent to ask how it ended
        try:
            os.kill(child, 0)
            if "Z" in Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2]:
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    pytest.fail("a process was left behind")


def test_commands_that_cannot_be_started_are_refused(run: Run, tmp_path: Path) -> None:
    assert "COMMAND" in run("profile", "--out", tmp_path / "p.json").err
    shown = run("profile", "--out", tmp_path / "p.json", "--", tmp_path / "none")
    assert "cannot be started: No such file or directory" in shown.err
    assert "is a folder" in run("profile", "--out", tmp_path, "--", "true").err
