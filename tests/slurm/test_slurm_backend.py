"""Launches, ends and restarts on a real Slurm."""

from dataclasses import replace
from pathlib import Path

import pytest

from cranny.backends.protocol import NOT_STARTED, BackendError, Ended
from cranny.backends.slurm.slurm_backend import launch_token
from cranny.backends.slurm.slurm_commands import SlurmCommands, SlurmDeniedError, SlurmDownError
from tests.slurm.driver import FAR, Driver
from tests.slurm.real_slurm import RealSlurm, until

SLEEP = "#!/bin/sh\nexec sleep 600\n"
HELD = ("--hold", "--comment=cranny")
BEGIN = (FAR, "--comment=cranny")


@pytest.fixture
def driver(slurm: RealSlurm) -> Driver:
    return Driver(slurm)


def held_gpus(driver: Driver, job: str) -> dict[str, int]:
    table = driver.reader.table(driver.reader.clock())
    return dict(table.jobs[int(job)].gpus)


@pytest.mark.parametrize(
    ("gate", "shape"),
    [
        (HELD, ("-N2", "--ntasks-per-node=2", "--gpus-per-node=2")),
        (BEGIN, ("-n4", "--gpus-per-task=1")),
        (HELD, ("--gpus=4",)),
        (BEGIN, ("--gpus=4", "-n4")),
    ],
)
def test_a_job_runs_where_it_was_placed(driver: Driver, gate: tuple[str, ...], shape: tuple[str, ...]) -> None:
    job = driver.slurm.sbatch(*gate, *shape)
    driver.launch(job, ["node6", "node3", "node6", "node3"])
    driver.slurm.comes_to(job, "RUNNING")
    assert held_gpus(driver, job) == {"node3": 2, "node6": 2}
    assert "ranks=node6,node3,node6,node3" in driver.slurm.call("scontrol", "show", "job", job)
    driver.backend.stop(f"job-{job}")
    assert [(each.job_id, each.reason) for each in driver.ends()] == [(f"job-{job}", "cancelled")]


def test_ends_are_reported_once_with_their_exit_codes(driver: Driver) -> None:
    codes = {driver.slurm.sbatch(*HELD, "--gpus=1", script=f"#!/bin/sh\nexit {code}\n"): code for code in (0, 3)}
    for job in codes:
        driver.launch(job, ["node1"])
    ended = {each.job_id: each[2:4] for each in driver.ends(2)}
    assert ended == {f"job-{job}": (code, "failed" if code else "finished") for job, code in codes.items()}
    assert not driver.ends(1, 0.5)


def test_uneven_counts_are_refused_and_nothing_starts(driver: Driver) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=3")
    with pytest.raises(BackendError, match="same number of GPUs on each node, not 2 on node1, 1 on node2"):
        driver.launch(job, ["node1", "node1", "node2"])
    assert driver.waiting() == [job]


def test_a_job_is_released_only_once_nodes_were_read_from_a_controller_that_was_restarted(driver: Driver) -> None:
    job = driver.slurm.sbatch(*BEGIN, "--gpus=2")
    assert driver.waiting() == [job]
    driver.slurm.stop_controller()
    driver.slurm.start_controller()
    driver.launch(job, ["node1", "node1"])  # decided by what the one before it knew
    ((_, _, _, reason, detail),) = driver.ends()
    assert (reason, detail) == (NOT_STARTED, "held in Slurm: BeginTime")
    driver.slurm.all_idle()
    assert driver.waiting() == [job]
    driver.launch(job, ["node1", "node1"], attempt=2)
    driver.slurm.comes_to(job, "RUNNING")
    assert held_gpus(driver, job) == {"node1": 2}


def test_a_job_that_runs_is_in_no_list_of_the_source(driver: Driver) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=2")
    driver.launch(job, ["node1", "node1"])
    reading = driver.source.read()
    assert not reading.waiting
    assert not reading.foreign
    driver.slurm.comes_to(job, "RUNNING")
    assert not driver.source.read().foreign
    (foreign,) = driver.restarted().source.read().foreign  # another service has not launched it
    assert foreign.gpus == {"node1": 2}


