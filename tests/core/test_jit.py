"""Compiled functions are kept for later processes; a file that cannot be read does no harm."""

import fcntl
import importlib.util
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core.errors import TypingError
from numba.core.event import Listener, register, unregister

from cranny.core import compile_lock
from cranny.core.jit import pointer

SOURCE = """
from cranny.core.jit import compiled

@compiled
def twice(number: int) -> int:
    return 2 * number
"""


def load(path: Path) -> ModuleType:
    """Import a module anew, as another process would."""
    spec = importlib.util.spec_from_file_location("kernel_of_a_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_of_a_test"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("harm", [b"", b"\x80\x04\x95", None])
def test_a_cache_file_that_cannot_be_read_is_made_again(tmp_path: Path, harm: bytes | None) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    assert load(path).twice(2) == 4
    (index,) = (tmp_path / "__pycache__").glob("*.nbi")
    whole = index.read_bytes()
    index.write_bytes(whole[: len(whole) - 20] if harm is None else harm)
    assert load(path).twice(3) == 6
    again = load(path)
    assert again.twice(4) == 8
    assert sum(again.twice.stats.cache_hits.values()) == 1


def test_a_function_and_a_pointer_to_it_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    for hits in (0, 1, 1):
        twice = load(path).twice
        assert twice(2) == 4
        assert pointer(twice, 2).ctypes(3) == 6
        assert sum(twice.stats.cache_hits.values()) == pointer(twice, 2).cache_hits == hits


def test_a_pointer_is_compiled_again_if_its_cache_file_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    assert pointer(load(path).twice, 2).ctypes(3) == 6
    for index in (tmp_path / "__pycache__").glob("*.nbi"):
        index.write_bytes(index.read_bytes()[:-20])
    assert pointer(load(path).twice, 2).ctypes(4) == 8
    again = pointer(load(path).twice, 2)
    assert again.ctypes(5) == 10
    assert again.cache_hits == 1


CALLER = """
from cranny.core.jit import compiled
from called_by_kernel import Pair, FACTOR, NUMBERS, times

@compiled
def twice(number: int) -> int:
    return times(number) * FACTOR * len(NUMBERS)
"""
CALLED = """
from typing import NamedTuple
from cranny.core.jit import inside
from constant_of_kernel import POWER

FACTOR, NUMBERS = 2, (7,)

class Inner(NamedTuple):
    two: int

class Pair(NamedTuple):
    one: int
    inner: Inner

@inside
def times(number):
    return number**POWER
"""


@pytest.mark.parametrize(
    ("file", "old", "new", "result"),
    [
        ("called_by_kernel", "**POWER", "**POWER + 1", 8),
        ("called_by_kernel", "FACTOR, NUMBERS = 2", "FACTOR, NUMBERS = 3", 9),
        ("called_by_kernel", "(7,)", "(7, 8)", 12),
        ("called_by_kernel", "one: int", "one: float", 6),
        ("called_by_kernel", "two: int", "two: float", 6),
        ("constant_of_kernel", "POWER = 1", "POWER = 2", 18),
    ],
)
def test_what_was_compiled_is_made_again_once_what_it_calls_has_changed(
    file: str, old: str, new: str, result: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # it would look no newer than a second ago
    sources = {"called_by_kernel": CALLED, "constant_of_kernel": "POWER = 1\n"}

    def twice() -> Any:
        for name, source in sources.items():
            (tmp_path / f"{name}.py").write_text(source)
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return load(path).twice

    path = tmp_path / "kernel.py"
    path.write_text(CALLER)
    assert twice()(3) == 6
    unchanged = twice()
    assert unchanged(3) == 6
    assert sum(unchanged.stats.cache_hits.values()) == 1
    sources[file] = sources[file].replace(old, new)
    changed = twice()
    assert changed(3) == result
    assert sum(changed.stats.cache_misses.values()) == 1


ALONE = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("kernel_of_a_test", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["kernel_of_a_test"] = module
spec.loader.exec_module(module)
from cranny.core.jit import pointer
made = pointer(module.twice, 2)
print(made.ctypes(3), made.cache_hits)
"""


def test_a_process_that_compiles_nothing_makes_a_pointer_of_what_was_compiled_before(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    pointer(load(path).twice, 2)
    command = [sys.executable, "-c", ALONE, str(path)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    assert ran.stdout == "6 1\n"


TOGETHER = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("kernel_of_a_test", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["kernel_of_a_test"] = module
spec.loader.exec_module(module)
print("ready", flush=True)
sys.stdin.read(1)
assert module.twice(3) == 6
print(sum(module.twice.stats.cache_misses.values()))
"""


def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    command = [sys.executable, "-c", TOGETHER, str(path)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in "abc"
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    printed = [process.communicate("x")[0] for process in processes]
    assert sorted(printed) == ["0\n", "0\n", "1\n"]


def test_a_process_waits_no_longer_than_it_must(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    module = load(path)
    (tmp_path / "__pycache__").mkdir(exist_ok=True)
    monkeypatch.setattr(compile_lock, "POLLS", 5)
    name = f"{module.twice._cache._impl.filename_base}.lock"
    with (tmp_path / "__pycache__" / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as a process that was stopped
        assert module.twice(2) == 4


def test_a_function_that_cannot_be_compiled_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    module = load(path)
    with pytest.raises(TypingError):
        module.twice("2".encode)
    (file,) = (tmp_path / "__pycache__").glob("*.lock")
    with file.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Impatient(Listener):
    """Presses Ctrl-C when the compiler begins to work, once."""

    pressed = False

    def on_start(self, _event: object) -> None:
        if not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)

    def on_end(self, _event: object) -> None:
        pass


def test_ctrl_c_is_heeded_as_soon_as_some_code_is_compiled(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    module, impatient = load(path), Impatient()
    # A process that a shell starts in the background ignores SIGINT; here it must be handled as in the foreground.
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    register("numba:compiler_lock", impatient)  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(KeyboardInterrupt):
            module.twice(2)
        after = signal.getsignal(signal.SIGINT)
    finally:
        unregister("numba:compiler_lock", impatient)  # type: ignore[no-untyped-call]
        signal.signal(signal.SIGINT, inherited)
    assert impatient.pressed
    assert after is signal.default_int_handler
    assert module.twice(2) == 4
