"""The local backend, with real processes."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from signal import SIGKILL, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2

import pytest
from tests.backends.contract import CLUSTER, LONG_S, Contract
from tests.backends.local_harness import LocalHarness, appears

from cranny.backends import attempt_files, supervisor
from cranny.backends.attempt_files import AttemptFiles, read, write
from cranny.backends.control_group import AttemptGroups
from cranny.backends.local import LocalBackend
from cranny.backends.process import started
from cranny.backends.protocol import BackendError, Ended, Launch, Rank
from cranny.backends.ranks import commands
from cranny.model.cluster import Cluster
from cranny.model.placement import Aggregation


class TestLocal(Contract):
    """The contract."""


def sh(harness: LocalHarness, text: str, *, ranks: int = 1, cwd: Path | None = None, **env: str) -> Launch:
    """Launch a job that runs a line of shell in each rank."""
    log_dir = harness.folder / "a" / "1"
    slots = tuple(Rank(rank, rank // 2, rank % 2) for rank in range(ranks))
    what = Launch("a", 1, ("/bin/sh", "-c", text), slots, env, cwd, log_dir, None)
    harness.backend.launch(what)
    return what


def test_who_is_stopped_without_a_word_about_grace_has_that_of_the_backend(harness: LocalHarness) -> None:
    harness.backend = LocalBackend(CLUSTER, devices=(), grace_s=0.25)
    what = harness.begun(harness.launch("a", LONG_S, stubborn=True))
    harness.backend.stop("a")
    assert read(AttemptFiles.of(what.log_dir, 1).stop) == 0.25
    assert harness.ends() == [Ended("a", 1, -SIGKILL, "cancelled")]


@pytest.mark.parametrize("moment", ["before", "at the launch file", "after"])
def test_a_service_that_was_stopped_launches_nothing_that_the_next_one_has_withdrawn(
    harness: LocalHarness, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had stored that it would, was stopped, lost its log, and goes on beside the service that took over."""
    took_over = LocalBackend(CLUSTER, devices=())
    what = Launch("a", 1, ("sleep", "600"), (Rank(0, 0, 0),), {}, None, harness.folder / "a" / "1", None)
    lost = [Ended("a", 1, None, "lost")]
    written = attempt_files.write

    def interrupted(path: Path, value: object, *, new: bool = False, size: int = 0) -> None:
        if path.suffix != ".launch":
            written(path, value, new=new, size=size)
            return
        if moment == "at the launch file":  # it has looked whether the attempt was launched before
            assert took_over.adopt([what]) == lost
        written(path, value, new=new, size=size)
        if moment == "after":
            assert took_over.adopt([what]) == lost

    monkeypatch.setattr(attempt_files, "write", interrupted)
    if moment == "before":
        assert took_over.adopt([what]) == lost
    if moment == "after":
        harness.backend.launch(what)
        assert harness.ends() == lost  # its supervisor finds nothing to do
    else:
        with pytest.raises(BackendError, match="another service has withdrawn attempt 1"):
            harness.backend.launch(what)
    assert not (what.log_dir / "attempt-1.launch").exists()
    assert not list(what.log_dir.glob("*.log"))
    assert took_over.adopt([what]) == lost  # as after another restart


