"""The command line.

Only what reads arguments and prints: what a command computes can be had from Python without it.
"""

import os
import sys


def main() -> None:
    """Run a command; bad input gets one line and exit code 2, other refusals exit code 1, Ctrl-C 130."""
    from cranny.cli import interrupt

    try:
        try:
            with interrupt.ending_at_once() as pressed:
                _run()
        except interrupt.UserInterruptError:
            raise
        except Exception as error:
            if pressed.is_set():  # a library has made another error of it, as while it is imported
                raise KeyboardInterrupt from error
            _report(error)
    except (KeyboardInterrupt, interrupt.UserInterruptError) as error:
        interrupt.tell(str(error) or "interrupted")
        interrupt.forget()
        sys.exit(interrupt.CODE)


def _run() -> None:
    from cranny.cli import app

    app.run()


def _report(error: Exception) -> None:
    """Say in one line what went wrong, if it is something that a user can mend."""
    from cranny.model.errors import EXTRA_OF, CrannyError, InputError, MissingExtraError
    from cranny.process_pool import DiedError

    match error:
        case InputError():
            _fail(str(error), 2)
        case DiedError():
            _fail("a process died, perhaps for lack of memory; try --processes 1", 1)
        case CrannyError():
            _fail(str(error), 1)
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] in EXTRA_OF:
            _fail(str(MissingExtraError("this", error.name)), 1)
        case BrokenPipeError():  # the reader, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        case OSError():  # a full disk, a folder that may not be written to
            _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
        case _:
            raise error


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"cranny: {message}\n")
    sys.exit(code)
