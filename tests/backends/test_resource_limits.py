"""Limits of jobs, and GPUs that they were not given: real processes in the control groups of this machine."""

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.local_harness import LocalHarness

from cranny.backends.control_group import MOUNTS, OWN, own_groups
from cranny.backends.device_filter import DeviceNumber
from cranny.backends.launcher import enforceable
from cranny.backends.local import LocalBackend
from cranny.backends.local_machine import gpu_numbers
from cranny.backends.protocol import Backend, Ended, Launch, Rank
from cranny.backends.resource_limits import NO_LIMITS, ResourceLimits
from cranny.cli.enforced_limits import EnforcedLimits
from cranny.model.cluster import Cluster
from cranny.model.errors import InputError

MEGA = 1_000_000
SCRIPT = "ulimit -Sn; ulimit -Hn; head -c 9999 /dev/zero > large"
MIXED = """30 1 0:2 / /cg/v2 rw - cgroup2 none rw
31 1 0:3 / /cg/cpu,cpuacct rw shared:9 - cgroup cg rw,cpu,cpuacct
32 1 0:4 /docker/9 /cg/memory rw - cgroup cg rw,memory"""


def needs(what: str) -> None:
    if what not in enforceable():
        pytest.skip(f"no control group of this machine keeps jobs from {what}")


class Limited(LocalHarness):
    """Runs scripts as jobs, on devices that stand for GPUs."""

    device_files: tuple[Path, ...] = ()

    def make(self) -> Backend:
        return LocalBackend(Cluster.fat_tree(1, 1, 2), devices=("0", "1"), device_files=self.device_files)

    def run(self, script: str, limits: ResourceLimits = NO_LIMITS, gpu: int = 0) -> tuple[Ended, str]:
        folder = self.folder / "a"
        what = Launch("a", 1, ("sh", "-c", script), (Rank(0, 0, gpu),), {}, None, folder, None)
        self.backend.launch(replace(what, limits=limits))
        (ended,) = self.ends()
        return ended, (folder / "rank-0.log").read_text() if (folder / "rank-0.log").exists() else ""


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    made = Limited(tmp_path)
    yield made
    made.backend.close()


def test_a_job_cannot_use_more_memory_than_its_limit(limited: Limited) -> None:
    needs("memory")
    script = f"exec {sys.executable} -c 'x = bytearray(300_000_000); print(len(x))'"
    ended, said = limited.run(script, ResourceLimits(memory_bytes=100 * MEGA))
    assert (ended.reason, ended.exit_code, said) == ("failed", -9, "")
    assert ended.detail == "at its limit of memory the kernel killed 1 of its processes"


def test_a_job_cannot_start_more_processes_than_its_limit(limited: Limited) -> None:
    needs("pids")
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 30 & done; echo started all"
    ended, said = limited.run(script, ResourceLimits(processes=4))
    assert ended.reason == "failed"
    assert "fork" in said
    assert "started all" not in said


def test_a_job_gets_its_share_of_processors(limited: Limited) -> None:
    needs("cpu")
    count = "while [ $(date +%s%N) -lt $end ]; do :; done; cat /proc/self/cgroup; times"
    ended, said = limited.run(f"end=$(($(date +%s%N) + 1000000000)); {count}", ResourceLimits(cpus=0.1))
    assert ended.reason == "finished"
    seconds = [
        60 * int(minutes) + float(rest.rstrip("s"))
        for line in said.splitlines()[-2:]
        for minutes, rest in (each.split("m") for each in line.split())
    ]
    assert sum(seconds) < 0.5  # of more than one that has passed


def test_nothing_is_left_of_groups_with_limits(limited: Limited) -> None:
    needs("pids")
    _, said = limited.run("cat /proc/self/cgroup", ResourceLimits(memory_bytes=50 * MEGA, processes=50))
    names = {line.rpartition("/")[2] for line in said.splitlines() if "/attempt-" in line}
    assert len(names) == 1  # in all trees
    assert not [own for own in own_groups().values() for name in names if (own / name).exists()]


def test_limits_that_cannot_be_set_fail_the_job(limited: Limited) -> None:
    """It asked for them, and they are not ignored."""
    if "pids" in enforceable():
        ended, _ = limited.run("echo started", ResourceLimits(processes=-5))
    else:
        ended, _ = limited.run("echo started", ResourceLimits(processes=5))
    assert ended.reason == "failed"
    assert ended.detail.startswith("its limits cannot be set: ")