def test_ranks_get_the_variables_that_torchrun_users_expect(harness: LocalHarness) -> None:
    slots = (Rank(0, 2, 5), Rank(1, 0, 3), Rank(2, 2, 1))
    what = Launch("a", 1, ("env",), slots, {"MINE": "x"}, None, harness.folder / "a", None, server=3)
    harness.backend.launch(what)
    harness.ends()
    zero, one, two = (variables_of(what, rank) for rank in range(3))
    assert [each["RANK"] for each in (zero, one, two)] == ["0", "1", "2"]
    assert [each["LOCAL_RANK"] for each in (zero, one, two)] == ["0", "0", "1"]
    assert [each["LOCAL_WORLD_SIZE"] for each in (zero, one, two)] == ["2", "1", "2"]
    assert [each["NODE_RANK"] for each in (zero, one, two)] == ["0", "1", "0"]
    assert [each["GROUP_RANK"] for each in (zero, one, two)] == ["0", "1", "0"]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in (zero, one, two)] == ["5,1", "3", "5,1"]
    assert [(each["CRANNY_MACHINE"], each["CRANNY_GPU"]) for each in (zero, one, two)] == [
        ("2", "5"),
        ("0", "3"),
        ("2", "1"),
    ]
    for each in (zero, one, two):
        assert (each["WORLD_SIZE"], each["MASTER_ADDR"], each["MINE"]) == ("3", "127.0.0.1", "x")
        assert each["MASTER_PORT"] == zero["MASTER_PORT"]
        assert (each["CRANNY_JOB_ID"], each["CRANNY_ATTEMPT"], each["CRANNY_PARAMETER_SERVER"]) == ("a", "1", "3")


@pytest.mark.parametrize(("aggregate", "named"), [(True, "true"), (False, "false"), ((0, 3), "0,3")])
def test_a_job_knows_in_which_racks_switches_aggregate_for_it(aggregate: Aggregation, named: str) -> None:
    ranks = (Rank(0, 2, 5),)
    what = Launch("a", 1, ("env",), ranks, {}, None, Path("logs"), None, server=3, aggregate=aggregate)
    (started,) = commands(what, {}, {ranks[0]: "5"}, 4000, "token", what.log_dir)
    assert started.env["CRANNY_AGGREGATE"] == named
    (without,) = commands(replace(what, server=None), {}, {ranks[0]: "5"}, 4000, "token", what.log_dir)
    assert "CRANNY_AGGREGATE" not in without.env


def variables_of(what: Launch, rank: int) -> Mapping[str, str]:
    lines = (what.log_dir / f"rank-{rank}.log").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_job_may_change_what_it_gets_of_the_service_but_not_what_we_know_it_by(harness: LocalHarness) -> None:
    ours = ["CRANNY_LAUNCH", "CRANNY_JOB_ID", "CRANNY_ATTEMPT", "CRANNY_MACHINE", "CRANNY_GPU", "RANK"]
    ours += ["MASTER_PORT", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"]
    mine = {"HOME": "/mine", "PYTHONUNBUFFERED": "", "CRANNY_SERVER": "http://there"}
    argv = ("/bin/sh", "-c", "env; echo END=1; setsid sleep 600 & sleep 600")
    env = {**dict.fromkeys(ours, "mine"), **mine}
    what = Launch("a", 1, argv, (Rank(0, 0, 0),), env, None, harness.folder / "a", None)
    harness.backend.launch(what)
    while "END" not in (seen := variables_of(harness.begun(what), 0)):
        time.sleep(0.01)
    assert [name for name in ours if seen[name] == "mine"] == []
    assert {name: seen[name] for name in mine} == mine
    (supervisor,) = (each.supervisor for each in harness.backend._running.values())  # type: ignore[attr-defined]
    supervisor.send(SIGKILL)  # what is left of the job is found by CRANNY_LAUNCH
    assert [ended.reason for ended in harness.ends()] == ["lost"]
    assert harness.left("a") == 0


@pytest.mark.parametrize(
    ("devices", "seen"),
    [((), "1,0"), (("4", "5", "6", "7"), "7,6"), (("0",), "")],
    ids=["no real GPUs", "enough real GPUs", "too few real GPUs"],
)
def test_slots_are_real_gpus_if_there_are_enough(tmp_path: Path, devices: tuple[str, ...], seen: str) -> None:
    backend = LocalBackend(Cluster.single_rack(2, 2), devices)
    what = Launch("a", 1, ("env",), (Rank(0, 1, 1), Rank(1, 1, 0)), {}, None, tmp_path, None)
    backend.launch(what)
    while not backend.poll():
        time.sleep(0.01)
    assert variables_of(what, 1)["CUDA_VISIBLE_DEVICES"] == seen


def test_this_machine_has_a_slot_for_each_gpu_or_processor() -> None:
    (machine,) = LocalBackend().nodes().machines
    assert machine.gpus >= 1


def test_a_job_sees_little_of_the_environment_of_the_service(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "secret-of-the-service")
    what = sh(harness, "env; cat /proc/$PPID/environ; ls /proc/$$/fd; true")
    harness.ends()
    text = (what.log_dir / "rank-0.log").read_text()
    assert "PATH=" in text
    assert "secret" not in text
    assert text.endswith("0\n1\n2\n")  # no open file of the service either


def test_runs_in_the_folder_that_the_job_names(harness: LocalHarness, tmp_path: Path) -> None:
    what = sh(harness, "pwd", cwd=tmp_path)
    harness.ends()
    assert (what.log_dir / "rank-0.log").read_text() == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cwd": Path("/nowhere")}, "there is no folder /nowhere"),
        ({"argv": ("no-such-command",)}, "there is no command 'no-such-command'"),
        ({"argv": ("./train.sh",)}, "there is no command './train.sh'"),
        ({"argv": ("/tmp",)}, "there is no command '/tmp'"),  # noqa: S108 - a folder that every system has
        ({"log_dir": Path("/proc/a")}, "cannot start: /proc/a: "),
        ({"torchrun": True, "env": {"PATH": "/nowhere"}}, "torchrun not found"),
    ],
)
def test_says_at_once_what_is_missing(harness: LocalHarness, change: dict[str, object], message: str) -> None:
    sane = Launch("a", 1, ("/bin/true",), (Rank(0, 0, 0),), {}, None, harness.folder / "a", None)
    with pytest.raises(BackendError, match=message):
        harness.backend.launch(replace(sane, **change))  # type: ignore[arg-type]
    harness.backend.launch(sane)  # its slot is free
    assert harness.ends() == [Ended("a", 1, 0, "finished")]


