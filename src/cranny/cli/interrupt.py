"""Ctrl-C: a command ends at once, also where Python would heed it late, as while code is compiled."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from threading import Event, Thread, current_thread, main_thread

CODE = 130  # of a command that Ctrl-C has ended, as shells have it
GRACE_S = 1.0  # for a command to end by itself
SHOW_CURSOR = "\x1b[?25h"  # which a bar that shows progress has hidden


class UserInterruptError(Exception):
    """Ctrl-C, with what to tell the user."""

    def __init__(self, text: str = "interrupted") -> None:
        super().__init__(text)


_patient = Event()  # set while a command may take its time after Ctrl-C


@contextmanager
def ending_at_once() -> Iterator[None]:
    """End this process at most `GRACE_S` after Ctrl-C, if it has not ended by itself until then.

    Python runs what handles a signal between two steps of the main thread only, and that may be busy for long with
    what is no Python. So another thread learns of it as soon as the signal arrives.
    """
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # Ctrl-C is ignored, as for a command in the background of a script, or handled by the caller
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    over = Event()
    watcher = Thread(target=_watch, args=(read, over), daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(write)
        watcher.join()
        os.close(read)


@contextmanager
def takes_its_time() -> Iterator[None]:
    """Let what runs here end in its own time after Ctrl-C, because it must not be left half done."""
    _patient.set()
    try:
        yield
    finally:
        _patient.clear()


def tell(text: str) -> None:
    """Say one line about Ctrl-C."""
    sys.stderr.write(f"cranny: {text}\n")
    sys.stderr.flush()


def _watch(read: int, over: Event) -> None:
    """Wait for Ctrl-C, and end the process after it."""
    while number := os.read(read, 1):
        if number[0] == signal.SIGINT and not over.wait(GRACE_S) and not _patient.is_set():
            for child in active_children():
                child.kill()
            if sys.stderr.isatty():
                sys.stderr.write(SHOW_CURSOR)
            tell("interrupted")
            os._exit(CODE)
