"""Slurm keeps the contract of both roles."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cranny.backends.cluster_reading import ClusterSource
from cranny.backends.protocol import Backend, Launch
from cranny.backends.slurm.slurm_commands import SlurmCommands
from tests.backends.contract import Fault
from tests.backends.source_contract import BothRoles, SourceContract, SourceHarness
from tests.slurm.driver import FAR, Driver
from tests.slurm.real_slurm import RealSlurm, until


class SlurmHarness(SourceHarness):
    def __init__(self, folder: Path, slurm: RealSlurm) -> None:
        self.slurm = slurm
        self.driver = Driver(slurm)
        super().__init__(folder)

    def make(self) -> Backend:
        self.driver = self.driver.restarted()
        return self.driver.backend

    @property
    def source(self) -> ClusterSource:
        return self.driver.source

    def argv(self, run_s: float, exit_code: int = 0, *, stubborn: bool = False) -> tuple[str, ...]:
        ignore = 'trap "" TERM; ' if stubborn else ""
        return ("/bin/sh", "-c", f"{ignore}echo up >> {self.folder}/runs; sleep {run_s}; exit {exit_code}")

    def runs(self) -> int:
        return len((self.folder / "runs").read_text().splitlines())

    @contextmanager
    def faulty(self, fault: Fault) -> Iterator[None]:
        """Let Slurm's commands fail, hang, or hang after they have done what they are asked for."""
        real, commands = SlurmCommands.call, self.driver.commands

        def call(_: SlurmCommands, *argv: str, env: Mapping[str, str] | None = None) -> str:
            if fault == "fails":
                return real(commands, "sh", "-c", "echo 'Unable to contact slurm controller' >&2; exit 1")
            if fault == "answers late":
                printed = real(commands, *argv, env=env)
                if argv[0] in ("squeue", "sinfo") or "show" in argv:  # in time, so that calls after it are made
                    return printed
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(commands, "timeout_s", 0.2)
                return real(commands, "sleep", "60")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SlurmCommands, "call", call)
            yield

    def machine_name(self, machine: int) -> str:
        return f"node{machine + 1}"

    def begun(self, what: Launch) -> Launch:
        self.slurm.comes_to(self.driver.backend.external_id(what.job_id), "RUNNING")
        until((self.folder / "runs").exists, "the first rank")
        return what

    def over(self, what: Launch) -> Launch:
        self.slurm.comes_to(self.driver.backend.external_id(what.job_id), "COMPLETED", "FAILED", "CANCELLED")
        return what

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def left(self, job_id: str) -> int:
        external = self.driver.backend.external_id(job_id)
        return 0 if not external else int(self.slurm.state(external) == "RUNNING")

    def submit(self, user: str, gpus: int, run_s: float) -> str:  # noqa: ARG002 - there are no other users
        script = f"#!/bin/sh\nexec sleep {run_s}\n"
        shape = ("-N1", f"--ntasks={gpus}", f"--gpus-per-node={gpus}")
        return self.slurm.sbatch("--comment=cranny", FAR, *shape, script=script)

    def cancel(self, external: str) -> None:
        self.slurm.call("scancel", external)

    def start_other(self, user: str, where: Mapping[str, int]) -> str:  # noqa: ARG002
        ((name, gpus),) = where.items()
        started = self.slurm.sbatch("-w", name, "-N1", f"--gpus-per-node={gpus}")
        self.slurm.comes_to(started, "RUNNING")
        return started

    def drain(self, machine: str) -> None:
        self.slurm.call("scontrol", "update", f"NodeName={machine}", "State=DRAIN", "Reason=maintenance")

    def fail(self, machine: str) -> None:
        self.slurm.lose_node(machine, "broken")

    def resume(self, machine: str) -> None:
        if not self.slurm.has_started(machine):
            self.slurm.start_node(machine)
        # A node that is down comes back by itself once its slurmd registers, and then cannot be resumed.
        self.slurm.call("scontrol", "update", f"NodeName={machine}", "State=RESUME", check=False)

    def release(self, external: str, machines: tuple[str, ...]) -> None:
        self.backend.launch(replace(self.driver.launch_of(external, machines), job_id="job-1"))


class TestSlurm(BothRoles, SourceContract):
    @pytest.fixture
    def harness(self, tmp_path: Path, slurm: RealSlurm) -> SlurmHarness:
        return SlurmHarness(tmp_path, slurm)
