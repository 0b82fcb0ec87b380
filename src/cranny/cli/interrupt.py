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
def ending_at_once() -> Iterator[Event]:
    """End this process at most `GRACE_S` after Ctrl-C, if it has not ended by itself until then.

    Python runs what handles a signal between two steps of the main thread only, and that may be busy for long with
    what is no Python. So another thread learns of it as soon as the signal arrives. Yields an event that is set if
    there was a Ctrl-C, which is certain once this is left: a library may have made another error of it.
    """
    pressed = Event()
    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield pressed  # Ctrl-C is ignored, as for a command in the background of a script, or the caller's
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    over = Event()
    watcher = Thread(target=_watch, args=(read, over, pressed), daemon=True)
    watcher.start()
    before, hook = signal.set_wakeup_fd(write, warn_on_full_buffer=False), sys.unraisablehook
    sys.unraisablehook = _say_unless_interrupt
    try:
        yield pressed
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        sys.unraisablehook = hook
        os.close(write)
        watcher.join()
        os.close(read)


def _say_unless_interrupt(lost: "sys.UnraisableHookArgs") -> None:
    """Tell of errors that cannot be raised, as where an object is deleted; after Ctrl-C the watcher ends us."""
    if lost.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(lost)


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


def forget() -> None:
    """Let the exit code stand although Ctrl-C has come while Python ran code from a string, as dataclasses do.

    Python remembers such a Ctrl-C as not handled, even where it is caught further out, and `python -m` then ends
    by the signal, whatever the exit code is. Running code from a string once more makes Python forget it.
    """
    exec("pass")  # noqa: S102  # a constant


def _watch(read: int, over: Event, pressed: Event) -> None:
    """Wait for Ctrl-C, and end the process after it."""
    while number := os.read(read, 1):
        if number[0] != signal.SIGINT:
            continue
        pressed.set()
        if not over.wait(GRACE_S) and not _patient.is_set():
            for child in active_children():
                child.kill()
            if sys.stderr.isatty():
                sys.stderr.write(SHOW_CURSOR)
            tell("interrupted")
            os._exit(CODE)
