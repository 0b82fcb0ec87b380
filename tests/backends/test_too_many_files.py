"""A system that cannot say how things are, since no more files may be opened: nothing is taken for gone."""

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.backends.local_harness import LocalHarness, appears

from cranny.backends import supervisor
from cranny.backends.process import Process, carrying, started
from cranny.backends.protocol import BackendError
from cranny.backends.supervisor import SupervisedAttempt


@contextmanager
def no_more_files() -> Iterator[None]:
    """Let this process open nothing more for a while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_cannot_be_seen_is_not_taken_for_gone() -> None:
    own = Process.of(os.getpid())
    with no_more_files():
        for ask in (own.alive, lambda: started(own.pid), lambda: carrying("NO_SUCH_VARIABLE", "1")):
            with pytest.raises(OSError, match="Too many open files"):
                ask()
    assert started(2**22 + 1) == ""  # above all numbers that Linux gives
    assert started(own.pid) == own.started


def test_a_job_that_cannot_be_seen_goes_on(harness: LocalHarness) -> None:
    what = harness.begun(harness.launch("a", run_s=30.0))
    with no_more_files():
        for ask in (harness.backend.poll, lambda: harness.backend.stop("a", 1.0)):
            with pytest.raises(OSError, match="Too many open files"):
                ask()
    assert harness.backend.poll() == []
    harness.backend.close()
    harness.backend = harness.make()
    with no_more_files(), pytest.raises(OSError, match="Too many open files"):
        harness.backend.adopt([what])
    assert harness.backend.adopt([what]) == []
    harness.backend.stop("a", 1.0)
    assert [ended.reason for ended in harness.ends()] == ["cancelled"]


def test_ends_that_were_seen_are_told_whatever_else_cannot_be_seen(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = harness.launch("a", run_s=30.0)
    harness.over(harness.launch("b", slots=((1, 0),)))
    right = Process.alive

    def alive(process: Process) -> bool:
        if process == blind:
            raise OSError(24, "Too many open files")
        return right(process)

    blind = harness.backend._running["a"].supervisor  # type: ignore[attr-defined]
    monkeypatch.setattr(Process, "alive", alive)
    assert [ended.job_id for ended in harness.ends()] == ["b"]
    with pytest.raises(OSError, match="Too many open files"):
        harness.backend.poll()
    monkeypatch.undo()
    harness.begun(first)


@pytest.mark.parametrize("begun", [False, True])
def test_what_cannot_be_told_from_others_is_not_left_running(
    harness: LocalHarness, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    def of(_pid: int) -> Process:
        if begun:
            appears(harness.folder / "a" / "1" / "rank-0.log")  # its shell runs, and has a child
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Process, "of", of)
    with pytest.raises(BackendError, match="job 'a' cannot start: Too many open files"):
        harness.launch("a", run_s=30.0)
    assert harness.left("a") == 0
    monkeypatch.undo()
    harness.launch("a", attempt=2)  # its GPUs are free
    assert [ended.reason for ended in harness.ends()] == ["finished"]


def test_a_supervisor_that_cannot_look_for_children_ends_the_ranks_it_knows(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def blind(_root: int) -> dict[int, int]:
        raise OSError(23, "Too many open files in system")

    monkeypatch.setattr(supervisor, "descendants", blind)
    with subprocess.Popen(["sleep", "30"], start_new_session=True) as rank:
        attempt = SupervisedAttempt.__new__(SupervisedAttempt)
        attempt._ranks, attempt._subreaper, attempt._group = {rank.pid}, True, None
        attempt._signal_all(signal.SIGTERM)
        assert rank.wait(60) == -signal.SIGTERM
    assert "cannot list processes: Too many open files in system" in capfd.readouterr().err