def test_a_command_that_is_no_program_fails_with_a_line_in_its_log(harness: LocalHarness, tmp_path: Path) -> None:
    script = tmp_path / "text"
    script.write_text("not a program")
    script.chmod(0o700)
    what = Launch("a", 1, (str(script),), (Rank(0, 0, 0),), {}, None, tmp_path / "a", None)
    harness.backend.launch(what)
    assert harness.ends() == [Ended("a", 1, 127, "failed")]
    assert (what.log_dir / "rank-0.log").read_text() == f"cranny: cannot start {script}: Exec format error\n"


def test_only_the_owner_can_read_and_no_secret_stays(harness: LocalHarness, tmp_path: Path) -> None:
    what = sh(harness, 'echo "$$" > ready; sleep 600', cwd=tmp_path, KEY="very-secret")
    assert "very-secret" not in repr(what)
    appears(tmp_path / "ready")
    for path in what.log_dir.iterdir():
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert what.log_dir.stat().st_mode & 0o777 == what.log_dir.parent.stat().st_mode & 0o777 == 0o700
    assert not any("very-secret" in path.read_text() for path in what.log_dir.iterdir() if path.is_file())
    harness.backend.stop("a")
    harness.ends()
    assert sorted(path.name for path in what.log_dir.iterdir()) == ["attempt-1.result", "channel", "rank-0.log"]


def test_a_rank_finds_its_channel_and_the_machines_of_all_ranks(harness: LocalHarness) -> None:
    slots = (Rank(0, 2, 5), Rank(1, 0, 3), Rank(2, 2, 1))
    what = Launch("a", 1, ("env",), slots, {"CRANNY_CHANNEL": "x"}, None, harness.folder / "a", None)
    harness.backend.launch(what)
    channel = harness.backend.channel("a")
    assert channel is not None
    harness.ends()
    found = variables_of(what, 1)
    assert (found["CRANNY_CHANNEL"], found["CRANNY_CHANNEL_TOKEN"]) == (str(channel.folder), channel.token)
    assert found["CRANNY_MACHINES"] == "2,0,2"
    given = dict.fromkeys(slots, ""), 1, "token", Path("logs")
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    agents = commands(replace(what, torchrun=True), {"PATH": str(Path(sys.executable).parent)}, *given)
    assert agents[0].env["CRANNY_MACHINES"] == "2,2,0"  # as torchrun numbers ranks


