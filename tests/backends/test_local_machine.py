import os
from pathlib import Path

import pytest

from cranny.backends import local_machine
from cranny.backends.local import LocalBackend
from cranny.backends.protocol import BackendError


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `nvidia-smi` on the path that finds two GPUs."""
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho '0, NVIDIA H200'\necho '1, NVIDIA H200'\n")
    command.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("two_gpus")
def test_this_machine_is_a_cluster_of_its_gpus() -> None:
    assert LocalBackend().nodes().describe().endswith("1 rack, 1 machine x 2 GPUs (NVIDIA H200), 2 GPUs")


@pytest.mark.usefixtures("two_gpus")
def test_leaves_alone_the_gpus_that_are_hidden_from_the_service() -> None:
    assert local_machine.gpus({"CUDA_VISIBLE_DEVICES": "1"}) == (("1", "NVIDIA H200"),)
    assert local_machine.gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()


def test_finds_no_gpu_where_the_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    command.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_machine.gpus() == ()
    (machine,) = local_machine.cluster_of(()).machines
    assert machine.gpus == min(len(os.sched_getaffinity(0)), 64)


def test_chooses_a_port_that_no_other_job_has() -> None:
    free = local_machine.PORTS[-1]
    assert local_machine.free_port(set(local_machine.PORTS) - {free}) == free
    with pytest.raises(BackendError, match="no port is free"):
        local_machine.free_port(local_machine.PORTS)
