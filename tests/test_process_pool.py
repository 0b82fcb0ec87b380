import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cranny.model.errors import InputError
from cranny.process_pool import WorkerPool, run_calls
from tests.cli.test_interrupt import started


def double(number: int, plus: int) -> int:
    if number < 0:
        raise InputError("no negative numbers")
    return 2 * number + plus


def process_id(_: int) -> int:
    return os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_calls(processes: int) -> None:
    heard: list[int] = []
    with WorkerPool(processes) as pool:
        assert run_calls(pool, double, [(3, 1), (1, 0), (2, 5)], heard.append) == [7, 2, 9]
    assert heard == [1, 2, 3]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_call_raises_is_raised(processes: int) -> None:
    with pytest.raises(InputError, match="no negative numbers"), WorkerPool(processes) as pool:
        run_calls(pool, double, [(1, 0), (-1, 0)])


def test_a_process_makes_way_for_a_new_one_if_it_should() -> None:
    with WorkerPool(2, calls_per_process=1) as pool:
        found = run_calls(pool, process_id, [(0,), (1,), (2,), (3,)])
    assert len(set(found)) == 4
    assert os.getpid() not in found


def test_no_calls_are_no_results() -> None:
    with WorkerPool(2) as pool:
        assert run_calls(pool, double, []) == []


SLEEPING = """
import time
import polars
from cranny.process_pool import WorkerPool, run_calls
if __name__ == "__main__":
    polars.LazyFrame({"a": [1]}).collect()  # after which waits are not interrupted by Ctrl-C but restarted
    print("go", flush=True)
    try:
        with WorkerPool(2) as pool:
            run_calls(pool, time.sleep, [(3000,)] * 4)
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("send", [os.killpg, os.kill])  # Ctrl-C, or a signal to the process that was started alone
@pytest.mark.parametrize("after_s", [0.05, 1.0])  # while processes start, and when they work
def test_ctrl_c_ends_all_processes_without_a_word(
    after_s: float, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    script = tmp_path / "sleeping.py"
    script.write_text(SLEEPING, encoding="utf-8")
    with started(str(script)) as ran:
        assert ran.stdout is not None
        assert ran.stdout.readline() == "go\n"
        time.sleep(after_s)
        send(ran.pid, signal.SIGINT)
        assert ran.communicate(timeout=60) == ("interrupted\n", "")


UNGUARDED = """
from cranny.process_pool import WorkerPool, run_calls
print("once", flush=True)
with WorkerPool(2) as pool:
    run_calls(pool, abs, [(1,), (2,)])
"""


def test_a_script_without_a_guard_is_told_so_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(UNGUARDED)
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 1
    said = ran.stderr.splitlines()
    assert said[0] == "Traceback (most recent call last):"
    assert sum(line.startswith("Traceback") for line in said) == 1  # of the script itself, and of no process
    assert said[-1].endswith("has no `if __name__ == '__main__':`")


def test_processes_end_when_the_one_that_started_them_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SLEEPING)
    started = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, start_new_session=True)
    until = time.monotonic() + 300
    group = os.getpgid(started.pid)
    while time.monotonic() < until and len(members(group)) < 4:  # itself, what tracks resources, and two that work
        time.sleep(0.1)
    time.sleep(1.0)  # until they work
    started.kill()
    started.communicate()
    while members(group) and time.monotonic() < until:
        time.sleep(0.1)
    assert members(group) == []


def members(group: int) -> list[int]:
    """Return the processes of a group."""
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]
