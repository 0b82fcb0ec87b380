"""Processes of a job that try to outlive it: in other sessions, without parent, environment or supervisor."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.backends.contract import PATIENCE_S
from tests.backends.local_harness import LocalHarness, appears

from cranny.backends import local
from cranny.backends.control_group import UNIFIED, AttemptGroups, ControlGroup, attempt_parents
from cranny.backends.local import LocalBackend
from cranny.backends.protocol import BackendError, Launch, LeavesProcesses, Rank

# A child in a session of its own that has lost its parent and its environment, and writes where it is.
ESCAPE = "(setsid env -i sh -c 'echo $$ > {file}; exec sleep 600' &) ; "


def escaping(harness: LocalHarness, then: str) -> tuple[Launch, int]:
    """Launch a job with such a child; return its process id as well."""
    file = harness.folder / "escaped"
    script = ESCAPE.format(file=file) + then
    what = Launch("a", 1, ("sh", "-c", script), (Rank(0, 0, 0),), {}, None, harness.folder / "a", None)
    harness.backend.launch(what)
    until = time.monotonic() + PATIENCE_S
    while not (file.exists() and file.read_text().strip()):
        assert time.monotonic() < until
        time.sleep(0.02)
    return what, int(file.read_text())


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def has_groups() -> bool:
    made = ControlGroup.make(attempt_parents().get(UNIFIED), f"try-{os.getpid()}")
    if made is not None:
        made.remove()
    return made is not None


@pytest.mark.parametrize("then", ["exit 0", "exec sleep 600"], ids=["its job ends", "its job is cancelled"])
def test_a_child_without_session_parent_and_environment_ends_with_its_job(
    then: str, harness: LocalHarness
) -> None:
    _, pid = escaping(harness, f"while [ ! -s {harness.folder}/escaped ]; do sleep 0.05; done; {then}")
    if then != "exit 0":
        harness.backend.stop("a", 0.5)
    ended = harness.ends()
    assert [each.reason for each in ended] == ["finished" if then == "exit 0" else "cancelled"]
    assert gone(pid)


def test_no_child_outlives_a_supervisor_that_was_killed(harness: LocalHarness) -> None:
    """Without control groups such a child escapes: only there it can, and the page about users says so."""
    what, pid = escaping(harness, "exec sleep 600")
    known = json.loads((what.log_dir / "attempt-1.pid").read_text())
    os.kill(known["pid"], signal.SIGKILL)
    ended = harness.ends()
    assert [each.reason for each in ended] == ["lost"]
    if has_groups():
        assert gone(pid)
        assert not Path(known["groups"][0]).exists()
    else:
        assert known["groups"] == [None]
        os.kill(pid, signal.SIGKILL)


def kill_supervisor_without_group(what: Launch) -> AttemptGroups:
    """Kill a supervisor, and let the backend know of no control group, as on a system without any; return it."""
    file = what.log_dir / "attempt-1.pid"
    known = json.loads(file.read_text())
    file.write_text(json.dumps({**known, "groups": [None]}))
    handle = os.pidfd_open(known["pid"])
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    os.close(handle)
    return AttemptGroups.read(known["groups"])


def test_without_control_groups_what_writes_to_the_logs_of_a_job_ends_with_it(harness: LocalHarness) -> None:
    what, pid = escaping(harness, "exec sleep 600")
    groups = kill_supervisor_without_group(what)
    assert [each.reason for each in harness.ends()] == ["lost"]
    assert gone(pid)
    groups.remove()


def test_gpus_stay_held_while_a_process_is_left_which_has_a_name(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    what, pid = escaping(harness, "exec sleep 600")
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *_: None)  # as of a process that waits for a device
        groups = kill_supervisor_without_group(what)
        backend = harness.backend
        assert isinstance(backend, LeavesProcesses)
        until = time.monotonic() + PATIENCE_S
        while f"process {pid} (sleep 600)" not in backend.left().get("a", ()):
            assert not backend.poll()
            assert time.monotonic() < until
        with pytest.raises(BackendError, match="job 'a' holds it"):
            backend.launch(replace(what, job_id="b", log_dir=harness.folder / "b"))
    assert [each.reason for each in harness.ends()] == ["lost"]
    assert not backend.left()
    assert gone(pid)
    groups.remove()


def test_what_does_not_end_after_a_stop_is_named(harness: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LOOK_S", 0.0)
    argv = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    what = Launch("a", 1, argv, (Rank(0, 0, 0),), {}, None, harness.folder / "a", None)
    harness.backend.launch(what)
    appears(what.log_dir / "rank-0.log")
    harness.backend.stop("a", 600.0)  # it has long to end, and is looked at all the same
    backend = harness.backend
    assert isinstance(backend, LocalBackend)
    backend._ending["a"] = 0.0
    assert not backend.poll()
    assert any("trap" in each for each in backend.left()["a"])
    backend.stop("a", 0.0)
    assert [each.reason for each in harness.ends()] == ["cancelled"]
    assert not backend.left()


def test_stopping_the_supervisor_does_not_stop_the_time_limit(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job stops its supervisor again whenever it goes on."""
    monkeypatch.setattr(local, "LATE_S", 1.0)
    monkeypatch.setattr(harness.backend, "_grace_s", 0.5)
    script = "trap '' TERM; while :; do kill -STOP $PPID; done"
    what = Launch("a", 1, ("sh", "-c", script), (Rank(0, 0, 0),), {}, None, harness.folder / "a", 0.5)
    harness.backend.launch(what)
    assert [each.reason for each in harness.ends()] == ["timed out"]
    assert harness.left("a") == 0
