"""Ctrl-C, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

INTERRUPTED = (130, "", "cranny: interrupted\n")
PATIENCE_S = 600.0  # for what a machine with other work may take its time for
MOST_CPU_S = 6.0  # that a command and its processes compute after Ctrl-C, with a second to end by itself
BEGUN_S = 1.6  # that a process has computed when it has begun to work
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


def started(*words: str, cwd: Path | None = None) -> "subprocess.Popen[str]":
    """Start Python as a terminal would: in a group of its own, and with Ctrl-C not ignored."""
    inherited = signal.signal(signal.SIGINT, signal.SIG_DFL)  # what starts tests in the background ignores it
    try:
        return subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd=cwd,
        )
    finally:
        signal.signal(signal.SIGINT, inherited)


def group(of: int) -> list[int]:
    """Return the processes of a group."""
    found = subprocess.run(["pgrep", "-g", str(of)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def cpu_s(pid: int) -> float:
    """Return the seconds that a process has computed; none if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(
    ran: "subprocess.Popen[str]", send: Callable[[int, int], None] = os.killpg
) -> tuple[int, str, str]:
    """Interrupt a command; return its exit code and what it prints.

    How long it takes to end depends on what else the machine does, but not how much it and its processes compute.
    """
    before = {pid: cpu_s(pid) for pid in group(ran.pid)}
    used: dict[int, float] = {}
    send(ran.pid, signal.SIGINT)

    def is_over() -> bool:
        is_done = ran.poll() is not None
        for pid in (left := group(ran.pid)):
            used[pid] = max(used.get(pid, 0.0), cpu_s(pid) - before.get(pid, 0.0))
        assert sum(used.values()) < MOST_CPU_S
        return is_done and not left

    wait_until(is_over)
    printed, said = ran.communicate()
    return ran.returncode, printed, said


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
        wait_until(lambda: sum(pid != ran.pid and cpu_s(pid) > BEGUN_S for pid in group(ran.pid)) == 2)
        assert interrupted(ran, send) == INTERRUPTED


@pytest.mark.parametrize("words", [("bench", "decide"), ("repro", "has")])
def test_ctrl_c_is_heeded_wherever_a_command_is(words: tuple[str, ...]) -> None:
    with started("-m", "cranny.cli", *words) as ran:
        wait_until(lambda: cpu_s(ran.pid) > 0.7)  # it imports, compiles or computes
        assert interrupted(ran) == INTERRUPTED


AFTER_ANOTHER_ERROR = """
import os, signal, sys
from cranny.cli import app, main

def command():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass
    except KeyboardInterrupt:
        raise ImportError("a library failed to import") from None

app.run = command
main()
"""
WHERE_NOTHING_CAN_BE_RAISED = """
import os, signal, time
from cranny.cli import app, main

class Deleted:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass

def command():
    Deleted()
    time.sleep(3000)

app.run = command
main()
"""
WHILE_TYPER_READS = """
import os, signal, sys
import typer
from cranny.cli import app, main
from cranny.cli.typer_errors import Commands

def press(value: bool) -> None:
    os.kill(os.getpid(), signal.SIGINT)

app.run = Commands()

@app.run.callback()
def root(flag: bool = typer.Option(False, callback=press)) -> None:
    pass

@app.run.command()
def nothing() -> None:
    print("not interrupted")

sys.argv = ["cranny", "nothing"]
main()
"""


@pytest.mark.parametrize("script", [AFTER_ANOTHER_ERROR, WHERE_NOTHING_CAN_BE_RAISED, WHILE_TYPER_READS])
def test_ctrl_c_has_its_line_whatever_libraries_make_of_it(script: str) -> None:
    with started("-c", script) as ran:
        printed, said = ran.communicate()
    assert (ran.returncode, printed, said) == INTERRUPTED


IN_CODE_FROM_A_STRING = """
from cranny.cli import app, main

def command():
    exec("raise KeyboardInterrupt")  # as while a dataclass is made

app.run = command
main()
"""


def test_ctrl_c_in_code_from_a_string_keeps_the_exit_code_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "pressed.py").write_text(IN_CODE_FROM_A_STRING, encoding="utf-8")
    with started("-m", "pressed", cwd=tmp_path) as ran:
        printed, said = ran.communicate()
    assert (ran.returncode, printed, said) == INTERRUPTED


def test_what_must_not_be_left_half_done_is_finished() -> None:
    with started("-c", PATIENT) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "go\n"
        os.kill(ran.pid, signal.SIGINT)
        assert ran.communicate()[0] == "cleaned up\n"
    assert ran.returncode != 130  # it went on with the KeyboardInterrupt, which this script does not catch
