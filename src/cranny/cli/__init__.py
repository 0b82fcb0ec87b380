"""The command line.

Only what reads arguments and prints: what a command computes can be had from Python without it.
"""

import os
import sys


def main() -> None:
    """Run a command; bad input gets one line and exit code 2, other refusals exit code 1, Ctrl-C 130."""
    from cranny.cli import interrupt

    try:
        with interrupt.ending_at_once():
            _run()
    except (KeyboardInterrupt, interrupt.UserInterruptError) as error:
        interrupt.tell(str(error) or "interrupted")
        sys.exit(interrupt.CODE)


def _run() -> None:
    from cranny.cli.app import app
    from cranny.model.errors import EXTRA_OF, CrannyError, InputError, MissingExtraError
    from cranny.process_pool import DiedError

    try:
        app()
    except InputError as error:
        _fail(str(error), 2)
    except DiedError:
        _fail("a process died, perhaps for lack of memory; try --processes 1", 1)
    except CrannyError as error:
        _fail(str(error), 1)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_OF:
            raise
        _fail(str(MissingExtraError("this", error.name)), 1)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:  # a full disk, a folder that may not be written to
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"cranny: {message}\n")
    sys.exit(code)