def test_a_signal_reaches_the_processes_that_expect_it(harness: LocalHarness, tmp_path: Path) -> None:
    loop = "while :; do sleep 0.02; done"
    inner = f"trap 'echo saved >> saved' USR1; echo up > up-$RANK; {loop}"
    sh(harness, f'/bin/sh -c "{inner}"; echo never > over', ranks=2, cwd=tmp_path)
    for rank in range(2):
        appears(tmp_path / f"up-{rank}")
    harness.backend.signal("a", SIGUSR2)
    harness.backend.signal("a", SIGUSR1)
    while appears(tmp_path / "saved").count("saved") < 2:
        time.sleep(0.01)
    assert not harness.backend.poll()
    harness.backend.stop("a")
    assert harness.ends() == [Ended("a", 1, -SIGTERM, "cancelled")]


def test_the_first_rank_that_fails_stops_the_others(harness: LocalHarness) -> None:
    sh(harness, 'test "$RANK" != 2 || { sleep 0.2; exit 7; }; sleep 600', ranks=4)
    assert harness.ends() == [Ended("a", 1, 7, "failed")]
    assert harness.left("a") == 0


def test_a_signal_that_kills_a_rank_is_its_exit_code(harness: LocalHarness) -> None:
    sh(harness, "kill -SEGV $$")
    assert harness.ends() == [Ended("a", 1, -11, "failed")]


@pytest.mark.parametrize("how", ["finishes", "is cancelled"])
def test_no_child_outlives_a_job_not_even_in_its_own_session(
    harness: LocalHarness, tmp_path: Path, how: str
) -> None:
    nap = "0" if how == "finishes" else "60"
    sh(
        harness,
        f"sleep 600 & (setsid sleep 600 &) & setsid setsid sleep 600 & sleep 0.3; echo up > up; sleep {nap}",
        cwd=tmp_path,
    )
    appears(tmp_path / "up")
    if how == "is cancelled":
        assert harness.left("a") >= 4
        harness.backend.stop("a")
    (end,) = harness.ends()
    assert end.reason == ("finished" if how == "finishes" else "cancelled")
    assert harness.left("a") == 0


def test_ranks_may_tidy_up_when_they_are_asked_to_end(harness: LocalHarness, tmp_path: Path) -> None:
    sh(
        harness,
        'trap "sleep 0.3; echo saved > saved; exit 0" TERM; echo up > up; while :; do sleep 0.05; done',
        cwd=tmp_path,
    )
    appears(tmp_path / "up")
    harness.backend.stop("a")
    assert harness.ends() == [Ended("a", 1, 0, "cancelled")]
    assert (tmp_path / "saved").read_text() == "saved\n"


def test_if_the_supervisor_is_killed_its_job_dies_and_is_lost(harness: LocalHarness, tmp_path: Path) -> None:
    sh(harness, '(setsid sleep 600 &); sleep 0.2; echo "$PPID $$" > pids; sleep 600', cwd=tmp_path)
    supervisor, rank = map(int, appears(tmp_path / "pids").split())
    os.kill(supervisor, SIGKILL)
    until = time.monotonic() + 60
    while started(rank) and time.monotonic() < until:  # even if there is no service
        time.sleep(0.01)
    assert not started(rank)
    assert harness.ends() == [Ended("a", 1, None, "lost")]
    assert harness.left("a") == 0


def test_a_job_that_the_system_ends_is_lost_not_cancelled(harness: LocalHarness, tmp_path: Path) -> None:
    sh(harness, "echo $PPID > supervisor; sleep 600", cwd=tmp_path)
    os.kill(int(appears(tmp_path / "supervisor")), SIGTERM)
    assert harness.ends() == [Ended("a", 1, None, "lost")]
    assert harness.left("a") == 0