def test_a_restart_finds_what_runs_what_has_ended_and_what_never_started(driver: Driver) -> None:
    slurm = driver.slurm
    runs, ended, never, half = (
        slurm.sbatch(*HELD, "--gpus=1", script=each) for each in (SLEEP, "#!/bin/sh\nexit 5\n", SLEEP, SLEEP)
    )
    known = [driver.launch(runs, ["node1"]), driver.launch(ended, ["node1"])]
    slurm.comes_to(ended, "FAILED")
    slurm.comes_to(runs, "RUNNING")
    after = driver.restarted()
    applied = after.launch_of(half, ["node2"])
    comment = slurm.call("scontrol", "show", "job", runs).split("AdminComment=")[1].splitlines()[0]
    mark = f"cranny job=job-{half} launch={launch_token(applied)} ranks=node2"
    slurm.call(
        "scontrol", "update", f"JobId={half}", "ReqNodeList=node2", f"AdminComment={mark}"
    )  # and no release
    found = after.backend.adopt([*known, after.launch_of(never, ["node2"]), applied])
    assert sorted(found) == sorted(
        [
            Ended(f"job-{ended}", 1, 5, "failed"),
            Ended(f"job-{never}", 1, None, "lost"),
            Ended(f"job-{half}", 1, None, "lost"),
        ]
    )
    assert comment.startswith("cranny job=")
    assert not after.backend.adopt(known[:1])  # known by now
    assert set(after.waiting()) == {never, half}
    after.launch(half, ["node4"], attempt=2)  # repaired: it starts where it was placed now
    slurm.comes_to(half, "RUNNING")
    assert held_gpus(after, half) == {"node4": 1}
    assert not after.ends(1, 0.3)


def test_a_launch_whose_answer_was_lost_is_not_made_twice(driver: Driver) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=1")
    what = driver.launch(job, ["node5"])
    driver.slurm.comes_to(job, "RUNNING")
    again = driver.restarted()
    again.backend.launch(what)
    assert held_gpus(again, job) == {"node5": 1}
    with pytest.raises(BackendError, match="runs already"):
        again.backend.launch(what)
    other = driver.restarted()
    with pytest.raises(BackendError, match="is running in Slurm on node5, and was not started by cranny"):
        other.launch(job, ["node6"], attempt=2)


def test_a_job_that_slurm_puts_back_is_lost_and_starts_elsewhere(driver: Driver) -> None:
    slurm = driver.slurm
    job = slurm.sbatch(*HELD, "--gpus=2", "--requeue")
    driver.launch(job, ["node8", "node8"])
    slurm.comes_to(job, "RUNNING")
    slurm.lose_node("node8")
    (ended,) = driver.ends()
    assert (ended.reason, ended.exit_code) == ("lost", None)
    assert driver.waiting() == [job]
    driver.launch(job, ["node2", "node2"], attempt=2)  # at once, not after the two minutes of Slurm
    slurm.comes_to(job, "RUNNING")
    assert held_gpus(driver, job) == {"node2": 2}


def test_a_job_that_slurm_does_not_start_is_taken_back(slurm: RealSlurm) -> None:
    driver = Driver(slurm, start_s=0.5)
    slurm.comes_to(slurm.sbatch("-wnode1", "--gpus-per-node=8"), "RUNNING")
    job = slurm.sbatch(*HELD, "--gpus=1")
    driver.launch(job, ["node1"])
    until(lambda: "Resources" in slurm.call("squeue", "-h", "-j", job, "-o", "%r"), "Slurm to say why")
    (ended,) = driver.ends()
    assert ended.reason == NOT_STARTED
    assert "Slurm does not start it" in ended.detail
    assert not driver.waiting()  # it rests before it is placed again
    assert driver.managed.avoided(int(job), driver.reader.clock()) == {"node1"}
    later = driver.restarted()
    assert later.waiting() == [job]
    later.launch(job, ["node3"], attempt=2)
    slurm.comes_to(job, "RUNNING")


def test_a_job_on_a_node_that_was_drained_meanwhile_is_placed_again_at_once(driver: Driver) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=1")
    driver.waiting()
    driver.slurm.call("scontrol", "update", "NodeName=node8", "State=DRAIN", "Reason=fan")
    driver.launch(job, ["node8"])
    driver.source.read()
    (ended,) = driver.ends()
    assert (ended.reason, ended.detail) == (NOT_STARTED, "Slurm does not start it: ReqNodeNotAvail")
    assert driver.waiting() == [job]


def test_cancelled_in_slurm_before_and_after_it_was_placed(driver: Driver) -> None:
    before, after = (driver.slurm.sbatch(*HELD, "--gpus=1") for _ in range(2))
    driver.slurm.call("scancel", before)
    assert driver.waiting() == [after]
    with pytest.raises(BackendError, match="is cancelled in Slurm"):
        driver.launch(before, ["node1"])
    driver.launch(after, ["node1"])
    driver.slurm.call("scancel", after)
    assert [each.reason for each in driver.ends()] == ["cancelled"]


