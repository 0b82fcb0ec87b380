"""Compiled functions are kept for later processes; a file that cannot be read does no harm."""

import importlib.util
import signal
import sys
from pathlib import Path
from types import ModuleType

import pytest
from numba.core.event import Listener, register, unregister

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