@pytest.fixture
def gpu_files(tmp_path: Path) -> tuple[Path, Path]:
    """Two devices that any process may read, and which no other test uses."""
    files = tmp_path / "gpu0", tmp_path / "gpu1"
    for path, minor in zip(files, (7, 5), strict=True):  # like /dev/full and /dev/zero
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.chmod(0o666)
    return files


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device files")
@pytest.mark.parametrize("gpu", [0, 1])
def test_a_gpu_that_a_job_was_not_given_cannot_be_opened(
    gpu: int, gpu_files: tuple[Path, Path], tmp_path: Path
) -> None:
    needs("devices")
    (tmp_path / "jobs").mkdir()
    limited = Limited(tmp_path / "jobs")
    limited.device_files = gpu_files
    limited.backend = limited.make()
    mine, other = gpu_files[gpu], gpu_files[1 - gpu]
    # Another file of the same device, and another variable, do not help.
    tried = (f"{mine} | wc -c", other, f"/dev/{('zero', 'full')[gpu]}", "/dev/null && echo other devices")
    script = "export CUDA_VISIBLE_DEVICES=0,1; " + "; ".join(f"head -c 1 {each}" for each in tried)
    ended, said = limited.run(script, gpu=gpu)
    limited.backend.close()
    assert ended.reason == "finished"
    assert said.splitlines()[0] == "1"
    assert said.count("Operation not permitted") == 2
    assert said.endswith("other devices\n")


def test_devices_of_gpus_are_found_in_the_order_of_nvidia_smi(tmp_path: Path) -> None:
    for bus, minor in (("0000:65:00.0", 1), ("0000:3b:00.0", 4)):
        (tmp_path / bus).mkdir()
        (tmp_path / bus / "information").write_text(f"Model: \t\t NVIDIA H200\nDevice Minor: \t {minor}\n")
    assert gpu_numbers(tmp_path) == [DeviceNumber(195, 4), DeviceNumber(195, 1)]
    assert gpu_numbers(tmp_path / "none") == []


def test_the_lower_of_two_limits_counts() -> None:
    per_gpu = ResourceLimits(memory_bytes=64, cpus=8.0)
    assert ResourceLimits(processes=9, cpus=2.5).at_most(per_gpu.times(2)) == ResourceLimits(128, 9, 2.5)
    assert NO_LIMITS.at_most(NO_LIMITS) == NO_LIMITS


@pytest.mark.parametrize(
    ("mounts", "own", "found"),
    [
        ("30 1 0:2 / /sys/fs/cgroup rw - cgroup2 none rw", "0::/user.slice", {"": "/sys/fs/cgroup/user.slice"}),
        (
            MIXED,
            "4:memory:/docker/9/job\n3:cpu,cpuacct:/a\n2:freezer:/\n0::/",
            {"": "/cg/v2", "cpu": "/cg/cpu,cpuacct/a", "memory": "/cg/memory/job"},
        ),
        ("30 1 0:2 /docker/9 /cg rw - cgroup2 none rw", "0::/docker/8", {}),
    ],
    ids=["v2", "mixed", "of another container"],
)
def test_groups_are_found_by_what_is_mounted(
    mounts: str, own: str, found: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text, path in (("MOUNTS", mounts, MOUNTS), ("OWN", own, OWN)):
        (tmp_path / path.name).write_text(text + "\n")
        monkeypatch.setattr(f"cranny.backends.control_group.{name}", tmp_path / path.name)
    assert {tree: str(folder) for tree, folder in own_groups().items()} == found


def test_limits_of_processes_hold_without_control_groups(tmp_path: Path) -> None:
    backend = LocalBackend(Cluster.single_rack(1, 1), (), process_limits={"fsize": 4096, "nofile": 99})
    what = Launch("a", 1, ("sh", "-c", SCRIPT), (Rank(0, 0, 0),), {}, tmp_path, tmp_path / "a", None)
    backend.launch(what)
    while not backend.poll():
        time.sleep(0.01)
    assert (tmp_path / "a" / "rank-0.log").read_text().split()[:2] == ["99", "99"]
    assert (tmp_path / "large").stat().st_size == 4096


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("nofiles=9", "unknown limit of a process 'nofiles'"),
        ("nofile=many", "must be a whole number or unlimited, not 'many'"),
        ("nofile=-1", "must be a whole number or unlimited, not -1"),
        ("nofile=unlimited", "the service itself may have 512"),
        ("nofile=513", "LimitNOFILE="),
    ],
)
def test_a_limit_of_processes_that_cannot_be_set_is_refused_at_the_start(
    given: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cranny.cli.enforced_limits.most_allowed", lambda _name: 512)
    with pytest.raises(InputError, match=re.escape(why)):
        EnforcedLimits(None, [given], None, 100.0)