def test_a_rank_starts_with_no_signal_blocked(harness: LocalHarness, tmp_path: Path) -> None:
    what = Launch("a", 1, ("cat", "/proc/self/status"), (Rank(0, 0, 0),), {}, None, tmp_path / "a", None)
    harness.backend.launch(what)
    harness.ends()
    lines = (what.log_dir / "rank-0.log").read_text().splitlines()
    state = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert int(state["SigBlk"], 16) == 0
    assert not int(state["SigIgn"], 16) & 1 << SIGPIPE - 1  # which Python itself ignores


def test_a_supervisor_that_stands_still_can_be_ended(harness: LocalHarness) -> None:
    sh(harness, "kill -STOP $PPID; sleep 600")
    (supervisor,) = (each.supervisor.pid for each in harness.backend._running.values())  # type: ignore[attr-defined]
    until_stopped = time.monotonic() + 60
    while Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < until_stopped
        time.sleep(0.01)
    harness.backend.stop("a")
    assert harness.ends() == [Ended("a", 1, -SIGTERM, "cancelled")]


def test_a_reused_number_of_a_process_is_not_mistaken_for_a_supervisor(harness: LocalHarness) -> None:
    what = harness.begun(sh(harness, "echo up; sleep 600"))
    pid_file = what.log_dir / "attempt-1.pid"
    before = read(pid_file)
    harness.restart()
    os.kill(before["pid"], SIGKILL)
    os.waitpid(before["pid"], 0)
    with subprocess.Popen(["sleep", "60"]) as innocent:
        write(pid_file, {**before, "pid": innocent.pid, "started": "long ago"})
        assert (list(harness.backend.adopt([what])) or harness.ends()) == [Ended("a", 1, None, "lost")]
        assert innocent.poll() is None
        innocent.terminate()


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": "1"}', '{"exit_code": 0, "reason": "fine"}'])
def test_a_job_whose_files_are_spoilt_is_lost(harness: LocalHarness, tmp_path: Path, text: str) -> None:
    for name in ("attempt-1.pid", "attempt-1.result"):
        (tmp_path / name).write_text(text)
    what = Launch("a", 1, ("true",), (Rank(0, 0, 0),), {}, None, tmp_path, None)
    assert list(harness.backend.adopt([what])) == [Ended("a", 1, None, "lost")]


SERVICE = """
import os, sys, time
from pathlib import Path
from cranny.backends.local import LocalBackend
from cranny.backends.protocol import Launch, Rank
from cranny.model.cluster import Cluster
from cranny.model.placement import Aggregation
folder, delay_s, mark = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
argv = ("/bin/sh", "-c", "echo ran >> ../ran; sleep 0.5; exit 9")
backend = LocalBackend(Cluster.single_rack(4, 8), devices=())
backend.launch(Launch("a", 1, argv, (Rank(0, 0, 0),), {"TEST_OF_CRANNY": mark}, folder, folder / "1", None))
time.sleep(delay_s)
os.kill(os.getpid(), 9)
"""


def test_a_service_that_is_killed_loses_no_job_and_runs_none_twice(harness: LocalHarness, tmp_path: Path) -> None:
    for round_, delay_s in enumerate((0.0, 0.02, 0.05, 0.1, 1.0)):
        folder = tmp_path / f"round-{round_}" / "a"
        folder.mkdir(parents=True)
        command = [sys.executable, "-c", SERVICE, str(folder), str(delay_s), f"{tmp_path}/a"]
        died = subprocess.run(command, check=False)
        assert died.returncode == -9
        what = Launch("a", 1, ("true",), (Rank(0, 0, 0),), {}, folder, folder / "1", None)
        ended = list(harness.backend.adopt([what])) or harness.ends()
        ran = folder.parent / "ran"
        if ended == [Ended("a", 1, None, "lost")]:  # called off before it began
            time.sleep(0.2)
            assert not ran.exists()
        else:
            assert ended == [Ended("a", 1, 9, "failed")]
            assert ran.read_text() == "ran\n"
        assert harness.left("a") == 0