def test_slurm_that_is_down_is_an_error_that_passes(driver: Driver) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=1")
    what = driver.launch(job, ["node1"])
    driver.slurm.comes_to(job, "RUNNING")
    driver.slurm.stop_controller()
    try:
        driver.commands.timeout_s = 0.5
        for call in (
            driver.source.read,
            lambda: driver.backend.adopt([what]),
            lambda: driver.backend.stop(what.job_id),
        ):
            with pytest.raises(SlurmDownError, match=r"did not answer within 0.5 s"):
                call()
    finally:
        driver.slurm.start_controller()
        driver.commands.timeout_s = 30.0
    until(lambda: driver.slurm.state(job) == "RUNNING", "the controller")
    driver.backend.stop(f"job-{job}")
    assert [each.reason for each in driver.ends()] == ["cancelled"]


def test_a_user_without_rights_is_told_apart(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    job = driver.slurm.sbatch(*HELD, "--gpus=1")
    call = SlurmCommands.call

    def as_nobody(self: SlurmCommands, *argv: str) -> str:
        return call(self, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *argv)

    monkeypatch.setattr(SlurmCommands, "call", as_nobody)
    assert driver.source.read().waiting  # reading needs no rights
    with pytest.raises(BackendError, match=r"(?i)denied.*docs/use/slurm.md"):
        driver.launch(job, ["node1"])


def test_missing_and_hanging_commands_are_named(slurm: RealSlurm) -> None:
    commands = SlurmCommands(0.3, str(slurm.conf))
    with pytest.raises(BackendError, match="no-such-command was not found: install Slurm's client commands"):
        commands.call("no-such-command")
    with pytest.raises(SlurmDownError, match=r"sleep did not answer within 0.3 s"):
        commands.call("sleep", "5")
    with pytest.raises(BackendError, match="echo --json prints no JSON"):
        commands.json("echo", "hello")
    assert not issubclass(SlurmDeniedError, OSError)


def test_a_job_of_cranny_itself_runs_with_uneven_counts(slurm: RealSlurm, tmp_path: Path) -> None:
    """Three ranks on one node, one on another: a heterogeneous job, numbered by the placement."""
    driver = Driver(slurm)
    tmp_path.chmod(0o755)
    says = 'echo "$RANK/$WORLD_SIZE $SLURMD_NODENAME $LOCAL_RANK $GREETING" >> "$OUT"; exit 0'
    nodes = ("node2", "node5", "node2", "node2")
    what = replace(
        driver.launch_of("0", nodes),
        argv=("/bin/sh", "-c", says),
        env={"GREETING": "it's me", "OUT": str(tmp_path / "out")},
        log_dir=tmp_path / "job" / "1",
        external="",
    )
    driver.backend.launch(what)
    after = driver.restarted()  # before anything was stored
    after.backend.launch(what)
    assert (
        len(slurm.call("squeue", "-h", "-t", "all", "-n", what.job_id, "-o", "%A").split()) == 2
    )  # its two parts
    assert not after.source.read().foreign
    assert after.ends() == [Ended(what.job_id, 1, 0, "finished")]
    assert sorted((tmp_path / "out").read_text().splitlines()) == [
        "0/4 node2 0 it's me",
        "1/4 node5 0 it's me",
        "2/4 node2 1 it's me",
        "3/4 node2 2 it's me",
    ]
    assert list(driver.restarted().backend.adopt([what])) == [Ended(what.job_id, 1, 0, "finished")]


def test_an_operator_writes_into_the_comment_of_the_user(driver: Driver) -> None:
    """Only administrators may write AdminComment; what the user says of the job is kept."""
    job = driver.slurm.sbatch("--hold", "--comment=cranny model=vgg16 tp=2", "--gpus=2", "--requeue")
    vars(driver.reader)["comment_field"] = "Comment"
    driver.waiting()
    driver.source.show({job: "waits for 2 GPUs"})
    assert "Comment=cranny model=vgg16 tp=2 | waits for 2 GPUs" in driver.slurm.call(
        "scontrol", "show", "job", job
    )
    what = driver.launch(job, ["node3", "node3"])
    driver.slurm.comes_to(job, "RUNNING")
    assert not driver.restarted().backend.adopt([what])
    driver.slurm.call("scontrol", "requeue", job)
    assert [each.reason for each in driver.ends()] == ["lost"]
    (waiting,) = driver.source.read().waiting
    assert (waiting.spec["model"], waiting.spec["tp"]) == ("vgg16", 2)
    assert (
        "exclude" not in waiting.spec["constraints"]
    )  # the nodes that cranny had set were not asked for by the user
