"""Processes of a job that try to outlive it: in other sessions, without parent, environment or supervisor."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.backends.contract import PATIENCE_S
from tests.backends.local_harness import LocalHarness

from cranny.backends import local
from cranny.backends.control_group import UNIFIED, ControlGroup, attempt_parents
from cranny.backends.protocol import Launch, Rank

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