def test_a_supervisor_whose_attempt_was_called_off_does_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cranny.backends.supervisor", str(tmp_path), "1", "attempt-of-test"]
    assert subprocess.run(command, check=False).returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_supervisor_notes_that_its_attempt_is_called_off_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = AttemptFiles.of(tmp_path, 1)
    what = Launch("a", 1, ("true",), (Rank(0, 0, 0),), {}, None, tmp_path, None)
    found: list[Ended] = []

    def write_then_restart(path: Path, value: object, *, size: int = 0) -> None:
        write(path, value, size=size)
        found.extend(LocalBackend(CLUSTER, devices=()).adopt([what]) if path == files.reserve else [])

    monkeypatch.setattr(supervisor, "write", write_then_restart)
    write(files.launch, {"token": "x"})
    assert not supervisor.claim(files, {"token": "x"}, AttemptGroups(None, ()))
    assert found == [Ended("a", 1, None, "lost")]
    assert not list(tmp_path.iterdir())


def test_a_supervisor_starts_quickly(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[2] / "src")
    command = [
        sys.executable,
        "-P",
        "-S",
        "-m",
        "cranny.backends.supervisor",
        str(tmp_path),
        "1",
        "attempt-of-test",
    ]
    took = []
    for _ in range(3):
        before = getrusage(RUSAGE_CHILDREN)
        subprocess.run(command, check=True, env={"PYTHONPATH": source})
        after = getrusage(RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 0.1  # seconds of a processor, whatever else the machine does


CLAIM = """
slot=../slots/$CRANNY_MACHINE-$CRANNY_GPU
mkdir $slot || { echo "$CRANNY_JOB_ID: $slot" >> ../clashes; exit 99; }
echo $slot >> ../claims
trap "rmdir $slot; exit 143" TERM
sleep 0.15
rmdir $slot
exit %d
"""


def test_sixty_jobs_end_as_they_should_and_share_no_gpu(harness: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir()
    (tmp_path / "work").mkdir()
    free = [(machine, gpu) for machine in range(4) for gpu in range(8)]
    waiting = [f"job-{number}" for number in range(60)]
    held: dict[str, tuple[Rank, ...]] = {}
    ended: dict[str, Ended] = {}
    until = time.monotonic() + 120
    while len(ended) < 60 and time.monotonic() < until:
        while waiting and len(free) >= (size := 1 + int(waiting[0][4:]) % 4):
            job_id, slots = waiting.pop(0), [free.pop(0) for _ in range(size)]
            number = int(job_id[4:])
            held[job_id] = tuple(Rank(rank, *slot) for rank, slot in enumerate(slots))
            argv = ("/bin/sh", "-c", CLAIM % (number % 5 == 0))
            harness.backend.launch(
                Launch(job_id, 1, argv, held[job_id], {}, tmp_path / "work", tmp_path / "logs" / job_id, None)
            )
            if number % 7 == 0:
                harness.backend.stop(job_id)
        for end in harness.backend.poll():
            ended[end.job_id] = end
            free += [(rank.machine, rank.gpu) for rank in held.pop(end.job_id)]
        time.sleep(0.01)
    for number in range(60):
        wanted = "cancelled" if number % 7 == 0 else "failed" if number % 5 == 0 else "finished"
        assert ended[f"job-{number}"].reason == wanted
    assert not (tmp_path / "clashes").exists()
    assert len((tmp_path / "claims").read_text().splitlines()) >= 100  # slots that jobs say they had
    assert not list((tmp_path / "slots").iterdir())
    assert not any(harness.left(job_id) for job_id in ended)
    assert sorted(free) == [(machine, gpu) for machine in range(4) for gpu in range(8)]
