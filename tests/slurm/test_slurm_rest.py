"""What is read through a real slurmrestd is what Slurm's commands say."""

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cranny.backends.protocol import BackendError
from cranny.backends.slurm import slurm_checks
from cranny.backends.slurm.managed_jobs import ManagedJobs
from cranny.backends.slurm.slurm_checks import SlurmChecks
from cranny.backends.slurm.slurm_commands import SlurmCommands, SlurmDeniedError, SlurmDownError
from cranny.backends.slurm.slurm_reader import SlurmReader
from cranny.backends.slurm.slurm_rest import SlurmRest, chosen_rest
from cranny.backends.slurm.slurm_source import SlurmSource
from cranny.service.clock import wall_clock
from tests.slurm.driver import Driver
from tests.slurm.real_slurm import RealSlurm, until

JWT = ("AuthAltTypes=auth/jwt", "AuthAltParameters=jwt_key={folder}/etc/jwt.key")


@contextmanager
def slurmrestd(slurm: RealSlurm, kind: str) -> Iterator[SlurmRest]:
    """Start a slurmrestd with one kind of authentication, on a socket of its own."""
    if shutil.which("slurmrestd") is None and "CI" not in os.environ:
        pytest.skip("needs the package slurmrestd")
    socket = slurm.folder / "run" / f"rest-{kind}.sock"
    env = {**slurm.env, "SLURMRESTD_SECURITY": "disable_user_check"}
    if kind == "jwt":
        env["SLURM_JWT"] = "daemon"  # otherwise slurmrestd asks slurmctld by munge, which takes no token
    argv = ("slurmrestd", "-a", f"rest_auth/{kind}", "-s", plugin(env), f"unix:{socket}")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(argv, env=env, cwd="/", stdin=quiet, stdout=quiet, stderr=quiet) as started:
        try:
            until(socket.exists, "slurmrestd")
            yield SlurmRest(f"unix:{socket}", timeout_s=20.0)
        finally:
            started.kill()


@pytest.fixture
def rest(slurm: RealSlurm) -> Iterator[SlurmRest]:
    """Return a slurmrestd that knows the user by the socket."""
    with slurmrestd(slurm, "local") as started:
        yield started


def plugin(env: Mapping[str, str]) -> str:
    """Return the newest plugin that asks slurmctld; those of the database do not start without one."""
    argv = ("slurmrestd", "-s", "list")
    listed = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    found: list[str] = re.findall(r"openapi/(?:v[0-9.]+|slurmctld)\b", listed.stdout + listed.stderr)
    return max(found, key=lambda each: [int(number) for number in re.findall(r"[0-9]+", each)])


def shadow(slurm: RealSlurm, rest: SlurmRest | None, driver: Driver) -> SlurmSource:
    """Return a source that only reads, with the links of the cluster that it is."""
    commands = SlurmCommands(conf=str(slurm.conf if rest is None else "/nowhere"))
    reader = SlurmReader(commands, 0.1, rest=rest)
    return SlurmSource(reader, ManagedJobs(), wall_clock, driver.source.read().cluster, shadows=True)


def test_a_shadow_reads_the_same_as_by_commands(
    slurm: RealSlurm, rest: SlurmRest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    driver = Driver(slurm)
    slurm.comes_to(slurm.sbatch("-wnode[2-3]", "-N2", "--gpus-per-node=8", "-c2", "--time=10"), "RUNNING")
    slurm.sbatch("-wnode2", "--gpus-per-node=3", "--mem-per-gpu=500", "-Crow1")
    slurm.call("scontrol", "update", "NodeName=node8", "State=DRAIN", "Reason=fan")
    kept = ("nodes=node[6-7]", "users=root", "flags=maint", "duration=60", "starttime=now+1hour")
    slurm.call("scontrol", "create", "reservation", "ReservationName=m", *kept)
    try:
        known, read = (shadow(slurm, each, driver).read() for each in (None, rest))
    finally:
        slurm.call("scontrol", "delete", "ReservationName=m")
    assert (len(known.foreign), len(known.waiting), len(known.reservations)) == (1, 1, 1)
    assert vars(read.cluster) == vars(known.cluster)
    assert replace(read, read_s=0.0, cluster=known.cluster) == replace(known, read_s=0.0)
    monkeypatch.setattr(slurm_checks, "COMMANDS", ("no-such-command",))
    (answers, missing) = SlurmChecks(driver.commands, wall_clock, rest=rest).results()
    assert answers.level == "ok"
    # Slurm lists jobs of other tests that have just ended, too.
    listed = re.fullmatch(r"it lists (\d+) jobs and 8 nodes with GPUs: enough for --recommend-only", answers.found)
    assert listed is not None
    assert int(listed[1]) >= 2
    assert (missing.level, missing.found) == ("note", "not found: no-such-command")  # needed to place jobs alone
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("cranny.backends.slurm.slurm_rest.SOCKET", Path(rest.address.removeprefix("unix:")))
    chosen = chosen_rest(None)
    assert chosen is not None
    assert chosen.address == rest.address


@pytest.mark.usefixtures("needs_slurm")
def test_a_token_opens_slurmrestd(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = RealSlurm(nodes=1, extra=JWT)
    key = slurm.conf.with_name("jwt.key")
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)  # slurmctld refuses a key that others may read
    with slurm, slurmrestd(slurm, "jwt") as rest:
        job = slurm.sbatch("--gpus-per-node=1")
        token = slurm.call("scontrol", "token", "lifespan=600").strip().removeprefix("SLURM_JWT=")
        monkeypatch.delenv("SLURM_JWT", raising=False)
        with pytest.raises(SlurmDeniedError, match="refuses the token of SLURM_JWT, or there is none"):
            rest.jobs()
        monkeypatch.setenv("SLURM_JWT", f"{token[:-8]}{token[-8:][::-1]}")
        with pytest.raises(SlurmDownError, match="Slurm does not answer, or refuses the token of SLURM_JWT: "):
            rest.jobs()
        monkeypatch.setenv("SLURM_JWT", token)
        assert [each["job_id"] for each in rest.jobs()["jobs"]] == [int(job)]
        assert [each["name"] for each in rest.nodes()["nodes"]] == slurm.nodes


def test_what_slurmrestd_does_not_say_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SlurmDownError, match=r"slurmrestd at unix:\S+/no.sock does not answer"):
        SlurmRest(f"unix:{tmp_path}/no.sock").jobs()
    with pytest.raises(BackendError, match="'localhost:1' is neither a URL nor unix:PATH"):
        SlurmRest("localhost:1").jobs()
